"""Plans as schedules: which batch processes what."""

from __future__ import annotations

from collections.abc import Sequence

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Batch, Schedule, add_decodes, run_length
from infermax_opt.infermax.planners.plan._profile import Rules, best_parts
from infermax_opt.infermax.planners.plan._run import Plan

__all__ = ["batches_of", "sliced"]


def batches_of(instance: Instance, plan: Plan) -> Schedule:
    """Write a plan as a schedule."""
    names = [request.id for request in instance.requests]
    chunks, cuts = _forwards(plan)
    decodes = plan.decodes[::-1] if plan.rules.backwards else plan.decodes
    named = _decoding_beside_idle(instance, plan)
    entries: list[Batch] = []
    for j, (mine, cut, decode) in enumerate(zip(chunks, cuts, decodes, strict=True)):
        evict = tuple(names[i] for i in cut)
        if j in named:
            entries.append(_batch(names, [*mine, *((i, 1) for i in named[j])], evict))
        elif mine or evict:
            entries += _entries(plan.rules, names, mine, evict, bool(decode))
        elif decode:
            add_decodes(entries)
    return Schedule(instance.name, run_length(entries))


def _entries(
    rules: Rules,
    names: Sequence[str],
    mine: Sequence[tuple[int, int]],
    evict: tuple[str, ...],
    decode: bool,
) -> list[Batch]:
    """One batch for prompts and decodes, or several where they may not share one."""
    if rules.hybrid:
        return [_batch(names, mine, evict, decode)]
    apart = [_batch(names, part) for part in _packed(rules, mine)]
    return [*apart, Batch(decode_all=True)] if decode else apart


def _batch(
    names: Sequence[str],
    parts: Sequence[tuple[int, int]],
    evict: tuple[str, ...] = (),
    decode_all: bool = False,
) -> Batch:
    return Batch({names[i]: tokens for i, tokens in parts}, evict, None, decode_all)


def _forwards(plan: Plan) -> tuple[list[list[tuple[int, int]]], list[list[int]]]:
    """Chunks and cuts of every batch, first batch first."""
    last, backwards = plan.batches - 1, plan.rules.backwards
    chunks: list[list[tuple[int, int]]] = [[] for _ in range(plan.batches)]
    cuts: list[list[int]] = [[] for _ in range(plan.batches)]
    for time, i, tokens in plan.chunks:
        chunks[last - time if backwards else time].append((i, tokens))
    for time, i in plan.cuts:
        cuts[last - time if backwards else time].append(i)
    return chunks, cuts


def _decoding_beside_idle(instance: Instance, plan: Plan) -> dict[int, list[int]]:
    """Requests that decode, for every batch in which another one that could does not."""
    if not plan.regrouped:
        return {}
    last = plan.batches - 1
    generated = [-1] * len(instance.requests)
    for time, i, _ in plan.chunks:
        generated[i] = max(generated[i], last - time)
    begins: list[list[tuple[int, int]]] = [[] for _ in range(plan.batches)]
    idle = [0] * (plan.batches + 1)
    until = [last - at for at in plan.start]
    for i, (request, made) in enumerate(zip(instance.requests, plan.made, strict=True)):
        second = until[i] - request.output_tokens + made + 2
        if request.output_tokens - made > 1:
            begins[second].append((i, until[i]))
            idle[generated[i] + 1] += 1
            idle[second] -= 1
        if made > 1:
            begins[1].append((i, made - 1))
    named: dict[int, list[int]] = {}
    active: list[tuple[int, int]] = []
    waiting = 0
    for j in range(plan.batches):
        active = [(i, end) for i, end in active if j <= end] + begins[j]
        waiting += idle[j]
        if waiting and active:
            named[j] = [i for i, _ in active]
    return named


def _packed(rules: Rules, prompts: Sequence[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Batches that process the given prompts and nothing else."""
    budget = min(rules.tokens, rules.prefill)
    if not prompts:
        return []
    if not rules.chunked:
        return _first_fit(sorted(prompts, key=lambda prompt: (-prompt[1], prompt[0])), budget)
    if rules.exact:
        return sliced(prompts, budget)
    return _in_parts(rules, prompts, budget) if rules.prefix > 0 else _spread(prompts, budget)


def _first_fit(prompts: Sequence[tuple[int, int]], budget: int) -> list[list[tuple[int, int]]]:
    """Whole prompts, each into the first batch with room."""
    batches: list[list[tuple[int, int]]] = []
    room: list[int] = []
    for i, tokens in prompts:
        place = next((k for k, free in enumerate(room) if free >= tokens), len(room))
        if place == len(room):
            batches.append([])
            room.append(budget)
        batches[place].append((i, tokens))
        room[place] -= tokens
    return batches


def sliced(
    prompts: Sequence[tuple[int, int]], budget: int, first: int | None = None
) -> list[list[tuple[int, int]]]:
    """Prompts one after the other, cut where a batch is full.

    Parameters
    ----------
    prompts : sequence of (int, int)
        Requests and tokens.
    budget : int
        Tokens of a batch.
    first : int, optional
        The same of the first batch.
    """
    batches: list[list[tuple[int, int]]] = [[]]
    free = budget if first is None else first
    for i, tokens in prompts:
        while tokens:
            if not free:
                batches.append([])
                free = budget
            chunk = min(tokens, free)
            batches[-1].append((i, chunk))
            tokens -= chunk
            free -= chunk
    return batches


def _spread(prompts: Sequence[tuple[int, int]], budget: int) -> list[list[tuple[int, int]]]:
    """Every prompt over all batches, as the work of a chunk is its square."""
    total = sum(tokens for _, tokens in prompts)
    count = -(-total // budget)
    # Token x of all goes to batch x mod count: each batch gets at most ceil(total / count) of them,
    # and each prompt nearly equal shares.
    batches: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    start = 0
    for i, tokens in prompts:
        end = start + tokens
        for k in range(count):
            share = (end - k + count - 1) // count - (start - k + count - 1) // count
            if share:
                batches[k].append((i, share))
        start = end
    return batches


def _in_parts(rules: Rules, prompts: Sequence[tuple[int, int]], budget: int) -> list[list[tuple[int, int]]]:
    """Each prompt over the emptiest batches, in as many chunks as are best, or more where one is full."""
    count = -(-sum(tokens for _, tokens in prompts) // budget)
    batches, room = [list[tuple[int, int]]() for _ in range(count)], [budget] * count
    for i, tokens in sorted(prompts, key=lambda prompt: (-prompt[1], prompt[0])):
        left, each, shares = tokens, -(-tokens // best_parts(rules, tokens, count)), [0] * count
        for most in (each, tokens):
            for k in sorted(range(count), key=lambda k: (-room[k], k)):
                share = min(left, room[k], most)
                shares[k], room[k], left = shares[k] + share, room[k] - share, left - share
        for k, share in enumerate(shares):
            if share:
                batches[k].append((i, share))
    return [batch for batch in batches if batch]
