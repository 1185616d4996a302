"""The per-request model with sums of latencies and arrivals: against replay, and against every schedule."""

from __future__ import annotations

import heapq
import itertools
import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from infermax_opt.models.infermax_csp import CSP

from infermax_opt import api
from infermax_opt.core.result import Proof
from infermax_opt.engines import highs
from infermax_opt.engines.lowering import assign, lower
from infermax_opt.engines.outcome import EngineLimits, Termination
from infermax_opt.engines.safebound import RELATIVE_TOLERANCE
from infermax_opt.infermax.bounds.most_batches import most_batches, proved_batches
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Objective, Policy, RequestGroup, System
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.exact.solve_formulation import one_by_one, replayed_objective, solve_formulation
from infermax_opt.infermax.replay.plain import replay_plain
from infermax_opt.infermax.replay.waits import with_best_waits
from tests.campaign import one_in
from tests.infermax.oracle import _Oracle, optimum
from tests.infermax.served import served
from tests.infermax.test_formulations import decisions, random_schedule
from tests.infermax.vector_oracle import TooMany, vector_optimum
from tests.infermax.waiting import waiting

#: Every sum of latencies, alone and together.
SUMS: tuple[object, ...] = (
    "mean_ttft",
    "mean_tpot",
    "mean_e2e",
    "weighted_mean_ttft",
    "weighted_mean_tpot",
    "weighted_mean_e2e",
    "mean_normalised_latency",
    {"makespan": "0.5", "mean_ttft": "2"},
    {"makespan": "0.1", "weighted_mean_tpot": "3"},
    {"mean_ttft": "0.25", "mean_tpot": "4"},
    {"weighted_mean_e2e": "1", "mean_tpot": "0.7"},
    {"makespan": "1", "mean_ttft": "0.5", "weighted_mean_tpot": "2", "mean_normalised_latency": "0.3"},
)
FEW_COLUMNS = 200
#: Instances whose optimum each engine finds in a process of its own, and HiGHS in this one, some larger ones
#: of every kind among them.
HIGHS_SEEDS, CPSAT_SEEDS, HERE_SEEDS = range(1000, 1018), range(2000, 2009), range(3000, 3100)
LARGER_SEEDS = [3048, 3057, 3058, 3084, 3132, 3134, 3142, 3162, 3195]


def sums(seed: int) -> Instance:
    """A tiny instance with arrivals, weights and a sum of latencies; one in five without arrivals."""
    return served(seed, SUMS[seed % len(SUMS)], arrivals=seed % 5 != 0)


def taken(seed: int) -> Instance:
    """The next instance of `sums` that the model takes."""
    return next(i for i in map(sums, itertools.count(seed, 1000)) if CSP().unsupported(i) is None)


# --- without an engine ----------------------------------------------------------------------------------


def check_binding(instance: Instance, schedule: Schedule, formulation: CSP) -> Schedule:
    """The schedule keeps each row, its objective is the replayed one, and it is read back."""
    value = replayed_objective(instance, schedule)
    model = formulation.build(instance, schedule.length + 1)
    formulation.warm_start(model, schedule)
    lowered, _ = lower(model, warm=True)
    assert lowered.start is not None
    assert lowered.broken(lowered.start) == []
    assert Fraction(lowered.objective(lowered.start), model.ticks_per_second) == value
    return formulation.extract(model)


@pytest.mark.parametrize("seed", range(12))
def test_binding(seed: int) -> None:
    instance, rng = taken(seed), random.Random(seed)
    drawn = min((random_schedule(rng, instance) for _ in range(3)), key=lambda schedule: schedule.length)
    assert replayed_objective(instance, drawn) is not None
    best = with_best_waits(instance, drawn)
    again = check_binding(instance, best, CSP(symmetry=False))
    assert again == best
    assert decisions(again) == decisions(drawn)
    # Batches that start as soon as they may are in the model, too; identical requests may swap names.
    other = best if instance.offline else drawn
    if other != best or seed % 3 == 0:
        renamed = check_binding(instance, other, CSP())
        assert replayed_objective(instance, renamed) == replayed_objective(instance, best)


def test_longer_waits_than_the_model_knows_are_refused() -> None:
    cost = CostModel([("1", "0")], ("0", "0"), ("0", "0"))
    groups = (RequestGroup("a", 1, 2), RequestGroup("b", 1, 1, 3))
    instance = Instance("late", groups, System(9, 9, 9), cost, objective="mean_e2e")  # type: ignore[arg-type]
    model = CSP().build(instance, 4)

    def starting(at: int) -> Schedule:
        return Schedule("late", (Batch({"a": 1}), Batch({"a": 1, "b": 1}, start=Fraction(at))))

    CSP().warm_start(model, starting(3))
    with pytest.raises(ValueError, match="batch 2 waits 3 ticks; the most is 2"):
        CSP().warm_start(model, starting(4))


