"""The pooled bound against every routing and schedule of tiny fleets, and its certificates."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from infermax_opt.checking.errors import Rejected
from infermax_opt.checking.fields import Field
from infermax_opt.core.errors import InputError
from infermax_opt.fleet.bounds.pooled import pooled_bound
from infermax_opt.fleet.checker.certificate import least_machines
from infermax_opt.fleet.checker.command import main
from infermax_opt.fleet.checker.machine import read_machine
from infermax_opt.fleet.checker.needs import KINDS, needs_of
from infermax_opt.fleet.checker.question import question_hash
from infermax_opt.fleet.checker.windows import NEVER
from infermax_opt.fleet.question import FleetQuestion, Unfit
from infermax_opt.fleet.upper import fewest_machines
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, RequestGroup, System
from tests.campaign import campaign, in_blocks
from tests.fleet.tiny import decided, fewest, tiny_fleet
from tests.infermax.vector_oracle import TooMany


def met(seed: int) -> tuple[int | None, int | None] | None:
    """The bound and the optimum; None where the instance is too large."""
    question = tiny_fleet(seed)
    try:
        best = fewest(question)
    except TooMany:
        return None
    found = pooled_bound(question)
    if found.machines is None:
        assert best is None, seed
        return None, best
    proofs = [found.certificate, *random_proofs(found.certificate, random.Random(seed))]
    for proof in proofs:
        proved = least_machines(proof)
        assert best is None or (isinstance(proved, int) and proved <= best), (seed, proved, best)
    return found.machines, best


def random_proofs(certificate: dict[str, Any], rng: random.Random) -> Iterator[dict[str, Any]]:
    """Any windows, pieces, shares of alpha, weights and groups that the checker allows."""
    machine = read_machine(Field(certificate["machine"], "machine"))
    levels = [[None if x is None else Fraction(x) for x in level] for level in certificate["levels"]]
    needs = []
    for arrival, prompt, outputs, level in certificate["requests"]:
        needs += needs_of(machine, Fraction(arrival), (prompt, outputs), levels[level], 1) or []
    for _ in range(8):
        windows = []
        for _ in range(rng.randint(1, 3) if needs else 0):
            begin = max(0, rng.choice(needs).begin - rng.choice([0, 0, 1, 10]))
            end = rng.choice(needs).end + rng.choice([0, 0, 1, 10])
            if begin < end:
                piece = rng.randrange(len(machine.alpha))
                windows.append([begin, end, rng.randint(1, 9), piece, rng.choice(KINDS)])
        yield {**certificate, "windows": windows, "groups": rng.randint(1, 3)}


@in_blocks(campaign(24, 5_000), 40)
def test_no_bound_exceeds_the_optimum(seeds: range) -> None:
    found = [pair for pair in map(met, seeds) if pair is not None]
    assert len(found) > len(seeds) / 2
    assert any(bound is not None and bound > 1 for bound, _ in found)


def with_unfit(question: FleetQuestion, count: int) -> FleetQuestion:
    """The same question with requests beside that the machine can never hold."""
    tokens = question.workload.system.kv_capacity
    group = RequestGroup("large", tokens, 2, count=count, slo={"ttft": "9"})
    unfit = tuple(Unfit(request, k, "line 9", "is too large") for k, request in enumerate(group.expand()))
    return FleetQuestion(question.workload, question.share, unfit)


@in_blocks(campaign(12, 1_000), 20)
def test_who_fits_no_machine_misses(seeds: range) -> None:
    known = 0
    for seed, question, best in decided(seeds, lambda seed: with_unfit(tiny_fleet(seed), 1)):
        assert question.size == len(question.workload.requests) + 1
        found = pooled_bound(question)
        assert found.machines is not None or best is None, seed
        assert best is None or (found.machines or 0) <= best, seed
        upper = fewest_machines(question, 1) if found.machines is not None else None
        assert upper is None or (best is not None and upper.machines >= best), seed
        assert upper is None or len(upper.replay.good) >= question.must
        known += best is not None
    assert known or 0 not in seeds


def test_too_many_that_fit_no_machine() -> None:
    # Of 20, 5 may miss; one more is too many.
    for unfit, machines in ((1, 3), (5, 3), (6, None)):
        question = with_unfit(steady(20 - unfit, Fraction(3, 4)), unfit)
        assert pooled_bound(question).machines == machines
        assert (question.may_miss, question.spare) == (5, 5 - unfit)


def steady(requests: int, share: Fraction = Fraction(1), ttft: str = "0.5") -> FleetQuestion:
    """Equal requests that arrive together, each one batch of a second's tenth with its prompt alone."""
    groups = tuple(RequestGroup(f"r{k}", 100, 1, slo={"ttft": ttft}) for k in range(requests))
    cost = CostModel([("0", "0.001")], ("0", "0"), ("0", "0"))
    return FleetQuestion(Instance("steady", groups, System(1_000, 100, 100), cost, objective="missed"), share)


