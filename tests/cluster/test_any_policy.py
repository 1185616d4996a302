"""Bounds for every policy, and the fewest workers at a heartbeat: against all placements of tiny streams."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction

from infermax_opt.cluster.bounds.any_policy import AnyPolicyBound, any_policy_bounds
from infermax_opt.cluster.data.stream import Stream, StreamRequest
from infermax_opt.cluster.policies.by_name import fewest_at, make_policy, workers_of
from infermax_opt.cluster.replay.replay import Beat, replay_stream
from infermax_opt.core.errors import InputError
from infermax_opt.placement.bounds.exhaustive import exhaust
from infermax_opt.placement.data.instance import PlacementInstance, Slo, Worker
from infermax_opt.placement.data.schedule import Placement
from infermax_opt.placement.replay.check import check_placement
from tests.campaign import campaign
from tests.cluster.oracle import Policies, saving_stream, story, tight_stream
from tests.placement.oracle import fewest_workers, tiny_placement


def test_no_bound_exceeds_the_fewest_of_all_placements() -> None:
    kinds, seeds = Counter[tuple[str, bool]](), campaign(160, 5_000)
    for seed in seeds:
        rng = random.Random(seed)
        stream = saving_stream(rng) if seed % 3 else tight_stream(rng, requests=6 if seed % 4 == 0 else 5)
        policies = Policies(stream)
        if not policies.any:
            continue
        bounds = list(any_policy_bounds(stream))
        assert [bound.beat for bound in bounds] == [*range(policies.first, policies.last + 1)]
        for bound in bounds:
            least = policies.fewest(bound.beat)
            assert bound.workers <= least, (seed, bound)
            kinds[bound.limit, bound.workers == least] += 1
    assert all(kinds[letter, True] > len(seeds) / 80 for letter in "bce"), kinds
    assert kinds["d", True] > len(seeds) / 6


def test_a_prefill_after_a_preemption_may_be_faster_than_decoding() -> None:
    # a, evicted for x, has its third token not at 11 + 12 but as x ends at 13 + 3: n finds it gone.
    stream = Stream(
        "fast prefill",
        (
            StreamRequest("x", Fraction(0), 1, 1, 3),
            StreamRequest("a", Fraction(0), 10, 1, 4),
            StreamRequest("n", Fraction(20), 4, 1, 1),
        ),
        Worker(Fraction(13), *map(Fraction, (1, 0, 0, 0, 1, 0, 0))),
        Slo(Fraction(100), Fraction(100)),
        heartbeat=Fraction(20),
    )
    policies = Policies(stream)
    assert policies.any
    assert [policies.fewest(beat) for beat in (0, 1)] == [1, 1]
    assert list(any_policy_bounds(stream)) == [AnyPolicyBound(0, 1, "-"), AnyPolicyBound(1, 1, "-")]


def test_both_checks_of_the_limits_agree() -> None:
    kept, seeds = Counter[bool](), campaign(60, 200)
    for seed in seeds:
        rng = random.Random(seed)
        stream = tight_stream(rng, requests=5)
        policies = Policies(stream)
        keys = rng.sample(range(len(stream.requests)), rng.randint(1, len(stream.requests)))
        for _, instance, found in policies.limits(frozenset(keys), story(stream, sorted(keys))):
            placement = Placement("worker", {r.id: 1 for r in instance.requests})
            assert check_placement(instance, placement).valid == (not found)
            kept[not found] += 1
    assert min(kept.values()) > len(seeds) / 4


def test_what_policies_place_is_among_all_placements() -> None:
    """The limits at each heartbeat hold by both checks, and no policy uses fewer workers than any can."""
    for seed in campaign(60, 200):
        stream = tight_stream(random.Random(seed), requests=5)
        policies = Policies(stream)
        if not policies.any:
            continue

        def watch(beat: Beat, chosen: Mapping[str, int]) -> None:
            placement = fewest_at(beat.instance).placement
            assert check_placement(beat.instance, placement).valid

        for name in ("aladdin", "first-fit", "fewest"):
            replay = replay_stream(stream, make_policy(name), watch=watch)
            # A worker given up and taken up again is two workers, or one: all the same.
            on = {w: frozenset(k for k, at in enumerate(replay.worker) if at == w) for w in replay.worker}
            assert set(on.values()) <= policies.stories.keys(), (seed, name)
            for record in replay.beats:
                assert record.workers >= policies.fewest(record.number)


def instances_of(stream: Stream) -> list[PlacementInstance]:
    """What best-fit decides on; nothing where a request fits on no worker."""
    found: list[PlacementInstance] = []
    try:
        replay_stream(stream, make_policy("aladdin"), watch=lambda beat, _: found.append(beat.instance))
    except InputError:
        return []
    return found


def test_fewest_at_every_heartbeat() -> None:
    better, exhausted, seeds = 0, 0, campaign(100, 200, first=1000)
    for seed in seeds:
        stream = tight_stream(random.Random(seed), requests=9)
        for instance in instances_of(stream):
            found = fewest_at(instance)
            least = fewest_workers(instance)
            assert found.workers == found.lower == least == workers_of(instance, found.placement), seed
            assert found.bound.value <= found.lower
            exhausted += found.exhausted
            better += 1
    assert better > len(seeds)
    assert exhausted > 0


def test_exhaustive_search_is_exact() -> None:
    placed, busy, split, seeds = 0, 0, 0, campaign(100, 800)
    for seed in seeds:
        instance = tiny_placement(random.Random(seed))
        least = fewest_workers(instance)
        for workers in range(8):
            found = exhaust(instance, workers)
            assert found.decided
            assert (found.placement is not None) == (least is not None and least <= workers), (seed, workers)
            if found.placement is None:
                continue
            check = check_placement(instance, found.placement)
            assert check.valid
            assert check.workers <= workers
            placed += 1
            busy += bool(instance.busy)
            split += instance.split_phase
    assert placed > 2.5 * len(seeds)
    assert busy > len(seeds) / 4
    assert split > len(seeds) / 4


def test_exhaustive_search_gives_up() -> None:
    decided, seeds = Counter[bool](), campaign(75, 300)
    for seed in seeds:
        instance = tiny_placement(random.Random(seed))
        for nodes in (1, 3, 6):
            least = fewest_workers(instance)
            found = exhaust(instance, 3, nodes=nodes)
            if found.placement is not None:
                assert found.decided
                assert check_placement(instance, found.placement).valid
            elif found.decided:
                assert least is None or least > 3
            decided[found.decided] += 1
    assert min(decided.values()) > len(seeds) / 3
