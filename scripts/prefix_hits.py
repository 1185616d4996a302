"""vLLM with its prefix cache, replayed: how many tokens hits save, and what that changes.

Which prompts begin alike is in `vllm_prefixes.json`.  ``python -m scripts.prefix_hits WORKLOAD...`` makes it
of the workloads that the runs replayed, which hold each token of each prompt.

The policy is that of the scheduler ``vllm_v1``; the cache is that of vLLM's engine:

- Whoever begins with the tokens of a full block can find it, until the block is given to somebody else.
- Who is admitted takes the longest run of such blocks at its start, but never all of its tokens.
- Blocks that nobody holds are given away in the order in which they were freed, those of a request from its
  end.

So the blocks of whoever was evicted, or is finished, stay to be found for as long as nobody needs them.
Generated tokens are taken to be different for each request.
"""

from __future__ import annotations

import argparse
import json
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from infermax_opt.core.measured import Measured
from infermax_opt.files.writing import write_text
from infermax_opt.infermax.data.cost import BatchFeatures, prefill_work
from infermax_opt.infermax.data.instance import Instance, Request

TABLE = Path(__file__).with_name("vllm_prefixes.json")
#: Tokens in a block of vLLM.
BLOCK = 16
ABOUT = (
    "Prompts that begin alike: [request, an earlier one, tokens in whole blocks], counted from 0. "
    "Of workloads of LLMServingSim 2 (casys-kaist, commit 5daddb2, MIT licence)."
)

#: A request, an earlier one that begins with the same tokens, and how many those are.
Alike = tuple[int, int, int]
#: What tells blocks apart: the first request that has this block, and its place there.
Name = tuple[int, int]


class Hits(NamedTuple):
    """What the cache did.

    Attributes
    ----------
    prompts, refills : int
        Tokens found by requests that were admitted for the first time, and by those that had been evicted.
    refilled : int
        Tokens that evicted requests processed again.
    evictions : int
    """

    prompts: int
    refills: int
    refilled: int
    evictions: int


def alike(prompts: Iterable[Sequence[int]], block: int = BLOCK) -> list[Alike]:
    """Prompts that begin as an earlier one does: the first such one, and the tokens in whole blocks."""
    seen: dict[bytes, int] = {}
    found = []
    for index, prompt in enumerate(prompts):
        tokens, first, names, running = 0, 0, [], sha256()
        for end in range(block, len(prompt) + 1, block):
            running.update(repr(prompt[end - block : end]).encode())
            names.append(running.digest())
            if tokens == end - block and names[-1] in seen:
                tokens, first = end, seen[names[-1]]
        if tokens:
            found.append((index, first, tokens))
        for name in names:
            seen.setdefault(name, index)
    return found