def test_who_arrives_together_within_a_limit() -> None:
    # Each takes 0.1 s, so a machine keeps five of them in half a second.
    assert pooled_bound(steady(20)).machines == 4
    assert pooled_bound(steady(21)).machines == 5
    # Of 20, 5 may miss it.
    assert pooled_bound(steady(20, Fraction(3, 4))).machines == 3


def test_ticks_beyond_whole_floats_lose_no_need() -> None:
    # Late in a long trace, floats of ticks are apart: windows began after requests that arrive together.
    cost = CostModel([("0", "0.00100000000000001")], ("0", "0"), ("0", "0"))
    workload = steady(20, ttft="0.501").workload
    for arrival in ("0", "3600.0000001", "86400.00000010000007"):
        groups = tuple(replace(group, arrival=arrival) for group in workload.groups)
        late = replace(workload, groups=groups, cost=cost)
        assert pooled_bound(FleetQuestion(late, Fraction(1))).machines == 4, arrival


def test_what_no_machine_can_serve_in_time() -> None:
    found = pooled_bound(steady(3, ttft="0.05"))
    assert (found.machines, found.lost) == (None, (0, 1, 2))
    assert least_machines(found.certificate) == NEVER


def test_a_share_is_a_share() -> None:
    for share in (Fraction(0), Fraction(3, 2)):
        with pytest.raises(InputError, match="share"):
            steady(2, share)


def altered(certificate: dict[str, Any]) -> list[dict[str, Any]]:
    """Certificates that claim more, or that are malformed."""
    found = []
    for path, value in (
        (("machines",), certificate["machines"] + 1),
        (("machine", "alpha"), [-1]),
        (("machine", "kv"), 0),
        (("share",), "1.5"),
        (("windows", 0, 1), certificate["windows"][0][0]),
        (("windows", 0, 2), 0),
        (("windows", 0, 3), 7),
        (("windows", 0, 4), "air"),
        (("requests", 0, 1), 0),
        (("requests", 0, 3), 9),
        (("groups",), 0),
        (("schema",), "x"),
        (("machines",), True),
        (("machines",), -1),
        (("machines",), NEVER),
        (("share",), "1e999999999"),
        (("requests", 0, 0), "1/0"),
        (("requests", 0, 1), 10**200),
        (("levels", 0), ["0.5", None]),
        (("machine", "spreads"), 1),
        (("question",), "0" * 64),
    ):
        other = copy.deepcopy(certificate)
        place = other
        for key in path[:-1]:
            place = place[key]  # type: ignore[index]
        place[path[-1]] = value  # type: ignore[index]
        found.append(other)
    return found


def test_the_checker_as_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certificate = pooled_bound(steady(20)).certificate
    path = tmp_path / "proof.json"
    path.write_text(json.dumps(certificate))
    assert main([str(path)]) == 0
    assert "fleet >= 4 machines" in capsys.readouterr().out
    for other in altered(certificate):
        path.write_text(json.dumps(other))
        assert main([str(path)]) == 1, other
    not_finite, twice = json.dumps({**certificate, "share": float("nan")}), '{"machines": 4, "machines": 1}'
    for text in ("{", "[" * 100_000, "[]", '{"machines": ' + "1" * 5000 + "}", not_finite, twice):
        path.write_text(text)
        assert main([str(path)]) == 2


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where each number, text and truth value of a certificate stands."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, (*path, key))
    else:
        yield path


