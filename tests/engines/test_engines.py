"""Engines: they agree with an exhaustive search, and whatever stops them, what they found stays."""

from __future__ import annotations

import heapq
import io
import itertools
import os
import random
import signal
import time
from fractions import Fraction
from typing import Any

import pyomo.environ as pyo
import pytest
from infermax_opt.models.infermax_csp import CSP
from infermax_opt.models.infermax_flow import StateFlow

from infermax_opt.core.errors import InputError
from infermax_opt.core.result import Proof, Scope
from infermax_opt.engines.formulations import BuiltModel, run_model
from infermax_opt.engines.lowering import LoweredModel, lower
from infermax_opt.engines.outcome import EngineLimits, Termination
from infermax_opt.engines.process import EngineRun, _autopsy, run_engine
from infermax_opt.engines.safebound import safe_bound, weakened
from infermax_opt.infermax.data.cost import BatchFeatures, CostModel, prefill_work
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.exact.solve_formulation import one_by_one, solve_formulation
from infermax_opt.infermax.replay.plain import replay_plain, tick_unit
from tests.campaign import campaign
from tests.infermax.test_formulations import random_instance

TOLERANCE = Fraction(2, 10**6)

State = tuple[tuple[int, int], ...]


def exhaustive(instance: Instance) -> Fraction:
    """Least makespan by Dijkstra over joint states: earlier is never worse."""
    unit = tick_unit(instance, Schedule("", ()))
    scale = unit // instance.cost.ticks_per_second
    requests = instance.requests
    start: State = tuple((0, 0) for _ in requests)
    best = {start: 0}
    heap = [(0, start)]
    while heap:
        now, state = heapq.heappop(heap)
        if now > best[state]:
            continue
        if all(n == r.output_tokens for (_, n), r in zip(state, requests, strict=True)):
            return Fraction(now, unit)
        options = [_options(instance, i, m, n) for i, (m, n) in enumerate(state)]
        for choice in itertools.product(*options):
            found = _batch(instance, state, choice)
            if found is None:
                continue
            ticks, after, arrival = found
            end = max(now, int(arrival * unit)) + ticks * scale
            if end < best.get(after, end + 1):
                best[after] = end
                heapq.heappush(heap, (end, after))
    raise AssertionError("no schedule")


def _options(instance: Instance, i: int, m: int, n: int) -> list[int]:
    """Tokens to process; -1 evicts."""
    request = instance.requests[i]
    if n == request.output_tokens:
        return [0]
    missing = request.input_tokens + n - m
    chunks = range(1, missing + 1) if instance.policy.chunked_prefill else [missing]
    return [0, *chunks, *([-1] if m and instance.policy.preemption else [])]


def _batch(instance: Instance, state: State, choice: tuple[int, ...]) -> tuple[int, State, Fraction] | None:
    system = instance.system
    tokens = decodes = reads = prefills = prefill_tokens = work = held = running = 0
    arrival = Fraction(0)
    after = []
    for request, (m, n), c in zip(instance.requests, state, choice, strict=True):
        missing = request.input_tokens + n - m
        if c > 0:
            arrival = max(arrival, request.arrival)
            tokens += c
            if n >= 1 and missing == 1:
                decodes, reads = decodes + 1, reads + m
            else:
                prefills, prefill_tokens = prefills + 1, prefill_tokens + c
                work += prefill_work(instance.cost.exact_attention, c, m)
        level = 0 if c < 0 else m + c
        held += system.held(level)
        running += level > 0
        n += c == missing
        after.append((0 if n == request.output_tokens else level, n))
    if (
        tokens > system.max_batch_tokens
        or prefill_tokens > system.max_prefill_tokens
        or held > system.kv_capacity
        or running > (system.max_running or running)
        or (not instance.policy.hybrid_batching and decodes and prefills)
        or not any(choice)
    ):
        return None
    ticks = instance.cost.batch_ticks(BatchFeatures(tokens, decodes, reads, prefills, work))
    return ticks, tuple(after), arrival


def paper_instance(size: int, *, count: int = 4, chunked: bool = False) -> Instance:
    """InferMax section 4.5: O = 4, B = 4."""
    cost = CostModel([["0.007", "0.000075"]], ["0.0003", "2.6e-7"], ["0.0003", "1.5e-9"])
    system = System(max(2 * size, size + 3), 4096, 4096)
    group = RequestGroup("r", size, 4, count=count)
    return Instance("paper", (group,), system, cost, Policy(chunked_prefill=chunked))


def lowered_paper(size: int, formulation: CSP | StateFlow) -> LoweredModel:
    instance = paper_instance(size)
    model = formulation.build(instance, 16)
    formulation.warm_start(model, one_by_one(instance))
    return lower(model, warm=True)[0]


def small(seed: int, *, arrivals: bool = False) -> Instance:
    """A random instance small enough for every engine."""
    rng = random.Random(seed)
    while True:
        instance = random_instance(rng, arrivals=arrivals)
        if len(instance.requests) <= 3 and sum(r.peak_kv for r in instance.requests) <= 9:
            return instance


