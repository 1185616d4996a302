"""Lives to start from: walks of all requests together, guided by prices of memory.

A walk goes a few steps at a time; then the prices are settled anew for what is left of its best nodes.  Where
the steps left no longer do, which the bound tells, there is one more.  See `_walk_kernel`.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from infermax_opt.core.compiled import compiled
from infermax_opt.core.extras import absent
from infermax_opt.infermax.planners.lives import _walk_kernel
from infermax_opt.infermax.planners.lives._kernel import FAR, Level
from infermax_opt.infermax.planners.lives._walk_kernel import Ways

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Lives = npt.NDArray[np.int8]

__all__ = ["walks"]

#: First price of all KV in a step, as a share of the step's fixed time.
PRICE = 0.3
#: Smoothness of the minima, in shares of a step's fixed time: at first, where prices are settled anew, and
#: last.
HOT, WARM, COLD = 0.01, 2e-3, 5e-4
#: Rounds of settling prices for the first time, and anew.
ROUNDS, AGAIN = 600, 150
#: Steps that are added at once, as a share of those there are; at least one.
LONGER = 0.01
#: A rise of the bound, in shares of a step's fixed time, from which one more step may be cheaper.
RISE = 0.25
#: Nodes by which prices are settled anew.
LEADERS = 5
#: Nodes of a beam, parts in which it goes, and noise: what the walks draw from.
WIDTHS, PARTS, NOISES = (40, 100, 200), (15, 25, 40), (0.0, 0.0, 0.1)
#: Most steps with which walks begin beyond those that prices allow at least, as a share; by how many that of
#: a walk may differ from the best one before.
MORE, NEAR = 0.07, 1
#: A walk is given up that takes so many times as many steps as it began with.
TOO_LONG = 1.25


def walks(level: Level, kinds: Any, seed: int, late: Callable[[int], bool]) -> Iterator[tuple[float, Lives]]:
    """Lives that keep the limits, each with less seconds than those before, by an estimate.

    None without numba: in plain Python one takes minutes.

    Parameters
    ----------
    level : Level
    kinds : int array
        Kind of each request.
    seed : int
    late : callable
        Asked with the number of walks made whether to stop.
    """
    import numpy as np

    fixed = level.span * (float(max(level.alpha)) + level.d0)
    if absent("numba") or fixed == 0 or late(0):
        return
    walker, rng = _Walker(level, kinds, fixed), np.random.default_rng((seed, level.span))
    for count in itertools.count():
        now = functools.partial(late, count)
        if now():
            return
        found = walker.walk(rng, now)
        if found is not None:
            yield found


class _Walker:
    """Walks at one level.

    Parameters
    ----------
    level : Level
    kinds : int array
    fixed : float
        Seconds of a step, without what its tokens take.

    Attributes
    ----------
    least : int
        Steps that are needed for sure.
    first : float array
        Prices of the fewest steps that may do, once there has been a walk.
    best : float
        Seconds of the best walk.
    aim : int
        Steps with which it began.
    """

    def __init__(self, level: Level, kinds: Any, fixed: float):
        import numpy as np

        self.kinds, self.fixed, self.best, self.aim = kinds, fixed, FAR, 0
        each = float(level.beta[np.argmax(level.alpha)])
        made = each * level.span
        self.ways = Ways(
            level.ends, level.size, level.prompt, made + level.reads,
            made + each * (level.prompt - 1) + level.attends, level.capacity, level.running, level.budget,
            level.preemption, level.p0,
        )  # fmt: skip
        self.made = np.zeros((1, len(kinds)), np.int64)
        held = sum(float(level.size[k, : level.ends[k]].sum()) for k in kinds)
        slots = sum(int(level.ends[k]) for k in kinds) / level.running
        least = max(math.ceil(held / level.capacity), math.ceil(slots), int(level.ends.max()))
        self.least, self.first = least, self.fresh(0)

    def fresh(self, steps: int) -> Any:
        """Prices to begin with."""
        import numpy as np

        return np.full(steps, PRICE * self.fixed / self.ways.capacity)

    def longer(self, price: Any, steps: int) -> Any:
        """Prices of so many steps more."""
        import numpy as np

        last = self.fixed / self.ways.capacity
        return np.append(price, np.full(steps, min(float(price[-1]), last) if len(price) else last))

    def settled(self, made: Any, here: Any, price: Any, rounds: int, hot: float) -> float:
        """Settle the prices for what the leading nodes have left; the bound on it."""
        import numpy as np

        counts = np.zeros((len(self.ways.ends), int(self.ways.ends.max()) + 1, 2))
        leaders = min(LEADERS, len(made))
        for w in range(leaders):
            np.add.at(counts, (self.kinds, made[w], here[w]), 1 / leaders)
        heat = hot * self.fixed, COLD * self.fixed
        return float(_raise()(self.ways, counts, price, *heat, rounds))

    def lengthened(
        self, made: Any, here: Any, price: Any, hot: float, late: Callable[[], bool]
    ) -> tuple[Any, float]:
        """Settle the prices, with more steps as long as these cost less than they save; the bound, too."""
        value, most = self.settled(made, here, price, ROUNDS, hot), 2 * len(price) + 2
        while len(price) < most and not late():
            more = self.longer(price, max(1, int(LONGER * len(price))))
            other = self.settled(made, here, more, ROUNDS, hot)
            if other + self.fixed * (len(more) - len(price)) >= value:
                break
            price, value = more, other
        return price, value

    def walk(self, rng: np.random.Generator, late: Callable[[], bool]) -> tuple[float, Lives] | None:
        """One walk: its seconds and lives; None where it is not better than those before."""
        import numpy as np

        if len(self.first) == 0:
            self.first, _ = self.lengthened(self.made, self.made, self.fresh(self.least), HOT, late)
        parts, width, noise = int(rng.choice(PARTS)), int(rng.choice(WIDTHS)), float(rng.choice(NOISES))
        begin = len(self.first) + int(rng.integers(math.ceil(MORE * len(self.first)) + 1))
        if self.best < FAR and rng.random() < 0.5:
            begin = max(len(self.first), self.aim + int(rng.integers(-NEAR, NEAR + 1)))
        price = self.longer(self.first, begin - len(self.first))
        made = here = self.made
        spent, past, t = np.zeros(1), [], 0
        value, part, most = self.settled(made, here, price, ROUNDS, HOT), -(-begin // parts), TOO_LONG * begin
        while (made[0] < self.ways.ends[self.kinds]).any():
            if late() or t + len(price) > most or value + self.fixed * (t + len(price)) >= self.best:
                return None
            done, made, here, spent, acts, parents = _walk()(
                self.ways, self.kinds, price, width, noise, int(rng.integers(2**31)), made, here, spent,
                min(part, len(price)),
            )  # fmt: skip
            past += [(acts[s], parents[s]) for s in range(done)]
            t, price, before = t + done, price[done:].copy(), value
            if done == 0:  # nobody can end in time
                price = self.longer(price, 1)
            value = float(spent[0]) + self.settled(made, here, price, AGAIN, WARM)
            if done == 0 or value > before + RISE * self.fixed:
                price, value = self.lengthened(made, here, price, WARM, late)
                value += float(spent[0])
        seconds = float(spent[0]) + self.fixed * t
        if seconds >= self.best:
            return None
        self.best, self.aim = seconds, begin
        lives, w = np.zeros((len(self.kinds), t), np.int8), 0
        for s in range(t - 1, -1, -1):
            acts, parents = past[s]
            lives[:, s] = acts[w]
            w = parents[w]
        return seconds, lives


@functools.cache
def _raise() -> Callable[..., Any]:
    found: Callable[..., Any] = compiled(
        _walk_kernel.raise_prices, _walk_kernel.RAISE_HELPERS, helpers_allocate=False
    )
    return found


@functools.cache
def _walk() -> Callable[..., Any]:
    found: Callable[..., Any] = compiled(_walk_kernel.walk, _walk_kernel.WALK_HELPERS, helpers_allocate=False)
    return found
