"""An exhaustive optimum, written from the problem statement alone.

It shares no code with the engines or the verifier: requests are told apart, every combination of moves
of every request is tried, and the batch time is spelled out again.  Waiting is a step of its own, in any
state.  No state is dropped for another one, whatever it costs.  Only good for tiny instances.
"""

from __future__ import annotations

import heapq
import itertools
from fractions import Fraction
from math import lcm

from infermax_opt.infermax.data.instance import Instance

__all__ = ["optimum"]

#: Most ticks until the last arrival for which a schedule may wait tick by tick.
EVERY_TICK = 64

#: (cached, generated) of every request.
State = tuple[tuple[int, int], ...]
#: KV tokens held, 1 if any are, decode tokens, cached tokens these read, prefill tokens, their work,
#: cached tokens before these.
Load = tuple[int, int, int, int, int, int, int]
#: State after a batch, its ticks, and the latest arrival of its members.
Step = tuple[State, int, int]
#: One request's part in a batch: its cached and generated tokens after it, its arrival, and its load.
Part = tuple[tuple[int, int], int, Load]


def optimum(instance: Instance) -> Fraction:
    """Optimal objective by Dijkstra's algorithm over all joint states and times, in seconds.

    Waits last one tick where arrivals are few ticks away.  That is enough: all batch times and arrivals are
    whole ticks, and for a given sequence of batches the waits solve a linear program over an interval
    matrix.  Where arrivals are further away, a batch waits for its members and no longer, which is enough
    for any objective but the TPOT: without it, a second never costs more later than earlier.
    """
    return _Oracle(instance).optimum()


