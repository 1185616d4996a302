"""Tool of the Lagrangian proof: cheapest paths of a request under prices of KV and of tokens."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from infermax_opt.infermax.checker.instance import Instance
from infermax_opt.infermax.checker.pieces import FAR

#: Prices in units, each for a number of batches.
Runs = list[list[int]]
#: Prices of a block of KV, and of a token that a batch processes.
Prices = tuple[Runs, Runs]


def each(runs: Runs) -> Iterator[int]:
    """The price of each batch."""
    return chain.from_iterable([price] * times for price, times in runs)


def with_entries(instance: Instance, prices: Prices) -> list[list[int]]:
    """Prices of KV, of prefill and of decodes, and in how many batches.

    That of prefill is what a token costs at least that is held in the batch: in chunks it may be prefilled
    in any batch before, and is held since.  Decodes count where C is the limit of prefill, too.
    """
    held, tokens = prices
    if not any(price for price, _ in tokens):
        return [[price, 0, 0, times] for price, times in held]
    decodes = int(instance.budget == instance.batch_tokens)
    runs: list[list[int]] = []
    entry = None
    for price, token in zip(each(held), each(tokens), strict=True):
        entry = token if entry is None else min(token, entry)
        if runs and runs[-1][:3] == [price, entry, decodes * token]:
            runs[-1][3] += 1
        else:
            runs.append([price, entry, decodes * token, 1])
        entry = entry + price // instance.block if instance.chunked else None
    return runs


class Lanes:
    """Lists of so many whole numbers from 0 to `most`, each list as one integer: number k at bit k * width.

    Python adds and compares a thousand of them so in a few steps.  The highest bit of each lane stays 0
    in between, so that no lane borrows from another.
    """

    def __init__(self, count: int, most: int):
        self.width = most.bit_length() + 1
        self.ones = self.pack([1] * count)
        self.guards = self.ones << (self.width - 1)

    def pack(self, values: list[int]) -> int:
        """The list as one integer."""
        return int("".join([format(value, f"0{self.width}b") for value in reversed(values)]), 2)

    def least(self, a: int, b: int) -> int:
        """The lesser number of each lane."""
        not_below = ((a | self.guards) - b) & self.guards  # the highest bit of the lanes where a >= b
        chosen = not_below - (not_below >> (self.width - 1))  # all other bits of these
        return a ^ ((a ^ b) & chosen)


class RequestPath:
    """Costs of the batches of a request, packed: lane n is for n + 1 tokens.

    `sizes`: blocks held; `enter`: units to enter with these tokens, the first or after a refill, beside
    those for the `loads` prefilled for it; `steps`: units to decode the last of them; `later`: 1 for all but
    the first; `unreached`: more than the path costs that makes a token in each batch, so that just what is
    reached is below.
    """

    def __init__(self, instance: Instance, kind: tuple[int, int], share: int, rho: int, dearest: list[int]):
        prompt, outputs = kind
        instance.work.spend(12 * outputs)
        sizes = [-(-(prompt + n) // instance.block) for n in range(outputs)]
        enter = [rho * (prompt + n - 1) if n else 0 for n in range(outputs)]
        loads = [prompt + n - 1 if n else prompt for n in range(outputs)]
        steps = [share * size for size in sizes]
        price, entry, token = dearest
        batch = steps[-1] + price * sizes[-1] + token
        self.unreached = outputs * batch + entry * prompt + 1
        most = self.unreached + enter[-1] + entry * loads[-1] + batch
        instance.work.spend(outputs * most.bit_length() // 8)
        self.lanes = Lanes(outputs, most)
        if instance.preemption:  # a refill instead of a decode
            steps = list(map(min, steps, enter))
        self.sizes, self.enter, self.loads, self.steps = map(self.lanes.pack, (sizes, enter, loads, steps))
        self.later = self.lanes.ones - 1


def cheapest_paths(
    instance: Instance, kind: tuple[int, int], runs: list[list[int]], share: int, rho: int
) -> list[Any]:
    """Units of the cheapest path of a request that ends by each batch; FAR where none does.

    In each batch a request that is held makes its next token or waits; one that is out enters; and one
    that was held before may be out again afterwards.

    Parameters
    ----------
    instance : Instance
    kind : tuple[int, int]
        Kind of requests.
    runs : list[list[int]]
        As `with_entries` gives them.
    share : int
    rho : int
    """
    path = RequestPath(instance, kind, share, rho, [max(run[k] for run in runs) for k in range(3)])
    width, unreached, least = path.lanes.width, path.unreached, path.lanes.least
    top = width * (kind[1] - 1)  # the lane of all tokens, with which nobody is held
    below, nobody = (1 << top) - 1, unreached << top
    held, out, done = (unreached * path.lanes.ones) & below, unreached * (path.lanes.ones - 1), unreached
    bits, ends = kind[1] * width, list[int]()
    step = 40 + bits // (
        80 if bits < 2**22 else 40
    )  # beyond the caches of a processor it takes twice as long
    for price, entry, token, times in runs:
        instance.work.spend(step)
        paid, before = price * path.sizes, None
        enter, steps = (part + token * path.later for part in (path.enter + entry * path.loads, path.steps))
        for left in range(times, 0, -1):
            instance.work.spend(step)
            decoded, waited = (held << width | unreached) + steps, held | nobody
            reached = least(least(decoded, waited), out + enter) + paid
            out = least(out, held << width) if instance.preemption else out
            done, held = min(done, reached >> top), reached & below
            settled = before == (before := (done, held, out))  # more batches at this price change nothing
            ends += [done] * (left if settled else 1)
            if settled:
                break
    return [end if end < unreached else FAR for end in ends]
