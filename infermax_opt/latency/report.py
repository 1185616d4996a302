"""Fits and configurations as text for people and as JSON values for machines."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from infermax_opt.core.exact import decimal_text
from infermax_opt.files.schemas import SCHEMAS
from infermax_opt.files.text import UNKNOWN, aligned, counted, percent, printable, seconds
from infermax_opt.latency.calibration import Calibration
from infermax_opt.latency.configuration import Choice, Configuration
from infermax_opt.latency.fit import Fit
from infermax_opt.latency.profiles import ProfileFit
from infermax_opt.placement.data.formats import worker_to_json
from infermax_opt.placement.data.instance import Worker

__all__ = [
    "calibration_text",
    "calibration_to_json",
    "configuration_text",
    "configuration_to_json",
    "fits_text",
    "fits_to_json",
    "profile_fit_text",
    "profile_fit_to_json",
    "worker_text",
]

RESIDUALS = {
    "relative": "relative: residuals count as shares of the sample",
    "absolute": "absolute: residuals count in the unit of the sample",
}
COVER = {
    "mean": "mean: least squares, coefficients 0 or more",
    "above": "above: the least model that is at least every sample",
}


# --- fits ---------------------------------------------------------------------------------------


def _share(value: float | None) -> str:
    return UNKNOWN if value is None else percent(Fraction(value))


def _fit_row(f: Fit) -> tuple[str, ...]:
    error = interval = UNKNOWN
    if f.standard_error is not None:
        relative = f.weights == "relative"
        error = _share(f.standard_error) if relative else f"{f.standard_error:.3g} {f.model.unit}"
    if f.interval is not None:
        tokens = "" if f.interval_tokens is None else f", {f.interval_tokens:.3g} tokens"
        interval = f"+-{_share(f.interval)}{tokens}"
    return (
        f"{f.kind} ({f.model.equation})",
        str(f.samples),
        _share(f.mean_relative),
        _share(f.max_relative),
        UNKNOWN if f.r_squared is None else f"{f.r_squared:.5f}",
        error,
        interval,
        ", ".join(f"{name} {decimal_text(value)}" for name, value in f.named.items()),
    )


def fits_text(fits: Iterable[Fit], noise: bool = True) -> str:
    """Fitted models with their errors.

    Parameters
    ----------
    fits : iterable of Fit
    noise : bool
        Whether the samples hold any, so that standard errors and intervals mean something.
    """
    fits = list(fits)
    head = (
        "model",
        "samples",
        "mean error",
        "max error",
        "R^2",
        "std error",
        "95 % interval",
        "coefficients",
    )
    rows = [head, *map(_fit_row, fits)]
    lines = aligned(rows if noise else [(*row[:5], row[-1]) for row in rows])
    rows = [(f.kind, f"{f.model.formula}{_left_out(f)}") for f in fits]
    rows += [("residuals", RESIDUALS[fits[0].weights]), ("cover", COVER[fits[0].cover])]
    return "\n".join([*lines, *aligned(rows)])


def _left_out(f: Fit) -> str:
    return f"; left out {counted(f.left_out, 'iterations')} of one request" if f.left_out else ""


def profile_fit_text(made: ProfileFit) -> str:
    """A worker made of a profile, with the errors against the profile."""
    fits = [made.prefill] if made.decode is None else [made.prefill, made.decode]
    rows = [
        ("profile", f"{made.profile.name}: {made.profile.model} on {made.profile.device}"),
        (
            "prefill range",
            f"prompts of up to {made.max_context} tokens, {made.max_prefill_tokens} in a batch",
        ),
        (
            "decode",
            "exact: eq 3 is the profile's own model"
            if made.decode is None
            else f"fitted: up to {made.max_batch} requests of up to {made.max_context} tokens",
        ),
    ]
    return "\n".join([*aligned(rows), fits_text(fits, noise=False), worker_text(made.worker)])


def calibration_text(made: Calibration, worker: Worker | None) -> str:
    """All fits of a file of samples, and the worker where its KV capacity is known."""
    lines = aligned([("samples", made.path), ("GPUs", str(made.gpus))])
    return "\n".join([*lines, fits_text(made.fits.values()), *([worker_text(worker)] if worker else [])])


def worker_text(worker: Worker) -> str:
    """The coefficients of a worker, as an instance file holds them."""
    value = worker_to_json(worker)
    rows = [(name, ", ".join(item) if isinstance(item, list) else str(item)) for name, item in value.items()]
    return "\n".join(["worker", *aligned(rows)])


def fits_to_json(fits: Iterable[Fit]) -> list[dict[str, Any]]:
    """Fitted models with their errors."""
    return [
        {
            "kind": f.kind,
            "equation": f.model.equation,
            "coefficients": {name: decimal_text(value) for name, value in f.named.items()},
            "samples": f.samples,
            "left_out": f.left_out,
            "weights": f.weights,
            "cover": f.cover,
            "mean_relative": f.mean_relative,
            "max_relative": f.max_relative,
            "r_squared": f.r_squared,
            "standard_error": f.standard_error,
            "interval": f.interval,
            "interval_tokens": f.interval_tokens,
        }
        for f in fits
    ]


def calibration_to_json(made: Calibration, worker: Worker | None) -> dict[str, Any]:
    """All fits of a file of samples, and the worker where its KV capacity is known."""
    return {
        "schema": SCHEMAS["calibrate"],
        "samples": made.path,
        "gpus": made.gpus,
        "fits": fits_to_json(made.fits.values()),
        "worker": worker and worker_to_json(worker),
    }


def profile_fit_to_json(made: ProfileFit) -> dict[str, Any]:
    """A worker made of a profile, with the errors against the profile."""
    fits = [made.prefill] if made.decode is None else [made.prefill, made.decode]
    return {
        "schema": SCHEMAS["calibrate"],
        "profile": made.profile.name,
        "max_context": made.max_context,
        "max_prefill_tokens": made.max_prefill_tokens,
        "max_batch": made.max_batch,
        "decode_exact": made.decode is None,
        "fits": fits_to_json(fits),
        "worker": worker_to_json(made.worker),
    }


# --- configurations -----------------------------------------------------------------------------


def _number(value: Fraction | None) -> str:
    return UNKNOWN if value is None else f"{float(value):.5g}"


def configuration_text(found: Configuration) -> str:
    """Eq 6 for every option, the best one, and why."""
    demand = found.demand
    workload = f"{demand.requests} requests, means of" if demand.requests > 1 else "requests of"
    rows = [
        (
            "workload",
            f"{workload} {_number(demand.input_tokens)} input and {_number(demand.output_tokens)} output "
            "tokens",
        ),
        ("held", f"{_number(demand.held)} tokens by a request in a decode batch, on average"),
        ("ATGT limit", seconds(found.atgt)),
        ("TTFT limit", "none" if found.ttft is None else seconds(found.ttft)),
    ]
    head = (
        "GPUs", "worker", "KV capacity", "batch by KV", "takes", "tokens/s/GPU", "batch by ATGT",
        "tokens/s/GPU", "binds", "",
    )  # fmt: skip
    table = [head, *(_choice_row(choice, found) for choice in found.choices)]
    lines = ["GPUs of a worker (eq 6)", *aligned(rows), *aligned(table), _verdict(found)]
    if len({c.option.device for c in found.choices}) > 1:
        lines.append("  the GPUs are of different types; their prices do not count here")
    return "\n".join(lines)


def _choice_row(choice: Choice, found: Configuration) -> tuple[str, ...]:
    option = choice.option
    last = choice.problem and f"excluded: {choice.problem}"
    return (
        str(option.gpus),
        option.name,
        _number(option.kv_capacity) if option.kv_capacity > 0 else UNKNOWN,
        _number(choice.kv_batch),
        seconds(choice.kv_seconds),
        _number(choice.kv_rate),
        _number(choice.slo_batch),
        _number(choice.slo_rate),
        choice.binds or UNKNOWN,
        last or ("best" if choice is found.best else ""),
    )


def _verdict(found: Configuration) -> str:
    best = found.best
    if best is None or best.rate is None:
        return "no option can serve this workload within the limits"
    limit = {
        "KV": "the KV cache is full before iterations reach the ATGT limit",
        "ATGT": "iterations reach the ATGT limit before the KV cache is full",
    }[best.binds or "KV"]
    gpus = f"{best.option.gpus} GPUs" if best.option.gpus > 1 else "1 GPU"
    text = f"best: {gpus} ({printable(best.option.name)}), {_number(best.rate)} tokens/s/GPU; {limit}"
    others = [c for c in found.choices if c.rate is not None and c is not best]
    if others:
        second = max(others, key=lambda c: c.rate or Fraction(0))
        more = best.rate / second.rate - 1 if second.rate else None
        text += f"\n      {percent(more)} more than the next, {printable(second.option.name)}"
        text += f" on {second.option.gpus}"
    return text


def configuration_to_json(found: Configuration) -> dict[str, Any]:
    """Eq 6 for every option; what is no finite decimal is rounded."""

    def text(value: Fraction | None) -> str | None:
        return None if value is None else decimal_text(value)

    demand = found.demand
    return {
        "schema": SCHEMAS["configure"],
        "requests": demand.requests,
        "input_tokens": text(demand.input_tokens),
        "output_tokens": text(demand.output_tokens),
        "held_tokens": text(demand.held),
        "context_tokens": text(demand.context),
        "longest_prompt": demand.longest_prompt,
        "longest": demand.longest,
        "atgt": text(found.atgt),
        "ttft": text(found.ttft),
        "best": None if found.best is None else _choice_json(found.best),
        "options": [_choice_json(choice) for choice in found.choices],
    }


def _choice_json(choice: Choice) -> dict[str, Any]:
    def text(value: Fraction | None) -> str | None:
        return None if value is None else decimal_text(value)

    option = choice.option
    return {
        "name": option.name,
        "device": option.device or None,
        "gpus": option.gpus,
        "kv_capacity": text(option.kv_capacity),
        "kv": [text(value) for value in option.kv],
        "decode": [[text(value) for value in line] for line in option.decode],
        "prompt_seconds": text(option.prompt_seconds),
        "kv_batch": text(choice.kv_batch),
        "kv_seconds": text(choice.kv_seconds),
        "kv_rate": text(choice.kv_rate),
        "slo_batch": text(choice.slo_batch),
        "slo_rate": text(choice.slo_rate),
        "rate": text(choice.rate),
        "binds": choice.binds,
        "problem": choice.problem,
    }
