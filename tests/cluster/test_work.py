"""The bound on the mean number of workers: against all placements of tiny streams."""

from __future__ import annotations

import functools
import random
from dataclasses import replace
from fractions import Fraction

from infermax_opt.cluster.bounds.mean_workers import mean_workers_bound
from infermax_opt.cluster.data.stream import Stream, StreamRequest
from tests.campaign import campaign
from tests.cluster.oracle import Policies, tight_stream


def fewest_in_all(policies: Policies) -> int:
    """Least sum of the workers in use over all heartbeats, over all placements."""
    beats = range(policies.first, policies.last + 1)
    costs = {members: sum(policies.in_use(members, beat) for beat in beats) for members in policies.stories}

    @functools.cache
    def least(left: frozenset[int]) -> int:
        if not left:
            return 0
        one = min(left)
        return min(
            cost + least(left - members)
            for members, cost in costs.items()
            if one in members and members <= left
        )

    return least(frozenset(range(len(policies.stream.requests))))


def long_stream(rng: random.Random) -> Stream:
    """A tiny stream with short heartbeats, and a last request long after the others."""
    stream = tight_stream(rng, requests=5, right=1.0)
    heartbeat = stream.heartbeat / rng.choice([1, 1, 2, 4, 8])
    last = max(request.arrival for request in stream.requests) + heartbeat * rng.choice([5, 20, 60])
    requests = (*stream.requests, StreamRequest("far", last, 1, 1, 1))
    return replace(stream, heartbeat=heartbeat, requests=requests)


def test_no_placement_uses_fewer_on_average() -> None:
    close, counted, seeds = 0, 0, campaign(90, 5_000)
    for seed in seeds:
        stream = long_stream(random.Random(seed))
        policies = Policies(stream)
        if not policies.any:
            continue
        found = mean_workers_bound(stream)
        beats = policies.last - policies.first + 1
        least = fewest_in_all(policies)
        assert found.workers * beats <= least, seed
        assert 0 <= found.share <= 1
        assert found.seconds == found.workers * beats * stream.heartbeat
        close += 2 * found.workers * beats > least
        counted += 1
    assert counted > len(seeds) / 3
    assert close > len(seeds) / 12


def test_nothing_is_known_where_predictions_are_too_short() -> None:
    stream = long_stream(random.Random(1))
    first = stream.requests[0]
    short = replace(first, output_tokens=first.predicted_output_tokens + 1)
    changed = replace(stream, requests=(short, *stream.requests[1:]))
    assert mean_workers_bound(changed).workers == 0
    assert mean_workers_bound(changed).left_out == len(stream.requests)


def test_one_request_by_hand() -> None:
    # Prefill 2 + 1 s, then 3 iterations of 1 + 0.5 (4 + g) s; the next request long after.
    worker = dict.fromkeys(("kv_token", "kv_request"), Fraction(0))
    stream = long_stream(random.Random(0))
    stream = replace(
        stream,
        requests=(StreamRequest("a", Fraction(0), 4, 4, 4), StreamRequest("b", Fraction(90), 1, 1, 1)),
        worker=replace(
            stream.worker, kv_capacity=Fraction(100), prefill_token=Fraction("0.5"),
            prefill_overhead=Fraction(1), decode_context=Fraction("0.5"), decode_request=Fraction(0),
            decode_overhead=Fraction(1), **worker,
        ),
        slo=replace(stream.slo, ttft=Fraction(3), atgt=Fraction(5)),
        theta=Fraction(1), gamma=Fraction(1), heartbeat=Fraction(1), split_phase=False,
    )  # fmt: skip
    found = mean_workers_bound(stream)
    # The last request may outlast the last heartbeat; it could lend time: v = 0.5 - (5 - 1).
    assert found.left_out == 1
    increments = Fraction(1, 2) * (5 + 6 + 7)
    # As far as is known, the first one might have come to another: n >= (v + a) / (T_dec - c3), not 3.
    iterations = (2 - (5 - 1) + increments) / 4
    assert found.share == 1
    assert found.seconds == 3 + increments + iterations + (Fraction(1, 2) - (5 - 1)) / 4
    assert found.workers == found.seconds / 91
