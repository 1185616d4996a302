"""A fit as a profile file for machines and as text for people."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from infermax_opt.core.exact import decimal_text
from infermax_opt.files.text import UNKNOWN, aligned, percent
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.cost_format import cost_to_json
from infermax_opt.infermax.data.profiles import PROFILE_SCHEMA, Band
from infermax_opt.latency.batches.errors import Region
from infermax_opt.latency.batches.fit import BatchFit
from infermax_opt.latency.batches.samples import FORMATS, PARTS
from infermax_opt.latency.report import COVER, RESIDUALS

__all__ = ["batch_fit_text", "measured_to_json", "profile_to_json", "with_overhead"]

#: Significant digits of an error in a file.
DIGITS = 5


def with_overhead(cost: CostModel, seconds: Fraction) -> CostModel:
    """The model whose batches all take so many seconds more."""
    batch = [(Fraction(alpha) + seconds, Fraction(beta)) for alpha, beta in cost.batch]
    return replace(cost, batch=batch)


# --- file ---------------------------------------------------------------------------------------


def measured_to_json(made: BatchFit, overhead: Fraction) -> dict[str, Any]:
    """What a profile says of its fit: band, overhead of the host, errors by region.

    Parameters
    ----------
    made : BatchFit
    overhead : Fraction
        Seconds a batch that are added to the model, and that no sample has.
    """
    return {
        "band": {
            key: decimal_text(value)
            for key, value in (("share", made.band.share), ("lo", made.band.lo), ("hi", made.band.hi))
        },
        "host_overhead": decimal_text(overhead),
        "kernel_time_only": made.samples.kernel_time_only and not overhead,
        "errors": {found.name: _errors(found) for found in made.regions},
    }


def _errors(found: Region) -> dict[str, Any]:
    n, mean, median, p95, most = found.errors
    shares = {"mean": mean, "median": median, "p95": p95, "max": most}
    return {"of": found.meaning, "n": n, **{key: _short(value) for key, value in shares.items()}}


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def profile_to_json(
    made: BatchFit,
    *,
    name: str,
    model: str | None = None,
    device: str | None = None,
    kv_capacity: int | None = None,
    overhead: Fraction = Fraction(0),
) -> dict[str, Any]:
    """Return the JSON value of a profile file.

    Parameters
    ----------
    made : BatchFit
    name : str
        Of the profile.
    model, device : str, optional
    kv_capacity : int, optional
        KV tokens that fit beside the weights.
    overhead : Fraction
        Seconds a batch that the host takes, added to the overhead of every line.
    """
    samples = made.samples
    main = next(found for found in made.regions if found.name in ("dense", "all"))
    return {
        "schema": PROFILE_SCHEMA,
        "name": name,
        "model": model or UNKNOWN,
        "device": device or UNKNOWN,
        "kv_capacity": kv_capacity,
        "cost": cost_to_json(with_overhead(made.cost, overhead)),
        "source": f"fitted to {FORMATS[samples.form]}: {_counts(made)} of {samples.title}",
        "fit_error": {
            "mean_rel": _short(main.errors.mean),
            "max_rel": _short(main.errors.maximum),
            "n": main.errors.samples,
        },
        **measured_to_json(made, overhead),
        "fit": {
            "knees": list(made.knees),
            "weights": made.weights,
            "cover": made.cover,
            "cross_validation": [
                {
                    "attention": trial.attention.value,
                    "pieces": trial.pieces,
                    "error": _short(trial.error),
                    "attention_error": _short(trial.attention_error),
                }
                for trial in made.trials
            ],
            "notes": list(made.notes),
        },
    }


def write_profile(
    made: BatchFit,
    path: str | os.PathLike[str],
    *,
    name: str,
    model: str | None = None,
    device: str | None = None,
    kv_capacity: int | None = None,
    overhead: Fraction = Fraction(0),
) -> None:
    """Write the profile file of a fit, which `with_cost` and `import_trace` take.

    Parameters
    ----------
    made : BatchFit
    path : path
        Written whole or not at all.
    name, model, device, kv_capacity, overhead
        As in `profile_to_json`.
    """
    from infermax_opt.files.writing import dump_json

    value = profile_to_json(
        made, name=name, model=model, device=device, kv_capacity=kv_capacity, overhead=overhead
    )
    dump_json(value, path)


def _counts(made: BatchFit) -> str:
    """How many samples there are of each part."""
    words = {"batch": "whole", "dense": "without attention", "attention": "attention alone"}
    parts = made.samples.parts
    return ", ".join(f"{len(parts[part])} {words[part]}" for part in PARTS if part in parts)


# --- text ---------------------------------------------------------------------------------------


def batch_fit_text(made: BatchFit, overhead: Fraction) -> str:
    """The model with its errors, its band, and how its form was chosen.

    Parameters
    ----------
    made : BatchFit
    overhead : Fraction
        Of the host, seconds a batch.
    """
    samples = made.samples
    rows = [
        ("samples", f"{samples.path}: {FORMATS[samples.form]}: {_counts(made)}"),
        *_cost_rows(with_overhead(made.cost, overhead), made.knees),
        ("times", _times(samples.kernel_time_only, overhead)),
        ("band", _band(made.band)),
        ("residuals", RESIDUALS[made.weights]),
        ("cover", COVER[made.cover]),
        *(("note", note) for note in made.notes),
    ]
    lines = ["cost model of a batch", *aligned(rows)]
    head = ("errors, |fit / measured - 1|", "samples", "mean", "median", "95th percentile", "max", "of")
    lines += aligned([head, *map(_region_row, made.regions)])
    if made.trials:
        lines += ["cross-validation (root mean square on samples left out)"]
        unit = _percent if made.weights == "relative" else _seconds
        table = [("attention", "lines", "error", "error with attention")]
        for t in made.trials:
            table.append((t.attention.value, str(t.pieces), unit(t.error), unit(t.attention_error)))
        lines += aligned(table)
    return "\n".join(lines)


def _cost_rows(cost: CostModel, knees: Iterable[int]) -> list[tuple[str, str]]:
    """Coefficients, as an instance file holds them."""

    def pair(values: Iterable[Any]) -> str:
        return ", ".join(decimal_text(Fraction(value)) for value in values)

    meet = ", ".join(map(str, knees))
    behind = f"  (larger of the lines; they meet at about {meet} tokens)" if meet else ""
    return [
        ("batch", " | ".join(map(pair, cost.batch)) + behind),
        ("decode", pair(cost.decode)),
        ("prefill", pair(cost.prefill)),
        ("attention", cost.attention.value),
        *([("mixed", pair(cost.mixed))] if any(cost.mixed) else []),
        *([("prefix", decimal_text(Fraction(cost.prefix)))] if cost.prefix else []),
    ]


def _times(kernels: bool, overhead: Fraction) -> str:
    what = "of GPU kernels only, without the CPU" if kernels else "of whole batches, as they were measured"
    more = f"; {decimal_text(overhead)} s of the host are added to every batch" if overhead else ""
    return what + more


def _band(band: Band) -> str:
    ends = " to ".join(decimal_text(value) for value in (band.lo, band.hi))
    return f"{percent(band.share)} of the samples lie within {ends} times the fit"


def _region_row(found: Region) -> tuple[str, ...]:
    n, *shares = found.errors
    return (found.name, str(n), *map(_percent, shares), found.meaning)


def _percent(value: float) -> str:
    return UNKNOWN if math.isnan(value) else percent(Fraction(value))


def _seconds(value: float) -> str:
    return f"{value:.3g} s"
