"""The makespan problem: instances, replay rule by rule, bounds against exact optima."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest

from infermax_opt.core.errors import InputError
from infermax_opt.makespan.bounds import _segments
from infermax_opt.makespan.bounds import closed_form as bounds
from infermax_opt.makespan.bounds.closed_form import (
    arc_bound,
    arc_lengths,
    closed_form_makespan_bounds,
    paper_bound,
    prefill_cover,
    prefill_ticks,
    rounds_needed,
    stage_bound,
)
from infermax_opt.makespan.data.instance import (
    ClientRequestGroup,
    MakespanInstance,
    PrefillLevel,
    linear_levels,
)
from infermax_opt.makespan.data.schedule import Bin, MakespanSchedule
from infermax_opt.makespan.replay.bins import BinRule, replay_bins
from tests.makespan.oracle import optimum, tiny_makespan

LEVELS = (PrefillLevel(10, Fraction(2)), PrefillLevel(30, Fraction(3)))


def make(*requests: tuple[int, int], clients: int = 2) -> MakespanInstance:
    """Rounds of one second."""
    return MakespanInstance.of_requests("m", requests, clients, LEVELS, (1, 0))


def rules(instance: MakespanInstance, *bins: Bin) -> list[BinRule]:
    found = replay_bins(instance, MakespanSchedule("m", bins))
    assert found.valid == (not found.violations)
    return [violation.rule for violation in found.violations]


# --- instances ---


def test_levels_that_another_one_beats_are_never_used() -> None:
    levels = [PrefillLevel(t, Fraction(s)) for t, s in ((10, 5), (20, 4), (20, 7), (30, 9), (40, 9))]
    instance = MakespanInstance.of_requests("m", [(1, 1)], 1, levels, ("0.5", "0.25"))
    assert [(level.tokens, level.seconds) for level in instance.useful_levels] == [(20, 4), (40, 9)]
    assert instance.round_seconds == Fraction(3, 4)
    assert instance.prefill_ticks(0) == instance.prefill_ticks(20) == 4 * instance.ticks_per_second
    assert instance.prefill_ticks(21) == 9 * instance.ticks_per_second
    assert instance.prefill_ticks(41) is None


def test_linear_levels_are_those_of_the_paper() -> None:
    (level,) = linear_levels("0.025", "0.00013", [5000])
    assert level == PrefillLevel(5000, Fraction("0.675"))
    instance = MakespanInstance.of_requests("m", [(1, 1)], 200, [level], ("0.029", "0.00021"))
    assert instance.round_seconds == Fraction("0.071")


def test_groups_expand_and_estimates_default_to_the_truth() -> None:
    groups = (ClientRequestGroup("a", 3, 4, count=2), ClientRequestGroup("b", 5, 6, 7))
    instance = MakespanInstance("m", groups, 2, LEVELS, Fraction(1), Fraction(0))
    assert [(r.id, r.estimated_output_tokens) for r in instance.requests] == [
        ("a.1", 4),
        ("a.2", 4),
        ("b", 7),
    ]


def test_the_hash_tells_meanings_apart() -> None:
    base = make((3, 4), (5, 6))
    same = MakespanInstance.of_requests("m", [(3, 4), (5, 6)], 2, LEVELS[::-1], ("1.0", "0"))
    assert same.sha256 == base.sha256
    others = [replace(base, clients=3), replace(base, name="n"), replace(base, decode_overhead=Fraction(2))]
    others += [replace(base, levels=LEVELS[1:]), make((3, 4), (6, 5))]
    assert len({base.sha256, *(other.sha256 for other in others)}) == 6


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda: make(), "requests"),
        (lambda: make((31, 1)), "requests[0].input_tokens"),
        (lambda: make((1, 0)), "output_tokens"),
        (lambda: make((1, 1), clients=0), "clients"),
        (lambda: MakespanInstance.of_requests("m", [(1, 1)], 1, [], (1, 0)), "prefill.levels"),
        (lambda: MakespanInstance.of_requests("m", [(1, 1)], 1, LEVELS, (0, 0)), "decode"),
        (lambda: MakespanInstance.of_requests("m", [(1, 1)], 1, LEVELS, (-1, 3)), "decode"),
        (lambda: linear_levels("x", 1, [4]), "prefill.overhead"),
        (lambda: Bin(prefill={"r1": -1}), "prefill.r1"),
        (lambda: Bin(rounds="many"), "rounds"),  # type: ignore[arg-type]
        (lambda: Bin(decode=[1]), "decode"),  # type: ignore[arg-type]
    ],
)
def test_bad_numbers_are_named(build: Callable[[], object], field: str) -> None:
    with pytest.raises(InputError) as caught:
        build()
    assert caught.value.field == field


def test_an_id_must_not_be_used_twice() -> None:
    groups = (ClientRequestGroup("a.1", 3, 4), ClientRequestGroup("a", 3, 4, count=2))
    with pytest.raises(InputError, match=r"'a\.1' is used twice"):
        MakespanInstance("m", groups, 2, LEVELS, Fraction(1), Fraction(0))


# --- replay ---


def test_replay_by_hand() -> None:
    instance = make((10, 2), (15, 5), (4, 3))
    schedule = MakespanSchedule("m", [Bin({"r1": 1, "r2": 2}, 2), Bin({"r3": 1}, 3)])
    found = replay_bins(instance, schedule)
    assert found.valid
    assert [ticks / found.ticks_per_second for ticks in found.prefill_ticks] == [3, 2]
    assert found.makespan == 10
    assert found.client == [1, 2, 1]
    assert (found.first_bin, found.last_bin) == ([0, 0, 1], [0, 1, 1])
    # Client 1: 3 + 2 rounds, 2 + 3 rounds; client 2: 3 + 5 rounds, idle while client 1 prefills.
    assert found.idle_seconds == [0, 2]
    assert found.utilisation == Fraction(18, 20)
    assert found.tokens_per_second == 1


def test_a_decode_may_be_spread() -> None:
    instance = make((10, 3), (4, 6))
    late = Bin({"r1": 1, "r2": 2}, 2, {"r1": 0}), Bin({}, 4)
    assert rules(instance, *late) == []
    assert replay_bins(instance, MakespanSchedule("m", late)).generated == [3, 6]
    gap = Bin({"r1": 1, "r2": 2}, 2, {"r1": 1}), Bin({}, 2, {"r1": 0}), Bin({}, 2)
    assert rules(instance, *gap) == [BinRule.GAP]
    # A stage of no rounds is no gap.
    assert rules(instance, Bin({"r1": 1, "r2": 2}, 2), Bin({}, 0), Bin({}, 4)) == []


@pytest.mark.parametrize(
    ("bins", "expected"),
    [
        ([Bin({"r1": 1, "r2": 2}, 3)], []),
        ([Bin({"r1": 1, "r2": 1}, 3)], [BinRule.CLIENT_BUSY, BinRule.COMPLETION]),
        ([Bin({"r1": 1}, 2), Bin({"r2": 1}, 3)], [BinRule.CLIENT_BUSY, BinRule.COMPLETION]),
        ([Bin({"r1": 1}, 3), Bin({"r1": 2, "r2": 1}, 3)], [BinRule.PREFILLED_TWICE]),
        ([Bin({"r1": 1, "r2": 3}, 3)], [BinRule.UNKNOWN_CLIENT, BinRule.COMPLETION]),
        ([Bin({"r1": 0, "r2": 2}, 3)], [BinRule.UNKNOWN_CLIENT, BinRule.COMPLETION]),
        ([Bin({"r1": 1, "r2": 2, "x": 1}, 3)], [BinRule.UNKNOWN_REQUEST]),
        ([Bin({"r1": 1, "r2": 2}, 3, {"x": 1})], [BinRule.UNKNOWN_REQUEST]),
        ([Bin({"r1": 1}, 3, {"r2": 1}), Bin({"r2": 1}, 3)], [BinRule.NOT_UNDER_WAY]),
        ([Bin({"r1": 1, "r2": 2}, 3, {"r1": 4})], [BinRule.TOKENS]),
        ([Bin({"r1": 1, "r2": 2}, 2)], [BinRule.COMPLETION, BinRule.COMPLETION]),
        ([Bin({"r1": 1}, 3)], [BinRule.COMPLETION]),
    ],
)
def test_every_rule(bins: list[Bin], expected: list[BinRule]) -> None:
    assert rules(make((10, 3), (15, 3)), *bins) == expected


def test_a_stage_fits_the_largest_level() -> None:
    assert rules(make((15, 1), (16, 1)), Bin({"r1": 1, "r2": 2}, 1)) == [BinRule.LEVEL]
    assert rules(make((15, 1), (15, 1)), Bin({"r1": 1, "r2": 2}, 1)) == []


# --- bounds ---


@pytest.mark.parametrize("seed", range(40))
def test_bounds_hold_on_tiny_instances(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(25):
        instance = tiny_makespan(rng)
        best = optimum(instance)
        for bound in closed_form_makespan_bounds(instance):
            assert bound.value <= best, bound.source


def test_bounds_are_tight_where_they_should_be() -> None:
    # Two clients, equal requests, one level for all: two bins or three.
    instance = make(*[(15, 4)] * 4)
    assert arc_bound(instance).value == optimum(instance) == 3 + 3 + 8
    # Outputs of 1 and 2 on two clients: the arcs of one bin are of one length.
    other = make((1, 2), (1, 1))
    assert stage_bound(other).value == 2 + 2
    assert arc_bound(other).value == optimum(other) == 4


@pytest.mark.parametrize("seed", range(60))
def test_prefill_bounds_against_all_choices(seed: int) -> None:
    rng = random.Random(seed)
    instance = tiny_makespan(rng)
    tokens = sum(r.input_tokens for r in instance.requests)
    unit = instance.ticks_per_second
    everything = []
    for stages in range(1, 8):
        costs = [
            sum(int(level.seconds * unit) for level in some)
            for some in itertools.combinations_with_replacement(instance.levels, stages)
            if sum(level.tokens for level in some) >= tokens
        ]
        if costs:
            assert prefill_ticks(instance, stages) <= min(costs)
            everything += costs
    # Eight stages or more of at least one token each need not be looked at: 5 prompts, 30 tokens.
    if everything and instance.levels[-1].tokens * 2 >= tokens:
        assert prefill_cover(instance) <= min(everything)


def test_prefill_of_levels_in_even_steps_is_exact() -> None:
    levels = linear_levels("0.025", "0.00013", range(64, 1025, 64))
    instance = MakespanInstance.of_requests("m", [(70, 1)] * 50, 10, levels, ("0.029", "0.00021"))
    # 3,500 tokens are 55 steps; 6 stages of 4 ... 10 steps each.
    expected = 6 * Fraction("0.025") + 55 * 64 * Fraction("0.00013")
    assert Fraction(prefill_ticks(instance, 6), instance.ticks_per_second) == expected


@pytest.mark.parametrize("seed", range(60))
def test_least_rounding_up_to_few_lengths(seed: int) -> None:
    rng = random.Random(seed)
    lengths = [rng.randint(1, 30) for _ in range(rng.randint(1, 9))]
    values = sorted(set(lengths))
    wastes = bounds._Wastes(lengths)
    for segments in range(1, len(values) + 2):
        ways = itertools.combinations(values[:-1], min(segments, len(values)) - 1)
        true = min(sum(min(v for v in (*way, values[-1]) if v >= n) - n for n in lengths) for way in ways)
        assert wastes.least(segments) == true


def test_compiled_rounding_agrees_with_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(0)
    lengths = [rng.randint(1, 900) for _ in range(120)]
    plain = bounds._Wastes(lengths)
    monkeypatch.setattr(bounds, "PLAIN_LENGTHS", 10**9)
    slow = [plain.least(k) for k in range(1, 60)]
    monkeypatch.setattr(bounds, "PLAIN_LENGTHS", 0)
    monkeypatch.setattr(bounds, "UNCOMPILED_LENGTHS", 0)
    fast = bounds._Wastes(lengths)
    assert [fast.least(k) for k in range(1, 60)] == slow
    assert _segments.HELPERS


@pytest.mark.parametrize("seed", range(100))
def test_rounds_needed_against_all_assignments(seed: int) -> None:
    rng = random.Random(seed)
    lengths = [rng.randint(1, 12) for _ in range(rng.randint(1, 7))]
    clients = rng.randint(1, 3)
    true = min(
        max(sum(n for n, j in zip(lengths, way, strict=True) if j == client) for client in range(clients))
        for way in itertools.product(range(clients), repeat=len(lengths))
    )
    assert rounds_needed(lengths, clients) <= true
    assert rounds_needed([7, 7, 7, 6, 6], 2) == 19  # three of the longest on one client


def test_the_paper_s_bound_only_where_its_largest_level_is_the_best() -> None:
    good = make((10, 4), (25, 4))
    assert paper_bound(good) is not None
    bad = MakespanInstance.of_requests(
        "m", [(5, 1)], 1, [PrefillLevel(10, Fraction(1)), PrefillLevel(20, Fraction(5))], (1, 0)
    )
    assert paper_bound(bad) is None


def test_the_order_of_requests_does_not_matter() -> None:
    rng = random.Random(3)
    sizes = [(rng.randint(1, 200), rng.randint(1, 500)) for _ in range(300)]
    levels = linear_levels("0.025", "0.00013", range(64, 8193, 64))

    def value() -> list[Fraction]:
        instance = MakespanInstance.of_requests("m", sizes, 40, levels, ("0.029", "0.00021"))
        return [bound.value for bound in closed_form_makespan_bounds(instance)]

    before = value()
    rng.shuffle(sizes)
    assert value() == before


@pytest.mark.parametrize("bins", range(1, 7))
@pytest.mark.parametrize("longest", [1, 2, 3, 4])
def test_arc_lengths(bins: int, longest: int) -> None:
    """No nodes whose gaps are `longest` at most have more pairs as near as that than counted."""
    most: dict[int, int] = {}
    for gaps in itertools.product(range(longest + 1), repeat=bins):
        nodes = [0, *itertools.accumulate(gaps)]
        lengths = [b - a for a, b in itertools.combinations(nodes, 2)]
        classes = -(-nodes[-1] // longest)
        if classes:
            # Arcs that are too long are as good as one of the longest.
            useful = {min(length, longest) for length in lengths} - {0}
            assert len(useful) <= arc_lengths(bins, classes)
            pairs = sum(length <= longest for length in lengths)
            most[classes] = max(most.get(classes, 0), pairs)
    for classes, pairs in most.items():
        # For two classes or more, one of the lengths counted is that of all arcs that are too long.
        counted = arc_lengths(bins, classes) - (classes > 1)
        assert pairs <= counted
        if longest > 2:
            assert pairs == counted
