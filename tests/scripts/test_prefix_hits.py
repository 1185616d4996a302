"""vLLM's prefix cache: without it the replay is the scheduler's, with it hits are those counted elsewhere."""

from __future__ import annotations

from fractions import Fraction

import pytest

from infermax_opt import api, read_instance
from infermax_opt.core.measured import Measured
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, RequestGroup, System
from infermax_opt.infermax.data.suites import RUNS
from scripts.prefix_hits import Alike, Cache, Engine, Hits, alike, read_table
from scripts.vllm_study import INSTANCES, WORKLOAD
from tests.support import ROOT

#: A token of the tiny instances, s.
TENTH = Fraction(1, 10)
#: Tokens of prompts that LLMServingSim finds when it simulates these runs (``outputs/sim.log`` of 5daddb2).
COUNTED = {
    "vllm-rtx4090-llama-3.1-8b": 4_848,
    "vllm-rtxpro6000-llama-3.1-8b": 19_520,
    "vllm-rtxpro6000-qwen3-32b": 20_448,
}


def instance(*groups: RequestGroup, kv: int = 256) -> Instance:
    """Blocks of four tokens; a batch takes a second, and a tenth more for each token."""
    system = System(kv_capacity=kv, max_batch_tokens=64, max_prefill_tokens=64, block_size=4)
    return Instance("tiny", groups, system, CostModel([(1, "0.1")], (0, 0), (0, 0)))


def makespan(measured: Measured) -> Fraction:
    return Fraction(measured.metrics["makespan"] or 0)


def prefixes(name: str) -> list[Alike]:
    return read_table(WORKLOAD.format(RUNS[name].folder.split("_")[1]))


def test_prompts_that_begin_alike_are_found_in_whole_blocks() -> None:
    first, second = [1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 4, 9, 9, 9, 9]
    assert alike([first, second, [9, 9, 9, 9, 5, 6, 7, 8], [*second, 1, 1, 1, 1], [1, 2]], 4) == [
        (1, 0, 4),
        (3, 1, 8),
    ]


@pytest.mark.parametrize("name", list(COUNTED))
def test_without_the_cache_it_is_the_scheduler(name: str) -> None:
    some = read_instance(INSTANCES / f"{name}.json")
    plain, hits = Engine(some, prefixes(name), caching=False).run()
    metrics = api.verify(some, api.schedule(some, "vllm_v1")).metrics
    assert metrics is not None
    wanted = dict(metrics.items())
    assert plain.metrics == {metric: wanted[metric] for metric in plain.metrics}
    assert (hits.prompts, hits.refills) == (0, 0)


@pytest.mark.parametrize("name", list(COUNTED))
def test_hits_of_prompts_are_those_of_the_authors_simulator(name: str) -> None:
    some = read_instance(INSTANCES / f"{name}.json")
    found, hits = Engine(some, prefixes(name)).run()
    assert hits.prompts == COUNTED[name]
    assert makespan(found) < makespan(Engine(some, prefixes(name), caching=False).run()[0])


def test_a_prompt_is_never_found_whole() -> None:
    one = RequestGroup("a", 16, 1)
    two = RequestGroup("b", 16, 1, arrival=10)
    measured, hits = Engine(instance(one, two), [(1, 0, 16)]).run()
    assert hits == Hits(prompts=12, refills=0, refilled=0, evictions=0)
    # Four tokens are left to process.
    assert makespan(measured) == 10 + 1 + 4 * TENTH


def test_blocks_are_found_until_they_are_given_away() -> None:
    cache = Cache(dict.fromkeys(range(3)))
    held = cache.take(2)
    cache.fill(held[0], (0, 0))
    cache.fill(held[1], (0, 1))
    cache.release(held)
    # The third block was free all along, then comes the end of the request.
    assert cache.take(2) == [2, 1]
    assert cache.found == {(0, 0): 0}
    cache.hold([0])
    assert cache.free == {}
    cache.release([0])
    assert cache.take(1) == [0]
    assert cache.found == {}


def test_who_was_evicted_finds_what_nobody_needed() -> None:
    # Both hold five of the ten blocks when the first needs a sixth: that is the last one of the second.
    some = instance(RequestGroup("a", 16, 9), RequestGroup("b", 16, 9), kv=40)
    found, hits = Engine(some, []).run()
    assert (hits.evictions, hits.refills) == (1, 16)
    plain, none = Engine(some, [], caching=False).run()
    assert (none.refilled, hits.refilled) == (21, 5)
    assert makespan(plain) - makespan(found) == 16 * TENTH


def test_the_table_names_the_workloads_of_the_runs() -> None:
    text = (ROOT / "scripts/vllm_prefixes.json").read_text(encoding="utf-8")
    # As the files `meta.json` of the runs have it.
    assert "05e48b32da530d4a3dd77f3d47c6fe694ac8308d611aa088e38bb10fba2b3b3a" in text
    assert "4af54eb2f7ac12b0856a1668e367fc8a330acd37c4f6c3e336ae02229e21a8bb" in text
