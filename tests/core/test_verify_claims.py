"""What the verifier decides by itself, what it refutes at any size, and what it says it cannot check."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from click.testing import Result as Done

import infermax_opt as imx
from infermax_opt import api
from infermax_opt.api import verify
from infermax_opt.cli.main import cli
from infermax_opt.cluster.data.stream import Stream, StreamRequest
from infermax_opt.core.result import Claim, LowerBound, Proof, Result, Status
from infermax_opt.core.truth import FaultKind, Trust
from infermax_opt.core.values import AnyInstance
from infermax_opt.core.verification import BaseVerification
from infermax_opt.files.instances import write_instance
from infermax_opt.files.results import write_result
from infermax_opt.infermax.bounds import closed_form_bounds
from infermax_opt.infermax.bounds.exhaustive import MAX_REQUESTS as MAX_BATCHED
from infermax_opt.infermax.bounds.exhaustive import MAX_STEPS, MAX_TOKENS
from infermax_opt.infermax.data.instance import Instance, Metric, Objective, RequestGroup, System
from infermax_opt.infermax.replay.metrics import LATER
from infermax_opt.infermax.verify import longest_each, one_after_another
from infermax_opt.makespan import verify as makespan_verification
from infermax_opt.makespan.bounds import exhaustive
from infermax_opt.makespan.bounds.exhaustive import holds, least_makespan
from infermax_opt.makespan.data.generate import gsm8k_like
from infermax_opt.makespan.data.instance import MakespanInstance, PrefillLevel
from infermax_opt.makespan.replay.bins import replay_bins
from infermax_opt.placement.bounds.exhaustive import MAX_REQUESTS, exhaust
from infermax_opt.placement.data.generate import generate
from infermax_opt.placement.data.instance import PlacementInstance
from infermax_opt.placement.data.schedule import Placement
from infermax_opt.placement.replay.check import check_placement
from infermax_opt.placement.verify import alone
from tests.campaign import campaign, in_blocks
from tests.infermax import oracle
from tests.infermax.test_optimum import OBJECTIVES
from tests.infermax.tiny import tiny
from tests.makespan import oracle as makespan_oracle
from tests.placement import oracle as placement_oracle
from tests.support import PAPER

HAIR = Fraction(1, 10**9)
#: One request on one client, which takes two seconds.
ONE = MakespanInstance.of_requests("mk", [(1, 1)], 1, [PrefillLevel(1, Fraction(1))], (1, 0))


def claim(
    instance: AnyInstance, lower: Fraction | int, proof: Proof = Proof.SOLVER, source: str = "word"
) -> Claim:
    """A bound alone."""
    bound = LowerBound(Fraction(lower), source, proof)
    return Result(instance.name, instance.sha256, instance.objective_name, lower=bound).claim()


def word(instance: AnyInstance, lower: Fraction | int) -> BaseVerification:
    """What the verifier makes of a solver's bare word."""
    return verify(instance, claim(instance, lower))


def refuted(check: BaseVerification) -> bool:
    return check.bound is Trust.REFUTED and [f.kind for f in check.faults] == [FaultKind.LOWER_BOUND]


def run(*args: str | Path) -> Done:
    return CliRunner().invoke(cli, [str(arg) for arg in args])


# --- small instances are decided ----------------------------------------------------------------


def test_a_million_seconds_for_one_request() -> None:
    check = word(ONE, 10**6)
    assert refuted(check)
    assert check.faults[0].message == "1000000.0 exceeds the optimum"
    assert word(ONE, 2).ok
    assert refuted(word(ONE, 2 + HAIR))


@in_blocks(campaign(180, 5_000), 150)
def test_makespan_optima_are_those_of_the_oracle(seeds: range) -> None:
    for seed in seeds:
        instance = makespan_oracle.tiny_makespan(random.Random(seed))
        best = makespan_oracle.optimum(instance)
        assert least_makespan(instance) == best, seed
        right, wrong = word(instance, best), word(instance, best + HAIR)
        assert right.ok, seed
        assert right.bound in (Trust.ENUMERATED, Trust.RECOMPUTED), seed
        assert refuted(wrong), seed


