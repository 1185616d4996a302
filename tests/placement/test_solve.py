"""Solving placement instances, their results and what the verifier makes of these."""

from __future__ import annotations

import _thread
import itertools
import json
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import infermax_opt as imx
from infermax_opt import api
from infermax_opt.api import verify
from infermax_opt.core.errors import InputError
from infermax_opt.core.result import Claim, LowerBound, Proof, Result, Status
from infermax_opt.core.truth import FaultKind, Trust
from infermax_opt.engines.outcome import EngineOutcome
from infermax_opt.files.results import read_schedule_or_claim, result_to_json, write_result
from infermax_opt.placement import solve as placement_solve
from infermax_opt.placement.bounds.closed_form import placement_bounds
from infermax_opt.placement.data.generate import generate
from infermax_opt.placement.data.instance import PlacementGroup, PlacementInstance, Slo, Worker
from infermax_opt.placement.data.limits import Limits
from infermax_opt.placement.data.schedule import Placement
from infermax_opt.placement.heuristics import pack
from infermax_opt.placement.heuristics.place import place
from infermax_opt.placement.replay.check import check_placement
from infermax_opt.placement.replay.metrics import PLACEMENT_DEFINITIONS, PlacementMetrics, measure_placement
from tests.campaign import campaign
from tests.placement.oracle import fewest_workers, kv_most, tiny_placement
from tests.support import ROOT

#: Best-fit takes one worker more than are needed.
TOY = generate("long-prompts", requests=12, seed=0, ongoing=0.34)
#: The bounds are one below the optimum.
OPEN = generate("long-prompts", requests=12, seed=1, ongoing=0.34)


