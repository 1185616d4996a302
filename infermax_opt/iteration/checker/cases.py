"""Proof: the cases that hold every batch which keeps enough requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from infermax_opt.iteration.checker.instance import Instance


class Kinds:
    """Requests that nothing tells apart, by the number of their type."""

    def __init__(self, instance: Instance):
        self.instance = instance
        found: dict[Any, list[int]] = {}
        for k, r in enumerate(instance.requests):
            shape = r.prefills, r.tokens, r.context, r.blocks, r.host
            found.setdefault((*shape, instance.values[k], instance.slack[k]), []).append(k)
        firsts = [members[0] for members in found.values()]
        self.copies = [len(members) for members in found.values()]
        self.requests = [instance.requests[k] for k in firsts]
        self.values = [instance.values[k] for k in firsts]
        self.slack = [instance.slack[k] for k in firsts]
        self.loads = [instance.load(k) for k in firsts]


class Case(NamedTuple):
    """Batches of one or both phases of at most `tau` ticks with `need` requests of some types (`calls`)."""

    kinds: Kinds
    tau: int
    calls: frozenset[int]
    need: int
    decodes: bool
    prefills: bool
    exactly: int | None


def all_families(kinds: Kinds, kept: int) -> list[tuple[int, frozenset[int], int]]:
    """Most ticks, calls and how many of these: for every batch that keeps so many savable requests."""
    instance = kinds.instance
    known = [(t, s) for t, s in enumerate(kinds.slack) if s is not None]
    ends = {s - less for _, s in known for less in (0, instance.average)} | {instance.all_time}
    families: list[tuple[int, frozenset[int], int]] = []
    for tau in sorted(end for end in ends if 0 < end <= instance.all_time):
        instance.work.spend(3 * len(known))
        need = kept - sum(kinds.copies[t] for t, s in known if s - instance.average >= tau)
        if need <= 0:
            families = [(tau, frozenset(), 0)]  # it holds those of smaller tau
            continue
        calls = frozenset(t for t, s in known if s - instance.average < tau <= s)
        if need <= sum(kinds.copies[t] for t in calls):
            families.append((tau, calls, need))
    return families


def all_cases(kinds: Kinds, kept: int) -> Iterator[Case]:
    """The cases that hold every batch which keeps so many savable requests."""
    instance = kinds.instance
    most = min(instance.batch, sum(not r.prefills for r in instance.requests))
    for tau, calls, need in all_families(kinds, kept):
        for decodes, prefills in ((True, False), (False, True), (True, True)):
            for n in range(1, most + 1) if instance.product and decodes else (None,):
                yield Case(kinds, tau, calls, need, decodes, prefills, n)