def test_makespan_enumeration_takes_what_the_exact_engine_takes() -> None:
    for seed in range(2):
        instance = gsm8k_like(requests=7, clients=2 + seed, seed=seed)
        result = api.solve(instance, solver="exact", time_limit=30)
        assert result.status is Status.OPTIMAL
        assert result.upper is not None
        assert least_makespan(instance) == result.upper.value
        assert verify(instance, result).bound in (Trust.ENUMERATED, Trust.RECOMPUTED)


def test_makespan_enumeration_gives_up() -> None:
    instance = gsm8k_like(requests=8, clients=2)
    assert holds(instance, Fraction(10**6), steps=5) is None
    assert holds(instance, Fraction(0), steps=5) is True
    assert least_makespan(gsm8k_like(requests=exhaustive.MAX_REQUESTS + 1, clients=2)) is None


@in_blocks(campaign(60, 5_000), 50)
def test_placement_optima_are_those_of_the_oracle(seeds: range) -> None:
    for seed in seeds:
        instance = placement_oracle.tiny_placement(random.Random(seed))
        fewest = placement_oracle.fewest_workers(instance)
        nothing = Claim(
            instance.name, instance.sha256, "workers", Status.INFEASIBLE, None, None, None, None, None, None,
            None, {},
        )  # fmt: skip
        said = verify(instance, nothing)
        assert said.unchecked == ()
        assert said.ok == (fewest is None), seed
        if fewest is None:
            continue
        assert exhaust(instance, fewest).placement is not None, seed
        assert exhaust(instance, fewest - 1).placement is None, seed
        right = word(instance, fewest)
        assert right.ok, seed
        assert right.bound in (Trust.ENUMERATED, Trust.RECOMPUTED), seed
        for more in (HAIR, Fraction(1, 2), Fraction(1)):
            assert refuted(word(instance, fewest + more)), seed


@pytest.mark.parametrize("objective", ["makespan", *OBJECTIVES], ids=str)
def test_batches_are_decided(objective: object) -> None:
    for seed in range(40_000, 40_020):
        instance = tiny(seed, objective=objective)
        best = oracle.optimum(instance)
        assert word(instance, best).bound in (Trust.ENUMERATED, Trust.RECOMPUTED)
        assert refuted(word(instance, best + HAIR))


def test_every_instance_but_a_placement_has_a_schedule() -> None:
    for instance in (tiny(3), ONE):
        said = replace(claim(instance, 0), lower_bound=None, proof=None, status=Status.INFEASIBLE)
        assert [str(fault) for fault in verify(instance, said).faults] == [
            "status: is 'infeasible', but there is a schedule"
        ]


# --- plain schedules refute what is absurd ------------------------------------------------------


@pytest.mark.parametrize("arrivals", [False, True])
def test_one_after_another_is_a_schedule(arrivals: bool) -> None:
    for seed in campaign(72, 300):
        objective = ["makespan", *OBJECTIVES][seed % (1 + len(OBJECTIVES))]
        instance = tiny(seed, arrivals=arrivals, objective=objective)
        own = one_after_another(instance)
        check = verify(instance, own)
        assert check.ok
        assert check.objective is not None
        most = longest_each(instance)
        assert most is not None
        assert most >= check.objective
        if seed < 60 and not arrivals:
            assert check.objective >= oracle.optimum(instance)
    for seed in campaign(24, 100):
        bins = makespan_oracle.tiny_makespan(random.Random(seed))
        replayed = replay_bins(bins, makespan_verification.one_after_another(bins))
        assert replayed.valid
        assert replayed.makespan >= makespan_oracle.optimum(bins)
        places = placement_oracle.tiny_placement(random.Random(seed))
        fits = check_placement(places, alone(places)).valid
        assert fits == (placement_oracle.fewest_workers(places) is not None)


def batches(requests: int, output: int = 40, objective: str = "makespan") -> Instance:
    groups = tuple(RequestGroup(f"g{k}", 20 + k % 7, output, Fraction(k, 50)) for k in range(requests))
    return Instance("large", groups, System(400, 64, 64), PAPER, objective=Objective.of(objective))


@pytest.mark.parametrize(
    "instance",
    [
        batches(200),
        batches(200, objective="mean_tpot"),
        batches(6000),
        gsm8k_like(requests=400, clients=20),
        generate("long-prompts", requests=700, seed=0),
    ],
    ids=lambda some: some.name,
)
def test_what_is_absurd_is_refuted_at_any_size(instance: AnyInstance) -> None:
    check = word(instance, 10**6)
    assert refuted(check)
    assert check.faults[0].message.startswith("1000000.0 exceeds ")
    assert check.faults[0].message.endswith(", and a plain schedule takes no more")


