"""What is measured for each figure of the paper: workloads, rates, schedulers and settings.

Workloads are those of `infermax_opt.infermax.data.ecoserve`, seed 0, priced by the shipped estimate of
OPT-13B on one A100.  Windows are small; how many requests they have stands in `WINDOW`.  A load is a share
of the rate that no schedule of that window can sustain; ``published`` is the rate of the paper's Table 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import cache
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.infermax.bounds.priced_work import sustainable_rate
from infermax_opt.infermax.data.ecoserve import OPT_13B_PROFILE, TRACES, ecoserve_instance
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.profiles import load_profile
from infermax_opt.infermax.replay.fast import replay
from infermax_opt.infermax.schedulers.reservation.job import padded
from infermax_opt.infermax.schedulers.reservation.presets import RESERVATION, reservation_options
from infermax_opt.infermax.schedulers.reservation.run import reservation_run
from scripts.ecoserve_study.measure import Cell, bounds, runs, swept
from scripts.ecoserve_study.models import WINDOW, models
from scripts.ecoserve_study.sharing import sharing
from scripts.ecoserve_study.waiting import held_kv

__all__ = ["FEW", "LOADS", "STUDIES", "SWEEPS", "WINDOW", "Row", "window"]

Row = dict[str, Cell]

#: Shares of the sustainable rate, and the rate of the paper.
LOADS = ("0.5", "0.8", "1", "1.2", "published")
#: Schedulers for the traces other than ShareGPT, which has all of them.
FEW = (
    "orca", "fastserve", "vllm", "fastgen", "multires", "sync-coupled", "ecoserve-d", "ecoserve-sd",
    "ecoserve-sdo", "ecoserve", "ecoserve-oracle", "spt", "slack", "svf",
)  # fmt: skip
#: Values of each setting, and the schedulers that are run with them, at a load of 1.
SWEEPS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "padding": (("0", "0.05", "0.1", "0.15", "0.2", "0.3", "0.5"), ("ecoserve-sd", "ecoserve")),
    "reserve": (("0", "0.01", "0.02", "0.03", "0.04", "0.06", "0.1"), ("ecoserve-sd", "ecoserve")),
    "buffer": (("0", "0.05", "0.1", "0.15", "0.2", "0.3"), ("ecoserve",)),
    "gt_queue_kv": (("0.03", "0.05", "0.1", "0.25"), ("ecoserve-sdo", "ecoserve")),
}
#: SLO scales, and the schedulers that are run with them, at a load of 1.
SCALES = ("0.5", "1", "1.5", "2", "2.5")
SCALED = ("vllm", "ecoserve-sdo", "ecoserve")
#: Paddings of which the predictions are counted.
PADDINGS = ("0", "0.05", "0.1", "0.15", "0.2", "0.3", "0.5")
#: Seconds after which no finer bound on the SSR is begun; the first one takes what it takes.
BOUND_SECONDS = 1.0


@cache
def _most(trace: str) -> Fraction:
    """Most requests a second that any schedule of a window sustains."""
    cost = load_profile(OPT_13B_PROFILE).cost
    return sustainable_rate(ecoserve_instance(trace, cost, requests=WINDOW[trace]))


def window(trace: str, load: str, **rest: Any) -> Instance:
    """A window of a trace at one of `LOADS`."""
    cost = load_profile(OPT_13B_PROFILE).cost
    rate = TRACES[trace].rate if load == "published" else Fraction(load) * _most(trace)
    return ecoserve_instance(trace, cost, requests=WINDOW[trace], rate=rate, **rest)


def _rates() -> Iterator[Row]:
    """Figures 1, 10, 11 and 13: all schedulers by rate."""
    for trace, model in TRACES.items():
        names = ["vllm", "sarathi", *RESERVATION, "slack", "svf"] if trace == "sharegpt" else FEW
        for load in LOADS:
            of = window(trace, load)
            known = bounds(of, BOUND_SECONDS)
            rate = float(model.rate if load == "published" else Fraction(load) * _most(trace))
            for row in runs(of, swept(names, [], model.settings)):
                yield {"trace": trace, "load": load, "arrivals": rate, **_kept(row), **_limits(known)}


def _sweeps() -> Iterator[Row]:
    """Figures 4 and 12, and 5b: settings and SLO scales."""
    for trace, model in TRACES.items():
        of = window(trace, "1")
        known = _limits(bounds(of, 0))
        for setting, (values, names) in SWEEPS.items():
            for value in values:
                for row in runs(of, swept(names, [f"{setting}={value}"], model.settings)):
                    name = str(row["scheduler"]).partition("@")[0]
                    head = {"trace": trace, "setting": setting, "value": value}
                    yield {**head, **_kept(row), "scheduler": name, **known}
        for scale in SCALES:
            scaled = window(trace, "1", slo_scale=Fraction(scale))
            # The program of the SSR takes long, so one trace has it.
            best = _limits(bounds(scaled, BOUND_SECONDS)) if trace == "sharegpt" else known
            for row in runs(scaled, swept(SCALED, [], model.settings)):
                yield {"trace": trace, "setting": "slo_scale", "value": scale, **_kept(row), **best}


def _predictions() -> Iterator[Row]:
    """Figures 4c and 5a: predictions against outputs; no schedule is involved."""
    for trace, model in TRACES.items():
        requests = window(trace, "1").requests
        for padding in dict.fromkeys([*PADDINGS, f"{float(model.padding):g}"]):
            over = under = allocated = short = 0
            for request in requests:
                expected = padded(request.predicted_output_tokens or 0, Fraction(padding))
                over += max(0, expected - request.output_tokens)
                under += max(0, request.output_tokens - expected)
                short += expected < request.output_tokens
                allocated += request.input_tokens + expected
            yield {
                "trace": trace, "padding": padding, "short_share": short / len(requests),
                "over_share": over / allocated, "under_share": under / allocated,
            }  # fmt: skip


def _groups() -> Iterator[Row]:
    """Figure 2: how many groups of one length started with so many requests."""
    for trace, model in TRACES.items():
        for load in ("1", "published"):
            of = window(trace, load)
            for name in ("sync-coupled", "ecoserve-sd"):
                ((_, full),) = swept([name], [], model.settings)
                made = reservation_run(of, reservation_options(full))
                for size, number in sorted(made.counts.sizes.items()):
                    yield {"trace": trace, "load": load, "scheduler": name, "size": size, "groups": number}


def _held() -> Iterator[Row]:
    """Figure 6: KV of those that wait, by what they are."""
    for trace, model in TRACES.items():
        of = window(trace, "1")
        for name in ("ecoserve-sd", "ecoserve"):
            ((_, full),) = swept([name], [], model.settings)
            schedule = reservation_run(of, reservation_options(full)).schedule
            played = replay(of, schedule)
            if not played.valid:
                raise InputError(f"{name}: {played.violations[0]}")
            for kind, held in held_kv(of, schedule, played).items():
                yield {
                    "trace": trace, "scheduler": name, "kind": kind, "tokens": float(held.tokens),
                    "share": float(held.share),
                }  # fmt: skip


def _kept(row: Row) -> Row:
    """A row without what depends on the machine or nobody reads."""
    left_out = ("settings", "seconds", "tbt_p50", "tbt_p99", "recompute_tax", "rate")
    return {key: value for key, value in row.items() if key not in left_out} | {"completed": row["rate"]}


def _limits(known: Mapping[str, float | None]) -> Row:
    return {key: known[key] for key in ("rate_bound", "jct_bound", "ssr_bound")}


STUDIES: Mapping[str, Callable[[], Iterator[Row]]] = {
    "rates": _rates,
    "sweeps": _sweeps,
    "predictions": _predictions,
    "groups": _groups,
    "held": _held,
    "sharing": sharing,
    "models": models,
}
"""By name."""