def test_what_the_model_takes() -> None:
    cost = CostModel([("1", "0")], ("0", "0"), ("0", "0"), "exact")

    def why(objective: Any, arrival: int = 0, size: int = 64) -> str:
        groups = (RequestGroup("r", size, 2, arrival),)
        policy, aim = Policy(chunked_prefill=size > 9), Objective.of(objective)
        return CSP().unsupported(Instance("r", groups, System(99, 9, 9), cost, policy, aim)) or ""

    for objective in SUMS:
        assert why(objective, 1, size=9) == why(objective, 1, size=63) == ""
        assert why(objective) == (
            "exact attention of chunks with arrivals or latencies takes a column a cached token, "
            "and 65 are more than 64"
        )
    assert why("makespan") == ""
    assert "65 are more" in why("makespan", 1)
    for other in ("p99_ttft", {"at_most": {"mean_e2e": 1}}, {"mean_e2e": 1, "missed": 1}):
        assert "sums of latencies, not " in why(other, size=9)


# --- waits -----------------------------------------------------------------------------------------------


def soon(seed: int) -> Instance:
    """An instance of `sums` with a TPOT, whose last request arrives a few batches away."""
    instance, rng = sums(12 * seed + with_tpot(seed)), random.Random(seed)
    tick = Fraction(1, 10)
    groups = tuple(replace(group, arrival=tick * rng.choice([0, 0, 6, 9])) for group in instance.groups)
    return replace(instance, groups=groups)


def with_tpot(seed: int) -> int:
    """Position in `SUMS` of an objective that a later first token may improve."""
    return (1, 4, 8, 9, 10, 11)[seed % 6]


def least_by_ticks(instance: Instance, schedule: Schedule) -> Fraction:
    """Least objective of the decisions of a schedule over all its starts, tick by tick."""
    first = replay_plain(instance, schedule)
    unit = first.ticks_per_second
    lengths = [end - start for start, end in zip(first.starts, first.ends, strict=True)]
    ready = []
    for batch in schedule.batches:
        arrivals = (instance.requests[instance.index[name]].arrival for name in batch.tokens)
        ready.append(int(max(arrivals, default=Fraction(0)) * unit))
    found: list[tuple[int, ...]] = [()]
    for j, at in enumerate(ready):
        longer = []
        for starts in found:
            soonest = max(at, starts[-1] + lengths[j - 1] if starts else 0)
            longer += [(*starts, start) for start in range(soonest, max(soonest, *ready) + 1)]
        found = longer
    values = []
    for starts in found:
        batches = zip(schedule.batches, starts, strict=True)
        at_these = tuple(replace(batch, start=Fraction(start, unit)) for batch, start in batches)
        values.append(replayed_objective(instance, replace(schedule, batches=at_these)))
    return min(value for value in values if value is not None)


def test_no_other_waits_are_better() -> None:
    checked = moved = 0
    for seed in range(400):
        instance = soon(seed)
        schedule = random_schedule(random.Random(seed), instance)
        early = replayed_objective(instance, schedule)
        unit = replay_plain(instance, schedule).ticks_per_second
        if instance.offline or schedule.length > 6 or unit > 10:
            continue
        best = with_best_waits(instance, schedule)
        value = replayed_objective(instance, best)
        assert value == least_by_ticks(instance, schedule), seed
        assert decisions(best) == decisions(schedule)
        checked += 1
        moved += value != early
    assert checked >= 40
    assert moved >= 3


def test_a_wait_may_cut_an_entry() -> None:
    """What the last request of a batch arrives too late for, the first token before it waits for, too."""
    cost = CostModel([("1", "0")], ("0", "0"), ("0", "0"))
    groups = (RequestGroup("a", 2, 2), RequestGroup("b", 1, 1, 5))
    instance = Instance("cut", groups, System(9, 9, 9), cost, objective="mean_tpot")  # type: ignore[arg-type]
    entries = (Batch({"a": 1}, repeat=3), Batch({"b": 1}, start=Fraction(5)))
    # All is done before the other request arrives: nothing waits for it.
    assert with_best_waits(instance, Schedule("cut", entries)).batches == (
        Batch({"a": 1}, repeat=3),
        Batch({"b": 1}, start=Fraction(5)),
    )
    late = (Batch({"a": 1}, repeat=2), Batch({"a": 1, "b": 1}, start=Fraction(5)))
    assert with_best_waits(instance, Schedule("cut", late)).batches == (
        Batch({"a": 1}),
        Batch({"a": 1}, start=Fraction(4)),
        Batch({"a": 1, "b": 1}),
    )


# --- how many batches --------------------------------------------------------------------------------------


def fewest_batches(instance: Instance) -> tuple[Fraction, int]:
    """Optimum, and the fewest batches of an optimal schedule, waiting tick by tick."""
    oracle = _Oracle(instance)
    goal = tuple((0, o) for _, o, _ in oracle.reqs)
    start = tuple((0, 0) for _ in oracle.reqs)
    best = {(start, 0): (0, 0)}
    queue = [(0, 0, start, 0)]
    while True:
        cost, batches, state, now = heapq.heappop(queue)
        if state == goal:
            cost -= (oracle.ttft + oracle.e2e) * sum(a for *_, a in oracle.reqs)
            return Fraction(cost, oracle.unit * oracle.scale), batches
        if (cost, batches) > best[state, now]:
            continue
        rate = oracle.rate(state)
        waits = [(state, 1, now, 0)] if now < oracle.last else []
        steps = ((*step, 1) for step in oracle.steps(state))
        for after, ticks, arrival, one in itertools.chain(waits, steps):
            if arrival <= now:
                then = min(now + ticks, oracle.last)
                total = cost + rate * ticks, batches + one
                if total < best.get((after, then), (total[0] + 1, 0)):
                    best[after, then] = total
                    heapq.heappush(queue, (*total, after, then))


