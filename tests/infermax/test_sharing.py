"""Blocks that two requests could share, against every matching."""

from __future__ import annotations

import random

from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, RequestGroup, System
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.replay.sharing import most_shared, shared_blocks, shared_by_rule
from tests.campaign import campaign


def every_matching(real_time: list[int], best_effort: list[int], size: int) -> int:
    """Most pairs, by trying them all."""
    if not real_time:
        return 0
    first, rest = real_time[0], real_time[1:]
    found = every_matching(rest, best_effort, size)
    for k, tokens in enumerate(best_effort):
        if first + tokens <= size:
            found = max(found, 1 + every_matching(rest, best_effort[:k] + best_effort[k + 1 :], size))
    return found


def test_sorting_finds_the_most() -> None:
    less = 0
    for seed in campaign(180, 3_000):
        draw = random.Random(seed)
        size = draw.choice([1, 4, 16])
        tails = [[draw.randint(1, size) for _ in range(draw.randint(0, 5))] for _ in range(2)]
        most = every_matching(*tails, size)
        assert most_shared(*tails, size) == most
        rule = shared_by_rule(*tails, size)
        assert rule <= most
        less += rule < most
    assert less, "the rule is always best"


def test_after_a_batch() -> None:
    groups = (RequestGroup("r", 5, 2, slo={"ttft": 1}), RequestGroup("b", 6, 2), RequestGroup("c", 4, 2))
    cost = CostModel([("1", "0")], ("0", "0"), ("0", "0"))
    instance = Instance("three", groups, System(99, 99, 99, block_size=4), cost)
    prompts = Schedule("three", (Batch({"r": 5, "b": 6, "c": 4}), Batch({}, decode_all=True)))
    found = list(shared_blocks(instance, prompts))
    # Last blocks of 1, 2 and 4 tokens: r and b fit into one.  Then all are done.
    assert found == [(5, 1, 1), (0, 0, 0)]
    assert list(shared_blocks(instance, prompts, every=2)) == [(0, 0, 0)]