def forged(value: Any) -> list[Any]:
    """Other values of a field."""
    if isinstance(value, bool) or value is None:
        return [not value]
    if isinstance(value, int):
        return [value + 1, max(0, value - 1), 2 * value + 3]
    try:
        return [str(Fraction(value) / 2), str(Fraction(value) + 1)]
    except ValueError:
        return ["kv", "tokens"]


def of_question(certificate: dict[str, Any]) -> dict[str, Any]:
    """The certificate with the hash of what it has become."""
    levels = [[None if x is None else Fraction(x) for x in level] for level in certificate["levels"]]
    asked = [(Fraction(a), i, o, tuple(levels[level])) for a, i, o, level in certificate["requests"]]
    machine = read_machine(Field(certificate["machine"], "machine"))
    return {**certificate, "question": question_hash(machine, Fraction(certificate["share"]), asked)}


def test_a_certificate_is_of_its_requests_and_limits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    question = steady(20, Fraction(3, 4))
    certificate, path = pooled_bound(question).certificate, tmp_path / "proof.json"
    assert certificate["question"] == question.sha256
    path.write_text(json.dumps(certificate))
    assert main([str(path), "--question", question.sha256]) == 0
    assert question.sha256 in capsys.readouterr().out
    assert main([str(path), "--question", steady(20).sha256]) == 1
    with pytest.raises(SystemExit) as wrong:
        main([str(path), "more"])
    assert wrong.value.code == 2
    # Requests that ask for more: a true proof, but of another question.
    harder = pooled_bound(steady(20, Fraction(3, 4), ttft="0.2")).certificate
    assert harder["machines"] > certificate["machines"]
    path.write_text(json.dumps(harder))
    assert main([str(path)]) == 0
    assert main([str(path), "--question", question.sha256]) == 1


def test_what_is_forged_is_rejected_or_of_another_question() -> None:
    for seed in (3, 17):
        question = tiny_fleet(seed)
        certificate = pooled_bound(question).certificate
        for path in leaves(certificate):
            if path[0] in ("windows", "groups", "machines", "schema", "question"):
                continue  # of these any are valid, are compared with what is proved, or are fixed
            old = certificate
            for key in path:
                old = old[key]
            for value in forged(old):
                other = copy.deepcopy(certificate)
                place = other
                for key in path[:-1]:
                    place = place[key]
                place[path[-1]] = value
                if value == old:
                    continue
                with pytest.raises(Rejected):
                    least_machines(other)
                try:
                    assert of_question(other)["question"] != question.sha256, path
                except (Rejected, IndexError):
                    continue


def test_notation_is_no_other_question() -> None:
    certificate = pooled_bound(steady(4)).certificate
    machine = {**certificate["machine"], "ticks_per_second": 10 * certificate["machine"]["ticks_per_second"]}
    for name in ("alpha", "beta"):
        machine[name] = [10 * value for value in machine[name]]
    windows = [[10 * begin, 10 * end, *rest] for begin, end, *rest in certificate["windows"]]
    other = {**certificate, "machine": machine, "windows": windows, "share": "1.0"}
    assert least_machines(other) == certificate["machines"]


def test_who_may_be_left_out_is_said_by_the_share_alone() -> None:
    workload = steady(3).workload
    free = replace(workload, groups=tuple(replace(group, optional=True) for group in workload.groups))
    with pytest.raises(InputError, match="optional"):
        FleetQuestion(free)
    slow = replace(workload, slowest=CostModel([("0", "0.002")], ("0", "0"), ("0", "0")))
    with pytest.raises(InputError, match="intervals"):
        FleetQuestion(slow)
