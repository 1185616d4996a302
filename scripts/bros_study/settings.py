"""What the studies measure: machines, workloads, rates, windows."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from infermax_opt.infermax.data.classes import MOMENTS, bros_instance
from infermax_opt.infermax.data.instance import Instance, RequestClass

__all__ = [
    "BACKLOG", "FRONTIER", "HORIZON", "HYBRID", "LARGER", "LLAMA_70B", "OPT_13B", "OPT_30B", "POLICIES",
    "QUEUE_RATES", "RATES", "REQUESTS", "Case", "hybrid", "queue", "real_time",
]  # fmt: skip

OPT_13B, OPT_30B = "opt-13b_a100-40gb_tp2_hinge", "opt-30b_a100-40gb_tp4_hinge"
LLAMA_70B = "llama-3-70b_a100_tp8_hinge"
#: Workload, profile, real-time requests a second, seed.
Case = tuple[str, str, str, int]
#: Real-time requests a second.
RATES = ("2.5", "5", "7.5", "10", "15")
#: Seconds of arrivals; also when counting stops.
HORIZON = 60
#: Best-effort requests a second of the horizon that are there: more than any of the schedulers serves.
BACKLOG = 14
#: Workload, machine, rates and seed of the studies of real-time beside best-effort requests.
HYBRID: tuple[Case, ...] = (
    *(("sharegpt", OPT_30B, rate, 1) for rate in RATES),
    *(("sharegpt", OPT_13B, rate, 1) for rate in RATES),
    *(("lmsys", OPT_30B, rate, 1) for rate in ("5", "10", "15")),
    *(("sharegpt", OPT_30B, rate, 2) for rate in ("5", "10", "15")),
)
#: The same of the paper's largest model.
LARGER: tuple[Case, ...] = tuple((name, LLAMA_70B, rate, 1) for name in MOMENTS for rate in ("5", "10", "15"))
#: Best-effort weights of the lines are searched for in this one.
FRONTIER = ("sharegpt", OPT_30B, "10", 1)
POLICIES = ("slack", "bros", "rr", "fcfs")
QUEUE_RATES = ("10", "15", "20", "30")
#: Of the study of queueing.
REQUESTS = 512
#: A limit that never binds, the same for first and later tokens: slack then orders by time waited.
NEVER_LATE = {"ttft": 100_000, "tpot": 100_000}


def hybrid(workload: str, profile: str, rate: str, seed: int) -> Instance:
    """Real-time requests beside a best-effort backlog."""
    return bros_instance(workload, rate, HORIZON, seed, profile, BACKLOG)


def real_time(profile: str, rate: str) -> Instance:
    """Real-time requests of ShareGPT alone."""
    full = bros_instance("sharegpt", rate, HORIZON, 1, profile, 1)
    alone = tuple(group for group in full.groups if group.class_name == "rt")
    return replace(full, groups=alone, release=None, classes=full.classes[:1])


def queue(rate: str, requests: int = REQUESTS) -> Instance:
    """The first so many real-time requests of ShareGPT, all to be finished, without limits that bind."""
    full = bros_instance("sharegpt", rate, 2 * requests // Fraction(rate) + 1, 1, OPT_13B, 1)
    return replace(
        full,
        groups=tuple(group for group in full.groups if group.class_name == "rt")[:requests],
        classes=(RequestClass("rt", slo=NEVER_LATE),),
        release=None,
        horizon=None,
    )
