"""The search for start rounds backwards in time: every optimum of tiny instances, and no false proof."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from infermax_opt.api import solve, verify
from infermax_opt.core.registry import problem_of
from infermax_opt.core.result import LowerBound, Proof, Status
from infermax_opt.core.solve_options import SolveOptions
from infermax_opt.infermax.bounds import _kernels_rounds
from infermax_opt.infermax.bounds._backwards_states import linked_relaxations
from infermax_opt.infermax.bounds.backwards import backwards_bounds
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.mcsf import mcsf_instance
from infermax_opt.infermax.exact.rounds import Found, RoundsSearch, guided, proved
from infermax_opt.infermax.planners.rounds.planner import RoundsPlanner
from infermax_opt.infermax.solve import InferMaxRun
from tests.campaign import campaign, in_blocks
from tests.infermax.test_backwards import in_rounds, least_latency
from tests.support import few

Ints = npt.NDArray[np.int64]
#: Ends, if there are any, and whether all were tried.
Merged = tuple[Ints | None, bool]
#: Nodes of a layer: enough for all of them.
ROOM = 2000


def sum_of_ends(of: Instance, mean: Fraction) -> int:
    """What all ends add up to, in rounds."""
    total = (mean * len(of.requests) + sum(r.arrival for r in of.requests)) / of.cost.seconds.alpha[0]
    assert total.denominator == 1
    return int(total)


def checked(of: Instance, found: Found) -> int:
    """Sum of the ends that were found, which make a valid schedule."""
    assert found.ends is not None
    starts = [end - r.output_tokens for end, r in zip(found.ends.tolist(), of.requests, strict=True)]
    check = verify(of, RoundsPlanner(of).schedule(starts))
    assert check.ok, check.violations
    assert check.objective is not None
    assert sum_of_ends(of, check.objective) == found.ends.sum()
    return int(found.ends.sum())


def near(of: Instance, rounds: int) -> Ints:
    """Each end may differ by so many rounds."""
    return np.full(len(of.requests), rounds)


def search_of(of: Instance, most: int = ROOM, evaluations: int = 40) -> RoundsSearch:
    """With prices that are good or not so good."""
    *_, bound = backwards_bounds(of, stop=few(evaluations))
    search = guided(of, bound.evidence, most)
    assert search is not None
    return search


@in_blocks(campaign(36, 5_000), 60)
def test_it_finds_the_best_start_rounds_and_nothing_below(seeds: range) -> None:
    for seed in seeds:
        of = in_rounds(seed)
        best = sum_of_ends(of, least_latency(of))
        search = search_of(of, evaluations=seed % 40)
        assert search.low <= best, seed
        for limit in (best + 1, best + best // 5 + 2):
            found = search.search(limit)
            assert found.complete, seed
            assert checked(of, found) == best, seed
        assert search.search(best) == Found(None, True), seed


def test_any_prices_do() -> None:
    for seed in campaign(9, 400):
        of, rng = in_rounds(seed), random.Random(seed)
        best = sum_of_ends(of, least_latency(of))
        longest = max(r.input_tokens for r in of.requests) - 1
        prices = [rng.randint(0, 40 * 8) for _ in of.types]
        search = RoundsSearch(of, [longest], prices, 8, ROOM)
        assert checked(of, search.search(best + 3)) == best, seed
        assert search.search(best) == Found(None, True), seed


def test_any_prices_of_leaving_do() -> None:
    """Also where a request leaves in the relaxation before it does."""
    for seed in campaign(12, 2_000, first=6000):
        of, rng = in_rounds(seed), random.Random(seed)
        best = sum_of_ends(of, least_latency(of))
        for relaxation in linked_relaxations(of):
            leave = relaxation.leave if rng.random() < 0.7 else (relaxation.leave[0], relaxation.leave[-1])
            for most in (0, 8, 80):
                prices = [rng.randint(0, 40 * 8) for _ in of.types]
                exits = [[rng.randint(0, most) for _ in range(rng.randint(0, 60))] for _ in leave[1:]]
                search = RoundsSearch(of, leave, prices, 8, ROOM, exits)
                assert search.low <= best, seed
                assert checked(of, search.search(best + 3)) == best, seed
                assert search.search(best) == Found(None, True), seed


def test_more_than_a_word_of_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infermax_opt.infermax.planners.rounds.planner.LOOKS", 3)
    of = mcsf_instance(2, 1)
    assert len(of.requests) > 64
    planner = RoundsPlanner(of)
    *_, (_, plan) = planner.plans()
    value = verify(of, plan).objective
    assert value is not None
    starts = planner._best[1] if planner._best is not None else np.zeros(0, np.int64)
    ends = starts + np.array([r.output_tokens for r in of.requests])
    found = search_of(of, 300, evaluations=60).merged([ends], near(of, 1), sum_of_ends(of, value) + 1)
    assert checked(of, found) <= sum_of_ends(of, value)


def test_combined_schedules_stay_near() -> None:
    for seed in campaign(18, 100, first=4000):
        of = in_rounds(seed)
        search = search_of(of)
        best = search.search(10**4)
        assert best.ends is not None
        limit = int(best.ends.sum()) + 1
        assert checked(of, search.merged([best.ends], near(of, 0), limit)) == limit - 1
        later = best.ends + 2
        assert search.merged([later], near(of, 1), limit).ends is None
        assert checked(of, search.merged([later, best.ends], near(of, 0), limit)) == limit - 1
        assert checked(of, search.merged([later], near(of, 2), limit)) == limit - 1


def test_what_is_left_out_is_no_proof() -> None:
    incomplete, seeds = 0, campaign(12, 60)
    for seed in seeds:
        of = in_rounds(seed)
        best = sum_of_ends(of, least_latency(of))
        for most in (1, 2, 3):
            found = search_of(of, most).search(best + best // 5 + 2)
            if found.ends is not None:
                assert checked(of, found) >= best
            if found.ends is None or found.ends.sum() > best:
                assert not found.complete
                incomplete += 1
    assert incomplete > len(seeds) / 6
    stopped = search_of(in_rounds(3)).search(10**4, lambda: True)
    assert not stopped.complete


def test_few_parts_are_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_kernels_rounds, "MOST_PARTS", 1)
    for seed in campaign(9, 40):
        of = in_rounds(seed)
        best = sum_of_ends(of, least_latency(of))
        found = search_of(of).search(best + 5)
        assert not found.complete or checked(of, found) == best


@pytest.mark.parametrize("seed", range(0, 40, 4))
def test_what_is_proved_is_true(seed: int) -> None:
    of = in_rounds(seed)
    best = sum_of_ends(of, least_latency(of))
    for upper in (best, best + 1, best + 7):
        found = proved(of, upper, lambda: 1.0)
        assert found.low == best
        assert (found.ends is None) == (upper == best)
    late = proved(of, best + 7, lambda: 0.0)
    assert late.low <= best


def test_solve_proves_few_requests() -> None:
    full = mcsf_instance(1, 1)
    of = replace(full, groups=full.groups[:6])
    found = solve(of, time_limit=15)
    assert found.status is Status.OPTIMAL
    assert found.lower is not None
    assert found.lower.proof in (Proof.SOLVER, Proof.CERTIFICATE)


def test_a_proof_by_search_keeps_the_certificate_found_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search proves more, but only by its word."""
    full = mcsf_instance(1, 1)
    of = replace(full, groups=full.groups[:6])
    *_, beside = backwards_bounds(of, stop=few(40))
    done: list[bool] = []

    def taken(run: InferMaxRun, wait: float | None = 0.0) -> None:
        if done:
            run.improve_bound(beside)

    def search(run: InferMaxRun) -> None:
        done.append(True)
        run.improve_bound(LowerBound(beside.value + 1, "rounds search", Proof.SOLVER))

    monkeypatch.setattr(InferMaxRun, "take_bounds", taken)
    monkeypatch.setattr(InferMaxRun, "prove_rounds", search)
    monkeypatch.setattr(InferMaxRun, "proved", lambda run: bool(done))
    problem = problem_of(of)
    run = InferMaxRun(problem, of, SolveOptions(engines=problem.engines, time_limit=1))
    run.solve_rounds()
    assert run.certified is not None
    assert run.certified.source == beside.source


def test_prices_of_other_bounds_are_no_guide() -> None:
    of = in_rounds(0)
    assert guided(of, None) is None
    assert guided(of, {"kind": "progress"}) is None


def test_plans_are_improved_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond what annealing finds, to the optimum of nearly all."""
    monkeypatch.setattr("infermax_opt.infermax.planners.rounds.planner.LOOKS", 1)
    seeds, optimal = campaign(12, 400, first=5000), 0
    for seed in seeds:
        of = in_rounds(seed)
        best, search = sum_of_ends(of, least_latency(of)), search_of(of)

        def merge(known: list[Ints], near: Ints, limit: int, search: RoundsSearch = search) -> Merged:
            found = search.merged(known, near, limit)
            assert found.ends is None or found.ends.sum() < limit
            return found.ends, found.complete

        *_, (_, plan) = RoundsPlanner(of, merge=merge).plans()
        check = verify(of, plan)
        assert check.ok, check.violations
        assert check.objective is not None
        found = sum_of_ends(of, check.objective)
        assert found >= best, seed
        optimal += found == best
    assert optimal >= len(seeds) * 19 / 20, optimal