def test_a_certificate_does_not_help_a_bound_that_is_absurd(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second opinion on the checker of certificates."""
    instance = batches(3)
    monkeypatch.setattr("infermax_opt.files.certificates.check_certificate", lambda *_: Fraction(10**6))
    said = replace(claim(instance, 10**6, Proof.CERTIFICATE), certificate="some.json")
    assert refuted(verify(instance, said))


def test_more_workers_than_anyone_has() -> None:
    """The number claimed costs neither memory nor time."""
    small = generate("long-prompts", requests=12, seed=1, ongoing=0.34)
    assert refuted(word(small, 10**15))
    large = generate("long-prompts", requests=MAX_REQUESTS + 100, seed=1)
    assert exhaust(large, 10**15).decided is False
    assert refuted(word(large, 10**15))


# --- what cannot be checked is said, with the reason --------------------------------------------


def between(instance: AnyInstance) -> BaseVerification:
    """A solver's word that is a little above the closed forms."""
    best = max(
        bound.value for bound in api.bound(instance, time_limit=0.01) if bound.proof is Proof.CLOSED_FORM
    )
    return word(instance, best + 1 if isinstance(instance, PlacementInstance) else best * (1 + HAIR))


@pytest.mark.parametrize(
    ("instance", "reason"),
    [
        (batches(40), f"40 requests; up to {MAX_BATCHED} are enumerated"),
        (batches(3, output=100), f"300 output tokens; up to {MAX_TOKENS} are enumerated"),
        (
            Instance("steps", (RequestGroup("r", 30, 20, count=8),), System(200, 64, 64), PAPER),
            f"enumerating takes more than {MAX_STEPS} steps",
        ),
        (gsm8k_like(requests=30, clients=6), "30 requests; up to 16 are enumerated"),
        (gsm8k_like(requests=14, clients=4), "enumerating takes more than 1000000 steps"),
        (generate("long-prompts", requests=50, seed=3), "enumerating takes more than 200000 steps"),
        (generate("long-prompts", requests=600, seed=0), "600 new requests; up to 500 are enumerated"),
    ],
    ids=lambda some: some if isinstance(some, str) else some.name,
)
def test_the_true_reason(instance: AnyInstance, reason: str) -> None:
    check = between(instance)
    assert (check.ok, check.bound) == (True, Trust.UNCHECKED)
    assert [str(some) for some in check.unchecked] == [f"lower_bound: proved by a solver; {reason}"]
    assert check.bound_words == f"not checked: proved by a solver; {reason}"


def test_closed_forms_are_enough_for_a_solvers_word() -> None:
    for instance in (batches(40), gsm8k_like(requests=30, clients=6), generate("long-prompts", requests=50)):
        best = api.bound(instance, time_limit=0.01)[-1]
        assert best.proof is Proof.CLOSED_FORM
        check = word(instance, best.value)
        assert (check.ok, check.bound, check.unchecked) == (True, Trust.RECOMPUTED, ())


def test_notes_are_named() -> None:
    check = verify(ONE, api.solve(ONE, time_limit=5))
    assert check.ok
    assert set(check.notes) - {"lower.source"} == {"upper.source", "solver"}
    assert verify(ONE, api.schedule(ONE, "fcfs")).notes == ()


# --- a closed form is the one that it says ------------------------------------------------------


@pytest.mark.parametrize(
    "instance",
    [batches(6), gsm8k_like(requests=30, clients=6), generate("long-prompts", requests=20, seed=0)],
    ids=lambda some: some.name,
)
def test_a_closed_form_is_the_one_that_it_says(instance: AnyInstance) -> None:
    bounds = [some for some in api.bound(instance, time_limit=0.01) if some.proof is Proof.CLOSED_FORM]
    for bound in bounds:
        check = verify(instance, claim(instance, bound.value, bound.proof, bound.source))
        assert (check.ok, check.bound) == (True, Trust.RECOMPUTED), bound
    best = max(bounds, key=lambda some: some.value)
    check = verify(instance, claim(instance, best.value, best.proof, "the moon"))
    assert refuted(check)
    assert "said to come from 'the moon', which is no closed form here" in check.faults[0].message
    weakest = min(bounds, key=lambda some: some.value)
    assert weakest.value < best.value
    check = verify(instance, claim(instance, best.value, best.proof, weakest.source))
    assert refuted(check)
    assert f"the closed form {weakest.source!r} gives" in check.faults[0].message


def test_a_closed_form_of_several_metrics() -> None:
    weights = {"mean_ttft": 1, "makespan": "0.5"}
    instance = replace(batches(6), objective=Objective.of(weights))
    found = closed_form_bounds(instance)
    assert [bound.source for bound in found if ";" not in bound.source] == ["trade-off"]
    for bound in found:
        assert verify(instance, claim(instance, bound.value, bound.proof, bound.source)).ok
    # Any bound of each metric will do: the best ones were others in the past.
    parts = []
    total = Fraction(0)
    for metric, weight in ((Metric.MEAN_TTFT, 1), (Metric.MAKESPAN, Fraction(1, 2))):
        alone = closed_form_bounds(replace(instance, objective=Objective.of(metric.value)))[-1]
        parts.append(f"{metric.value}: {alone.source}")
        total += weight * alone.value
    name = "; ".join(parts)
    assert verify(instance, claim(instance, total, Proof.CLOSED_FORM, name)).ok
    for wrong in ("mean_ttft: moon; makespan: moon", parts[0], f"{name}; mean_e2e: moon", "moon"):
        assert refuted(verify(instance, claim(instance, total, Proof.CLOSED_FORM, wrong)))


# --- details of placements ----------------------------------------------------------------------

OPEN = generate("long-prompts", requests=12, seed=0, ongoing=0.34)


@pytest.mark.parametrize(
    ("change", "faults", "unchecked"),
    [
        (lambda d: None, [], []),
        (
            lambda d: d["excluded"].update({"0 to 2": "the moon is full"}),
            [],
            ["solver.details.excluded.0 to 2"],
        ),
        (lambda d: d["excluded"].update({"3": "the moon is full"}), ["excluded: '3' is not below"], []),
        (lambda d: d["excluded"].update({"many": "words"}), ["excluded: 'many' is not below"], []),
        (lambda d: d["binding"].update(reason="the moon"), [], ["solver.details.binding.reason"]),
        (lambda d: d["binding"].update(source="moon"), ["binding.source is 'moon'"], []),
        (lambda d: d.update(unplaceable=["r1"]), [], ["solver.details.unplaceable"]),
        (lambda d: d.update(excluded=[], binding=7), [], []),
    ],
)
def test_details_that_are_claims(
    change: Callable[[Any], None], faults: list[str], unchecked: list[str], tmp_path: Path
) -> None:
    result = api.solve(OPEN, time_limit=5)
    write_result(result, tmp_path / "r.json")
    value = json.loads((tmp_path / "r.json").read_text())
    value["solver"]["details"]["excluded"] = {"0 to 2": value["solver"]["details"]["binding"]["reason"]}
    change(value["solver"]["details"])
    (tmp_path / "r.json").write_text(json.dumps(value))
    said = imx.read_schedule_or_claim(tmp_path / "r.json")
    check = verify(OPEN, said)  # type: ignore[call-overload]
    assert all(fault.kind is FaultKind.DETAILS for fault in check.faults)
    assert len(check.faults) == len(faults)
    assert all(f.message.startswith(start) for f, start in zip(check.faults, faults, strict=True))
    assert [some.claim for some in check.unchecked] == unchecked


def test_how_a_solver_found_out_is_a_note() -> None:
    instance = generate("long-prompts", requests=12, seed=1, ongoing=0.34)
    result = api.solve(instance, time_limit=30)
    assert result.lower is not None
    assert result.lower.proof is Proof.SOLVER
    check = verify(instance, result)
    assert (check.ok, check.bound, check.unchecked) == (True, Trust.ENUMERATED, ())
    assert check.notes == ("upper.source", "lower.source", "solver")


# --- metrics -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "instance",
    [
        ONE,
        tiny(0),
        generate("long-prompts", requests=4, seed=0),
        Stream("s", [StreamRequest("r", Fraction(1), 100, 20, 20)], OPEN.worker, OPEN.slo, Fraction(1)),
    ],
    ids=lambda some: type(some).__name__,
)
def test_a_metric_that_is_left_out_is_told(instance: AnyInstance) -> None:
    honest = api.solve(instance, time_limit=2).claim()
    assert verify(instance, honest).ok
    undefined = {name for name in LATER if honest.metrics.get(name, 0) is None}
    for name in honest.metrics:
        left = {other: value for other, value in honest.metrics.items() if other != name}
        faults = verify(instance, replace(honest, metrics=left)).faults
        # Results that were written before a metric came hold as they did.
        assert [fault.kind for fault in faults] == ([] if name in undefined else [FaultKind.METRICS])
        assert all(fault.message.startswith(f"{name} is missing, replay gives ") for fault in faults)
    (name, value), *rest = honest.metrics.items()
    (fault,) = verify(instance, replace(honest, metrics={name: value})).faults
    assert fault.message.endswith(f" (and {len(rest) - len(undefined) - 1} more)")
    (fault,) = verify(instance, replace(honest, metrics={})).faults
    first = next(name for name in honest.metrics if name not in undefined)
    assert fault.message.startswith(f"{first} is missing, replay gives ")
    assert fault.message.endswith(f" (and {len(rest) - len(undefined)} more)")


