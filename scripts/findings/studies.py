"""What is run for each figure of the paper.

=========  =====================  ================================================================
study      figure of the paper    what varies
=========  =====================  ================================================================
fig05      5 and 6                O and I, at B = 1024 and M = 100000
fig08      8                      I and eviction-free variants, at O = B = 1024
fig09      9                      M and I and eviction-free variants, at O = 32, B = 1024
fig10      10 (section 4.5)       I, at O = B = 4 and room for about two requests
fig11      11                     R_max and I, at O = 32 and O = 1024, B = 1024
fig12      12                     O and I, at B = 32
fig15      15, 16 and 17          six mixes, their size, and the rank; M = 100000 and 10000
policies   (sections 2.2, 4.2)    what hybrid batches and chunks are worth, at O = 32, B = 1024
=========  =====================  ================================================================

Where the text of the paper does not name the values of an axis, powers of two or the lengths of
the suite ``paper-b1024`` are used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import infermax_opt as imx
from scripts.findings.cases import PAIRS, Case, constrained, equal, mixed

__all__ = ["STUDIES", "TABLE_1"]

TABLE_1 = ("vllm", "vllm_hy", "sarathi", "sarathi_pc", "sarathi_nocp", "sarathi_nohy")
_THREE = ("vllm", "sarathi", "sarathi_pc")
_WITH_FREE = tuple(name + suffix for name in _THREE for suffix in ("", "_ef"))
_RANKS = ("rank_org", "rank_input", "rank_output")
_GRID = (1, 8, 32, 128, 512, 1024)
_POWERS = tuple(2**power for power in range(11))
#: Lengths at which good schedules are searched for as well.
_SOLVED = (1, 32, 128, 1024)
_MODELS = ("paper", "a100")
_KEEP = imx.Policy(preemption=False)
_SIX = (32, 64, 128, 256, 512, None)
#: Multiples of M / (I + O) tried as R_max.
_MULTIPLES = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)


def _keys(**keys: object) -> Mapping[str, str]:
    return {name: str(value) for name, value in keys.items()}


def _fig05() -> Iterator[Case]:
    for cost in (*_MODELS, "exact"):
        for outputs in _GRID:
            for inputs in _GRID:
                yield Case(
                    _keys(cost=cost, M=100_000, I=inputs, O=outputs),
                    equal(cost, 1024, inputs, outputs, 100_000),
                    TABLE_1,
                    search=False,
                    solve=cost in _MODELS and outputs in (1, 32, 1024) and inputs in _SOLVED,
                )


def _fig08() -> Iterator[Case]:
    for cost in _MODELS:
        for inputs in _POWERS:
            solve = inputs in _SOLVED
            yield Case(
                _keys(cost=cost, M=100_000, I=inputs, O=1024),
                equal(cost, 1024, inputs, 1024, 100_000),
                _WITH_FREE,
                solve=solve,
                variants={"solve_keep": _KEEP} if solve else {},
            )


def _fig09() -> Iterator[Case]:
    solved = {100: (1, 4, 8, 16, 32), 1_000: (1, 8, 32, 128), 10_000: (8, 128), 100_000: (32, 1024)}
    for cost in _MODELS:
        for capacity in (100, 1_000, 10_000, 100_000, 1_000_000):
            for inputs in _POWERS:
                if inputs + 31 > capacity:
                    continue
                solve = inputs in solved.get(capacity, ())
                yield Case(
                    _keys(cost=cost, M=capacity, I=inputs, O=32),
                    equal(cost, 1024, inputs, 32, capacity),
                    _WITH_FREE,
                    solve=solve,
                    variants={"solve_keep": _KEEP} if solve else {},
                )


def _fig10() -> Iterator[Case]:
    free = tuple(name + suffix for name in TABLE_1 for suffix in ("", "_ef"))
    keep = imx.Policy(chunked_prefill=False, preemption=False)
    for cost in _MODELS:
        for inputs in _POWERS:
            instance = constrained(cost, inputs)
            keys = _keys(cost=cost, M=instance.system.kv_capacity, I=inputs, O=4)
            yield Case(keys, instance, free, solve=True, variants={"solve_keep": keep})


def _fig11() -> Iterator[Case]:
    capacity = 100_000
    for cost in _MODELS:
        for outputs in (32, 1024):
            for inputs in (1, 32, 128, 512, 1024):
                effective = capacity / (inputs + outputs)
                near = {round(f * effective) for f in _MULTIPLES if f * effective < 1024}
                limits = sorted({r for r in _SIX if r is not None} | near)
                for running in (*limits, None):
                    shown = "" if running is None else running
                    yield Case(
                        _keys(cost=cost, M=capacity, I=inputs, O=outputs, rmax=shown),
                        equal(cost, 1024, inputs, outputs, capacity, running),
                        _THREE,
                        search=False,
                    )


def _fig12() -> Iterator[Case]:
    for cost in _MODELS:
        for outputs in (1, 32, 1024):
            for inputs in _GRID:
                yield Case(
                    _keys(cost=cost, M=100_000, I=inputs, O=outputs),
                    equal(cost, 32, inputs, outputs, 100_000),
                    TABLE_1,
                    solve=inputs in _SOLVED,
                )


def _fig15() -> Iterator[Case]:
    for cost in _MODELS:
        for capacity in (100_000, 10_000):
            for pair in PAIRS:
                for requests in (16, 64, 256, 1024):
                    for seed in (1, 2, 3):
                        first = requests == 1024 and seed == 1
                        yield Case(
                            _keys(cost=cost, M=capacity, mix=pair, B=requests, seed=seed),
                            mixed(cost, pair, requests, capacity, seed),
                            _RANKS,
                            search=first,
                            solve=first and (cost == "paper" or capacity == 100_000),
                        )


def _policies() -> Iterator[Case]:
    variants = {
        "solve_nohybrid": imx.Policy(hybrid_batching=False),
        "solve_nochunks": imx.Policy(chunked_prefill=False),
        "solve_neither": imx.Policy(hybrid_batching=False, chunked_prefill=False),
    }
    for cost in _MODELS:
        for capacity, inputs in ((1_000, 32), (10_000, 32), (100_000, 32), (100_000, 512)):
            keys = _keys(cost=cost, M=capacity, I=inputs, O=32)
            yield Case(keys, equal(cost, 1024, inputs, 32, capacity), (), solve=True, variants=variants)


#: Cases of every study, by its name.
STUDIES: Mapping[str, Callable[[], Iterator[Case]]] = {
    "fig05": _fig05,
    "fig08": _fig08,
    "fig09": _fig09,
    "fig10": _fig10,
    "fig11": _fig11,
    "fig12": _fig12,
    "fig15": _fig15,
    "policies": _policies,
}
