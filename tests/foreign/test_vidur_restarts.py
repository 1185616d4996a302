"""Restarts that Vidur makes are read off its batches by its own rule."""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction
from itertools import chain, combinations

import pytest

from infermax_opt.foreign import vidur_restarts
from infermax_opt.foreign.known_lengths import Reading, Stretch
from infermax_opt.foreign.restarts import Chunks, Processed
from infermax_opt.foreign.run import ForeignBatch, Run
from infermax_opt.foreign.vidur_restarts import vidur_reading
from infermax_opt.infermax.data.foreign_schedule import schedule_of_run
from infermax_opt.infermax.data.instance import Instance, RequestGroup, System
from infermax_opt.infermax.data.profiles import load_profile
from infermax_opt.infermax.replay.fast import replay
from tests.campaign import campaign
from tests.foreign.vidur_sarathi import batches_of

COST = load_profile("llama-2-7b_a100").cost


def made_up(rng: random.Random) -> tuple[Instance, Run, list[int]]:
    """An instance, the batches that Vidur makes of it, and how often each request is restarted."""
    most, budget = rng.choice([20, 100, 400]), rng.choice([32, 64, 128])
    sizes = [(rng.randint(1, most), rng.randint(2, most // 2)) for _ in range(rng.randint(5, 30))]
    capacity = int(max(map(sum, sizes)) * rng.choice([1.2, 2, 3]))
    rows, restarts = batches_of(sizes, capacity, budget)
    batches = tuple(ForeignBatch(Fraction(k), Fraction(k + 1), row) for k, row in enumerate(rows))
    groups = tuple(RequestGroup(f"q{k:02}", *size, Fraction(0)) for k, size in enumerate(sizes))
    system = System(capacity, 10**4, 10**4)
    return Instance("made", groups, system, COST), Run("trace.json", "test", (), batches=batches), restarts


def test_runs_of_vidur_come_back() -> None:
    """Nearly all do, with each restart; where a reading is refused, it is one of several."""
    tried = exact = inside = 0
    for seed in campaign(60, 1500):
        instance, run, restarts = made_up(random.Random(seed))
        schedule, remarks = schedule_of_run(run, instance)
        done = replay(instance, schedule)
        if not sum(restarts):
            assert done.violations == (), seed
            assert not done.evictions, seed
            continue
        tried += 1
        right = done.violations == () and done.evictions == sum(restarts)
        exact += right
        inside += any("evict only" in remark for remark in remarks)
        assert right or "in more than one way" in remarks[0], seed
    assert inside > tried / 5
    assert exact >= 0.85 * tried > 20


def kept(of: Processed, full: list[bool], prompt: int, outputs: int, restarts: tuple[int, ...]) -> bool:
    """Whether restarts keep Vidur's rule, life by life."""
    own = prompt
    for begin, end in zip((0, *restarts), (*restarts, len(of.counts)), strict=True):
        processed = 0
        for k in range(begin, end):
            count = of.counts[k]
            if processed > own:
                if count > 1:
                    return False
            elif processed + count > own or (processed + count < own and not full[k]):
                return False
            processed += count
            processed += processed == own
        # The last life makes all; the others do not.
        total = prompt + outputs
        if processed != total if end == len(of.counts) else processed >= total:
            return False
        own = processed
    return True


def cost(of: Processed, restarts: tuple[int, ...]) -> tuple[int, int, int]:
    """Restarts without a pause, KV summed over batches, restarts."""
    held = total = 0
    for k, count in enumerate(of.counts):
        total = count if k in restarts else total + count
        on = k + 1 < len(of.counts) and k + 1 not in restarts
        held += total * (of.places[k + 1] - of.places[k] if on else 1)
    return sum(not of.pauses(k) for k in restarts), held, len(restarts)


def every_way(of: Processed, full: list[bool], prompt: int, outputs: int) -> Iterator[tuple[int, ...]]:
    later = range(1, len(of.counts))
    tries = chain.from_iterable(combinations(later, k) for k in range(len(of.counts)))
    return (some for some in tries if kept(of, full, prompt, outputs, some))


def dropped(reading: Reading) -> tuple[int, ...]:
    """All restarts of a reading."""
    found = [
        (begin, *chunks.restarts) if begin else tuple(chunks.restarts) for begin, chunks in reading.stretches
    ]
    return tuple(chain.from_iterable(found))


def test_against_every_way() -> None:
    several = 0
    for seed in campaign(400, 8000):
        rng = random.Random(seed)
        prompt = own = rng.randint(1, 6)
        total, counts, full = own + rng.randint(1, 6), list[int](), list[bool]()
        processed = 0
        while processed < total and len(counts) < 10:
            if counts and processed and rng.random() < 0.3:
                own, processed = processed, 0
            left = own - processed
            counts.append(rng.randint(1, left) if left > 0 else 1)
            full.append(counts[-1] < left or rng.random() < 0.5)
            processed += counts[-1]
            processed += processed == own
        places = [0]
        for _ in counts[1:]:
            places.append(places[-1] + rng.choice([1, 1, 3]))
        of, outputs = Processed(places, counts), total - prompt
        ways = list(every_way(of, full, prompt, outputs))
        assert ways or processed < total, seed
        reading = vidur_reading(of, full, prompt, outputs)
        assert (reading is not None) == bool(ways), seed
        if reading is not None:
            assert dropped(reading) in ways, seed
            assert cost(of, dropped(reading)) == min(cost(of, one) for one in ways), seed
            assert reading.alone == (len(ways) == 1), seed
            several += not reading.alone
    assert several > 20


def test_a_prompt_that_is_restarted_becomes_shorter() -> None:
    """Of 8 tokens 3 were processed; whether the batch was full tells a chunk from a token."""
    of = Processed([0, 1, 2, 3, 4, 5, 6, 7], [3, 3, 1, 1, 1, 1, 1, 1])
    wanted = Reading((Stretch(0, Chunks(6, [1])),), True)
    assert vidur_reading(of, [True, *[False] * 7], 8, 2) == wanted
    assert vidur_reading(of, [False] * 8, 8, 2) is None  # a chunk that leaves room is the last one
    assert vidur_reading(of, [True] * 8, 8, 3) is None  # not finished


def test_there_is_an_end_to_trying(monkeypatch: pytest.MonkeyPatch) -> None:
    of = Processed([0, 1, 2, 3, 4, 5, 6, 7], [3, 3, 1, 1, 1, 1, 1, 1])
    monkeypatch.setattr(vidur_restarts, "MOST_STEPS", 0)
    assert vidur_reading(of, [True] * 8, 8, 2) is None
