"""Algorithm 2: errors by hand, greedy moves against the best re-placement, and the policy."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from infermax_opt.cluster.data.stream import Stream, StreamRequest
from infermax_opt.cluster.policies import rebalanced as module
from infermax_opt.cluster.policies.by_name import make_policy
from infermax_opt.cluster.policies.rebalanced import EstimationError, Rebalanced, cost_of, rebalance
from infermax_opt.cluster.replay.replay import replay_stream
from infermax_opt.core.errors import InputError
from infermax_opt.placement.data.instance import PlacementInstance, Slo, Worker
from infermax_opt.placement.data.schedule import Placement
from infermax_opt.placement.heuristics.place import place
from tests.campaign import campaign
from tests.cluster.oracle import tight_stream
from tests.placement.oracle import broken, tiny_placement


def imbalance(
    instance: PlacementInstance,
    first: Mapping[str, int],
    chosen: Mapping[str, int],
    errors: Mapping[int, EstimationError],
) -> Fraction:
    """Sum of |c_i|, when requests have taken their predicted tokens with them."""
    errors = dict(errors)
    for r in instance.requests:
        if not r.ongoing:
            errors[first[r.id]] += EstimationError(-r.predicted_output_tokens, -1)
            errors[chosen[r.id]] += EstimationError(r.predicted_output_tokens, 1)
    return sum((abs(cost_of(error, instance.worker)) for error in errors.values()), Fraction(0))


def kept(instance: PlacementInstance, first: Mapping[str, int], chosen: Mapping[str, int]) -> bool:
    """Whether limits b to e hold on every worker that a request has moved to."""
    for number in {chosen[name] for name in first if chosen[name] != first[name]}:
        ongoing = [r for r in instance.requests if r.worker == number]
        new = [r for r in instance.requests if not r.ongoing and chosen[r.id] == number]
        if broken(instance, new, ongoing, instance.busy.get(number, Fraction(0))):
            return False
    return True


def best(
    instance: PlacementInstance, first: Mapping[str, int], errors: Mapping[int, EstimationError]
) -> Fraction:
    """Least imbalance of all re-placements."""
    targets = sorted(errors)
    found = []
    for numbers in itertools.product(targets, repeat=len(first)):
        chosen = dict(zip(first, numbers, strict=True))
        if kept(instance, first, chosen):
            found.append(imbalance(instance, first, chosen, errors))
    return min(found)


def test_greedy_moves_against_the_best_ones() -> None:
    moved, optimal, better, seeds = 0, 0, 0, campaign(96, 400)
    for seed in seeds:
        rng = random.Random(seed)
        instance = tiny_placement(rng)
        workers = sorted(instance.in_use | {1, 2})
        if sum(not r.ongoing for r in instance.requests) > 4:
            continue
        first = {r.id: rng.choice(workers) for r in instance.requests if not r.ongoing}
        errors = {w: EstimationError(rng.randint(-20, 20), rng.randint(-2, 2)) for w in workers}
        before = imbalance(instance, first, first, errors)
        chosen = rebalance(instance, first, errors)
        after = imbalance(instance, first, chosen, errors)
        assert kept(instance, first, chosen)
        least = best(instance, first, errors)
        assert least <= after <= before
        moved += chosen != first
        assert (chosen != first) == (after < before)
        optimal += after == least
        better += after > least
    assert moved > len(seeds) / 10
    assert optimal > 0.45 * len(seeds)
    assert better > 0, "steepest descent is no search"


def hand(*last: tuple[str, int, int, int]) -> Stream:
    """Three requests on a worker by limit b, and nothing else counts: an iteration takes 0.1 s for each."""
    requests = [
        ("0", 1, 1, 90), ("0", 1, 1, 90), ("0", 1, 3, 3),  # worker 1: two go on
        ("0", 1, 80, 1), ("0", 1, 80, 2), ("0", 1, 80, 80),  # worker 2: two end
        *last,
    ]  # fmt: skip
    return Stream(
        "hand",
        tuple(StreamRequest(f"r{k}", Fraction(a), *rest) for k, (a, *rest) in enumerate(requests)),
        Worker(*map(Fraction, (10**4, 1, 0, 0, 0, 0, "0.1", 0))),
        Slo(Fraction(10), Fraction("0.3")),
        heartbeat=Fraction(2),
    )


def test_new_requests_go_where_others_have_ended_sooner(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    seen = []

    def spy(instance: PlacementInstance, first: Mapping[str, int], errors: Mapping[int, EstimationError]):  # type: ignore[no-untyped-def]
        seen.append((dict(first), dict(errors)))
        return rebalance(instance, first, errors)

    believed: list[PlacementInstance] = []

    def placed(instance: PlacementInstance, name: str) -> Placement:
        believed.append(instance)
        return place(instance, name)

    monkeypatch.setattr(module, "rebalance", spy)
    monkeypatch.setattr(module, "place", placed)
    given = hand(("1.5", 1, 5, 5), ("6", 1, 5, 5))
    replay = replay_stream(given, Rebalanced())
    assert replay.worker[:6] == (1, 1, 1, 2, 2, 2)
    # At 2 s, r0 and r1 have 10 tokens (the re-prediction of 1 is 16); worker 2 was thought to be full.
    first, errors = seen[1]
    assert first == {"r6": 1}
    assert errors == {1: EstimationError(16 + 16, 2), 2: EstimationError(1 - 80 + 2 - 80, -2)}
    assert replay.worker[6] == 2
    # The first placement has r0 and r1 end now, and r3 and r4 go on.
    there = {r.id: (r.predicted_output_tokens, r.generated_tokens, r.worker) for r in believed[1].requests}
    assert there == {
        "r0": (1, 10, 1), "r1": (1, 10, 1), "r3": (80, 1, 2), "r4": (80, 2, 2), "r5": (80, 20, 2),
        "r6": (5, 0, None),
    }  # fmt: skip
    ended = {r.id: r.decode_seconds for r in believed[1].requests if r.id in ("r3", "r4")}
    assert ended == {"r3": 0, "r4": Fraction("0.2")}
    # At 6 s, r0 and r1 have gone beyond 16; nothing more is known of worker 2.
    first, errors = seen[2]
    assert errors.keys() == {1}
    assert errors[1].requests == 2
    assert replay.worker[7] == first["r7"]


def test_a_worker_that_all_have_left_is_not_filled() -> None:
    given = hand(("2", 1, 5, 5))
    short = tuple(replace(r, output_tokens=1) if r.id == "r5" else r for r in given.requests)
    assert replay_stream(replace(given, requests=short), Rebalanced()).worker[6] == 1


def test_right_predictions_leave_best_fit_alone() -> None:
    changed = 0
    for seed in range(200):
        stream = tight_stream(random.Random(seed), requests=9)
        right = tuple(replace(r, predicted_output_tokens=r.output_tokens) for r in stream.requests)
        for given in (stream, replace(stream, requests=right)):
            try:
                paper = replay_stream(given, make_policy("aladdin")).worker
            except InputError:
                continue
            found = replay_stream(given, make_policy("aladdin-rebalanced")).worker
            if given is stream:
                changed += found != paper
            else:
                assert found == paper
    assert changed > 5
