"""First and last batches of the occupancy bound: against the optimum, and what a checker must refuse."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import pytest

from infermax_opt.infermax.bounds.occupancy import occupancy_bound
from infermax_opt.infermax.checker import Rejected
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.exact.staged import staged_search
from infermax_opt.table.suites import get_suite
from tests.campaign import campaign, in_blocks
from tests.infermax.occupancy_adversary import edges, signed, submitted
from tests.infermax.occupancy_ends_adversary import ends_of, strongest
from tests.infermax.test_many_bounds import TIGHT, crowd
from tests.infermax.tiny import tiny
from tests.support import case, certificate_to_json, check_evidence, few


@in_blocks(campaign(18, 2_000), 18)
def test_the_strongest_prices_do_not_exceed_the_optimum(seeds: range) -> None:
    """The best certificate of each graph, by linear programming on an independent list of steps."""
    accepted = 0
    for seed in seeds:
        instance = crowd(seed) if seed % 2 else tiny(seed)
        if instance.system.kv_capacity > 12:
            continue
        best = staged_search(instance).upper
        assert best is not None
        for piece, young in itertools.product(range(len(instance.cost.batch)), (0, 1)):
            graph = edges(instance, piece, 99, young)
            for few_batches in (99, seed % 3):
                ends = ends_of(instance, graph, few_batches)
                certificate = None if ends is None else strongest(instance, graph, ends)
                if certificate is None:
                    continue
                claimed = submitted(instance, certificate)
                assert claimed == Fraction(certificate["lower_bound"]), (seed, piece, young)
                assert claimed <= best, (seed, piece, young)
                accepted += 1
    assert accepted > 0


#: Instances on which a kind of step matters at the ends.
MATTERS = {
    "evict": (case(3, 1, 5, 8), case(4, 1, 4, 6)),
    "return": (crowd(108),),
    "pure return": (case(3, 1, 5, 8), crowd(53)),
    "idle": (crowd(103), tiny(63)),
    "plain batch": (case(3, 1, 5, 8), case(3, 2, 4, 9)),
    "mixed batch": (crowd(108),),
    "pure admit": (case(3, 1, 5, 8), case(3, 2, 4, 9)),
    "pure end": (case(3, 1, 5, 8), case(3, 2, 4, 9)),
    "finish": (case(3, 1, 5, 8), case(3, 2, 4, 9)),
    "late": (TIGHT, case(3, 1, 5, 6, cost=TIGHT.cost)),
}


@pytest.mark.parametrize("kind", MATTERS)
def test_certificates_that_leave_out_steps_at_the_ends(kind: str) -> None:
    """Without one kind of step the ends would cost too much: the checker knows every kind."""
    for instance in MATTERS[kind]:
        graph = edges(instance, 0, 99)
        ends = ends_of(instance, graph)
        assert ends is not None
        bold, honest = strongest(instance, graph, ends, without=kind), strongest(instance, graph, ends)
        assert bold is not None
        assert honest is not None
        assert Fraction(bold["lower_bound"]) > Fraction(honest["lower_bound"]) * Fraction("1.001")
        with pytest.raises(Rejected):
            submitted(instance, bold)


@pytest.fixture(scope="module")
def honest() -> tuple[Instance, dict[str, Any]]:
    """Twelve requests of 6 + 6 tokens in a memory of 40, and a certificate that walks the ends."""
    instance = case(12, 6, 6, 40)
    bound = occupancy_bound(instance, stop=few(200))
    assert bound is not None
    assert check_evidence(instance, bound) == bound.value
    return instance, certificate_to_json(instance, bound)


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ([7, 5], "a request may finish in the first batches"),
        ([6, 6], "a request may start in the last batches"),
        ([6, -1], "is not a whole number"),
        ([6], "wrong length of a list"),
        ([6, 5, 1], "wrong length of a list"),
    ],
)
def test_wrong_numbers_of_batches(
    honest: tuple[Instance, dict[str, Any]], ends: list[int], words: str
) -> None:
    instance, certificate = honest
    assert certificate["evidence"]["ends"] == [6, 5]
    evidence = {**certificate["evidence"], "ends": ends}
    with pytest.raises(Rejected, match=words):
        submitted(instance, signed({**certificate, "evidence": evidence}))


def test_the_ends_must_not_overlap() -> None:
    """Two requests that fit at once may take only as many batches as they have tokens."""
    instance = case(2, 3, 6, 40)
    graph = edges(instance, 0, 99)
    ends = ends_of(instance, graph)
    assert ends is not None
    assert ends.first + ends.last == 6
    certificate = strongest(instance, graph, ends)
    assert certificate is not None
    assert submitted(instance, certificate) == Fraction(certificate["lower_bound"])
    evidence = {**certificate["evidence"], "ends": [ends.first + 1, ends.last]}
    with pytest.raises(Rejected, match="there may be fewer batches"):
        submitted(instance, signed({**certificate, "evidence": evidence}))


def test_potentials_follow_from_the_first_batches(honest: tuple[Instance, dict[str, Any]]) -> None:
    """Those that are all higher by the same fit each other as well, and the end would cost more by that."""
    instance, certificate = honest
    evidence = certificate["evidence"]
    higher = [[None if v is None else v + 1 for v in row] for row in evidence["potential"]]
    with pytest.raises(Rejected, match="the first batches cost less"):
        submitted(instance, signed({**certificate, "evidence": {**evidence, "potential": higher}}))
    lower = [[None if v is None else v - 1 for v in row] for row in evidence["potential"]]
    with pytest.raises(Rejected, match="claims"):
        submitted(instance, signed({**certificate, "evidence": {**evidence, "potential": lower}}))


def test_more_than_without(honest: tuple[Instance, dict[str, Any]]) -> None:
    instance, certificate = honest
    without = occupancy_bound(instance, stop=few(200), ends=False)
    assert without is not None
    assert without.evidence is not None
    assert "ends" not in without.evidence
    assert Fraction(certificate["lower_bound"]) > without.value * Fraction("1.01")


@pytest.mark.parametrize(("cell", "least"), [("i1-o32-m100", "1.403"), ("i8-o32-m100", "1.986")])
def test_few_requests(cell: str, least: str) -> None:
    """Without the ends 1.374 s and 1.966 s; verified schedules take 1.444 s and 2.038 s."""
    (found,) = get_suite("paper-b32").select([f"b32-{cell}-p4096"])
    bound = occupancy_bound(found.build(), stop=few(400))
    assert bound is not None
    assert bound.value >= Fraction(least)