@pytest.mark.parametrize("seed", campaign(2, 6))
@pytest.mark.parametrize("engine", ["highs", "cpsat"])
@pytest.mark.parametrize("name", ["csp", "flow"])
def test_engines_find_the_optimum(name: str, engine: Any, seed: int) -> None:
    instance = small(seed)
    best = exhaustive(instance)
    outcome = solve_formulation(
        instance, name, engine, warm=one_by_one(instance), limits=EngineLimits(seconds=20)
    )
    assert outcome.termination == Termination.OPTIMAL
    assert outcome.upper == best
    assert outcome.schedule is not None
    assert replay_plain(instance, outcome.schedule).valid
    assert outcome.lower is not None
    assert outcome.lower.source == f"{engine}:{name}"
    assert outcome.lower.proof is Proof.SOLVER
    if engine == "cpsat":
        assert outcome.lower.value == best
    else:
        tick = instance.cost.to_seconds(1)
        assert best * (1 - TOLERANCE) - tick < outcome.lower.value <= best
    assert {"columns", "rows", "nodes", "horizon", "scope"} <= set(outcome.details)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("engine", ["highs", "cpsat"])
def test_arrivals(engine: Any, seed: int) -> None:
    instance = small(50 + seed, arrivals=True)
    while instance.offline or CSP().unsupported(instance):
        seed += 100
        instance = small(seed, arrivals=True)
    outcome = solve_formulation(instance, "csp", engine, limits=EngineLimits(seconds=20))
    assert outcome.upper == exhaustive(instance)
    assert outcome.lower is not None
    assert outcome.lower.value <= outcome.upper


@pytest.mark.parametrize("engine", ["highs", "cpsat"])
@pytest.mark.parametrize("name", ["csp", "flow"])
def test_warm_start_is_accepted(name: str, engine: Any) -> None:
    instance = paper_instance(256, count=2)
    warm = one_by_one(instance)
    outcome = solve_formulation(instance, name, engine, warm=warm, limits=EngineLimits(seconds=10))
    assert outcome.warm_start_accepted is True
    if name == "flow":
        cold = solve_formulation(instance, name, engine, limits=EngineLimits(seconds=20))
        assert cold.warm_start_accepted is None


def test_paper_optimum_by_flow() -> None:
    instance = paper_instance(64)
    outcome = solve_formulation(instance, "flow", "cpsat", limits=EngineLimits(seconds=30))
    assert outcome.termination == Termination.OPTIMAL
    assert outcome.lower is not None
    assert outcome.lower.value == outcome.upper == Fraction("0.132106771")


@pytest.mark.parametrize("engine", ["highs", "cpsat"])
def test_time_limit_keeps_the_warm_start(engine: Any) -> None:
    instance = paper_instance(16, chunked=True)
    warm = one_by_one(instance)
    news: list[str] = []
    outcome = solve_formulation(
        instance, "csp", engine, warm=warm, limits=EngineLimits(seconds=1), progress=news.append
    )
    assert outcome.termination == Termination.TIME_LIMIT
    replayed = replay_plain(instance, warm)
    assert outcome.upper is not None
    assert outcome.upper <= replayed.seconds(replayed.ends[-1])
    assert outcome.lower is None or outcome.lower.value <= outcome.upper
    assert all(line.startswith(f"{engine}:csp: ") for line in news)


@pytest.mark.parametrize("engine", ["highs", "cpsat"])
@pytest.mark.parametrize("how", ["killed", "interrupted"])
def test_what_was_found_survives(engine: Any, how: str) -> None:
    model = lowered_paper(4, CSP(cuts=False))
    worker: list[int] = []

    def listen(kind: str, ticks: int) -> None:
        if kind == "incumbent":
            if how == "interrupted":
                raise KeyboardInterrupt
            os.kill(worker[0], signal.SIGKILL)

    run = run_engine(engine, model, EngineLimits(seconds=30), listen, worker.append)
    expected = Termination.INTERRUPTED if how == "interrupted" else Termination.CRASHED
    assert run.termination == expected
    assert run.values is not None
    assert model.broken(run.values) == []
    assert run.objective == model.objective(run.values)


@pytest.mark.parametrize("mebibytes", [20, 30])
@pytest.mark.parametrize("engine", ["highs", "cpsat"])
def test_memory_limit(engine: Any, mebibytes: int) -> None:
    """Also where there is too little to load the engine at all; CP-SAT fits in 40 MiB."""
    run = run_engine(engine, lowered_paper(4, CSP()), EngineLimits(seconds=20, memory=mebibytes * 2**20))
    assert run.termination == Termination.MEMORY_LIMIT, run.details


@pytest.mark.parametrize(
    ("memory", "ended"), [(2**20, Termination.MEMORY_LIMIT), (None, Termination.CRASHED)]
)
def test_an_exception_that_found_no_room_is_the_memory_limit(memory: int | None, ended: str) -> None:
    """Seen where other work kept the machine busy: Python then has no text but this."""
    run = EngineRun()
    words = io.BytesIO(b"SystemError: error return without exception set")
    _autopsy(run, 1, words, EngineLimits(memory=memory))
    assert run.termination == ended


