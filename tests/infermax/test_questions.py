"""Questions: yes with a schedule, no with a bound, or open."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner

from infermax_opt import api
from infermax_opt.cli.main import cli
from infermax_opt.core.errors import InputError
from infermax_opt.core.registry import problem_of
from infermax_opt.core.result import Answer, Status
from infermax_opt.files.certificates import certified_bound
from infermax_opt.files.instances import read_instance
from infermax_opt.infermax.bounds.searched import searched_bounds
from infermax_opt.infermax.certificates import CERTIFICATION
from infermax_opt.infermax.checker import Rejected, check
from infermax_opt.infermax.data.instance import Instance, Objective
from infermax_opt.infermax.exact.staged import unsupported
from tests.infermax.oracle import optimum
from tests.infermax.served import served
from tests.infermax.tiny import tiny
from tests.infermax.vector_oracle import TooMany, vector_optimum

TOY = "instances/toy.json"
LIMITS = {"at_most": {"mean_e2e": "1", "makespan": "2"}}
HAIR = Fraction(1, 10**6)


@pytest.mark.parametrize("seed", range(20))
def test_the_answer_is_that_of_the_optimum(seed: int) -> None:
    instance = tiny(seed, objective=("makespan", "mean_e2e", "mean_ttft")[seed % 3])
    best = optimum(instance)
    for target in (best, best * (1 - HAIR)):
        result = api.solve(instance, target=target)
        assert result.answer is (Answer.YES if target >= best else Answer.NO)
        assert api.verify(instance, result).ok


@pytest.mark.parametrize("seed", range(20))
def test_limits_are_kept_together_or_it_is_proved_that_they_cannot_be(seed: int) -> None:
    instance = served(seed, {"at_most": {"max_ttft": "2", "mean_e2e": "5"}}, arrivals=seed % 2 == 0)
    if unsupported(instance) is not None:
        return
    try:
        best = vector_optimum(instance, 1_500)
    except TooMany:
        return
    result = api.solve(instance, target=Fraction(1), time_limit=20)
    assert result.answer is (Answer.YES if best <= 1 else Answer.NO)
    assert api.verify(instance, result).ok


def test_a_wrong_answer_is_a_fault() -> None:
    instance = read_instance(TOY)
    claim = api.solve(instance, target=Fraction(1)).claim()
    assert claim.answer is Answer.YES
    for changed in (
        replace(claim, answer=Answer.NO),
        replace(claim, answer=None),
        replace(claim, target=None),
        replace(claim, target=Fraction(1, 1000)),
    ):
        assert [fault.kind.value for fault in api.verify(instance, changed).faults] == ["answer"]


def of_limits() -> Instance:
    return replace(read_instance("instances/paper-csp/i64.json"), objective=Objective.of(LIMITS))


def test_certificates_of_one_metric_prove_limits() -> None:
    instance = of_limits()
    found = [bound for bound in searched_bounds(instance) if bound.evidence is not None]
    assert {bound.source.partition(":")[0] for bound in found} == {"makespan", "mean_e2e"}
    solved = api.solve(instance, time_limit=0.1)
    for bound in found:
        claim = replace(solved, lower=bound).claim()
        assert certified_bound(instance, claim, CERTIFICATION) == bound.value


def test_a_certificate_of_another_limit_is_rejected(tmp_path: Path) -> None:
    instance = of_limits()
    bound = next(b for b in searched_bounds(instance) if b.evidence is not None)
    api.write_certificate(instance, bound, tmp_path / "c.json")
    certificate = json.loads((tmp_path / "c.json").read_text())
    plain = json.loads(Path("instances/paper-csp/i64.json").read_text())
    assert check({**plain, "objective": LIMITS}, certificate, PROFILES) == bound.value
    for limits in ({"mean_e2e": "2", "makespan": "2"}, {"mean_e2e": "1"}):
        with pytest.raises(Rejected):
            check({**plain, "objective": {"at_most": limits}}, certificate, PROFILES)


PROFILES = Path("infermax_opt/infermax/data/profiles")


def ask(*options: str) -> tuple[int, str]:
    outcome = CliRunner().invoke(cli, ["solve", TOY, *options])
    return outcome.exit_code, outcome.output


def test_the_command_answers() -> None:
    assert ask("--at-most", "mean_e2e=0.05")[0] == 0
    code, text = ask("--at-most", "mean_e2e=0.0409")
    assert code == 1
    assert "no: the lower bound is above it" in text
    code, text = ask("--at-most", "makespan=0.9*vllm")
    assert code == 1
    assert "at most 0.0472111 s?" in text  # rounded down, as the bound that is above it
    code, text = ask("--at-most", "makespan=1*vllm", "--json")
    assert code == 0
    assert json.loads(text)["answer"] == "yes"
    code, text = ask("--slo", "ttft=0.5", "--at-least", "attainment=0.99")
    assert code == 0
    assert "yes: the schedule shows it" in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--at-most", "speed=1"], "'speed' is none of makespan"),
        (["--at-most", "makespan"], "'makespan' is not METRIC=LIMIT"),
        (["--at-most", "makespan=fast"], "at_most.makespan: 'fast' is not a decimal number"),
        (["--at-most", "makespan=1", "--at-most", "makespan=2"], "'makespan' has two limits"),
        (["--at-most", "makespan=-1"], "-1 is negative"),
        (["--at-most", "makespan=2*nobody"], "no scheduler 'nobody'"),
        (["--at-most", "goodput=1"], "'goodput' is none of makespan"),
        (["--at-least", "goodput=1"], "'goodput' is none of tokens_per_second, attainment, be_"),
        (["--at-least", "attainment=0.9"], "no request has a service level"),
        (["--at-most", "missed=0"], "missed: no request has a service level"),
        (["--at-most", "class_spread=0"], "class_spread: all requests are of one class"),
        (["--at-least", "attainment=1.5", "--slo", "ttft=1"], "1.5 is above 1"),
        (["--at-most", "makespan=1", "--objective", "mean_e2e"], "limits instead of an objective"),
    ],
)
def test_what_cannot_be_asked_is_one_line(options: list[str], words: str) -> None:
    outcome = CliRunner().invoke(cli, ["solve", TOY, *options])
    assert words in str(outcome.output) + str(outcome.exception)
    assert outcome.exit_code != 0


def test_an_error_lists_only_what_can_be_asked() -> None:
    for option in ("--at-most", "--at-least"):
        told = CliRunner().invoke(cli, ["solve", TOY, option, "speed=1"]).stderr
        assert "goodput" not in told, option
        assert "batches" not in told, option


def test_other_problems_are_asked_for_their_objective() -> None:
    instance = read_instance("instances/placement-toy.json")
    problem = problem_of(instance)
    _, target = problem.question(instance, [f"{instance.objective_name}=3"], [])
    result = api.solve(instance, target=target)
    assert result.answer in (Answer.YES, Answer.NO)
    assert result.status in (Status.OPTIMAL, Status.FEASIBLE)
    with pytest.raises(InputError):
        problem.question(instance, [f"{instance.objective_name}=3"], ["attainment=1"])
