"""Plans for batches that all take the same time (`in_rounds`): a start round for each request.

Nobody pauses, so that is all of a schedule.  Serial generation starts one request after the
other as soon as it fits until it ends, and its order is annealed, some times over.  It may be that no order
gives the optimum, as a request that starts later is smaller while another peaks.  A search that is handed in
(`infermax_opt.infermax.exact.rounds`) combines the schedules so found, with all rounds near theirs.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Batch, Schedule

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]
    Merge = Callable[[list[Ints], int, int], Ints | None]

__all__ = ["MOST_REQUESTS", "RoundsPlanner"]

#: Requests beyond which too few orders are tried to be worth it.
MOST_REQUESTS = 2000
#: Most rounds of all requests one after the other.
MOST_ROUNDS = 10**7
#: Requests placed between two moments at which the clock is read and the order becomes that of the starts.
PLACED = 50_000
#: Rounds by which the sum of latencies may grow in a step, on average, as a multiple of the mean output: when
#: a run of annealing starts, when one from a good order does, and when it ends.
HOT, WARM, COLD = 0.4, 0.2, 0.02
#: Steps of a run for each request: several short runs find more than a long one.
STEPS = 6000
#: Runs of annealing without a deadline, and the share of the time that runs have where schedules can be
#: combined.
RUNS, SHARE = 2, 0.6
#: Share of the time that a run from the best order has.
AGAIN = 0.06
#: Schedules that are kept to be combined.
KEPT = 8
#: Looks at the clock in a run without a deadline.
LOOKS = 300
#: Rounds by which ends may differ from those in one of two schedules that are combined, at most.
NEAR = 5
#: Pairs in vain after which there is another run of annealing, from the best order.
VAIN = 12


class RoundsPlanner:
    """Searches start rounds for one instance.

    Parameters
    ----------
    instance : Instance
        In rounds.
    seed : int
        The same seed tries the same orders, as many as there is time for.
    merge : callable, optional
        Takes the ends of known schedules, the rounds by which to differ, and a sum of ends; returns ends with
        a smaller sum, or None.
    """

    def __init__(self, instance: Instance, *, seed: int = 0, merge: Merge | None = None):
        import numpy as np

        from infermax_opt.infermax.planners.rounds._kernel import Requests

        self.instance, self._merge = instance, merge
        self._random = np.random.default_rng(seed)
        self._alpha = instance.cost.seconds.alpha[0]
        columns = zip(
            *[(r.input_tokens, r.output_tokens, int(r.arrival / self._alpha)) for r in instance.requests],
            strict=True,
        )
        inputs, outputs, arrival = (np.array(column, np.int64) for column in columns)
        self._requests = Requests(inputs, outputs, arrival, int(outputs.max()))
        area = outputs * (2 * inputs + outputs - 1)
        self._first = np.argsort(arrival * instance.system.kv_capacity * 2 + area, kind="stable")
        #: Sum of latencies and starts: of the best schedule, and of those to combine, best first.
        self._best: tuple[int, Ints] | None = None
        self._known: list[tuple[int, Ints]] = []

    @staticmethod
    def takes(instance: Instance) -> bool:
        """Whether an instance in rounds is small enough."""
        last = max(kind.arrival for kind in instance.types) / instance.cost.seconds.alpha[0]
        rounds = last + instance.output_tokens
        return len(instance.requests) <= MOST_REQUESTS and rounds <= MOST_ROUNDS

    def plans(self, deadline: float | None = None) -> Iterator[tuple[str, Schedule]]:
        """Ever better plans.

        Parameters
        ----------
        deadline : float, optional
            Moment of `time.monotonic` at which to stop.
        """
        told = None
        for name in self._steps(deadline):
            if self._best is not None and (told is None or self._best[0] < told):
                told, starts = self._best
                yield f"rounds:{name}", self.schedule(starts.tolist())

    def _steps(self, deadline: float | None) -> Iterator[str]:
        """Runs of annealing, then pairs, and runs again where these are in vain; a name after each step."""
        begin = time.monotonic()
        share = SHARE if self._merge is not None else 1.0
        end = None if deadline is None else begin + (deadline - begin) * share
        for run in itertools.count():
            if run >= RUNS if end is None else run > 0 and time.monotonic() >= end:
                break
            yield from self._anneal(self._first.copy(), HOT, end, str(run))
        if deadline is None:
            for _ in range(RUNS):
                yield from self._pair()
            return
        vain = again = 0
        while (now := time.monotonic()) < deadline:
            before = self._known[-1][0], self._known[0][0]
            if self._merge is None or vain >= VAIN or len(self._known) < 2:
                yield from self._again(again, now + AGAIN * (deadline - begin))
                vain, again = 0, again + 1
            else:
                yield from self._pair()
                vain = 0 if (self._known[-1][0], self._known[0][0]) != before else vain + 1

    def _again(self, number: int, end: float) -> Iterator[str]:
        """Anneal from the start, or every other time from the best order."""
        best = self._known[0][1].argsort(kind="stable")
        order, hot = (best, WARM) if number % 2 else (self._first.copy(), HOT)
        yield from self._anneal(order, hot, end, "again")

    def _note(self, value: int, starts: Ints) -> None:
        """Keep a schedule, if it is new, and the best ones."""
        if all(value != other for other, _ in self._known):
            self._known.append((value, starts.copy()))
            self._known.sort(key=lambda pair: pair[0])
            del self._known[KEPT:]
        if self._best is None or value < self._best[0]:
            self._best = value, starts.copy()

    def _anneal(self, order: Ints, hot: float, end: float | None, name: str) -> Iterator[str]:
        """One run of annealing: `LOOKS` looks at the clock, or `STEPS`, but until some moment at most."""
        from infermax_opt.infermax.planners.rounds._kernel import CHANCES

        requests, capacity = self._requests, self.instance.system.kv_capacity
        scale, start, share, done, best = float(requests.outputs.mean()), time.monotonic(), 0.0, 0, None
        most = STEPS * len(order)
        while share < 1:
            heat = scale * hot * (COLD / hot) ** share
            steps = max(1, PLACED // len(order)) if self._best is not None else 0
            chances = self._random.random((steps, CHANCES))
            value, starts = _anneal()(requests, capacity, order, chances, heat)
            if best is None or value < best[0]:
                best = value, starts
            if self._best is None or value < self._best[0]:
                self._best = value, starts
                yield name
            done += PLACED // len(order) + 1
            share = done * len(order) / (LOOKS * PLACED)
            if end is not None:
                share = max(done / most, (time.monotonic() - start) / max(1e-9, end - start))
        if best is not None:
            self._note(*best)
            yield name

    def _pair(self) -> Iterator[str]:
        """Combine two schedules."""
        if self._merge is None or len(self._known) < 2:
            return
        one, other = sorted(self._random.choice(len(self._known), 2, replace=False).tolist())
        near = int(self._random.integers(1, NEAR + 1))
        requests = self._requests
        ends = [self._known[k][1] + requests.outputs for k in (one, other)]
        found = self._merge(ends, near, int(ends[0].sum()))
        if found is not None:
            del self._known[other]
            self._note(int((found - requests.arrival).sum()), found - requests.outputs)
        yield "pairs"

    def schedule(self, starts: list[int]) -> Schedule:
        """The schedule in which each request starts in its round.

        Parameters
        ----------
        starts : list of int
            Rounds before each start.
        """
        instance = self.instance
        begun: dict[int, dict[str, int]] = {}
        ends: dict[int, int] = {}
        for request, start in zip(instance.requests, starts, strict=True):
            begun.setdefault(start, {})[request.id] = request.input_tokens
            ends[start] = max(ends.get(start, 0), start + request.output_tokens)
        batches: list[Batch] = []
        now = end = 0  # the round after the last batch, and the one after all that run
        for start in sorted(begun):
            until = min(start, end)
            if until > now:
                batches.append(Batch(tokens={}, decode_all=True, repeat=until - now))
            waits = start * self._alpha if start > until else None
            batches.append(Batch(tokens=begun[start], start=waits, decode_all=end > start))
            now, end = start + 1, max(end, ends[start])
        if end > now:
            batches.append(Batch(tokens={}, decode_all=True, repeat=end - now))
        return Schedule(instance.name, tuple(batches))


@functools.cache
def _anneal() -> Callable[..., Any]:
    """The annealing, compiled."""
    from infermax_opt.infermax.planners.rounds import _kernel

    return compiled(_kernel.anneal, _kernel.HELPERS)
