"""The paper's larger models: Llama-33B on two A100s and OPT-175B on eight, by shipped estimates of them.

The same windows as for OPT-13B, at two shares of the rate that no schedule of a window sustains on that
machine.  KV tokens are the paper's GB (19.2 and 264) over 4 bytes by layer and hidden size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from infermax_opt.infermax.bounds.priced_work import sustainable_rate
from infermax_opt.infermax.data.ecoserve import TRACES, ecoserve_instance
from infermax_opt.infermax.data.profiles import load_profile
from scripts.ecoserve_study.measure import Cell, bounds, runs, swept

__all__ = ["COMPARED", "LOADS", "MODELS", "WINDOW", "Machine", "models"]


@dataclass(frozen=True)
class Machine:
    """A model on its GPUs.

    Attributes
    ----------
    title : str
    profile : str
        Of the shipped ones; an estimate, not a measurement.
    kv_capacity : int
        Tokens.
    cap : int
        Requests in a batch of ORCA, as in the paper.
    """

    title: str
    profile: str
    kv_capacity: int
    cap: int


MODELS: Mapping[str, Machine] = {
    "llama-33b": Machine("Llama-33B", "llama-33b_a100_tp2", 12_019, 8),
    "opt-175b": Machine("OPT-175B", "opt-175b_a100_tp8", 55_949, 16),
}
"""By name."""
LOADS = ("0.8", "1")
COMPARED = ("orca", "vllm", "fastgen", "multires", "ecoserve-d", "ecoserve", "ecoserve-oracle", "spt")
#: Requests of each trace.
WINDOW = {"sharegpt": 300, "alpaca": 600, "bookcorpus": 100}


def models() -> Iterator[dict[str, Cell]]:
    """Rows of Figures 10 and 11 for these models."""
    for model, machine in MODELS.items():
        cost = load_profile(machine.profile).cost
        names = [f"orca@cap={machine.cap}", *COMPARED[1:]]
        for trace, known in TRACES.items():
            plain = ecoserve_instance(trace, cost, requests=WINDOW[trace], kv_capacity=machine.kv_capacity)
            most = sustainable_rate(plain)
            for load in LOADS:
                rate = Fraction(load) * most
                of = ecoserve_instance(
                    trace, cost, requests=WINDOW[trace], rate=rate, kv_capacity=machine.kv_capacity
                )
                limits = bounds(of, 0)  # up to this rate that of the SSR says nothing
                for row in runs(of, swept(names, [], known.settings)):
                    yield {
                        "model": model, "trace": trace, "load": load, "arrivals": float(rate),
                        "scheduler": str(row["scheduler"]).partition("@")[0],
                        "mean_jct": row["mean_jct"], "jct_bound": limits["jct_bound"],
                        "ssr": row["ssr"],
                        "completed": row["rate"], "rate_bound": limits["rate_bound"],
                        "normalised": row["normalised"], "kv_used": row["kv_used"],
                        "evictions": row["evictions"],
                    }  # fmt: skip
