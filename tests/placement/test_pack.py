from __future__ import annotations

import random
import time
from fractions import Fraction

import pytest

from infermax_opt.core.errors import InputError
from infermax_opt.placement.data.generate import generate
from infermax_opt.placement.data.instance import PlacementGroup, PlacementInstance
from infermax_opt.placement.heuristics import _pack_kernel as kernel
from infermax_opt.placement.heuristics._columns import Columns
from infermax_opt.placement.heuristics.pack import anytime_placements, pack
from infermax_opt.placement.heuristics.place import place
from infermax_opt.placement.replay._state import enter, leave, peak
from tests.placement.test_heuristics import FIGURE_3, fewest, tiny_placement, workers


def test_the_optimum_of_tiny_instances_is_found_and_never_beaten() -> None:
    for seed in range(50):
        instance = tiny_placement(random.Random(seed), new=7)
        least = fewest(instance)
        found = pack(instance, least, seed=seed)
        assert found is not None, seed
        assert workers(instance, found) == least
        assert pack(instance, least - 1, deadline=time.monotonic() + 0.02) is None
        last = 10**6
        for _, placement in anytime_placements(instance, lower=least):
            assert workers(instance, placement) < last
            last = workers(instance, placement)
        assert last == least, seed


def test_figure_3() -> None:
    assert workers(FIGURE_3, pack(FIGURE_3, 2)) == 2
    assert pack(FIGURE_3, 1) is None


@pytest.mark.parametrize(
    ("family", "ongoing", "least"),
    [
        ("long-prompts", 0.0, 66),
        ("kv-tight", 0.0, 19),
        ("mixed", 0.0, 13),
        ("strict", 0.0, 26),
        ("long-prompts", 0.3, 54),
    ],
)
def test_hard_families_are_packed_to_a_bound(family: str, ongoing: float, least: int) -> None:
    instance = generate(family, requests=200, seed=0, ongoing=ongoing)
    found = pack(instance, least, deadline=time.monotonic() + 20)
    assert found is not None
    assert workers(instance, found) == least


def test_a_start_is_used() -> None:
    instance = generate("strict", requests=100, seed=0)
    start = place(instance, "jsq")
    count = workers(instance, start)
    assert pack(instance, count, start=start) is start
    assert workers(instance, pack(instance, count - 1, start=start)) < count


def test_seeds_decide_whatever_the_length_of_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = generate("long-prompts", requests=60, seed=1, ongoing=0.2)
    runs = []
    for seconds in (0.1, 0.001):
        monkeypatch.setattr("infermax_opt.placement.heuristics.pack.CALL", seconds)
        runs.append(list(anytime_placements(instance, lower=18, seed=3)))
    assert runs[0] == runs[1]
    assert len(runs[0]) > 1


def test_threads() -> None:
    instance = generate("long-prompts", requests=100, seed=1)
    *_, (name, last) = anytime_placements(instance, lower=33, threads=2, deadline=time.monotonic() + 20)
    assert (name, workers(instance, last)) == ("pack", 33)


def test_deadlines_and_stops_are_respected() -> None:
    # One below what anybody found: the search goes on until it is stopped.
    instance = generate("kv-tight", requests=200, seed=1)
    pack(instance, 19, deadline=time.monotonic() + 0.1)
    for options in ({"deadline": time.monotonic() + 0.5}, {"stop": iter([False] * 5 + [True] * 9).__next__}):
        began = time.monotonic()
        assert pack(instance, 19, **options) is None
        assert time.monotonic() - began < 1.5
    began = time.monotonic()
    found = list(anytime_placements(instance, deadline=began + 0.5))
    assert time.monotonic() - began < 1.5
    assert found
    assert len(list(anytime_placements(instance, deadline=began))) == 1


def test_too_few_workers_are_told_at_once() -> None:
    instance = generate("strict", requests=100, seed=0, ongoing=0.5)
    began = time.monotonic()
    for count in (0, 3, 9):
        assert pack(instance, count, deadline=time.monotonic() + 20) is None
    assert time.monotonic() - began < 5


def test_unusable_and_trivial_instances() -> None:
    big = PlacementInstance("big", (PlacementGroup("r", 50, 1),), FIGURE_3.worker, FIGURE_3.slo)
    with pytest.raises(InputError, match=r"^requests: request 'r' fits on no worker: limit e, KV: 51 "):
        pack(big, 3)
    with pytest.raises(InputError, match="fits on no worker"):
        next(anytime_placements(big))
    groups = (PlacementGroup("r", 5, 5, None, 2, Fraction(0), 7),)
    alone = PlacementInstance("alone", groups, FIGURE_3.worker, FIGURE_3.slo)
    assert [dict(found.workers) for _, found in anytime_placements(alone)] == [{}]
    assert dict(pack(alone, 1).workers) == {}
    assert pack(alone, 0) is None


def test_state_of_workers_stays_exact() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        columns = Columns(tiny_placement(rng), compiled=False)
        limits, requests, new = columns.limits, columns.requests, list(columns.limits.new)
        if not new:
            continue
        some = columns.workers(2)
        number = len(some.head)
        where = dict.fromkeys(new)
        for _ in range(60):
            k = rng.choice(new)
            if where[k] is not None:
                leave(some, requests, k)
                where[k] = None
            else:
                where[k] = rng.randrange(number)
                enter(some, requests, k, where[k])
            w = rng.randrange(number)
            members = [k for k in new if where[k] == w]
            if w < len(columns.open):
                members += limits.ongoing[columns.open[w]]
            assert some.context[w] == sum(limits.context[k] for k in members)
            assert some.prompt[w] == sum(limits.prompt[k] for k in members)
            assert peak(some, requests, columns.grows, w, -1, -1) == limits.kv_peak(members)
            more = next((k for k in new if where[k] is None), -1)
            without = rng.choice([k for k in members if k in where] or [-1])
            changed = [k for k in members if k != without] + ([more] if more >= 0 else [])
            assert peak(some, requests, columns.grows, w, without, more) == limits.kv_peak(changed)


def test_plain_and_compiled_annealing_agree() -> None:
    import numpy as np

    from infermax_opt.placement.heuristics.pack import _anneal

    instance = generate("mixed", requests=40, seed=0, ongoing=0.2)
    found = []
    for anneal in (kernel.anneal, _anneal()):
        columns = Columns(instance, compiled=True)
        some = columns.workers(4)
        unit, movable = 1.0 / columns.most, columns.column(columns.limits.new)
        kernel.fill(columns.requests, some, movable, unit)
        bad, place = columns.column([0] * (len(some.head) + 1)), columns.column([-1] * len(some.head))
        for w in range(len(some.head)):
            some.peak[w] = peak(some, columns.requests, columns.grows, w, -1, -1)
            kernel.measure(some, bad, place, w, columns.most)
        anneal(
            columns.requests, some, bad, place, movable, columns.most, unit, columns.grows,
            2000, 0, 2000, 0.1, 0.001, np.random.default_rng(1),
        )  # fmt: skip
        found.append((some.worker.tolist(), bad[-1]))
    assert found[0] == found[1]