def nowhere() -> PlacementInstance:
    return replace(TOY, groups=(*TOY.groups, PlacementGroup("wide", 19_000, 5)))


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stand-ins for the engines: what the tests put here is what these do."""
    told: dict[str, Any] = {"pack": [], "calls": []}

    def anytime_placements(instance: PlacementInstance, **options: Any) -> Iterator[tuple[str, Placement]]:
        told["calls"].append(("pack", options))
        for item in told["pack"]:
            if isinstance(item, Exception):
                raise item
            if item == "interrupt":
                _thread.interrupt_main()
                while not options["stop"]():
                    time.sleep(0.01)
                return
            yield "pack", item

    def solve_placement_exactly(instance: PlacementInstance, **options: Any) -> Any:
        told["calls"].append(("exact", options))
        found = told["exact"]
        if isinstance(found, BaseException):
            raise found
        return found

    monkeypatch.setattr(placement_solve, "configurations_bound", lambda *_, **__: told.get("prices"))
    monkeypatch.setattr(pack, "anytime_placements", anytime_placements)
    monkeypatch.setattr(placement_solve, "solve_placement_exactly", solve_placement_exactly)
    return told


def outcome(placement: Placement | None, lower: int, termination: str = "time_limit") -> Any:
    decided = dict.fromkeys(range(3, lower), "impossible (cpsat)")
    details = {"engines": ("cpsat", "highs"), "decided": decided, "rounds": 7, "kv_rows": 2}
    bound = None
    if decided:
        reason = f"the integer program for {lower - 1} workers is {decided[lower - 1]}"
        bound = LowerBound(Fraction(lower), "cpsat+highs", Proof.SOLVER, reason=reason)
    return EngineOutcome(placement, bound, termination, details=details)


def details(result: Result) -> Any:
    assert result.solver is not None
    return result.solver.details


def counts(result: Result) -> list[int]:
    """All numbers of workers that have a reason, in order."""
    found = []
    for text in details(result)["excluded"]:
        first, _, last = text.partition(" to ")
        found += range(int(first), int(last or first) + 1)
    return found


# --- the pipeline -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", campaign(8, 24))
def test_optima_are_those_of_the_oracle(seed: int) -> None:
    instance = tiny_placement(random.Random(seed))
    least = fewest_workers(instance)
    result = api.solve(instance, time_limit=30)
    check = verify(instance, result)
    assert check.ok
    if least is None:
        assert result.status is Status.INFEASIBLE
        assert (result.upper, result.lower, result.schedule, result.gap) == (None, None, None, None)
        return
    assert result.status is Status.OPTIMAL
    assert result.upper is not None
    assert result.upper.value == least
    assert counts(result) == list(range(least))
    assert check.objective == least


def test_a_bound_that_meets_a_heuristic_needs_no_engine(engines: dict[str, Any]) -> None:
    lines: list[str] = []
    result = api.solve(TOY, time_limit=20, progress=lambda event: lines.append(str(event)))
    assert isinstance(result, Result)
    assert (result.status, result.gap, result.objective) == (Status.OPTIMAL, 0, "workers")
    assert result.upper is not None
    assert (result.upper.value, result.upper.source) == (3, "heuristic:best-fit-size")
    assert result.lower is not None
    assert (result.lower.value, result.lower.proof) == (3, Proof.CLOSED_FORM)
    assert isinstance(result.metrics, PlacementMetrics)
    assert (result.metrics.workers, result.metrics.gpus) == (3, 6)
    binding = details(result)["binding"]
    assert binding == {"source": result.lower.source, "reason": result.lower.reason}
    assert binding["reason"] == placement_bounds(TOY)[0].reason
    assert list(details(result)["excluded"]) == ["0", "1 to 2"]
    assert engines["calls"] == []
    assert lines == [
        "lower bound 3 workers (continuous)", "schedule 4 workers (heuristic:best-fit)",
        "schedule 3 workers (heuristic:best-fit-size)",
    ]  # fmt: skip


def test_each_reason_is_that_of_a_bound_above_the_counts() -> None:
    instance = generate("long-prompts", requests=12, seed=34, ongoing=0.34)
    result = api.solve(instance, time_limit=20)
    bounds = {bound.reason: bound.value for bound in placement_bounds(instance)}
    excluded = details(result)["excluded"]
    assert len(excluded) == 3
    for text, reason in excluded.items():
        assert int(text.split()[-1]) < bounds[reason]


def test_the_engine_decides_what_packing_leaves_open(engines: dict[str, Any]) -> None:
    engines["exact"] = outcome(None, 4, "optimal")
    result = api.solve(OPEN, time_limit=20, threads=3, seed=4)
    assert result.status is Status.OPTIMAL
    source = "cpsat+highs"
    assert result.lower == LowerBound(Fraction(4), source, Proof.SOLVER)
    assert result.certified is not None
    assert (result.certified.value, result.certified.proof) == (3, Proof.CLOSED_FORM)
    assert counts(result) == [0, 1, 2, 3]
    assert details(result)["excluded"]["3"] == "the integer program for 3 workers is impossible (cpsat)"
    assert details(result)["decided"] == {"3": "impossible (cpsat)"}
    assert result.solver is not None
    assert (result.solver.engine, result.solver.termination) == (source, "optimal")
    (_, packing), (_, exact) = engines["calls"]
    assert (packing["lower"], packing["threads"], packing["seed"], packing["deadline"]) == (3, 3, 4, None)
    assert (exact["lower"], exact["threads"], exact["seed"], exact["engines"]) == (
        3,
        3,
        4,
        ("cpsat", "highs"),
    )
    assert 10 < exact["time_limit"] < 20
    check = verify(OPEN, result)
    assert (check.ok, check.bound) == (True, Trust.ENUMERATED)


@pytest.mark.parametrize("engine", ["cpsat", "highs"])
def test_one_engine_alone(engine: str, engines: dict[str, Any]) -> None:
    engines["exact"] = outcome(place(OPEN, "multi-start"), 3)
    result = api.solve(OPEN, solver=engine, warm_start="none", time_limit=20)
    assert result.upper is not None
    assert (result.upper.source, result.status) == (engine, Status.FEASIBLE)
    assert [(name, options["engines"]) for name, options in engines["calls"]] == [("exact", (engine,))]
    assert details(result)["rounds"] == 7


def test_packing_alone_goes_on_until_the_bound(engines: dict[str, Any]) -> None:
    best = place(TOY, "best-fit-size")
    engines["pack"] = [Placement(TOY.name, {}), place(TOY, "best-fit"), best]
    result = api.solve(TOY, solver="pack", warm_start="none", time_limit=20)
    assert result.status is Status.OPTIMAL
    assert result.schedule == best
    assert "has no worker" in details(result)["rejected"]
    assert engines["calls"][0][1]["deadline"] is not None
    assert result.upper is not None
    assert result.upper.source == "pack"
    engines["pack"] = []
    given_up = api.solve(OPEN, solver="pack", time_limit=None)
    assert given_up.solver is not None
    assert given_up.solver.termination == "heuristics only"
    engines["pack"] = [RuntimeError("broken")]
    with pytest.raises(RuntimeError, match="broken"):
        api.solve(OPEN, solver="pack", time_limit=9)


def test_a_bound_that_a_placement_refutes_is_discarded(engines: dict[str, Any]) -> None:
    engines["exact"] = outcome(None, 9)
    result = api.solve(OPEN, time_limit=9)
    assert result.lower is not None
    assert (result.lower.value, result.lower.proof) == (3, Proof.CLOSED_FORM)
    assert result.solver is not None
    assert result.solver.termination == "failed"
    assert counts(result) == [0, 1, 2]
    assert verify(OPEN, result).ok


@pytest.mark.usefixtures("hears_ctrl_c")
def test_ctrl_c_keeps_the_best(engines: dict[str, Any]) -> None:
    engines["pack"] = ["interrupt"]
    result = api.solve(OPEN, time_limit=60)
    assert result.status is Status.FEASIBLE
    assert result.solver is not None
    assert (result.solver.engine, result.solver.termination) == ("pack", "interrupted")
    assert counts(result) == [0, 1, 2]
    engines.update(pack=[], exact=KeyboardInterrupt())
    result = api.solve(OPEN, time_limit=60)
    assert result.solver is not None
    assert (result.solver.engine, result.solver.termination) == ("cpsat+highs", "interrupted")
    assert verify(OPEN, result).ok


def test_large_instances_are_packed_on(engines: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infermax_opt.placement.solve.MOST_COLUMNS", 31)
    result = api.solve(OPEN, time_limit=9)
    assert result.solver is not None
    assert result.solver.reason == "the integer program has 32 columns; the most is 31"
    assert [name for name, _ in engines["calls"]] == ["pack", "pack"]
    with pytest.raises(InputError, match="solver: 32 columns in the integer program; the most is 31"):
        api.solve(OPEN, solver="highs", time_limit=9)


def test_a_placement_of_ones_own(engines: dict[str, Any]) -> None:
    mine = place(TOY, "best-fit")
    result = api.solve(TOY, solver="pack", warm_start=mine, time_limit=5)
    assert result.upper is not None
    assert (result.upper.source, result.schedule) == ("warm start", mine)
    named = api.solve(TOY, solver="pack", warm_start="first-fit", time_limit=5)
    assert named.upper is not None
    assert named.upper.source == "heuristic:first-fit"
    with pytest.raises(
        InputError, match="warm_start: is not a valid schedule: instance: the schedule is for"
    ):
        api.solve(TOY, warm_start=Placement("x", mine.workers))
    with pytest.raises(InputError, match="warm_start: is not a valid schedule: placement, request 'r5'"):
        api.solve(TOY, warm_start=Placement(TOY.name, {}))
    with pytest.raises(InputError, match="warm_start: is a Schedule, not a Placement"):
        api.solve(TOY, warm_start=imx.Schedule(TOY.name, ()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solver": "search"}, "solver: 'search' is none of auto, pack, cpsat, highs"),
        ({"formulation": "flow"}, "formulation: 'flow' is no installed formulation; there is aladdin"),
        ({"formulation": "aladdin", "solver": "pack"}, "formulation: packing takes no formulation"),
        ({"memory_limit": 10**9}, "memory_limit: the engines of placements take none without a formulation"),
        ({"time_limit": 0}, "time_limit: 0 is not a positive number of seconds"),
        ({"threads": 0}, "threads: 0 is less than 1"),
        ({"warm_start": "vllm"}, "'vllm' is none of best-fit, first-fit"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        api.solve(OPEN, **options)
    assert message in str(caught.value)


def test_requests_that_fit_nowhere() -> None:
    result = api.solve(nowhere(), time_limit=5)
    assert result.status is Status.INFEASIBLE
    assert details(result) == {
        "unplaceable": [
            "request 'wide' fits on no worker: limit c, prefill: 7.315 s where 1.578 s are allowed",
            "request 'wide' fits on no worker: limit e, KV: 19005 where 18000 are allowed",
        ]
    }
    check = verify(nowhere(), result)
    assert check.ok
    feasible = verify(TOY, replace(result.claim(), instance_sha256=TOY.sha256))
    assert [str(fault) for fault in feasible.faults] == ["status: is 'infeasible', but there is a schedule"]
    with pytest.raises(InputError, match="requests: request 'wide' fits on no worker: limit c"):
        api.schedule(nowhere(), "best-fit")
    assert {bound.value for bound in api.bound(nowhere())} == {bound.value for bound in api.bound(TOY)}


def test_the_other_functions() -> None:
    bounds = api.bound(TOY)
    assert [(b.value, b.source, b.reason) for b in bounds] == [
        (b.value, b.source, b.reason) for b in placement_bounds(TOY)
    ]
    made = api.schedule(TOY, "best-fit")
    check = api.verify(TOY, made)
    assert (check.ok, check.objective) == (True, 4)
    toy = imx.read_instance(ROOT / "instances" / "toy.json")
    for instance, subject in ((toy, made), (TOY, api.schedule(toy, "vllm"))):  # type: ignore[call-overload]
        with pytest.raises(InputError, match="verify takes an instance and a schedule"):
            verify(instance, subject)


# --- metrics ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", campaign(9, 30))
def test_uses_are_those_of_the_definitions(seed: int) -> None:
    drawn = (tiny_placement(random.Random(500 + seed + 30 * k)) for k in itertools.count())
    instance = next(
        one for one in drawn if Limits.of(one).most_context > 0 and fewest_workers(one) is not None
    )
    placement = place(instance, "best-fit")
    metrics = measure_placement(instance, placement)
    on: dict[int, list[Any]] = {}
    for request in instance.requests:
        number = placement.workers[request.id] if request.worker is None else request.worker
        on.setdefault(number, []).append(request)
    worker, slo, theta = instance.worker, instance.slo, instance.theta
    kv = [kv_most(instance, members) / worker.kv_capacity for members in on.values()]
    assert (metrics.mean_kv_use, metrics.most_kv_use) == (sum(kv) / len(on), max(kv))
    times = []
    for members in on.values():
        context = sum(
            r.input_tokens + instance.gamma * max(r.predicted_output_tokens, r.generated_tokens)
            for r in members
        )
        need = worker.decode_context * context + theta * worker.decode_request * len(members)
        times.append(need / (theta * (slo.atgt - worker.decode_overhead)))
    assert metrics.mean_iteration_use == sum(times) / len(times)
    assert metrics.most_prefill_use is not None
    assert 0 <= metrics.most_prefill_use <= 1
    assert metrics.workers == len(on) == check_placement(instance, placement).workers
    assert metrics.new_requests + metrics.ongoing_requests == len(instance.requests)
    assert dict(metrics.items()).keys() == PLACEMENT_DEFINITIONS.keys()


def test_a_use_of_nothing_is_unknown() -> None:
    """Ongoing requests need iteration time, and there is none at all: that is no share."""
    worker = Worker(*(Fraction(n) for n in (100, 1, 0, 0, 0, 1, 0, 2)))
    groups = (PlacementGroup("o", 5, 5, worker=2),)
    instance = PlacementInstance("m", groups, worker, Slo(Fraction(1), Fraction(2)))
    metrics = measure_placement(instance, Placement("m", {}))
    assert (metrics.workers, metrics.mean_iteration_use, metrics.most_iteration_use) == (1, None, None)
    assert metrics.most_kv_use == Fraction(1, 10)
    assert verify(instance, api.solve(instance, time_limit=2)).ok


# --- results ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def solved() -> Result:
    return api.solve(TOY, time_limit=20)


def test_a_result_is_written_and_read(solved: Result, tmp_path: Path) -> None:
    write_result(solved, tmp_path / "r.json.gz")
    claim = read_schedule_or_claim(tmp_path / "r.json.gz")
    assert isinstance(claim, Claim)
    assert claim.schedule == solved.schedule
    assert (claim.objective, claim.upper_bound, claim.lower_bound) == ("workers", 3, 3)
    check = verify(TOY, claim)
    assert (check.ok, check.bound, check.metrics) == (True, Trust.RECOMPUTED, solved.metrics)
    value = result_to_json(solved)
    assert list(value["schedule"]) == ["schema", "instance", "workers"]
    assert list(value["metrics"]) == list(PLACEMENT_DEFINITIONS)
    value = json.loads(json.dumps(value, default=float))
    value["metrics"]["evictions"] = 3
    (tmp_path / "r.json").write_text(json.dumps(value))
    with pytest.raises(InputError, match=r"r\.json: metrics\.evictions: is not a known key"):
        read_schedule_or_claim(tmp_path / "r.json")


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"instance": "x"}, FaultKind.INSTANCE),
        ({"instance_sha256": "0"}, FaultKind.INSTANCE),
        ({"objective": "makespan"}, FaultKind.OBJECTIVE),
        ({"status": Status.FEASIBLE}, FaultKind.STATUS),
        ({"status": Status.INFEASIBLE}, FaultKind.STATUS),
        ({"upper_bound": Fraction(2)}, FaultKind.UPPER_BOUND),
        ({"upper_bound": None}, FaultKind.UPPER_BOUND),
        ({"schedule": None}, FaultKind.UPPER_BOUND),
        ({"schedule": Placement(TOY.name, {})}, FaultKind.UPPER_BOUND),
        ({"gap": None}, FaultKind.GAP),
        ({"metrics": {"gpus": 1}}, FaultKind.METRICS),
        ({"metrics": {"mean_kv_use": None}}, FaultKind.METRICS),
        ({"proof": None}, FaultKind.LOWER_BOUND),
        ({"proof": Proof.CERTIFICATE, "certificate": "c.json"}, FaultKind.LOWER_BOUND),
        ({"lower_bound": Fraction(4)}, FaultKind.LOWER_BOUND),
        ({"lower_bound": Fraction(-1)}, FaultKind.LOWER_BOUND),
    ],
)
def test_every_wrong_claim_is_a_fault(change: dict[str, Any], kind: FaultKind, solved: Result) -> None:
    check = verify(TOY, replace(solved.claim(), **change))
    assert not check.ok
    assert kind in {fault.kind for fault in check.faults}


def test_a_request_that_is_moved_to_a_full_worker_is_found(solved: Result) -> None:
    assert solved.schedule is not None
    for name, number in itertools.product(("r5", "r10"), (1, 2, 3)):
        if solved.schedule.workers[name] != number:
            moved = Placement(TOY.name, {**solved.schedule.workers, name: number})
            check = verify(TOY, replace(solved.claim(), schedule=moved))
            assert not check.ok


def test_lower_bounds_are_recomputed() -> None:
    result = api.solve(OPEN, solver="pack", warm_start="best-fit", time_limit=0.3)
    above = replace(result.claim(), lower_bound=Fraction(4))
    assert verify(OPEN, above).bound is Trust.REFUTED
    word = verify(OPEN, replace(above, proof=Proof.SOLVER))
    assert word.bound is Trust.ENUMERATED
    assert {fault.kind for fault in word.faults} == {FaultKind.GAP, FaultKind.STATUS}
    below = verify(OPEN, replace(result.claim(), proof=Proof.SOLVER))
    assert below.bound is Trust.RECOMPUTED
    for wrong in (5, 9, 1000):
        alone = Result(
            OPEN.name, OPEN.sha256, "workers", lower=LowerBound(Fraction(wrong), "word", Proof.SOLVER)
        )
        assert verify(OPEN, alone).bound is Trust.REFUTED


# --- with the engines themselves ----------------------------------------------------------------


@pytest.mark.parametrize("engine", ["cpsat", "highs"])
def test_the_formulation_proves_what_the_bounds_do_not(engine: str) -> None:
    result = api.solve(OPEN, solver=engine, formulation="aladdin", time_limit=60)
    assert result.status is Status.OPTIMAL
    assert result.lower is not None
    assert (result.lower.value, result.lower.source) == (4, f"{engine}:aladdin")
    assert result.solver is not None
    assert (result.solver.formulation, result.solver.warm_start_accepted) == ("aladdin", True)
    assert verify(OPEN, result).ok
    with pytest.raises(InputError, match="formulation: 108400 columns for 271 workers; the most is 8000"):
        api.solve(
            generate("long-outputs", requests=400, seed=0, ongoing=0.4),
            formulation="aladdin", warm_start="none", time_limit=30,
        )  # fmt: skip


def test_the_formulation_finds_placements_by_itself() -> None:
    result = api.solve(TOY, formulation="aladdin", warm_start="none", time_limit=60)
    assert result.status is Status.OPTIMAL
    assert result.upper is not None
    assert (result.upper.value, result.upper.source) == (3, "cpsat:aladdin")
    assert result.solver is not None
    assert result.solver.reason == "a formulation was asked for"


def test_time_limit() -> None:
    result = api.solve(OPEN, solver="pack", time_limit=1)
    assert result.status is Status.FEASIBLE
    assert result.solver is not None
    assert (result.solver.engine, result.solver.termination) == ("pack", "time_limit")
    assert result.solver.seconds is not None
    # Time to load compiled code comes on top, once.
    assert result.solver.seconds < 15
