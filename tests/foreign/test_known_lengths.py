"""Readings of requests whose lengths are known, against every one that there is."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from infermax_opt.foreign import known_lengths
from infermax_opt.foreign.known_lengths import Reading, Stretch, reading_of
from infermax_opt.foreign.restarts import Chunks, Processed
from tests.campaign import campaign


@dataclass(frozen=True)
class Way:
    """Positions before which a request is restarted, and those that make a token."""

    restarts: tuple[int, ...] = ()
    makes: tuple[int, ...] = ()


def every_way(of: Processed, prompt: int, outputs: int) -> Iterator[Way]:
    """All ways, by trying every restart."""
    stack = [(0, 0, 0, Way())]
    while stack:
        k, cached, made, way = stack.pop()
        if k == len(of.counts):
            if made == outputs:
                yield way
            continue
        for restart in (False, True) if k else (False,):
            here = 0 if restart else cached
            after = here + of.counts[k]
            if made < outputs and after <= prompt + made:
                new = after == prompt + made
                restarts = (*way.restarts, k) if restart else way.restarts
                makes = (*way.makes, k) if new else way.makes
                stack.append((k + 1, after, made + new, Way(restarts, makes)))


def stretches(way: Way) -> tuple[tuple[int, int, int], ...]:
    """First chunk, chunk after the last restart, last chunk of each prompt and refill."""
    found, before = [], -1
    for end in way.makes:
        again = [k for k in way.restarts if before < k <= end]
        if again or before < 0:
            begin = 0 if before < 0 else again[0]
            found.append((begin, again[-1] if again else 0, end))
        before = end
    return tuple(found)


def likely(of: Processed, way: Way) -> bool:
    """Whether stretches begin and restart last at pauses or with several tokens."""
    places = {k for begin, restart, _ in stretches(way) for k in (begin, restart)} - {0}
    return all(of.counts[k] > 1 or of.pauses(k) for k in places)


def cost(of: Processed, way: Way) -> tuple[int, int]:
    """Restarts without a pause, and KV tokens summed over batches."""
    held = total = 0
    for k, count in enumerate(of.counts):
        total = count if k in way.restarts else total + count
        kept = k + 1 < len(of.counts) and k + 1 not in way.restarts
        held += total * (of.places[k + 1] - of.places[k] if kept else 1)
    return sum(not of.pauses(k) for k in way.restarts), held


def way_of(reading: Reading, of: Processed) -> Way:
    restarts: list[int] = []
    inside: set[int] = set()
    for begin, chunks in reading.stretches:
        restarts += [begin] * (begin > 0) + chunks.restarts
        inside.update(range(begin, chunks.end))
    return Way(tuple(restarts), tuple(k for k in range(len(of.counts)) if k not in inside))


def made_up(rng: random.Random) -> tuple[Processed, int, int]:
    """Batches of a request, most of them such as there are."""
    prompt, outputs, most = rng.randint(1, 7), rng.randint(1, 6), rng.randint(1, 5)
    counts: list[int] = []
    cached = made = 0
    while made < outputs and len(counts) < 11:
        if counts and rng.random() < 0.25:
            cached = 0
        counts.append(rng.randint(1, min(most, prompt + made - cached)))
        cached += counts[-1]
        made += cached == prompt + made
    if rng.random() < 0.1:
        counts[rng.randrange(len(counts))] += 1
    places = [0]
    for _ in counts[1:]:
        places.append(places[-1] + rng.choice([1, 1, 1, 2, 5]))
    return Processed(places, counts), prompt, outputs


@pytest.mark.parametrize("part", range(4))
def test_against_every_way(part: int) -> None:
    found = alone = 0
    for seed in campaign(180, 10_000, 100_000 * part):
        of, prompt, outputs = made_up(random.Random(seed))
        ways = list(every_way(of, prompt, outputs))
        reading = reading_of(of, prompt, outputs)
        assert (reading is not None) == bool(ways), (seed, of, prompt, outputs)
        if reading is None:
            continue
        found += 1
        alone += reading.alone
        way = way_of(reading, of)
        assert way in ways, (seed, of, prompt, outputs)
        without, held = cost(of, way)
        if without:
            ways = [one for one in ways if likely(of, one)] or ways
        else:
            ways = [one for one in ways if not cost(of, one)[0]]
            assert held == min(cost(of, one)[1] for one in ways), (seed, of, prompt, outputs)
        assert without == min(cost(of, one)[0] for one in ways), (seed, of, prompt, outputs)
        assert reading.alone == (len({stretches(one) for one in ways}) == 1), (seed, of, prompt, outputs)
    assert found > alone > 50


@pytest.mark.parametrize(
    ("counts", "places", "prompt", "outputs", "wanted"),
    [
        # A prompt is dropped before its last chunk.
        ([4, 3, 5, 1, 1], [0, 9, 10, 11, 12], 8, 3, [(0, 2, [1])]),
        # Two chunks as long as the prompt: the pause between them, or the output tokens, tell.
        ([4, 4, 4, 1, 1], [0, 9, 10, 11, 12], 8, 3, [(0, 2, [1])]),
        ([4, 4, 4, 5, 1, 1], [0, 1, 9, 10, 11, 12], 8, 4, [(0, 1, []), (2, 3, [])]),
        # What comes to nothing is dropped at each pause, and KV that nobody needs is not held.
        ([4, 4, 3, 5, 1, 1], [0, 7, 14, 15, 16, 17], 8, 3, [(0, 3, [1, 2])]),
        # A refill that begins with one token.
        ([8, 1, 1, 9, 1], [0, 1, 5, 6, 7], 8, 4, [(0, 0, []), (2, 3, [])]),
    ],
)
def test_examples(
    counts: list[int], places: list[int], prompt: int, outputs: int, wanted: list[tuple[int, int, list[int]]]
) -> None:
    reading = reading_of(Processed(places, counts), prompt, outputs)
    assert reading is not None
    assert list(reading.stretches) == [Stretch(b, Chunks(end, again)) for b, end, again in wanted]


def test_vidur_shortens_a_prompt_that_it_restarts() -> None:
    """Of 8 tokens 3 were processed: Vidur takes these for the prompt, and the others for output tokens."""
    reading = reading_of(Processed([0, 5, 6, 7, 8, 9, 10, 11], [3, 3, 1, 1, 1, 1, 1, 1]), 8, 2)
    assert reading == Reading((Stretch(0, Chunks(6, [1])),), True)
    # In a refill, and from one batch to the next: of 350 tokens 54 were processed.
    counts = [64, *[1] * 285, 54, 54, *[1] * 309]
    reading = reading_of(Processed(list(range(len(counts))), counts), 64, 300)
    assert reading is not None
    assert reading.stretches == (Stretch(0, Chunks(0, [])), Stretch(286, Chunks(583, [287])))


def test_others_have_no_reading() -> None:
    assert reading_of(Processed([0, 1, 2], [8, 1, 1]), 8, 4) is None  # not finished
    assert reading_of(Processed([0, 1, 2], [8, 1, 1]), 8, 2) is None  # goes on after its last token
    assert reading_of(Processed([0, 1, 2], [8, 1, 1]), 9, 3) is None  # another prompt


def test_there_is_an_end_to_trying(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reading_of(Processed(list(range(4000)), [1] * 4000), 2, 2500) is None
    monkeypatch.setattr(known_lengths, "MOST_STEPS", 1)
    assert reading_of(Processed([0, 9, 10, 11, 12], [4, 3, 5, 1, 1]), 8, 3) is None
