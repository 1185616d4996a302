"""Replays of streams: all as a naive simulator says, and every problem at a heartbeat."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import pytest

from infermax_opt.cluster.data.stream import Stream, StreamRequest
from infermax_opt.cluster.replay.replay import Beat, StreamReplay, replay_stream
from infermax_opt.core.errors import InputError
from infermax_opt.placement.data.instance import PlacementInstance, Slo, Worker
from tests.campaign import campaign
from tests.cluster.oracle import Policies, Story, story, tight_stream, tiny_stream

Facts = tuple[int, int, int | None, int, Fraction, int | None]


def facts(instance: PlacementInstance) -> dict[str, Facts]:
    return {
        r.id: (
            r.input_tokens, r.predicted_output_tokens, r.output_tokens, r.generated_tokens,
            r.decode_seconds, r.worker,
        )
        for r in instance.requests
    }  # fmt: skip


def compare(stream: Stream, chosen: Mapping[str, int]) -> StreamReplay:
    """Replay with given workers, everything against the naive simulator."""
    on: dict[int, list[int]] = {}
    for k, request in enumerate(stream.requests):
        on.setdefault(chosen[request.id], []).append(k)
    stories: dict[int, Story] = {name: story(stream, keys) for name, keys in on.items()}
    asked = []

    def watch(beat: Beat, _: Mapping[str, int]) -> None:
        asked.append(beat.number)
        expected: dict[str, Facts] = {}
        busy = {}
        for name, told in stories.items():
            seen = told.seen[beat.number]
            if seen is None:
                continue
            if seen.wait:
                busy[name] = seen.wait
            for g in seen.groups:
                assert g.output_tokens is not None
                expected[g.id] = (
                    g.input_tokens, g.predicted_output_tokens, g.output_tokens, g.generated_tokens,
                    g.decode_seconds, name,
                )  # fmt: skip
        for k in stream.beats[beat.number]:
            r = stream.requests[k]
            new = r.input_tokens, r.predicted_output_tokens, r.output_tokens, 0, Fraction(0), None
            expected[r.id] = new
        assert facts(beat.instance) == expected
        assert beat.instance.busy == busy

    replay = replay_stream(stream, lambda beat: chosen, watch=watch)
    assert asked == sorted(stream.beats)
    assert replay.worker == tuple(chosen[r.id] for r in stream.requests)
    ticks = replay.units.ticks_per_second
    for k, served in enumerate(replay.served):
        job = stories[replay.worker[k]].jobs[k]
        assert served.first is not None
        assert served.last is not None
        assert (Fraction(served.first, ticks), Fraction(served.last, ticks)) == (job.first, job.last)
        assert (served.tokens, served.evictions) == (stream.requests[k].output_tokens, job.evictions)
    assert replay.preemptions == sum(served.evictions for served in replay.served)
    for record in replay.beats:
        new = stream.beats.get(record.number, ())
        used = {name for name, told in stories.items() if told.seen[record.number] is not None}
        assert record.new == len(new)
        assert record.workers == len(used | {replay.worker[k] for k in new})
    assert [record.number for record in replay.beats] == [*range(min(stream.beats), max(stream.beats) + 1)]
    return replay


@pytest.mark.parametrize("split_phase", [False, True])
def test_every_stream_goes_as_the_naive_simulator_says(split_phase: bool) -> None:
    preempted = 0
    for seed in range(400):
        rng = random.Random(seed)
        stream = tiny_stream(rng, requests=9, split_phase=split_phase)
        workers = rng.randint(1, 3)
        chosen = {r.id: rng.randint(1, workers) for r in stream.requests}
        preempted += compare(stream, chosen).preemptions > 0
    assert preempted > 30


def test_limits_without_too_low_predictions_never_lead_to_a_preemption() -> None:
    """Whatever a policy does within the limits, on every worker."""
    several, wrong, seeds = 0, 0, campaign(200, 400)
    for seed in seeds:
        stream = tight_stream(random.Random(seed), requests=5, right=0.5)
        if seed % 2:
            longer = tuple(
                replace(r, predicted_output_tokens=max(r.predicted_output_tokens, r.output_tokens))
                for r in stream.requests
            )
            stream = replace(stream, requests=longer)
        enough = all(r.predicted_output_tokens >= r.output_tokens for r in stream.requests)
        for members, told in Policies(stream).stories.items():
            evicted = any(job.evictions for job in told.jobs.values())
            assert not (enough and evicted), (seed, members)
            several += enough and len(members) > 1
            wrong += evicted
    assert several > 2.5 * len(seeds)
    assert wrong > 0, "too low ones do lead to some"


def hand(*requests: tuple[str, int, int, int], kv: str = "10", split_phase: bool = False) -> Stream:
    """Prefill of 0.1 s a token; decode iterations of 1 s; a heartbeat each second."""
    worker = Worker(Fraction(kv), *map(Fraction, ("1", "0", "0.1", "0", "0", "0", "1")))
    made = tuple(StreamRequest(f"r{k}", Fraction(a), *rest) for k, (a, *rest) in enumerate(requests))
    return Stream(
        "hand", made, worker, Slo(Fraction(100), Fraction(100)), split_phase=split_phase
    )  # fmt: skip


def test_preemption_by_hand() -> None:
    # Prefill 0.8 s; contexts 5 + 5 = 10 fit, 6 + 6 do not: r1 goes, r0 ends at 5.8, r1 is prefilled anew.
    stream = hand(("0", 4, 6, 6), ("0", 4, 4, 4))
    replay = compare(stream, {"r0": 1, "r1": 1})
    ticks = replay.units.ticks_per_second
    times = [(Fraction(s.first or 0, ticks), Fraction(s.last or 0, ticks)) for s in replay.served]
    assert times == [
        (Fraction("0.8"), Fraction("5.8")),
        (Fraction("0.8"), Fraction("0.8") + 5 + Fraction("0.6") + 1),
    ]
    assert replay.preemptions == 1


def test_a_request_of_one_token_whose_prefill_is_elsewhere() -> None:
    replay = compare(hand(("0.2", 4, 1, 1), ("2.5", 4, 1, 1), split_phase=True), {"r0": 1, "r1": 1})
    ticks = replay.units.ticks_per_second
    assert [served.last for served in replay.served] == [ticks, 3 * ticks]
    assert [record.workers for record in replay.beats] == [1, 0, 1]


def test_what_a_stream_is_refused_for() -> None:
    with pytest.raises(InputError, match="needs KV 11 at its end, a worker has 10"):
        hand(("0", 6, 6, 6))
    with pytest.raises(InputError, match="holds no request"):
        hand()
