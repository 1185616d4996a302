"""An exhaustive optimum, written from the problem statement alone.

It shares no code with the engines: requests are told apart, every combination of moves of every
request is tried, and the batch time is spelled out again.  Only good for tiny instances.
"""

from __future__ import annotations

import heapq
import itertools
from fractions import Fraction

from infermax_opt.infermax.data.instance import Instance


def optimum(instance: Instance) -> Fraction:
    """Optimal objective by Dijkstra's algorithm over all joint states.

    Offline any objective; with arrivals any but the TPOT, for which waiting may pay.
    """
    reqs = [(r.input_tokens, r.output_tokens, r.arrival) for r in instance.requests]
    s = instance.system
    weights = {metric.value: weight for metric, weight in instance.objective.weights}
    several = [i for i, (_, o, _) in enumerate(reqs) if o > 1]

    def held(m: int) -> int:
        blocks = m // s.block_size + (1 if m % s.block_size else 0)
        return blocks * s.block_size

    def batch_seconds(parts: list[tuple[bool, int, int]]) -> Fraction:
        """Time of a batch from (decodes?, cached before, tokens) of every processing request."""
        cost = instance.cost
        tokens = sum(c for _, _, c in parts)
        t = max(Fraction(a) + Fraction(b) * tokens for a, b in cost.batch)
        reads = [m for decodes, m, _ in parts if decodes]
        if reads:
            t += Fraction(cost.decode[0]) + Fraction(cost.decode[1]) * sum(reads)
        chunks = [(m, c) for decodes, m, c in parts if not decodes]
        if chunks:
            exact = cost.attention.value == "exact"
            w = sum(c * (2 * m + c) if exact else c * c for m, c in chunks)
            t += Fraction(cost.prefill[0]) + Fraction(cost.prefill[1]) * w
        return t

    def moves(i: int, m: int, n: int, now: Fraction) -> list[tuple[str, int]]:
        inp, out, arrival = reqs[i]
        if n == out:
            return [("idle", 0)]
        found = [("idle", 0)]
        if m > 0 and instance.policy.preemption:
            found.append(("evict", 0))
        if arrival > now:
            return found
        need = inp + n - m
        if instance.policy.chunked_prefill:
            found += [("run", c) for c in range(1, need + 1)]
        else:
            found.append(("run", need))
        return found

    def rate(state: tuple[tuple[int, int], ...]) -> Fraction:
        """Objective accrued per second in a state."""
        total = Fraction(0)
        if any(n < o for (_, n), (_, o, _) in zip(state, reqs, strict=True)):
            total += weights.get("makespan", Fraction(0))
        for i, ((_, n), (_, o, _)) in enumerate(zip(state, reqs, strict=True)):
            if n < o:
                total += weights.get("mean_e2e", Fraction(0)) / len(reqs)
            if n == 0:
                total += weights.get("mean_ttft", Fraction(0)) / len(reqs)
            if 0 < n < o and i in several:
                total += weights.get("mean_tpot", Fraction(0)) / len(several) / (o - 1)
        return total

    def successors(state: tuple[tuple[int, int], ...], now: Fraction):  # type: ignore[no-untyped-def]
        choices = [moves(i, m, n, now) for i, (m, n) in enumerate(state)]
        for chosen in itertools.product(*choices):
            parts = []
            after = []
            memory = running = prefill = 0
            for (kind, c), (m, n), (inp, out, _) in zip(chosen, state, reqs, strict=True):
                if kind == "evict":
                    m = 0
                elif kind == "run":
                    decodes = n >= 1 and m == inp + n - 1
                    parts.append((decodes, m, c))
                    prefill += 0 if decodes else c
                    m += c
                    if m == inp + n:
                        n += 1
                memory += held(m)
                running += m > 0
                after.append((0, n) if n == out else (m, n))
            if memory > s.kv_capacity or (s.max_running is not None and running > s.max_running):
                continue
            if sum(c for *_, c in parts) > s.max_batch_tokens or prefill > s.max_prefill_tokens:
                continue
            phases = {decodes for decodes, *_ in parts}
            if len(phases) == 2 and not instance.policy.hybrid_batching:
                continue
            nxt = tuple(after)
            if nxt != state:
                yield nxt, batch_seconds(parts)

    start = tuple((0, 0) for _ in reqs)
    goal = tuple((0, o) for _, o, _ in reqs)
    online = any(a > 0 for *_, a in reqs)
    assert not online or "mean_tpot" not in weights
    # With arrivals the time belongs to the state: a state reached later at less cost may be better,
    # but for the makespan, where the cost is the time.
    timed = online and set(weights) != {"makespan"}
    zero = Fraction(0)
    best: dict[tuple[tuple[tuple[int, int], ...], Fraction], Fraction] = {(start, zero): zero}
    queue: list[tuple[Fraction, int, tuple[tuple[int, int], ...], Fraction]] = [(zero, 0, start, zero)]
    counter = itertools.count(1)
    # What accrues before a request arrives does not belong to its latency.
    per_request = weights.get("mean_ttft", zero) + weights.get("mean_e2e", zero)
    shift = per_request * sum((a for *_, a in reqs), start=zero) / len(reqs)
    while queue:
        cost, _, state, now = heapq.heappop(queue)
        key = (state, now if timed else zero)
        if cost > best[key]:
            continue
        if state == goal:
            return cost - shift
        begins = [now, *sorted({a for *_, a in reqs if a > now})] if online else [zero]
        per_second = rate(state)
        for begin in begins:
            for nxt, seconds in successors(state, begin):
                then = begin + seconds if online else zero
                spent = then - now if online else seconds
                total = cost + spent * per_second
                key = (nxt, then if timed else zero)
                if key not in best or total < best[key]:
                    best[key] = total
                    heapq.heappush(queue, (total, next(counter), nxt, then))
    raise AssertionError("no schedule")