def test_an_optimal_schedule_has_no_more_batches() -> None:
    """With the optimum as the value that is known; in many cases there is nothing to spare."""
    tight = 0
    for seed in range(150):
        instance = waiting(seed)
        best, batches = fewest_batches(instance)
        proved = proved_batches(instance, best)
        assert batches <= proved <= most_batches(instance), seed
        tight += batches == proved
    assert tight >= 30


def test_free_batches_have_a_horizon() -> None:
    """Whatever batches cost, no more are needed than tokens are made, and evictions before them."""
    free = CostModel([[0, 0]], (0, 0), (0, 0))
    whole, kept = Policy(chunked_prefill=False), Policy(preemption=False)
    requests, system = [(3, 2), (3, 2)], System(9, 9, 9)
    for policy, most in ((whole, 6), (Policy(False, False, False), 4), (kept, 8), (Policy(), 16)):
        assert (
            proved_batches(Instance.of_requests("free", requests, system, free, policy=policy), Fraction(0))
            == most
        )


# --- with an engine ----------------------------------------------------------------------------------------


def small(seeds: range) -> list[int]:
    """Those whose model is small."""

    def columns(instance: Instance) -> int:
        upper = replayed_objective(instance, one_by_one(instance))
        assert upper is not None
        return CSP().columns(instance, proved_batches(instance, upper))

    found = ((seed, sums(seed)) for seed in seeds)
    return [s for s, i in found if CSP().unsupported(i) is None and columns(i) <= FEW_COLUMNS]


def least(instance: Instance) -> Fraction:
    """Optimum, by enumeration."""
    try:
        return vector_optimum(instance)
    except TooMany:
        return optimum(instance)


@pytest.mark.parametrize(
    ("engine", "seed"),
    [("highs", seed) for seed in small(HIGHS_SEEDS)] + [("cpsat", seed) for seed in small(CPSAT_SEEDS)],
)
def test_engines_against_every_schedule(engine: Any, seed: int) -> None:
    instance = sums(seed)
    best = least(instance)
    warm = one_by_one(instance) if seed % 2 else None
    outcome = solve_formulation(instance, "csp", engine, warm=warm, limits=EngineLimits(seconds=20))
    assert outcome.termination == Termination.OPTIMAL
    assert outcome.upper == best
    assert outcome.schedule is not None
    assert replayed_objective(instance, outcome.schedule) == best
    assert outcome.lower is not None
    assert outcome.lower.proof is Proof.SOLVER
    assert outcome.lower.value <= best
    if engine == "cpsat":
        assert outcome.lower.value == best
    # A model that presolve empties has no start to look at.
    assert outcome.warm_start_accepted in ((True, None) if warm else (None,))


@pytest.mark.parametrize("block", range(4))
def test_models_against_every_schedule(block: int) -> None:
    """Without the processes around HiGHS, which take longer than it does."""
    several = [seed for seed in small(HERE_SEEDS) if len(sums(seed).requests) > 1]
    assert len(several) >= 12
    for seed in (list(one_in(4, several)) + LARGER_SEEDS)[block::4]:
        instance = sums(seed)
        upper = replayed_objective(instance, one_by_one(instance))
        assert upper is not None
        model = CSP().build(instance, proved_batches(instance, upper))
        lowered, variables = lower(model)
        events: list[dict[str, Any]] = []
        ended = highs.solve(lowered, seconds=20, threads=1, seed=0, emit=events.append)
        assert ended == Termination.OPTIMAL, seed
        best = least(instance)
        bound = max(event["value"] for event in events if event["event"] == "bound")
        units = best * model.ticks_per_second
        # What a program of doubles proves is lowered by a share, and to a whole unit.
        assert units - units * 2 * Fraction(RELATIVE_TOLERANCE) - 1 <= bound <= units, seed
        assign(variables, [event["values"] for event in events if event["event"] == "incumbent"][-1])
        assert replayed_objective(instance, CSP().extract(model)) == best, seed


@pytest.mark.parametrize("seed", [1, 5])
def test_solve_and_verify(seed: int) -> None:
    """Through `solve`, with its schedulers and bounds: the model may only add to them."""
    instance = sums(next(s for s in small(range(1000 * seed, 1000 * seed + 30)) if not sums(s).offline))
    result = api.solve(instance, solver="highs", formulation="csp", time_limit=20)
    assert result.upper is not None
    assert result.upper.value == vector_optimum(instance)
    assert api.verify(instance, result).ok
