"""Proof: closed forms of the makespan, by work and a least number of batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import accumulate
from typing import Any

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field, shown
from infermax_opt.infermax.checker.instance import Instance, Kinds, blocks_up_to
from infermax_opt.infermax.checker.pieces import FAR, Piece


def closed_form(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """Work, attention constants and a least number of batches.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    since = evidence["since"].number()
    kinds = instance.since(since)
    require(since >= 0 and len(kinds) > 0, "since: no request arrives then or later")
    instance.work.spend(50 * len(kinds))
    served = Served(instance, kinds, evidence, piece)
    batches = max(served.prefill, count_batches(served))
    work = instance.token_work(kinds, piece.beta)
    work += 0 if instance.spread else instance.squares(kinds)
    if instance.spread and evidence["reference"].value is not None:
        work += spread_squares(served, batches)
    paid = piece.alpha * batches + instance.p0 * served.prefill + least_presence(served, batches)
    return since + Fraction(paid + work, instance.scale)


class Served:
    """Requests whose batches are counted.

    `prefill`: batches that prefill, at least; `decode`: those that decode, at least; `slack`: what
    refills of a full memory cost more than the work counts, `spare`: of that, what decode presence leaves;
    `worth`: of a batch that evictions may save; `horizon`: H of the age bound.
    """

    def __init__(self, instance: Instance, kinds: Kinds, evidence: Field, piece: Piece):
        self.instance, self.kinds, self.evidence, self.piece = instance, kinds, evidence, piece
        alone = 0 if instance.chunked else sum(c for i, _, c in kinds if 2 * i > instance.budget)
        self.prefill = max(alone, -(-sum(i * c for i, _, c in kinds) // instance.budget))
        later, self.longest = sum((o - 1) * c for _, o, c in kinds), max(o for _, o, _ in kinds)
        fixed = not instance.preemption
        self.decode = max(self.longest - 1, -(-later // instance.batch_tokens)) if fixed else 0
        self.slack = max(0, piece.beta - instance.d1) * instance.capacity
        refills = 2 * instance.d0 if self.slack >= 2 * instance.d0 else 0  # of it, for decode presence
        self.least = min(instance.p0, instance.d0)
        self.spare, self.worth = self.slack - refills, max(1, piece.alpha + self.least)
        self.horizon: Any = FAR if fixed else self.spare // self.worth


def least_presence(served: Served, batches: int) -> int:
    """Ticks of attention constants besides those of prefill batches."""
    others = batches - served.prefill
    return max(paid + served.least * max(0, others - number) for paid, number in decode_presence(served))


def decode_presence(served: Served) -> Iterator[tuple[int, int]]:
    """Ticks of decode batches and how many pay them, at least, by each argument that holds."""
    instance = served.instance
    yield instance.d0 * served.decode, served.decode
    if not instance.preemption or served.slack >= 2 * instance.d0:
        area = sum(c * ((o - 1) * i + o * (o - 1) // 2) for i, o, c in served.kinds)
        yield instance.d0 * area // instance.capacity, -(-area // instance.capacity)


def spread_squares(served: Served, batches: int) -> int:
    """Least attention of prompts in chunks: linear in the batches, and no more of them saves alpha."""
    reference = served.evidence["reference"].whole(max(batches, served.longest))
    spread = [(served.instance.p1 * i * i * c, reference - o + 1) for i, o, c in served.kinds]
    saved = sum(-(-s // q**2) for s, q in spread)
    require(saved <= served.piece.alpha, "reference: saves more than alpha")
    return sum(s // q + (reference - batches) * (s // q**2) for s, q in spread)


def count_batches(served: Served) -> Any:
    """Least number of batches by the named argument (`infermax_opt.infermax.bounds.counts`, `age`)."""
    instance, kinds = served.instance, served.kinds
    argument = served.evidence["argument"].text()
    if argument in ("longest request", "prefill tail"):
        return longest_tail(served, alone=argument == "longest request")
    if argument == "token budget":
        return -(-sum((i - 1 + o) * c for i, o, c in kinds) // instance.batch_tokens)
    if argument == "running limit" and instance.running is not None:
        return -(-sum(o * c for _, o, c in kinds) // instance.running)
    if argument == "separate phases" and not (instance.preemption or instance.hybrid):
        return served.prefill + served.decode
    proofs = proofs_by_memory(served)
    if argument not in proofs:
        served.evidence["argument"].fail(f"{shown(argument)} is unknown, or not for this instance")
    return proofs[argument](served)


def proofs_by_memory(served: Served) -> dict[str, Callable[[Served], int]]:
    """Arguments about KV, where they are for the instance."""
    proofs: dict[str, Callable[[Served], int]]
    proofs = {"KV age": kv_age, "KV area": kv_area, "KV slots": kv_slots}
    if len({(i, o) for i, o, _ in served.kinds}) == 1:
        proofs["KV spacing"] = kv_spacing
    return proofs


def longest_tail(served: Served, alone: bool) -> int:
    """Of the requests with so many outputs or more, the last to have its first token is still to decode.

    Each request's own prompt is before that, or, unless `alone`, the prompts of all of them.
    """
    ordered = sorted(served.kinds, key=lambda kind: -kind[1])
    prompts = (i for i, _, _ in ordered) if alone else accumulate(i * c for i, _, c in ordered)
    pairs = zip(prompts, ordered, strict=True)
    return max(-(-tokens // served.instance.budget) + o - 1 for tokens, (_, o, _) in pairs)


def kv_age(served: Served) -> int:
    """Tokens by KV size, in ever later batches of a window, waste the KV that those before them take."""
    instance, horizon = served.instance, served.horizon
    steps, room = Counter[int](), instance.capacity * sum(c for _, _, c in served.kinds)
    for i, o, c in served.kinds:
        steps.update({i: c, i + o: -c})
    instance.work.spend(10 * (max(steps) - min(steps)))
    many = volume = waste = 0
    for size in range(min(steps), max(steps)):
        many, position = many + steps[size], volume // room
        late = max(0, many - ((position + 1) * room - volume) // size)
        waste += many * min(position, horizon) + late * (position < horizon)
        volume += many * size
    rounding = 0 if instance.preemption else instance.capacity - 1
    return (volume + waste + rounding) // instance.capacity


def kv_spacing(served: Served) -> int:
    """Equal requests end so far from each other that memory holds those in it; or evictions cost as much.

    See `infermax_opt.infermax.bounds.spacing`; `cut` is its x in parts of 2**16.
    """
    (inputs, outputs, _), count = served.kinds[0], sum(c for _, _, c in served.kinds)
    apart, unit = served.evidence["cut"].whole(0, outputs << 16), 1 << 16
    most = min(count, 1 + (served.instance.capacity - (inputs + outputs - 1)) // inputs)
    served.instance.work.spend(8 * most)
    evictions, saved = served.instance.preemption, apart * served.worth * served.instance.capacity
    require(not evictions or saved <= served.spare * inputs * unit, "cut: evictions may cost less")
    room, last = inputs + outputs - 1 - served.instance.capacity, 1
    for m in range(2, most + 1):
        room += inputs + outputs - min(-(-(m - 1) * apart // unit), outputs)
        if room <= 0:
            require(m * apart <= outputs * unit, "cut: requests may be closer to each other")
            last = m
    alone = -(-inputs // served.instance.budget) + outputs - 1
    parts = max(0, count - last) * apart
    return alone + (parts // unit if evictions else -(-parts // unit))


def tokens_above(served: Served, level: int) -> tuple[int, int]:
    """Generated tokens whose KV takes more than `level` blocks: their number, and their blocks."""
    size, number, volume = served.instance.block, 0, 0
    for i, o, c in served.kinds:
        before, last = min(i + o, max(i, level * size + 1)) - 1, i + o - 1
        number += c * (last - before)
        volume += c * (blocks_up_to(last, size) - blocks_up_to(before, size))
    return number, volume


def kv_slots(served: Served) -> int:
    """A batch makes no more tokens of `cut` blocks or more than fit."""
    capacity = served.instance.capacity // served.instance.block
    cut = served.evidence["cut"].whole(1, capacity)
    return -(-tokens_above(served, cut - 1)[0] // (capacity // cut))


def kv_area(served: Served) -> int:
    """Tokens as items of a bin packing problem: the bound L2 of Martello and Toth, for k = `cut`."""
    capacity = served.instance.capacity // served.instance.block
    cut = served.evidence["cut"].whole(0, capacity // 2)
    huge, huge_volume = tokens_above(served, capacity - cut)
    big = tokens_above(served, capacity // 2)[0]
    others = tokens_above(served, max(0, cut - 1))[1] - huge_volume  # from the cut on: none beside a huge one
    return max(big, huge - (-others // capacity))
