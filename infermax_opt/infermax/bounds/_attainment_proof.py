"""The attainment bound for given prices: what each request must do to keep its limits, and what it pays.

The proof stands in `attainment`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, gcd, lcm

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds.interaction import in_chunks
from infermax_opt.infermax.bounds.least_work import spreads
from infermax_opt.infermax.data.instance import Instance, Metric, RequestType

__all__ = ["SHARE_BITS", "AttainmentProof", "Guest", "Prices", "least_sum"]

#: Bits after the point of shares.
SHARE_BITS = 24
#: A line: its value at 0, and its slope.
Line = tuple[int, int]
#: Limits of TTFT, TPOT and end-to-end latency, in seconds.
Limits = tuple[Fraction | None, Fraction | None, Fraction | None]
#: Groups of later tokens.
GROUPS = 8


@dataclass(frozen=True)
class Prices:
    """Cells of time with their prices.

    Attributes
    ----------
    exponent : int
        Prices are in units of 2**-exponent of a weight for a tick.
    ends, prices : sequence of int
        End of each cell in ticks, and its price.
    scarce : sequence of (int, int, int)
        Shares of alpha for KV, tokens and requests in each cell, in units of 2**-SHARE_BITS.
    shares : sequence of (int, sequence of int)
        Of each guest: its first cell with a share of f, and its shares from there on.
    """

    exponent: int
    ends: Sequence[int]
    prices: Sequence[int]
    scarce: Sequence[tuple[int, int, int]]
    shares: Sequence[tuple[int, Sequence[int]]]

    def cells(self, begin: int, end: int | None) -> Iterator[tuple[int, int]]:
        """Cells that overlap a stretch of time, each with the ticks in it; those after the last one are -1.

        Parameters
        ----------
        begin, end : int
            Ticks; no end is None.
        """
        k = bisect_right(self.ends, begin)
        while k < len(self.ends) and (end is None or begin < end):
            until = self.ends[k] if end is None else min(end, self.ends[k])
            yield k, until - begin
            begin, k = until, k + 1
        if end is None or begin < end:
            yield -1, 0

    def share(self, guest: int, cell: int) -> int:
        """Share of f of a guest in a cell.

        Parameters
        ----------
        guest, cell : int
        """
        first, shares = self.shares[guest]
        return shares[cell - first] if 0 <= cell - first < len(shares) else 0


@dataclass(frozen=True)
class Guest:
    """Equal requests with limits: what each must do, and when.

    Attributes
    ----------
    count, prompt, later : int
        Requests, prompt tokens, later tokens.
    weight : Fraction
    lost : bool
        Whether they never keep all limits.
    patient : bool
        Whether it only matters when they end.
    begin, until : int
        Ticks between which the prompt is done; no end is None.
    ready, due : int
        Ticks between which later tokens are made.
    whole, telescoped : int
        Work of the prompt by its tokens, times P; and attention work that has shares of its own.
    works : pair of Line
        Work of a later token by s is the smaller of the two.
    fixed, least : int
        Ticks of a batch that makes one of them, at least: without its work (f), and with it (e).
    """

    count: int
    prompt: int
    later: int
    weight: Fraction
    lost: bool
    patient: bool
    begin: int
    until: int | None
    ready: int
    due: int | None
    whole: int
    telescoped: int
    works: tuple[Line, Line]
    fixed: int
    least: int

    @property
    def end(self) -> int:
        """Last moment that matters; 0 if none does."""
        return max(self.until or 0, self.due or 0)


def least_sum(one: Line, other: Line, low: int, high: int) -> int:
    """Sum of the smaller of two lines over low, ..., high.

    Parameters
    ----------
    one, other : Line
    low, high : int
    """
    if one[1] > other[1]:
        one, other = other, one
    rise, ahead = other[1] - one[1], one[0] - other[0]
    # Up to `last` the other one is smaller.
    last = min(high, max(low - 1, ahead // rise)) if rise else high if ahead > 0 else low - 1

    def total(line: Line, start: int, end: int) -> int:
        return (end - start + 1) * (2 * line[0] + line[1] * (start + end)) // 2

    return total(other, low, last) + total(one, last + 1, high)


def _earliest(one: Fraction | None, other: Fraction | None) -> Fraction | None:
    """The earlier of two moments, where None is never."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


