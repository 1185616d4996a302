"""Proof: closed forms of the makespan, by work and a least number of batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import accumulate, chain
from typing import Any

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field, shown
from infermax_opt.infermax.checker.instance import Instance
from infermax_opt.infermax.checker.memory_batches import proofs_by_memory
from infermax_opt.infermax.checker.pieces import Piece
from infermax_opt.infermax.checker.served import Served


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


def least_presence(served: Served, batches: int, also: Iterable[tuple[int, int]] = ()) -> int:
    """Ticks of attention constants besides those of prefill batches.

    Parameters
    ----------
    served : Served
    batches : int
        At least so many.
    also : iterable of (int, int)
        What more arguments say, as `decode_presence`.
    """
    others, arguments = batches - served.prefill, chain(decode_presence(served), also)
    return max(paid + served.least * max(0, others - number) for paid, number in arguments)


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


def longest_tail(served: Served, alone: bool) -> int:
    """Of the requests with so many outputs or more, the last to have its first token is still to decode.

    Each request's own prompt is before that, or, unless `alone`, the prompts of all of them.
    """
    ordered = sorted(served.kinds, key=lambda kind: -kind[1])
    prompts = (i for i, _, _ in ordered) if alone else accumulate(i * c for i, _, c in ordered)
    pairs = zip(prompts, ordered, strict=True)
    return max(-(-tokens // served.instance.budget) + o - 1 for tokens, (_, o, _) in pairs)
