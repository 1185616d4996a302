"""Look-ahead: every request meets its limits, and it chooses as a naive look-ahead does."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest

from infermax_opt.cluster.data.formats import stream_of_trace
from infermax_opt.cluster.data.stream import Stream, StreamRequest
from infermax_opt.cluster.policies import look_ahead as lookahead
from infermax_opt.cluster.policies.by_name import make_policy
from infermax_opt.cluster.replay.metrics import measure_stream
from infermax_opt.cluster.replay.replay import StreamReplay, replay_stream
from infermax_opt.core.errors import InputError
from infermax_opt.files.traces import read_trace
from infermax_opt.placement.data.generate import MODELS
from infermax_opt.placement.data.instance import Slo
from tests.campaign import campaign
from tests.cluster.oracle import Story, story, tight_stream
from tests.support import shared_data


def replayed(stream: Stream) -> StreamReplay:
    return replay_stream(stream, make_policy("look-ahead"))


def looser(stream: Stream, rng: random.Random) -> Stream:
    """The same with limits at which several requests go on a worker, some of them for a while only."""
    factor = Fraction(rng.choice(["1", "1.1", "1.5", "3"]))
    more = Fraction(rng.choice(["1", "2", "4"]))
    return replace(stream, slo=Slo(factor * stream.slo.ttft, more * stream.slo.atgt))


def kept(stream: Stream, told: Story, keys: list[int], theta: Fraction) -> bool:
    """Whether these requests of a worker meet their limits, without a preemption."""
    alone = stream.worker.decode_overhead
    atgt = min(stream.slo.atgt, alone + theta * (stream.slo.atgt - alone))
    for job in map(told.jobs.__getitem__, keys):
        assert job.first is not None
        assert job.last is not None
        request = job.request
        if job.evictions or job.first - stream.beat(request) * stream.heartbeat > stream.slo.ttft:
            return False
        if job.last - job.first > atgt * (request.output_tokens - 1):
            return False
    return True


def naive(stream: Stream) -> dict[int, int]:
    """Worker of each request by look-ahead with true lengths, workers replayed from their first request."""
    worker, gamma = stream.worker, stream.gamma

    def load(keys: list[int]) -> Fraction:
        members = [stream.requests[k] for k in keys]
        context = sum(r.input_tokens + gamma * r.output_tokens for r in members)
        return (worker.decode_request * len(members)) ** 2 + (worker.decode_context * context) ** 2

    chosen: dict[int, int] = {}
    on: dict[int, list[int]] = {}
    for beat, new in stream.beats.items():
        # Workers in use, and how they have begun.
        used: dict[int, tuple[list[int], int]] = {}
        for number, keys in on.items():
            seen = story(stream, keys).seen[beat]
            if seen is not None:
                there = [stream.index[group.id] for group in seen.groups]
                used[number] = there, len(keys)
        for key in new:
            loads = {n: load([*there, *on[n][before:]]) for n, (there, before) in used.items()}
            fresh = next(n for n in range(1, len(stream.requests) + 1) if n not in used)
            tries = [(n, stream.theta) for n in sorted(used, key=lambda n: (-loads[n], n))]
            for number, theta in [*tries, (fresh, stream.theta), (fresh, Fraction(1))]:
                before_it = on[number] if number in used else []
                there, before = used.get(number, ([], 0))
                matter = [*there, *before_it[before:], key]
                if kept(stream, story(stream, [*before_it, key]), matter, theta):
                    break
            else:
                raise InputError("not even alone")
            if number not in used:
                used[number] = [], 0
            on[number] = [*before_it, key]
            chosen[key] = number
    return chosen


def compared(stream: Stream, expected: Callable[[Stream], dict[int, int]]) -> StreamReplay | None:
    """Replay a stream and compare who goes where; None if a request meets its limits nowhere."""
    try:
        replay = replayed(stream)
    except InputError:
        with pytest.raises(InputError, match="even alone"):
            expected(stream)
        return None
    assert dict(enumerate(replay.worker)) == expected(stream)
    return replay


def test_it_chooses_as_naive_look_ahead_does_and_every_request_meets_its_limits() -> None:
    shared, split, blocked, seeds = 0, 0, 0, campaign(170, 700)
    for seed in seeds:
        rng = random.Random(seed)
        stream = looser(tight_stream(rng, requests=9, right=1.0), rng)
        replay = compared(stream, naive)
        if replay is None:
            continue
        metrics = measure_stream(replay)
        assert (metrics.attainment, metrics.preemptions) == (1, 0), seed
        shared += len(set(replay.worker)) < len(replay.worker)
        split += stream.split_phase
        # Someone waited for KV, not just for the prefill of those who came together.
        firsts = {(w, stream.beat(r), s.first) for w, r, s in
                  zip(replay.worker, stream.requests, replay.served, strict=True)}  # fmt: skip
        blocked += len(firsts) > len({(w, beat) for w, beat, _ in firsts})
    assert shared > len(seeds) / 2.8
    assert split > len(seeds) / 24
    assert blocked > len(seeds) / 47


def test_sums_change_no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with wrong predictions."""
    refused = 0

    def slowly(stream: Stream) -> dict[int, int]:
        with monkeypatch.context() as patch:
            patch.setattr(lookahead._Place, "hopeless", lambda self, key: False)
            return dict(enumerate(replayed(stream).worker))

    true = lookahead._Place.hopeless

    def counted(self: lookahead._Place, key: int) -> bool:
        nonlocal refused
        found = true(self, key)
        refused += found
        return found

    monkeypatch.setattr(lookahead._Place, "hopeless", counted)
    late, seeds = 0, campaign(170, 700)
    for seed in seeds:
        rng = random.Random(seed)
        stream = looser(tight_stream(rng, requests=14, right=0.2), rng)
        if rng.random() < 0.3:
            stream = replace(stream, split_phase=True)
        replay = compared(stream, slowly)
        late += replay is not None and measure_stream(replay).attainment < 1
    assert refused > len(seeds) / 1.4
    assert late > len(seeds) / 35, "wrong predictions make some late"


def test_a_request_that_is_late_even_alone_is_refused() -> None:
    model = MODELS["13b"]
    request = StreamRequest("long", Fraction(0), 5000, 10, 10)
    stream = Stream("late", (request,), model.worker, model.slo)
    with pytest.raises(InputError, match="'long' misses TTFT or ATGT even alone"):
        replayed(stream)


@pytest.mark.parametrize("split_phase", [False, True])
def test_azure_requests_all_meet_their_limits_on_no_more_workers(split_phase: bool) -> None:
    path = shared_data("data/AzureLLMInferenceTrace_conv.csv")
    if path is None:
        pytest.skip("shared/data/AzureLLMInferenceTrace_conv.csv is not there")
    trace = read_trace(path, "azure", window=(Fraction(0), Fraction(200)), offline=False)
    model = MODELS["13b"]
    _, stream = stream_of_trace(
        trace, "azure", model.worker, model.slo, skip_unfit=True, split_phase=split_phase
    )
    mine = measure_stream(replayed(stream))
    paper = measure_stream(replay_stream(stream, make_policy("aladdin")))
    assert (mine.attainment, mine.preemptions) == (1, 0)
    assert mine.mean_workers < paper.mean_workers
    assert paper.attainment < 1, "which the limits a to e do not promise"