class _Oracle:
    def __init__(self, instance: Instance):
        self.instance = instance
        cost = instance.cost
        pairs = [*cost.batch, cost.decode, cost.prefill, cost.mixed, (cost.prefix,)]
        arrivals = [request.arrival for request in instance.requests]
        self.unit = lcm(*(Fraction(v).denominator for v in (*arrivals, *itertools.chain(*pairs))))
        self.pieces = [(self.ticks(a), self.ticks(b)) for a, b in cost.batch]
        self.d0, self.d1 = map(self.ticks, cost.decode)
        self.p0, self.p1 = map(self.ticks, cost.prefill)
        self.e0, self.e1 = map(self.ticks, cost.mixed)
        self.p2 = self.ticks(cost.prefix)
        self.reqs = [(r.input_tokens, r.output_tokens, self.ticks(r.arrival)) for r in instance.requests]
        self.last = max(a for *_, a in self.reqs)
        system = instance.system
        most = len(self.reqs) if system.max_running is None else system.max_running
        #: KV tokens, all tokens, prefill tokens and requests of a batch, at most; whether phases may mix.
        self.limits = (
            system.kv_capacity,
            system.max_batch_tokens,
            system.max_prefill_tokens,
            most,
            instance.policy.hybrid_batching,
        )
        #: Ticks of the largest piece, by tokens.
        self.pieces_of: dict[int, int] = {}
        self.weights = {metric.value: weight for metric, weight in instance.objective.weights}
        self.known: dict[State, list[Step]] = {}
        self.may: dict[tuple[int, int, int], list[Part]] = {}
        several = sum(o > 1 for _, o, _ in self.reqs)
        self.scale = lcm(*(w.denominator for w in self.weights.values()))
        self.scale *= len(self.reqs) * max(1, several) * lcm(*(max(1, o - 1) for _, o, _ in self.reqs))

        def scaled(name: str, share: int) -> int:
            return int(self.weights.get(name, Fraction(0)) * self.scale / share)

        self.makespan = scaled("makespan", 1)
        self.ttft, self.e2e = scaled("mean_ttft", len(self.reqs)), scaled("mean_e2e", len(self.reqs))
        self.tpot = [scaled("mean_tpot", max(1, several) * max(1, o - 1)) for _, o, _ in self.reqs]

    def ticks(self, seconds: object) -> int:
        value = Fraction(seconds) * self.unit  # type: ignore[arg-type]
        assert value.denominator == 1
        return value.numerator

    def optimum(self) -> Fraction:
        every_tick = self.last <= EVERY_TICK
        assert every_tick or "mean_tpot" not in self.weights
        # The makespan is the time itself: a state reached later costs more, whatever follows.
        timeless = not every_tick and set(self.weights) == {"makespan"}
        goal = tuple((0, o) for _, o, _ in self.reqs)
        start = tuple((0, 0) for _ in self.reqs)
        best: dict[tuple[State, int], int] = {(start, 0): 0}
        queue: list[tuple[int, State, int]] = [(0, start, 0)]
        while True:
            cost, state, now = heapq.heappop(queue)
            if state == goal:
                # What accrues before a request arrives does not belong to its latency.
                cost -= (self.ttft + self.e2e) * sum(a for *_, a in self.reqs)
                return Fraction(cost, self.unit * self.scale)
            if cost > best[state, 0 if timeless else now]:
                continue
            rate = self.rate(state)
            reached = [(state, 1, now)] if every_tick and now < self.last else []
            for after, ticks, arrival in itertools.chain(reached, self.steps(state)):
                if arrival > now and every_tick:
                    continue
                taken = ticks if arrival <= now else arrival - now + ticks
                # From the last arrival on the time makes no difference.
                then = min(now + taken, self.last)
                key, total = (after, 0 if timeless else then), cost + rate * taken
                if key not in best or total < best[key]:
                    best[key] = total
                    heapq.heappush(queue, (total, after, then))

    def rate(self, state: State) -> int:
        """Objective accrued per tick in a state, scaled."""
        total = unfinished = 0
        for (_, n), (_, o, _), tpot in zip(state, self.reqs, self.tpot, strict=True):
            if n < o:
                unfinished = 1
                total += self.e2e + (self.ttft if n == 0 else tpot)
        return total + self.makespan * unfinished

    def steps(self, state: State) -> list[Step]:
        """Every batch in a state, whenever its members may have arrived."""
        if state not in self.known:
            least: dict[tuple[State, int], int] = {}
            for after, arrival, load in self.combinations(state):
                ticks, key = self.ticks_of(load), (after, arrival)
                if key not in least or ticks < least[key]:
                    least[key] = ticks
            self.known[state] = [(after, ticks, at) for (after, at), ticks in least.items()]
        return self.known[state]

    def combinations(self, state: State) -> list[tuple[State, int, Load]]:
        """Every combination of parts in a batch: state after it, latest arrival, load of all together.

        One that exceeds a limit is dropped as soon as it does: whatever joins only adds to its load.
        """
        kv, tokens, prefills, most, hybrid = self.limits
        found: list[tuple[State, int, Load]] = [((), 0, (0, 0, 0, 0, 0, 0, 0))]
        for i, (m, n) in enumerate(state):
            if (i, m, n) not in self.may:
                self.may[i, m, n] = self.parts(i, m, n)
            found = [
                (
                    (*after, own),
                    latest if latest > arrival else arrival,
                    (held + h, running + r, decodes + d, reads + c, prefill + p, work + w, behind + b),
                )
                for after, latest, (held, running, decodes, reads, prefill, work, behind) in found
                for own, arrival, (h, r, d, c, p, w, b) in self.may[i, m, n]
                if held + h <= kv
                and running + r <= most
                and decodes + d + prefill + p <= tokens
                and prefill + p <= prefills
                and (hybrid or not ((decodes or d) and (prefill or p)))
            ]
        return found

    def parts(self, i: int, m: int, n: int) -> list[Part]:
        """What a request with m tokens cached and n generated may do in a batch."""
        inp, out, arrival = self.reqs[i]
        policy = self.instance.policy
        found: list[Part] = [((m, n), 0, (*self.held(m), 0, 0, 0, 0, 0))]
        if n == out:
            return found
        if m > 0 and policy.preemption:
            found.append(((0, n), 0, (0, 0, 0, 0, 0, 0, 0)))
        need = inp + n - m
        for c in range(1 if policy.chunked_prefill else need, need + 1):
            generated = n + (c == need)
            after = (0, out) if generated == out else (m + c, generated)
            held = self.held(m + c)
            if n >= 1 and m == inp + n - 1:
                found.append((after, arrival, (*held, 1, m, 0, 0, 0)))
            else:
                work = c * (2 * m + c) if self.instance.cost.attention.value == "exact" else c * c
                found.append((after, arrival, (*held, 0, 0, c, work, m)))
        return found

    def held(self, cached: int) -> tuple[int, int]:
        """KV tokens held for that many cached ones, and 1 if there are any."""
        size = self.instance.system.block_size
        return -(-cached // size) * size, int(cached > 0)

    def ticks_of(self, load: Load) -> int:
        """Ticks of a batch."""
        _, _, decodes, reads, prefill, work, behind = load
        ticks = self.pieces_of.get(decodes + prefill)
        if ticks is None:
            ticks = self.pieces_of[decodes + prefill] = max(
                a + b * (decodes + prefill) for a, b in self.pieces
            )
        if decodes:
            ticks += self.d0 + self.d1 * reads
        if prefill:
            ticks += self.p0 + self.p1 * work + self.p2 * behind
        if decodes and prefill:
            ticks += self.e0 + self.e1 * reads
        return ticks
