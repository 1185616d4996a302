"""The order in which assignments and bounds for identical machines are sought.

See `infermax_opt.makespan.machines.solve`, which explains it.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from infermax_opt.makespan.machines import _bounds as bounds
from infermax_opt.makespan.machines import _compiled as kernels
from infermax_opt.makespan.machines import _split as splits

if TYPE_CHECKING:
    from infermax_opt.makespan.machines._columns import Columns

__all__ = ["Search"]

#: Pairs of machines split before anything else is tried.
PAIRS = 6000
#: Most bits of a set of sums: beyond, lengths are too large for splits.
BITS = 1 << 22
#: Jobs for which the exact search runs uncompiled, and how long (jobs placed).
TINY, TINY_LIMIT = 12, 3000
#: Jobs for which the exact search is tried at all, and how long at first.
SEARCHED, SEARCH_LIMIT = 200, 300_000
#: Machines repaired at once, jobs placed in one repair, in all before the relaxation and in a later round.
WIDTH, REPAIR_LIMIT, REPAIRS, LATER = 10, 20_000, 4_000_000, 16_000_000
#: Work of all repairs between two looks at the clock.
REPAIR_SLICE = 1_000_000
#: Rounds of repairs and dives, the work of each larger than that of the one before by this factor.
ROUNDS, GROWTH = 40, 1.1
#: Rounds before the arc-flow model is tried.
MODELLED = 3
#: Different lengths above which the relaxation is first solved on so many intervals of lengths.
MANY, INTERVALS = 150, (20, 60)
#: Most linear programs per relaxation.
PROGRAMS = 400
#: Largest number that compiled code multiplies safely.
SAFE = 1 << 61


class Search:
    """The best assignment and bound so far, and what is known to improve them.

    `lengths`, longest first, have no common divisor.  `parts`: lengths per machine.
    """

    def __init__(self, lengths: list[int], machines: int, seed: int, deadline: float | None):
        self.lengths, self.machines, self.seed, self.deadline = lengths, machines, seed, deadline
        self.low, self.proof = bounds.quick(lengths, machines)
        self.parts = splits.longest_first(lengths, machines)
        self.high = max(map(sum, self.parts))
        kinds = Counter(lengths)
        self.sizes, self.copies = list(kinds), list(kinds.values())
        self.excess = sum(lengths)
        self.state: Any = None

    @property
    def over(self) -> bool:
        """Whether nothing is left to do, or no time."""
        return self.low >= self.high or (self.deadline is not None and time.monotonic() >= self.deadline)

    def raised(self, low: int, proof: str) -> None:
        """Take a lower bound that was proved."""
        if low > self.low:
            self.low, self.proof = low, proof

    def improved(self, parts: list[list[int]]) -> None:
        """Take an assignment if its makespan is less, or less work exceeds the lower bound."""
        loads = [sum(part) for part in parts]
        high, excess = max(loads), sum(max(0, load - self.low) for load in loads)
        if (high, excess) < (self.high, self.excess):
            self.parts, self.high, self.excess = parts, high, excess

    def run(self) -> None:
        if self.over:
            return
        if len(self.lengths) <= TINY:
            self._tiny()
        if not self.over and self._split():
            self._numeric()

    def _split(self) -> bool:
        """Split pairs of machines; whether there is more that could be done."""
        if sum(self.parts[0]) * 4 < BITS:
            found = splits.balance(self.parts, self.low, seed=self.seed, rounds=PAIRS, deadline=self.deadline)
            self.improved(found)
        return not self.over and self.high * self.machines < SAFE

    def _tiny(self) -> None:
        """Exact search in plain Python."""
        import numpy as np

        from infermax_opt.makespan.machines._kernel import pack

        if self.high * self.machines < SAFE:
            self._exact(pack, TINY_LIMIT, np.array(self.lengths, np.int64), downwards=True)

    def _exact(self, pack: Any, limit: int, items: Any, *, downwards: bool) -> None:
        """Decide by search whether the lower bound, or one less than the best makespan, is reached."""
        import numpy as np

        while not self.over:
            goal = self.high - 1 if downwards else self.low
            where = np.zeros(len(items), np.int64)
            fits = pack(items, self.machines, goal, limit, where)[0]
            if fits == 1:
                self.improved([items[where == k].tolist() for k in range(self.machines)])
            elif fits == 0:
                self.raised(goal + 1, "search")
            else:
                return

    def _numeric(self) -> None:
        import numpy as np

        self.raised(bounds.lifted(self.lengths, self.machines), "lifted")
        if self.high * max(self.machines, len(self.lengths)) * bounds.STEPS < SAFE:
            packed = bounds.packing(self.sizes, self.copies, self.machines, self.low, self.high)
            self.raised(packed, "packing")
        if self.over:
            return
        items = np.array(self.lengths, np.int64)
        self.state = np.array([self.seed & 0x7FFFFFFF], np.int64)
        rng = np.random.default_rng(self.seed & 0xFFFFFFFF)
        if len(items) <= SEARCHED:
            self._exact(kernels.pack(), SEARCH_LIMIT, items, downwards=False)
        self._repair(self.parts, REPAIRS)
        relaxation = self._relaxed()
        asked: set[int] = set()
        effort = 1.0
        for number in range(ROUNDS):
            self._repair(self.parts, round(LATER * effort))
            if not self.over and relaxation is not None:
                # Every other dive asks for less than the bound, if there is anything in between.
                goal = self.low if number % 2 == 0 else self.high - 1
                self._repair(relaxation.dive(goal, self.high, rng), round(LATER * effort / 2))
            if not self.over and len(items) <= SEARCHED:
                self._exact(kernels.pack(), round(SEARCH_LIMIT * effort), items, downwards=False)
            if not self.over and number >= MODELLED and self.low not in asked:
                asked.add(self.low)
                self._arc_flow()
            if self.over:
                return
            effort *= GROWTH

    def _repair(self, parts: list[list[int]], budget: int) -> None:
        """Repack a few machines at a time; take what is better than the best."""
        import numpy as np

        if self.over:
            return
        pool: dict[int, list[int]] = {}
        for k, part in enumerate(parts):
            for length in part:
                pool.setdefault(length, []).append(k)
        machine = np.array([pool[p].pop() for p in self.lengths], np.int64)
        items = np.array(self.lengths, np.int64)
        load = np.array([sum(part) for part in parts], np.int64)
        width = min(WIDTH, self.machines)
        while budget > 0:
            slice_ = min(budget, REPAIR_SLICE)
            top = kernels.repair()(items, machine, load, self.low, width, REPAIR_LIMIT, slice_, self.state)
            if top <= self.high:
                order = np.argsort(machine, kind="stable")
                cuts = np.cumsum(np.bincount(machine, minlength=self.machines))[:-1]
                self.improved([part.tolist() for part in np.split(items[order], cuts)])
            budget -= slice_
            if self.over or top <= self.low:
                return

    def _relaxed(self) -> Columns | None:
        """Raise the bound by the covering relaxation; return it if it can go on to a dive."""
        from infermax_opt.makespan.machines._columns import Columns, manageable

        if self.over or not manageable(self.sizes, self.copies, self.machines, self.high):
            return None
        relaxation = Columns(self.sizes, self.copies, self.machines, self.deadline)
        relaxation.start(self.low)
        if len(self.sizes) > MANY:
            for intervals in INTERVALS:
                relaxation.regroup(intervals)
                self.raised(relaxation.raise_bound(self.low, self.high, PROGRAMS)[0], "fillings")
                # A better assignment leaves less to be proved.
                self._repair(self.parts, REPAIRS)
                if self.over:
                    return None
        relaxation.regroup(None)
        low, met = relaxation.raise_bound(self.low, self.high, PROGRAMS)
        self.raised(low, "fillings")
        return relaxation if met else None

    def _arc_flow(self) -> None:
        """Decide by an arc-flow model whether the lower bound is reached."""
        from infermax_opt.makespan.machines._arcflow import decide

        now = time.monotonic()
        until = None if self.deadline is None else now + (self.deadline - now) / 2
        fits, parts = decide(
            self.sizes, self.copies, self.machines, self.low, seed=self.seed & 0x7FFFFFFF, deadline=until
        )  # fmt: skip
        if fits:
            self.improved(parts)
        elif fits is False:
            self.raised(self.low + 1, "arc-flow")