def test_what_is_left_undone_is_no_metric_to_leave_out() -> None:
    groups = (RequestGroup("a", 2, 2), RequestGroup("b", 2, 2, optional=True))
    instance = Instance("some", groups, System(99, 99, 99), PAPER)
    honest = api.solve(instance, time_limit=2).claim()
    assert "unserved" in honest.metrics
    left = {name: value for name, value in honest.metrics.items() if name != "unserved"}
    (fault,) = verify(instance, replace(honest, metrics=left)).faults
    assert fault.message.startswith("unserved is missing, replay gives ")


# --- the command --------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A large instance, and a solver's word a little above the closed forms."""
    instance = gsm8k_like(requests=30, clients=6)
    best = api.bound(instance)[0].value
    write_instance(instance, tmp_path / "i.json")
    bound = LowerBound(best + 1, "exact", Proof.SOLVER)
    write_result(
        Result(instance.name, instance.sha256, "makespan", lower=bound),
        tmp_path / "r.json",
    )
    return tmp_path / "i.json", tmp_path / "r.json"


def test_strict(files: tuple[Path, Path]) -> None:
    plain, strict = run("verify", *files), run("verify", *files, "--strict")
    assert (plain.exit_code, strict.exit_code) == (0, 1)
    assert plain.stdout == strict.stdout
    assert "verified" not in plain.stdout
    lines = plain.stdout.splitlines()
    assert lines[0].endswith(": nothing is wrong in what could be checked")
    assert lines[1:3] == [
        "not checked: 1",
        "  lower_bound: proved by a solver; 30 requests; up to 16 are enumerated",
    ]
    for options, code in (((), 0), (("--strict",), 1)):
        done = run("verify", *files, "--json", *options)
        assert done.exit_code == code
        told = json.loads(done.stdout)
        assert told["ok"] is True
        assert told["unchecked"] == [
            {"claim": "lower_bound", "reason": "proved by a solver; 30 requests; up to 16 are enumerated"}
        ]
        assert told["notes"] == ["lower.source"]


def test_strict_passes_what_is_checked_and_fails_what_is_wrong(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    made = run("bound", files[0], "-o", tmp_path / "b.json")
    assert made.exit_code == 0
    done = run("verify", files[0], tmp_path / "b.json", "--strict", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["unchecked"] == []
    value = json.loads((tmp_path / "b.json").read_text())
    (tmp_path / "b.json").write_text(json.dumps({**value, "lower_bound": 10**6}))
    assert run("verify", files[0], tmp_path / "b.json").exit_code == 1
    assert run("verify", files[0], tmp_path / "b.json", "--strict").exit_code == 1
    assert run("verify", files[0], tmp_path / "none.json", "--strict").exit_code == 2


def test_a_stream_without_a_worker_for_everyone() -> None:
    requests = [StreamRequest(f"r{k}", Fraction(k), 100, 20, 20) for k in range(1, 6)]
    check = verify(Stream("s", requests, OPEN.worker, OPEN.slo, Fraction(1)), Placement("s", {"r1": 1}))
    assert not check.ok
    assert [str(some) for some in check.unchecked] == [
        "limits at every heartbeat: 4 of 5 requests have no worker, so nothing can be replayed"
    ]
