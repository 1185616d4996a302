"""Tool of the Lagrangian proof: cheapest paths of a request under prices of KV."""

from __future__ import annotations

from typing import Any

from infermax_opt.infermax.checker.instance import Instance
from infermax_opt.infermax.checker.pieces import FAR

#: Prices of KV, in units for a block, each for a number of batches.
Runs = list[list[int]]


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

    `sizes`: blocks held; `enter`: units to enter with these tokens, the first or after a refill; `steps`:
    units to decode the last of them; `unreached`: more than the path costs that makes a token in each
    batch, so that just what is reached is below.
    """

    def __init__(self, instance: Instance, kind: tuple[int, int], share: int, rho: int, dearest: int):
        prompt, outputs = kind
        instance.work.spend(10 * outputs)
        sizes = [-(-(prompt + n) // instance.block) for n in range(outputs)]
        enter = [rho * (prompt + n - 1) if n else 0 for n in range(outputs)]
        steps = [share * size for size in sizes]
        batch = steps[-1] + dearest * sizes[-1]
        self.unreached = outputs * batch + 1
        most = self.unreached + enter[-1] + batch
        instance.work.spend(outputs * most.bit_length() // 8)
        self.lanes = Lanes(outputs, most)
        if instance.preemption:  # a refill instead of a decode
            steps = list(map(min, steps, enter))
        self.sizes, self.enter, self.steps = map(self.lanes.pack, (sizes, enter, steps))


def cheapest_paths(instance: Instance, kind: tuple[int, int], runs: Runs, share: int, rho: int) -> list[Any]:
    """Units of the cheapest path of a request that ends by each batch; FAR where none does.

    In each batch a request that is held makes its next token or waits; one that is out enters; and one
    that was held before may be out again afterwards.

    Parameters
    ----------
    instance : Instance
    kind : tuple[int, int]
        Kind of requests.
    runs : Runs
        Prices by batch.
    share : int
    rho : int
    """
    path = RequestPath(instance, kind, share, rho, max(price for price, _ in runs))
    width, unreached, least = path.lanes.width, path.unreached, path.lanes.least
    top = width * (kind[1] - 1)  # the lane of all tokens, with which nobody is held
    below, nobody = (1 << top) - 1, unreached << top
    held, out, done = (unreached * path.lanes.ones) & below, unreached * (path.lanes.ones - 1), unreached
    bits, ends = kind[1] * width, list[int]()
    step = 40 + bits // (
        80 if bits < 2**22 else 40
    )  # beyond the caches of a processor it takes twice as long
    for price, times in runs:
        instance.work.spend(step)
        paid, before = price * path.sizes, None
        for left in range(times, 0, -1):
            instance.work.spend(step)
            decoded, waited = (held << width | unreached) + path.steps, held | nobody
            reached = least(least(decoded, waited), out + path.enter) + paid
            out = least(out, held << width) if instance.preemption else out
            done, held = min(done, reached >> top), reached & below
            settled = before == (before := (done, held, out))  # more batches at this price change nothing
            ends += [done] * (left if settled else 1)
            if settled:
                break
    return [end if end < unreached else FAR for end in ends]
