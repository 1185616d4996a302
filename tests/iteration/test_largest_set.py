"""The largest set of vectors within limits against trying every set, and where the table is cut short."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from infermax_opt.iteration.bounds import kept as searched
from infermax_opt.iteration.bounds import largest_set as table
from infermax_opt.iteration.bounds.kept import most_kept
from infermax_opt.iteration.bounds.largest_set import MOST_SUM, LargestSet, largest_set, most_by_weights
from infermax_opt.iteration.data.formats import iteration_instance_from_json, iteration_instance_to_json
from infermax_opt.iteration.data.instance import IterationInstance
from infermax_opt.iteration.data.ticks import Ticks
from tests.campaign import campaign, in_blocks
from tests.iteration.oracle import best_batch, tiny
from tests.iteration.test_kept import crowded

if TYPE_CHECKING:
    import numpy.typing as npt

    Whole = npt.NDArray[np.int64]


def drawn(rng: random.Random, size: int, most: int) -> tuple[Whole, Whole]:
    """Vectors of up to four numbers, and limits of which some bind."""
    columns = rng.randint(1, 4)
    rows = [[rng.randint(0, most) for _ in range(columns)] for _ in range(size)]
    room = [rng.randint(0, most * size // 2 + 1) for _ in range(columns)]
    return np.array(rows, dtype=np.int64), np.array(room, dtype=np.int64)


@in_blocks(campaign(180, 3_000), 100)
def test_every_set(seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        rows, room = drawn(rng, rng.randint(1, 10), rng.choice([2, 10, 1000, MOST_SUM // 16]))
        most = rng.randint(1, len(rows))
        best = max(
            size
            for size in range(most + 1)
            for some in itertools.combinations(range(len(rows)), size)
            if (rows[list(some)].sum(axis=0) <= room).all()
        )
        above = max(0, best + rng.randint(-2, 1))
        assert most_by_weights(rows, room, most) >= best, seed
        found = largest_set(rows, room, most, above, 10**6)
        assert found.most == max(best, above), seed
        assert (found.best is not None) == (best > above), seed
        if found.best is not None:
            assert len(set(found.best)) == best, seed
            assert (rows[found.best].sum(axis=0) <= room).all(), seed


def test_a_table_that_is_cut_short_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MOST_LABELS", 4)
    open_ = 0
    for seed in range(60):
        rows, room = drawn(random.Random(seed), 14, 1000)
        whole = _decided(rows, room)
        short = largest_set(rows, room, len(rows), 0, 8)
        size = len(short.best or ())
        assert size <= len(whole.best or ()) <= short.most, seed
        assert (rows[short.best or []].sum(axis=0) <= room).all(), seed
        open_ += size < short.most
    assert open_


def _decided(rows: Whole, room: Whole) -> LargestSet:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "MOST_LABELS", 10**6)
        return largest_set(rows, room, len(rows), 0, 10**7)


@in_blocks(campaign(120, 3_000), 100)
def test_snapshots_against_every_batch(seeds: range) -> None:
    for seed in seeds:
        instance = tiny(10_000 + seed)
        kept, best = most_kept(Ticks.of(instance)), best_batch(instance).kept
        assert (kept.least, kept.most) == (best, best), seed


def rush(seed: int, size: int) -> IterationInstance:
    """Urgent requests of both phases; time, blocks and places do not suffice for all."""
    rng, value = random.Random(seed), iteration_instance_to_json(crowded())
    rush = [
        {
            "id": f"q{k}", "class": "rt", "phase": rng.choice(["decode", "decode", "prefill"]),
            "context": 10 * rng.randint(1, 90) + 1, "new_blocks": rng.randint(0, 80),
            "host_blocks": rng.choice([0, 20]), "waited": str(rng.randint(0, 20) / 1000),
        }
        for k in range(size)
    ]  # fmt: skip
    cost = {
        "batch": [["1", "0.0001"], ["0.1", "0.002"]], "decode": ["0.1", "0.0005"],
        "prefill": ["0.2", "0.000002"], "attention": "exact",
    }  # fmt: skip
    more = {"batch": 40, "blocks": 800, "cost": cost, "swap": ["0.1", "0.01"]}
    value["requests"], value["machine"] = rush + value["requests"][16:], {**value["machine"], **more}
    return iteration_instance_from_json(value)


def test_search_and_table_agree_where_the_search_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(12):
        instance = rush(seed, 26)
        by_table = most_kept(Ticks.of(instance))
        with monkeypatch.context() as patch:
            patch.setattr(searched, "MOST_SUM", 0)
            patch.setattr(searched, "MOST_STEPS", 200_000)
            patch.setattr(searched, "MOST_WORK", 10**9)
            by_search = searched.most_kept(Ticks(instance))
        assert by_table.least == by_table.most == by_search.least == by_search.most, seed


def test_hundreds_of_urgent_requests_are_decided() -> None:
    for seed in range(3):
        kept = most_kept(Ticks.of(rush(seed, 300)))
        assert kept.least == kept.most
