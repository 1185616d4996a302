"""Exact optima of tiny makespan instances, by trying every stage."""

from __future__ import annotations

import functools
import itertools
import random
from fractions import Fraction

from infermax_opt.makespan.data.instance import MakespanInstance, PrefillLevel


def optimum(instance: MakespanInstance) -> Fraction:
    """Least makespan in seconds: all sets to prefill next, all lengths of the decode stage."""
    requests = instance.requests
    round_seconds = instance.decode_overhead + instance.decode_token * instance.clients

    @functools.cache
    def best(waiting: tuple[int, ...], left: tuple[int, ...]) -> Fraction:
        if not waiting and not left:
            return Fraction(0)
        options = []
        for size in range(1, min(len(waiting), instance.clients - len(left)) + 1):
            for chosen in itertools.combinations(waiting, size):
                tokens = sum(requests[k].input_tokens for k in chosen)
                costs = [level.seconds for level in instance.levels if level.tokens >= tokens]
                if costs:
                    rest = tuple(k for k in waiting if k not in chosen)
                    now = tuple(sorted([*left, *(requests[k].output_tokens for k in chosen)]))
                    options.append(min(costs) + best_decode(rest, now))
        return min(options)

    @functools.cache
    def best_decode(waiting: tuple[int, ...], left: tuple[int, ...]) -> Fraction:
        longest = max(left)
        options = []
        for rounds in range(longest + 1) if waiting else (longest,):
            now = tuple(sorted(some - rounds for some in left if some > rounds))
            if waiting and len(now) == instance.clients:
                continue
            options.append(rounds * round_seconds + best(waiting, now))
        return min(options)

    return best(tuple(range(len(requests))), ())


def tiny_makespan(rng: random.Random) -> MakespanInstance:
    """A random instance of at most five requests."""
    requests = [(rng.randint(1, 6), rng.randint(1, 5)) for _ in range(rng.randint(1, 5))]
    most = max(tokens for tokens, _ in requests)
    levels = [
        PrefillLevel(rng.randint(1, 20), Fraction(rng.randint(0, 12))) for _ in range(rng.randint(0, 3))
    ]
    levels.append(PrefillLevel(most + rng.randint(0, 12), Fraction(rng.randint(0, 12))))
    decode = rng.randint(0, 3), rng.randint(1, 2)
    return MakespanInstance.of_requests("tiny", requests, rng.randint(1, 3), levels, decode)