class AttainmentProof:
    """The bound for one affine piece.

    Parameters
    ----------
    instance : Instance
    piece : int

    Attributes
    ----------
    alpha : int
        Ticks of a batch besides its work.
    guests : list of Guest
    members : list of list of int
        Places of the requests of each guest.
    """

    def __init__(self, instance: Instance, piece: int):
        self.instance, self.piece = instance, piece
        ticks = instance.cost.ticks
        self.alpha, self._beta = ticks.alpha[piece], ticks.beta[piece]
        kinds: dict[tuple[int, int, Fraction, Fraction, Limits], list[int]] = {}
        for kind in instance.types:
            found = self._promise(kind)
            if found is not None:
                key = (kind.input_tokens, kind.output_tokens, kind.arrival, *found)
                kinds.setdefault(key, []).extend(kind.members)
        self.members = [*kinds.values()]
        self.guests = [self._guest((i, o), at, limits, weight, len(members))
                       for (i, o, at, weight, limits), members in kinds.items()]  # fmt: skip

    def _promise(self, kind: RequestType) -> tuple[Fraction, Limits] | None:
        """What it weighs in the objective that a request breaks its limits, and these; None for nothing."""
        objective, terms, horizon = self.instance.objective, kind.terms, self.instance.horizon
        slo = terms.slo
        missed = objective.weight(Metric.MISSED) * terms.weight if slo else Fraction(0)
        left = objective.weight(Metric.UNSERVED) * terms.weight
        left += objective.weight(Metric.UNSERVED_TOKENS) * kind.output_tokens
        if not terms.optional or horizon is None:
            left = Fraction(0)
        if missed == left == 0:
            return None
        ttft, tpot, e2e = (slo.ttft, slo.tpot, slo.e2e) if missed >= left else (None, None, None)
        until = None if horizon is None else Fraction(horizon) - kind.arrival
        return max(missed, left), (ttft, tpot, _earliest(e2e, until))

    def _guest(
        self, lengths: tuple[int, int], arrival: Fraction, limits: Limits, weight: Fraction, count: int
    ) -> Guest:
        (i, o), scale = lengths, self.instance.cost.ticks_per_second
        first, whole, telescoped = self._prompt_work(i)
        batches, works, fixed = self._token_work(i)
        later, least = least_sum(*batches, i + 1, i + o - 1), least_sum(*batches, i + 1, i + 1)
        ttft, tpot, e2e = (None if limit is None else limit * scale for limit in limits)
        span = None if tpot is None or o == 1 else tpot * (o - 1)
        taken = ((ttft, first), (span, later), (e2e, first + later))
        lost = any(limit is not None and time > limit for limit, time in taken)
        due = _earliest(e2e, None if ttft is None or span is None else ttft + span)
        until = _earliest(ttft, None if due is None else due - later)
        date = arrival * scale
        return Guest(
            count, i, o - 1, weight, lost, limits[0] is limits[1] is None,
            floor(date), None if until is None else ceil(date + until),
            floor(date) + first, None if due is None else ceil(date + due),
            whole, telescoped, works, fixed, least,
        )  # fmt: skip

    def _prompt_work(self, i: int) -> tuple[int, int, int]:
        """Ticks of a prompt alone, at least; its work by tokens times P; and attention work apart."""
        instance, ticks = self.instance, self.instance.cost.ticks
        square, budget, spread = ticks.p1 * i * i, instance.system.prefill_budget, spreads(instance)
        shared = square if spread else 0
        first = self._beta * i + square - shared
        first += in_chunks(self.alpha + ticks.p0, -(-i // budget), shared, 1, 1)
        telescoped = square if instance.policy.chunked_prefill and not spread else 0
        whole = self._beta * i + (ticks.p1 * i if spread else square - telescoped)
        return first, whole * budget + (0 if instance.policy.preemption else ticks.p0 * i), telescoped

    def _token_work(self, i: int) -> tuple[tuple[Line, Line], tuple[Line, Line], int]:
        """Ticks of a batch that makes a later token, and its work, each the smaller of two lines; f."""
        ticks = self.instance.cost.ticks
        decode = (self._beta - ticks.d1, ticks.d1)
        slow = (self.alpha + ticks.d0 + decode[0], ticks.d1)
        if not self.instance.policy.preemption:
            return (slow, slow), (decode, decode), self.alpha + ticks.d0
        again = self._beta + ticks.p1
        spared = min(max(0, ticks.d0 - ticks.p0), again * (i + 1))
        refilled = (self.alpha + ticks.p0, again)
        fixed = self.alpha + min(ticks.d0, ticks.p0 + spared)
        return (slow, refilled), (decode, (-spared, again)), fixed

    # --- the value ----------------------------------------------------------------------------------

    @property
    def most(self) -> Fraction:
        """What it is if nobody keeps all limits: no bound is above it."""
        return sum((guest.count * guest.weight for guest in self.guests), Fraction(0))

    def bound(self, prices: Prices) -> LowerBound:
        """The bound with these prices, exactly, rounded up to what can be missed."""
        unit = 1 << prices.exponent + SHARE_BITS
        paid = sum(guest.count * self._least(k, guest, prices, unit) for k, guest in enumerate(self.guests))
        starts = [0, *prices.ends]
        spent = sum((b - a) * price for a, b, price in zip(starts, prices.ends, prices.prices, strict=False))
        evidence = {
            "kind": "attainment",
            "piece": self.piece,
            "exponent": prices.exponent,
            "groups": GROUPS,
            "cells": [[end, price, *some] for end, price, some
                      in zip(prices.ends, prices.prices, prices.scarce, strict=True)],
            "shares": [[first, *shares] for first, shares in prices.shares],
        }  # fmt: skip
        value = self._rounded(Fraction(paid - (spent << SHARE_BITS), unit))
        return LowerBound(value, "attainment", Proof.CERTIFICATE, evidence=evidence)

    def _rounded(self, value: Fraction) -> Fraction:
        """The next multiple of the greatest common divisor of all weights, 0 or more."""
        weights = [guest.weight for guest in self.guests]
        scale = lcm(*(weight.denominator for weight in weights))
        grain = Fraction(gcd(*(int(weight * scale) for weight in weights)), scale)
        return max(0, ceil(value / grain)) * grain

    def _least(self, number: int, guest: Guest, prices: Prices, unit: int) -> int:
        """The cheapest way of a request of a guest, or its weight; in units."""
        weight = floor(guest.weight * unit)
        if guest.lost:
            return weight
        paid = self._prompt(guest, prices)
        if guest.later and paid < weight:
            later = self._later(number, guest, prices)
            paid = weight if later is None else paid + later
        return min(weight, paid)

    def _prompt(self, guest: Guest, prices: Prices) -> int:
        """Least that a prompt pays."""
        system = self.instance.system
        by_tokens, alone = [], []
        for cell, _ in prices.cells(guest.begin, guest.until):
            if cell < 0:
                return 0
            kv, tokens, requests = prices.scarce[cell]
            work = (guest.whole << SHARE_BITS) // system.prefill_budget
            work += self.alpha * kv * guest.prompt // system.kv_capacity
            work += self.alpha * tokens * guest.prompt // system.max_batch_tokens
            work += self.alpha * requests // (system.max_running or 1)
            by_tokens.append(prices.prices[cell] * work)
            alone.append(prices.prices[cell])
        return min(by_tokens, default=0) + (min(alone, default=0) * guest.telescoped << SHARE_BITS)

    def _later(self, number: int, guest: Guest, prices: Prices) -> int | None:
        """Least that later tokens pay; None if there is no time for them."""
        if guest.due is None or guest.least == 0:
            return 0
        total, width = 0, -(-guest.later // GROUPS)
        for before in range(0, guest.later, width):
            tokens = min(width, guest.later - before)
            begin = guest.ready + before * guest.least
            end = guest.due - (guest.later - before - tokens) * guest.least
            group = self._group(number, guest.prompt + 1 + before, tokens, prices.cells(begin, end), prices)
            if group is None:
                return None
            total += group
        return total

    def _group(
        self, number: int, low: int, tokens: int, cells: Iterator[tuple[int, int]], prices: Prices
    ) -> int | None:
        """Least that later tokens pay with `low` tokens cached after the first of them, and so on."""
        system, guest = self.instance.system, self.guests[number]
        step = least_sum(*guest.works, low, low)
        tried, lowest, held = [], None, None
        for cell, ticks in cells:
            if cell < 0:
                return 0
            (kv, each, requests), price = prices.scarce[cell], prices.prices[cell]
            work = (step << SHARE_BITS) + guest.fixed * prices.share(number, cell)
            work += self.alpha * kv * low // system.kv_capacity
            work += self.alpha * each // system.max_batch_tokens
            work += self.alpha * requests // (system.max_running or 1)
            tried.append((price * work, ticks))
            lowest = price if lowest is None else min(lowest, price)
            held = price * kv if held is None else min(held, price * kv)
        paid, left = 0, tokens * guest.least
        for price, ticks in sorted(tried):
            paid += price * min(left, ticks)
            left -= min(left, ticks)
        if left or lowest is None or held is None:
            return None
        beyond = least_sum(*guest.works, low, low + tokens - 1) - tokens * step
        more = self.alpha * held * (tokens * (tokens - 1) // 2) // system.kv_capacity
        return int(paid // guest.least + (lowest * beyond << SHARE_BITS) + more)
