"""The walk that touches few requests tells the same as the one that touches all."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from infermax_opt import api
from infermax_opt.files.figure import Phase
from infermax_opt.infermax.data.cost import prefill_work
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.replay.plain import replay_plain
from infermax_opt.infermax.replay.sparse_walk import SparseWalk
from infermax_opt.infermax.replay.timeline import Walk, each_batch
from tests.campaign import campaign
from tests.infermax.tiny import cost_model


def crowded(seed: int) -> Instance:
    """More requests than fit, so that some are evicted."""
    rng = random.Random(seed)
    groups = [
        RequestGroup(f"q{k}", rng.randint(1, 9), rng.randint(1, 9), rng.randint(0, 8)) for k in range(8)
    ]
    system = System(rng.randint(17, 40), rng.randint(3, 30), rng.randint(3, 20), rng.choice([None, 3]))
    policy = Policy(rng.random() < 0.7, True, True)
    return Instance(f"crowded-{seed}", tuple(groups), system, cost_model(rng), policy)


def named(instance: Instance, schedule: Schedule, rng: random.Random) -> Schedule:
    """The same batches, some of which name all that decode."""
    walk, batches = Walk(instance), []
    for batch, evict in each_batch(instance, schedule.batches):
        active = walk.step(batch, evict)
        walk.settle()
        names = {instance.requests[i].id: tokens for i, (_, tokens) in active.items()}
        evicted = tuple(instance.requests[i].id for i in evict)
        tokens = names if rng.random() < 0.5 or not batch.decode_all else batch.tokens
        batches.append(Batch(tokens, evicted, None, batch.decode_all and tokens is not names))
    return replace(schedule, batches=tuple(batches))


def test_both_walks_agree() -> None:
    refills = 0
    for seed in campaign(36, 3_000):
        instance = crowded(seed)
        offline = replace(instance, groups=tuple(replace(g, arrival=0) for g in instance.groups))
        schedule = api.schedule(offline, random.Random(seed).choice(["vllm", "sarathi", "vllm_v1"]))
        schedule = named(offline, schedule, random.Random(seed))
        replayed = replay_plain(offline, schedule)
        assert replayed.valid
        plain, sparse = Walk(offline), SparseWalk(offline, replayed)
        highest = [0] * len(offline.requests)
        for j, (batch, evict) in enumerate(each_batch(offline, schedule.batches)):
            active = plain.step(batch, evict)
            sparse.step(j, batch, evict)
            tally = plain.tally(active, len(offline.requests))
            features = replayed.features[j]
            assert tally[Phase.DECODE] == features.decodes
            assert tally[Phase.REFILL] == sparse.refills
            assert tally[Phase.PREFILL] == features.prefills - sparse.refills
            assert sparse.evicted == plain.evicted
            assert sparse.begun == len(plain.begun)
            assert {i for i, begin in enumerate(sparse.begins) if begin >= 0} == plain.begun
            tokens = work = 0
            for i, (phase, count) in active.items():
                before = plain.cached[i]
                again = min(count, max(0, highest[i] - before))
                if phase is not Phase.DECODE:
                    tokens += again
                    exact = offline.cost.exact_attention
                    work += prefill_work(exact, count, before)
                    work -= prefill_work(exact, count - again, before + again)
                highest[i] = max(highest[i], before + count)
            assert (sparse.tokens_again, sparse.work_again) == (tokens, work)
            refills += sparse.refills
            for i in plain.evicted:
                assert sparse.generated[i] == plain.state.generated[i]
            plain.settle()
        assert sparse.done == len(offline.requests)
    assert refills


@pytest.mark.parametrize("decode_all", [True, False])
def test_a_request_may_pause(decode_all: bool) -> None:
    """One that is held back in decode makes up for nothing, and what it is evicted with is known."""
    groups = (RequestGroup("a", 2, 5), RequestGroup("b", 2, 5))
    instance = Instance("pause", groups, System(100, 10, 10), cost_model(random.Random(1)), Policy())
    first = Batch({"a": 2, "b": 2})
    steps = [Batch({"a": 1}), Batch({"a": 1, "b": 1}), Batch({}, decode_all=True)]
    batches = [first, *steps, Batch({"b": 1}, ("a",))] if decode_all else [first, *steps[:2]]
    schedule = Schedule("pause", tuple(batches))
    sparse = SparseWalk(instance, replay_plain(instance, schedule))
    for j, batch in enumerate(batches):
        sparse.step(j, batch, [0] if batch.evict else [])
    if decode_all:
        assert sparse.evicted == {0}
        assert sparse.generated[0] == 4
    assert sparse.refills == 0
