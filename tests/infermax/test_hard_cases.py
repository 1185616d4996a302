"""Instances that once broke a bound: each against the exhaustive optimum."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from infermax_opt import api
from infermax_opt.core.result import Status
from infermax_opt.engines.outcome import EngineLimits, Termination
from infermax_opt.infermax.bounds import closed_form, least_work
from infermax_opt.infermax.bounds.counts import count_batches
from infermax_opt.infermax.bounds.horizon import horizon_bound
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.exact.moves import Chunks
from infermax_opt.infermax.exact.search import search
from infermax_opt.infermax.exact.solve_formulation import one_by_one, replayed_objective, solve_formulation
from infermax_opt.infermax.solve import InferMaxRun
from tests.infermax.oracle import optimum


def instance(
    sizes: list[tuple[Any, ...]],
    system: tuple[Any, ...],
    flags: str,
    batch: list[tuple[str, str]],
    rest: tuple[tuple[str, str], tuple[str, str]],
    attention: str = "square",
    objective: str = "makespan",
) -> Instance:
    """Build one: requests (I, O[, arrival]); flags h, c, p for hybrid, chunked, preemption."""
    groups = tuple(RequestGroup(f"q{k}", *size) for k, size in enumerate(sizes))
    policy = Policy("h" in flags, "c" in flags, "p" in flags)
    cost = CostModel(batch, *rest, attention)  # type: ignore[arg-type]
    return Instance("hard", groups, System(*system), cost, policy, objective)  # type: ignore[arg-type]


#: Coefficients of very different size, with the time of a batch in a column of its own.
ILL_SCALED = [
    (
        instance(
            [(2, 2)], (3, 4, 4, None, 3), "hc", [("1.5e-9", "1e-12"), ("0.007", "0.007")],
            (("0.000075", "0.007"), ("0.001", "0.5")),
        ),
        "flow",
    ),
    (
        instance(
            [(3, 3), (3, 3)], (12, 100, 1, None, 2), "hcp", [("3", "1.5e-9"), ("3", "1.5e-9")],
            (("0.001", "7e-3"), ("0.0003", "2.6e-7")),
        ),
        "csp",
    ),
    (
        instance(
            [(3, 3, "1e-9")], (6, 6, 3, 1, 3), "h", [("1", "1")], (("10", "10"), ("1", "0"))
        ),
        "csp",
    ),
]  # fmt: skip

#: Free tokens: a prefill that is evicted half-way costs the model nothing.
FREE_TOKENS = instance(
    [(3, 3), (4, 1), (3, 3)], (6, 8, 8), "hcp", [("1", "0")], (("0.01", "0"), ("0.01", "0.1")), "exact"
)

#: The last prefill batch before a wait, or before a token that raises the rate.
LATE_CHARGES = [
    instance(
        [(5, 1, 1), (23, 2, 7)], (32, 3, 2, 3, 2), "hcp", [("1", "3"), ("2", "0")],
        (("1", "2"), ("0", "0")), "exact",
    ),
    instance(
        [(20, 2), (3, 2)], (100, 30, 9), "hc", [("1", "0")], (("1", "0"), ("0", "0")),
        objective="mean_ttft",
    ),
    instance(
        [(20, 2), (3, 2)], (100, 30, 9), "hc", [("1", "0")], (("1", "0"), ("0", "0")),
        objective="mean_e2e",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("case", "formulation"), ILL_SCALED)
def test_highs_on_coefficients_of_very_different_size(case: Instance, formulation: str) -> None:
    best = optimum(case)
    outcome = solve_formulation(case, formulation, "highs", limits=EngineLimits(20))
    assert outcome.termination == Termination.OPTIMAL
    assert outcome.upper == best
    assert outcome.lower is not None
    assert 0.999 * float(best) < float(outcome.lower.value) <= float(best)
    assert outcome.lower.value <= best


@pytest.mark.parametrize("engine", ["highs", "cpsat"])
def test_free_tokens_are_not_wasted(engine: Any) -> None:
    outcome = solve_formulation(FREE_TOKENS, "csp", engine, limits=EngineLimits(20))
    assert outcome.upper == optimum(FREE_TOKENS)


def test_horizon_where_alpha_is_small() -> None:
    """The least batch bounds the number of batches where alpha alone hardly does."""
    case = instance(
        [(2, 2), (2, 2)], (5, 4, 3, None, 3), "p", [("796e-5", "293e-5")], (("12", "65.6"), ("0.844", "0.35"))
    )
    upper = replayed_objective(case, one_by_one(case))
    assert upper is not None
    horizon = horizon_bound(case, upper)
    assert horizon is not None
    assert horizon < 1000


def test_huge_volumes_do_not_overflow() -> None:
    """Serving one by one takes 1e6 batches a request: no count may exceed that."""
    case = Instance(
        "huge",
        (RequestGroup("r", 10_100_000, 1_000_000, count=1_000_000),),
        System(20_000_000, 10**9, 10**9),
        CostModel([("1", "0")], ("0", "0"), ("0", "0")),
    )
    counts = count_batches(case, case.types)
    assert max(counts.total.values()) <= 1_000_000 * 1_000_000


@pytest.mark.parametrize("case", LATE_CHARGES)
def test_grids_with_waits_and_latencies(case: Instance) -> None:
    """What `solve` reports as optimal is no worse than any schedule a finer search finds."""
    result = api.solve(case, time_limit=5)
    exact = search(case, limits=EngineLimits(20))
    assert exact.upper is not None or exact.lower is not None
    assert result.upper is not None
    assert result.lower is not None
    if exact.upper is not None:
        assert result.lower.value <= exact.upper
        if result.status is Status.OPTIMAL:
            assert result.upper.value == exact.upper


def test_relaxed_space_refuses_what_it_cannot_bound() -> None:
    with pytest.raises(ValueError, match="arrivals or TPOT"):
        search(LATE_CHARGES[0], chunks=Chunks.RELAXED, levels=2)


def busy(requests: int, pieces: int) -> Instance:
    """Requests that arrive one after the other, too many tokens for exact engines, and many pieces."""
    groups = tuple(RequestGroup(f"q{k}", 20 + k % 7, 40 + k % 5, Fraction(k, 100)) for k in range(requests))
    batch = [(f"{1 - k / 1000:.3f}", f"{k / 1000:.3f}") for k in range(pieces)]
    cost = CostModel(batch, ("0.1", "0.001"), ("0.1", "0.001"), "exact")  # type: ignore[arg-type]
    return Instance("busy", groups, System(500, 100, 100), cost, Policy())


def test_closed_forms_look_at_requests_once_for_all_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two thousand pieces took half a minute, which no time limit ends."""
    seen: list[object] = []
    plain = least_work.Totals.of_sizes
    monkeypatch.setattr(least_work.Totals, "of_sizes", lambda *given: seen.append(given) or plain(*given))
    monkeypatch.setattr(closed_form, "THRESHOLDS", 8)
    some = busy(120, 50)
    found = closed_form.makespan_bounds(some)
    # Once from the start, and of each of the eight times those that arrive from there on.
    assert 1 < len(seen) <= 9
    monkeypatch.undo()
    best = max(bound.value for bound in closed_form.makespan_bounds(some))
    assert best >= max(bound.value for bound in found)


def test_no_planner_begins_when_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first plan of a large instance takes minutes, and nothing interrupts it."""
    monkeypatch.setattr(InferMaxRun, "latency_plans", lambda self, deadline: pytest.fail("began to plan"))
    result = api.solve(busy(150, 2), time_limit=1e-9)
    assert result.status is Status.FEASIBLE
    assert result.lower is not None
    assert result.gap is not None
