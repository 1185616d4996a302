"""Formulations, without a solver: every valid schedule is a feasible point with the replayed cost."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction

import pytest
from infermax_opt.models.infermax_csp import CSP
from infermax_opt.models.infermax_flow import StateFlow

from infermax_opt.core.errors import InputError
from infermax_opt.core.result import Scope
from infermax_opt.engines.formulations import formulation_names
from infermax_opt.engines.lowering import lower
from infermax_opt.infermax.bounds.horizon import (
    horizon_bound,
    least_batches,
    least_variable_cost,
    packing_rows,
)
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.exact.solve_formulation import one_by_one
from infermax_opt.infermax.formulation import GROUP, get_formulation, trajectory
from infermax_opt.infermax.replay.plain import Replay, replay_plain
from infermax_opt.infermax.replay.state import State
from tests.campaign import campaign

ONE_PIECE = [["0.007", "0.000075"]]
HINGE = [["0.007", "0.00001"], ["0.0065", "0.0004"]]


def random_instance(rng: random.Random, *, arrivals: bool = False) -> Instance:
    """A tiny instance with random limits, switches and costs."""
    groups = []
    for k in range(rng.randint(1, 2)):
        arrival = rng.choice([0, 0, "0.005", "0.02"]) if arrivals else 0
        size, outputs = rng.randint(1, 4), rng.randint(1, 3)
        groups.append(RequestGroup(f"r{k}", size, outputs, arrival, count=rng.randint(1, 2)))
    block = rng.choice([1, 1, 2])
    peak = max(-(-(g.input_tokens + g.output_tokens - 1) // block) * block for g in groups)
    largest = max(g.input_tokens for g in groups)
    chunked = rng.random() < 0.6
    least = 1 if chunked else largest
    system = System(
        kv_capacity=peak + rng.randint(0, 5),
        max_batch_tokens=least + rng.randint(0, 6),
        max_prefill_tokens=least + rng.randint(0, 4),
        max_running=rng.choice([None, None, 1, 2]),
        block_size=block,
    )
    cost = CostModel(
        rng.choice([ONE_PIECE, HINGE]),
        rng.choice([("0.0003", "0.00026"), ("0.003", "0.0001"), (0, "0.00001")]),
        rng.choice([("0.0003", "0.0001"), (0, "0.00002")]),
        attention=rng.choice(["square", "exact"]),
    )
    policy = Policy(
        hybrid_batching=rng.random() < 0.7, chunked_prefill=chunked, preemption=rng.random() < 0.8
    )
    return Instance("tiny", tuple(groups), system, cost, policy)


def random_batch(rng: random.Random, instance: Instance, state: State) -> Batch | None:
    """A random non-empty batch that breaks no rule, applied to `state`; None if none was found."""
    system, policy = instance.system, instance.policy
    requests = instance.requests
    active = [i for i in range(len(requests)) if not state.finished(i)]
    for _ in range(30):
        cached = dict.fromkeys(active, 0) | {i: state.cached[i] for i in active}
        evict = [i for i in active if policy.preemption and cached[i] and rng.random() < 0.15]
        tokens: dict[int, int] = {}
        for i in active:
            if i in evict or rng.random() < 0.3:
                continue
            missing = state.missing(i)
            split = policy.chunked_prefill and rng.random() < 0.5
            tokens[i] = rng.randint(1, missing) if split else missing
        after = {i: 0 if i in evict else cached[i] + tokens.get(i, 0) for i in active}
        decoding = {i for i in tokens if state.decoding(i)}
        prefill = sum(c for i, c in tokens.items() if i not in decoding)
        running = sum(m > 0 for m in after.values())
        if (
            not (tokens or evict)
            or sum(tokens.values()) > system.max_batch_tokens
            or prefill > system.max_prefill_tokens
            or sum(map(system.held, after.values())) > system.kv_capacity
            or running > (system.max_running or running)
            or (not policy.hybrid_batching and decoding and prefill)
        ):
            continue
        for i in active:
            generates = i in tokens and tokens[i] == state.missing(i)
            state.set_cached(i, after[i])
            state.generated[i] += generates
            if state.finished(i):
                state.set_cached(i, 0)
        names = {requests[i].id: c for i, c in tokens.items()}
        return Batch(names, tuple(requests[i].id for i in evict))
    return None


def random_schedule(rng: random.Random, instance: Instance) -> Schedule:
    """A random valid schedule; requests one by one where luck runs out."""
    for _ in range(20):
        state = State(instance)
        batches: list[Batch] = []
        while len(batches) < 40 and not all(map(state.finished, range(len(instance.requests)))):
            batch = random_batch(rng, instance, state)
            if batch is None:
                break
            latest = max(
                (instance.requests[instance.index[name]].arrival for name in batch.tokens), default=0
            )
            batches.append(Batch(batch.tokens, batch.evict, latest or None))
        else:
            if len(batches) < 40:
                return Schedule(instance.name, tuple(batches))
    return one_by_one(instance)


def decisions(schedule: Schedule) -> list[tuple[dict[str, int], set[str]]]:
    return [(dict(batch.tokens), set(batch.evict)) for batch in schedule.batches]


def histories(instance: Instance, schedule: Schedule) -> Counter[tuple[int, tuple[object, ...]]]:
    """What requests of each type do, without their names."""
    moves = trajectory(instance, schedule)
    kinds = {i: t for t, kind in enumerate(instance.types) for i in kind.members}
    return Counter((t, tuple(batch[i] for batch in moves)) for i, t in kinds.items())


def profile(instance: Instance, schedule: Schedule) -> list[Counter[tuple[object, ...]]]:
    """How many requests of each type take each step, batch by batch."""
    moves = trajectory(instance, schedule)
    kinds = {i: t for t, kind in enumerate(instance.types) for i in kind.members}
    return [Counter((kinds[i], *move) for i, move in enumerate(batch)) for batch in moves]


def check_binding(instance: Instance, schedule: Schedule, formulation: CSP | StateFlow) -> Schedule:
    replayed: Replay = replay_plain(instance, schedule)
    assert replayed.valid, replayed.violations[0]
    model = formulation.build(instance, schedule.length + 1)
    formulation.warm_start(model, schedule)
    lowered, _ = lower(model, warm=True)
    assert lowered.start is not None
    assert lowered.broken(lowered.start) == []
    value = Fraction(lowered.objective(lowered.start), model.ticks_per_second)
    assert value == replayed.seconds(replayed.ends[-1])
    return formulation.extract(model)


@pytest.mark.parametrize("seed", campaign(12, 60))
def test_binding(seed: int) -> None:
    rng = random.Random(seed)
    instance = random_instance(rng)
    schedule = random_schedule(rng, instance)
    plain = CSP(symmetry=False)
    assert decisions(check_binding(instance, schedule, plain)) == decisions(schedule)
    renamed = check_binding(instance, schedule, CSP())
    assert histories(instance, renamed) == histories(instance, schedule)
    flown = check_binding(instance, schedule, StateFlow())
    assert profile(instance, flown) == profile(instance, schedule)


@pytest.mark.parametrize("seed", campaign(10, 20))
def test_binding_with_arrivals(seed: int) -> None:
    rng = random.Random(1000 + seed)
    instance = random_instance(rng, arrivals=True)
    while CSP().unsupported(instance):
        instance = random_instance(rng, arrivals=True)
    schedule = random_schedule(rng, instance)
    again = check_binding(instance, schedule, CSP(symmetry=False))
    assert decisions(again) == decisions(schedule)
    first, second = replay_plain(instance, schedule), replay_plain(instance, again)
    assert second.valid
    assert second.ends == first.ends


@pytest.mark.parametrize("seed", campaign(12, 40))
def test_counting_bounds_hold_for_random_schedules(seed: int) -> None:
    rng = random.Random(2000 + seed)
    instance = random_instance(rng)
    schedule = random_schedule(rng, instance)
    replayed = replay_plain(instance, schedule)
    total = replayed.seconds(replayed.ends[-1])
    assert least_batches(instance) <= schedule.length
    bound = horizon_bound(instance, total)
    assert bound is not None
    assert schedule.length <= bound
    for k, alpha in enumerate(instance.cost.seconds.alpha):
        assert least_variable_cost(instance, k) <= total - schedule.length * alpha
    for row in packing_rows(instance):
        for moves in trajectory(instance, schedule):
            assert sum(row.weight(instance.system.held(move.held)) for move in moves) <= row.limit


def test_refill_that_ends_with_one_token_is_a_decode() -> None:
    cost = CostModel(ONE_PIECE, ("0.0003", "0.00026"), ("0.0003", "0.0001"), attention="exact")
    instance = Instance.of_requests("refill", [(3, 3)], System(6, 8, 8), cost)
    steps = [Batch({"r1": 3}), Batch({}, ("r1",)), Batch({"r1": 2}), Batch({"r1": 1}), Batch({"r1": 1})]
    schedule = Schedule("refill", (*steps, Batch({"r1": 1})))
    assert [f.decodes for f in replay_plain(instance, schedule).features] == [0, 0, 0, 0, 1, 1]
    for formulation in (CSP(), StateFlow()):
        assert decisions(check_binding(instance, schedule, formulation)) == decisions(schedule)


def test_free_batches_have_no_horizon() -> None:
    free = CostModel([[0, 0]], (0, 0), (0, 0))
    assert horizon_bound(Instance.of_requests("free", [(1, 1)], System(1, 1, 1), free), Fraction(1)) is None
    paid = CostModel([[0, "0.5"]], (0, 0), (0, 0))
    instance = Instance.of_requests("paid", [(1, 1)], System(1, 1, 1), paid)
    assert horizon_bound(instance, Fraction(3, 2)) == 6


def test_scope_and_support() -> None:
    cost = CostModel(ONE_PIECE, (0, 0), (0, 0))
    chunked = Instance.of_requests("long", [(40, 2)], System(64, 64, 64), cost)
    assert StateFlow().scope(chunked, 5, 5) is Scope.EXACT
    assert StateFlow().scope(chunked, 4, 5) is Scope.RESTRICTION
    assert StateFlow().scope(chunked, 5, None) is Scope.RESTRICTION
    assert StateFlow(chunk_grid=8).scope(chunked, 5, 5) is Scope.RESTRICTION
    assert CSP().scope(chunked, 5, 5) is Scope.EXACT
    late = Instance("late", (RequestGroup("r", 1, 1, "0.5"),), System(4, 4, 4), cost)
    assert CSP().unsupported(late) is None
    assert "arrival" in (StateFlow().unsupported(late) or "")
    mean = Instance.of_requests("mean", [(1, 1)], System(4, 4, 4), cost, objective="mean_ttft")
    assert CSP().unsupported(mean) is None
    assert "mean_ttft" in (StateFlow().unsupported(mean) or "")


def test_grid_refuses_steps_it_left_out() -> None:
    cost = CostModel(ONE_PIECE, (0, 0), (0, 0))
    instance = Instance.of_requests("grid", [(8, 1)], System(8, 8, 8), cost)
    grid = StateFlow(chunk_grid=4)
    model = grid.build(instance, 3)
    grid.warm_start(model, Schedule("grid", (Batch({"r1": 4}), Batch({"r1": 4}))))
    with pytest.raises(ValueError, match="chunk grid"):
        grid.warm_start(model, Schedule("grid", (Batch({"r1": 3}), Batch({"r1": 5}))))
    with pytest.raises(ValueError, match="horizon"):
        grid.warm_start(model, Schedule("grid", tuple(Batch({"r1": 2}) for _ in range(4))))


def test_formulations_are_found_by_name() -> None:
    assert {"csp", "flow"} <= set(formulation_names(GROUP))
    assert isinstance(get_formulation("csp"), CSP)
    with pytest.raises(InputError, match="csp, flow"):
        get_formulation("nonesuch")