def test_crash_leaves_the_warm_start(monkeypatch: pytest.MonkeyPatch) -> None:
    real = run_engine

    def broken(engine: Any, model: Any, limits: Any, listen: Any) -> Any:
        return real("nonesuch", model, limits, listen)  # type: ignore[arg-type]

    monkeypatch.setattr("infermax_opt.engines.process.run_engine", broken)
    instance = paper_instance(4)
    warm = one_by_one(instance)
    outcome = solve_formulation(instance, "flow", "highs", warm=warm, limits=EngineLimits(seconds=20))
    assert outcome.termination == Termination.CRASHED
    assert outcome.schedule == warm
    assert outcome.lower is None
    assert "KeyError" in outcome.details["message"]


def test_short_horizon_proves_nothing() -> None:
    instance = paper_instance(64)
    outcome = solve_formulation(instance, "flow", "cpsat", horizon=15, limits=EngineLimits(seconds=20))
    assert outcome.lower is None
    assert outcome.schedule is not None
    assert outcome.details["scope"] == "restriction"


def test_unsupported_instances_are_refused() -> None:
    cost = CostModel([["0.007", 0]], (0, 0), (0, 0))
    late = Instance("late", (RequestGroup("r", 1, 1, "0.5"),), System(4, 4, 4), cost)
    with pytest.raises(InputError, match="arrival"):
        solve_formulation(late, "flow", "highs")


@pytest.mark.parametrize("formulation", [CSP(), CSP(cuts=False), StateFlow()])
def test_safe_bound_is_below_the_relaxation(formulation: CSP | StateFlow) -> None:
    import highspy

    from infermax_opt.engines.highs import Scaling, load

    model = lowered_paper(16, formulation)
    scaled = Scaling(model)
    solver = load(model, scaled, None, 1, 0, integral=False)
    solver.run()
    optimum = solver.getInfo().objective_function_value * scaled.cost
    assert solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    duals = scaled.duals(solver.getSolution().row_dual)
    proved = safe_bound(model, duals)
    assert float(proved) <= optimum * (1 + 1e-9)
    assert float(proved) >= optimum * (1 - 1e-6)
    rng = random.Random(0)
    assert model.start is not None
    feasible = model.objective(model.start)
    for _ in range(5):
        noisy = [y + rng.gauss(0, 1e4) for y in duals]
        assert safe_bound(model, noisy) <= feasible
        assert float(safe_bound(model, noisy)) <= optimum * (1 + 1e-9)


def test_float_bounds_are_lowered() -> None:
    assert weakened(float("inf")) is None
    assert weakened(1e9) in (10**9 - 1000, 10**9 - 1001)
    assert weakened(183.0) == 182
    assert weakened(0.0) == -1


def test_objective_is_rounded_down_to_a_coarser_unit() -> None:
    from infermax_opt.engines.cpsat import IntegerObjective

    model = LoweredModel([0, 1, 0], [9, 5, 4], [True] * 3, [21, 1000, -7], 5, [0], [], [], [], [])
    exact = IntegerObjective.of(model)
    assert exact.exact
    assert exact.unit == 1
    coarse = IntegerObjective.of(model, largest=150)
    assert not coarse.exact
    for x in itertools.product(range(10), range(1, 6), range(5)):
        value = sum(w * (v - low) for w, v, low in zip(coarse.weights, x, model.lb, strict=True))
        assert abs(value) < 150
        assert coarse.ticks(value) <= model.objective(list(x))


class Counted:
    """A model of the fewest batches, of which two are enough; it holds no start with fewer."""

    def build(self) -> pyo.ConcreteModel:
        model = pyo.ConcreteModel()
        model.x = pyo.Var(domain=pyo.Integers, bounds=(0, 9))
        model.enough = pyo.Constraint(expr=3 * model.x >= 5)
        model.cost = pyo.Objective(expr=model.x)
        return model

    def warm_start(self, model: pyo.ConcreteModel, schedule: Schedule, /) -> None:
        if len(schedule.batches) < 2:
            raise ValueError("too few")
        model.x.set_value(len(schedule.batches))

    def extract(self, model: pyo.ConcreteModel, /) -> Schedule:
        return Schedule("counted", (Batch({"r": 1}),) * round(model.x.value))


@pytest.mark.parametrize(("batches", "accepted"), [(None, None), (3, True), (1, False)])
@pytest.mark.parametrize("parts", [1, 1024])
def test_a_model_is_solved_from_the_start_that_it_holds(
    batches: int | None, accepted: bool | None, parts: int
) -> None:
    start = None if batches is None else Schedule("counted", (Batch({"r": 1}),) * batches)
    formulation = Counted()
    built = BuiltModel(formulation, formulation.build(), 1, Scope.EXACT, {}, start)
    limits = EngineLimits(seconds=20)
    solved = run_model(built, "cpsat", limits=limits, began=time.monotonic(), parts=parts)
    assert (solved.objective, solved.bound, solved.start_accepted) == (2, 2, accepted)
    schedule = solved.schedule()
    assert schedule is not None
    assert schedule.length == 2
    assert solved.run.objective == 2 * parts
    assert solved.sizes == {"columns": 1, "rows": 1}