def names_of(requests: Sequence[Request], table: Iterable[Alike], block: int) -> list[list[Name]]:
    """The names of all blocks that each request fills."""
    shared = {index: (first, tokens // block) for index, first, tokens in table}
    names: list[list[Name]] = []
    for index, request in enumerate(requests):
        first, blocks = shared.get(index, (0, 0))
        own = range(blocks, (request.input_tokens + request.output_tokens) // block)
        names.append(
            [*names[first][:blocks], *((index, place) for place in own)]
            if blocks
            else [(index, p) for p in own]
        )
    return names


@dataclass
class Cache:
    """Blocks of KV, of which nobody holds those in `free`.

    Attributes
    ----------
    free : dict
        Blocks in the order in which they are given away, with the name of their tokens or None.
    holders : dict
        How many hold each block that somebody does.
    names : dict
        Name of each held block that is full.
    found : dict
        A block for each name.
    """

    free: dict[int, Name | None]
    holders: dict[int, int] = field(default_factory=dict)
    names: dict[int, Name] = field(default_factory=dict)
    found: dict[Name, int] = field(default_factory=dict)

    def take(self, count: int) -> list[int]:
        """Blocks for tokens to come; what they held cannot be found any more."""
        taken = []
        for _ in range(count):
            block = next(iter(self.free))
            name = self.free.pop(block)
            if name is not None and self.found.get(name) == block:
                del self.found[name]
            self.holders[block] = 1
            taken.append(block)
        return taken

    def hold(self, blocks: Iterable[int]) -> None:
        """Hold blocks that were found."""
        for block in blocks:
            if block in self.free:
                name = self.free.pop(block)
                if name is not None:
                    self.names[block] = name
            self.holders[block] = self.holders.get(block, 0) + 1

    def fill(self, block: int, name: Name) -> None:
        """The block is full of these tokens."""
        self.names[block] = name
        self.found.setdefault(name, block)

    def release(self, blocks: Sequence[int]) -> None:
        """Hold them no longer, the last one first."""
        for block in reversed(blocks):
            self.holders[block] -= 1
            if not self.holders[block]:
                del self.holders[block]
                self.free[block] = self.names.pop(block, None)


@dataclass
class Course:
    """A request on its way.

    Attributes
    ----------
    request : Request
    names : list
        Of its blocks, as they fill.
    cached, generated : int
        Tokens whose KV is there, and those made.
    blocks : list of int
    named : int
        How many of its blocks are known to be full.
    begun : bool
        Whether it was admitted before.
    first, last : int or None
        Ticks of its first and its last token.
    """

    request: Request
    names: list[Name]
    cached: int = 0
    generated: int = 0
    blocks: list[int] = field(default_factory=list)
    named: int = 0
    begun: bool = False
    first: int = 0
    last: int = 0

    @property
    def target(self) -> int:
        """Tokens that have to be there before the next one can be made."""
        return self.request.input_tokens + self.generated

    @property
    def decodes(self) -> bool:
        """Whether the next token takes one step."""
        return self.generated > 0 and self.target - self.cached == 1


class Engine:
    """Runs an instance by the policy of ``vllm_v1``, with a prefix cache or without.

    Parameters
    ----------
    instance : Instance
        Its batches may mix phases and split prompts.
    table : iterable of Alike
        Prompts that begin alike.
    caching : bool
    """

    def __init__(self, instance: Instance, table: Iterable[Alike], *, caching: bool = True) -> None:
        self.instance, self.caching, self.block = instance, caching, instance.system.block_size
        named = names_of(instance.requests, table, self.block)
        courses = [Course(*pair) for pair in zip(instance.requests, named, strict=True)]
        self.coming = deque(sorted(courses, key=lambda course: course.request.arrival))
        self.waiting: deque[Course] = deque()
        self.running: list[Course] = []
        self.courses = courses
        self.cache = Cache(dict.fromkeys(range(instance.system.kv_capacity // self.block)))
        self.now = 0
        self.prompts = self.refills = self.refilled = self.evictions = 0

    def run(self) -> tuple[Measured, Hits]:
        """All requests to their end: metrics, and what the cache did."""
        per_second = self.instance.cost.ticks_per_second
        while self.coming or self.waiting or self.running:
            while self.coming and self.coming[0].request.arrival * per_second <= self.now:
                self.waiting.append(self.coming.popleft())
            if not self.waiting and not self.running:
                self.now = -int(-self.coming[0].request.arrival * per_second // 1)
                continue
            self.step()
        return self.metrics(), Hits(self.prompts, self.refills, self.refilled, self.evictions)

    def step(self) -> None:
        """One batch: who runs goes on as admitted; then others are admitted, if nobody was evicted."""
        left, before = self.instance.system.max_batch_tokens, self.evictions
        batch: list[tuple[Course, int]] = []
        place = 0
        while place < len(self.running) and left:
            course = self.running[place]
            tokens = min(course.target - course.cached, left)
            if self.has_room(course, place):
                batch.append((course, tokens))
                self.mark(course, course.cached + tokens)
                left -= tokens
                place += 1
        while self.evictions == before and self.waiting and left and self.admit(self.waiting[0]):
            course = self.waiting.popleft()
            self.running.append(course)
            tokens = min(course.target - course.cached, left)
            batch.append((course, tokens))
            self.mark(course, course.cached + tokens)
            left -= tokens
        self.now += self.instance.cost.batch_ticks(self.features(batch))
        for course, tokens in batch:
            self.advance(course, tokens)

    def has_room(self, course: Course, place: int) -> bool:
        """Whether a running request has a block for its next token, the last admitted making room."""
        while len(course.blocks) * self.block < course.target:
            if self.cache.free:
                course.blocks += self.cache.take(1)
                continue
            victim = self.running.pop()
            self.evictions += 1
            self.cache.release(victim.blocks)
            victim.blocks, victim.cached, victim.named = [], 0, 0
            self.waiting.appendleft(victim)
            if victim is course:
                return False
        assert self.running[place] is course
        return True

    def admit(self, course: Course) -> bool:
        """Give a waiting request the blocks that it finds and those that it lacks, if there are enough."""
        most = self.instance.system.max_running
        if most is not None and len(self.running) >= most:
            return False
        hits: list[int] = []
        while self.caching and (len(hits) + 1) * self.block < course.target:
            block = self.cache.found.get(course.names[len(hits)])
            if block is None:
                break
            hits.append(block)
        lacking = -(-course.target // self.block) - len(hits)
        if lacking > len(self.cache.free) - sum(block in self.cache.free for block in hits):
            return False
        self.cache.hold(hits)
        course.blocks = [*hits, *self.cache.take(lacking)]
        course.named, course.cached = len(hits), len(hits) * self.block
        if course.begun:
            self.refills += course.cached
            self.refilled += course.target - course.cached
        else:
            self.prompts += course.cached
        course.begun = True
        return True

    def mark(self, course: Course, tokens: int) -> None:
        """Blocks that so many tokens fill can be found, also by who is admitted into the same batch."""
        while self.caching and course.named < tokens // self.block:
            self.cache.fill(course.blocks[course.named], course.names[course.named])
            course.named += 1

    def features(self, batch: Sequence[tuple[Course, int]]) -> BatchFeatures:
        """What the cost model needs to know of a batch."""
        steps = [course.cached for course, _ in batch if course.decodes]
        chunks = [(tokens, course.cached) for course, tokens in batch if not course.decodes]
        exact = self.instance.cost.exact_attention
        return BatchFeatures(
            tokens=sum(tokens for _, tokens in batch),
            decodes=len(steps),
            decode_kv=sum(steps),
            prefills=len(chunks),
            prefill_work=sum(prefill_work(exact, *chunk) for chunk in chunks),
            prefill_kv=sum(cached for _, cached in chunks),
        )

    def advance(self, course: Course, tokens: int) -> None:
        """The batch is over: tokens are made, and whoever has its last one goes."""
        course.cached += tokens
        if course.cached == course.target:
            course.generated += 1
            course.last = self.now
            course.first = course.first or self.now
        if course.generated == course.request.output_tokens:
            self.running.remove(course)
            self.cache.release(course.blocks)

    def metrics(self) -> Measured:
        """Makespan, mean latency to the first and to the last token, and the single ones, s."""
        cost = self.instance.cost
        firsts = tuple(cost.to_seconds(each.first) - Fraction(each.request.arrival) for each in self.courses)
        lasts = tuple(cost.to_seconds(each.last) - Fraction(each.request.arrival) for each in self.courses)
        values = {
            "makespan": cost.to_seconds(max(each.last for each in self.courses)),
            "mean_ttft": sum(firsts, Fraction(0)) / len(firsts),
            "mean_e2e": sum(lasts, Fraction(0)) / len(lasts),
        }
        return Measured(values, {"ttft": firsts, "e2e": lasts})


def read_table(workload: str) -> list[Alike]:
    """Prompts of a workload that begin alike."""
    rows = json.loads(TABLE.read_text(encoding="utf-8"))[workload]["alike"]
    return [(index, first, tokens) for index, first, tokens in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("workload", type=Path, nargs="+")
    table: dict[str, object] = {"about": ABOUT}
    for path in parser.parse_args().workload:
        text = path.read_bytes()
        prompts = [json.loads(line)["input_tok_ids"] for line in text.splitlines()]
        table[path.stem] = {"sha256": sha256(text).hexdigest(), "alike": alike(prompts)}
    write_text(json.dumps(table) + "\n", TABLE)


if __name__ == "__main__":
    main()
