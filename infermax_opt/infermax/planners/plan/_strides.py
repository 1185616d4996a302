"""Plans in which requests decode in every few batches only, all at once; prompts are in the others, too.

A batch that decodes costs d0.  Where tokens bind, and outputs are short, there is KV for requests that wait
for each other's tokens.  So several batches are planned as one wide batch, of as many tokens as all of them.
The first of them decodes, and takes prompts as it has room.  What a wide batch holds in the end is no less
than what each of them does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from infermax_opt.infermax.data.cost import prefill_work
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.planners.plan._kernel import area, estimate
from infermax_opt.infermax.planners.plan._profile import Profiles, Rules
from infermax_opt.infermax.planners.plan._run import Plan, run_kernel
from infermax_opt.infermax.planners.plan._write import sliced

__all__ = ["plan_with_strides", "widened"]

Chunk = tuple[int, int, int]


def widened(instance: Instance, stride: int) -> Instance:
    """The instance whose batches have room for so many.

    Parameters
    ----------
    instance : Instance
    stride : int
    """
    system = instance.system
    tokens, prefill = stride * system.max_batch_tokens, stride * system.max_prefill_tokens
    return replace(instance, system=replace(system, max_batch_tokens=tokens, max_prefill_tokens=prefill))


def plan_with_strides(
    instance: Instance, wide: Rules, rules: Rules, order: Sequence[int], width: Sequence[int]
) -> Plan | None:
    """Plan forwards, with hybrid batching and chunks; None where more decode at once than a batch may hold.

    Parameters
    ----------
    instance : Instance
    wide, rules : Rules
        Of wide batches, and of those that they stand for.
    order : sequence of int
        The requests by priority.
    width : sequence of int
        Most tokens of a chunk, per request.
    """
    found = run_kernel(instance, wide, order, width)
    decoding = _decoding(instance, found)
    if max(decoding) > rules.tokens:
        return None
    cut = _cut(found, decoding, rules)
    return Plan(
        rules, len(cut.decoding), _seconds(instance, rules, cut), [some > 0 for some in cut.decoding],
        cut.chunks, [], found.start, found.made, found.held, False,
    )  # fmt: skip


class _Cut(NamedTuple):
    """Chunks of batches, in order; of each batch, how many requests decode, and tokens of prompts."""

    chunks: list[Chunk]
    decoding: list[int]
    prefill: list[int]


def _decoding(instance: Instance, found: Plan) -> list[int]:
    """How many requests decode in each wide batch."""
    first = [0] * len(instance.requests)
    for time, i, _ in found.chunks:
        first[i] = max(first[i], time)
    change = [0] * (found.batches + 1)
    for at, request in zip(first, instance.requests, strict=True):
        change[at + 1] += 1
        change[at + request.output_tokens] -= 1
    return list(accumulate(change[:-1]))


def _cut(found: Plan, decoding: Sequence[int], rules: Rules) -> _Cut:
    """Cut each wide batch into full ones, its decodes in the first."""
    wide: list[list[tuple[int, int]]] = [[] for _ in decoding]
    for time, i, tokens in found.chunks:
        wide[time].append((i, tokens))
    cut = _Cut([], [], [])
    for some, chunks in zip(decoding, wide, strict=True):
        if not (some or chunks):
            continue
        room = min(rules.tokens - some, rules.prefill)
        for k, part in enumerate(sliced(chunks, min(rules.tokens, rules.prefill), room)):
            cut.chunks.extend((len(cut.decoding), i, tokens) for i, tokens in part)
            cut.decoding.append(0 if k else some)
            cut.prefill.append(sum(tokens for _, tokens in part))
    return cut


def _seconds(instance: Instance, rules: Rules, cut: _Cut) -> float:
    """Estimate of the makespan."""
    requests, batches = instance.requests, len(cut.decoding)
    if rules.exact:
        work = sum(prefill_work(1, r.input_tokens, 0) for r in requests)
    else:
        work = sum(prefill_work(0, tokens, 0) for _, _, tokens in cut.chunks)
    reads = sum(area(r.input_tokens, r.output_tokens - 1) for r in requests)
    tokens = [some + prefill for some, prefill in zip(cut.decoding, cut.prefill, strict=True)]
    profiles = Profiles(tokens, cut.prefill, [], [])
    return float(estimate(rules, profiles, instance.cost.floats, batches, reads, work))
