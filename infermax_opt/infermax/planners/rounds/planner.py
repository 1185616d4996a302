"""Plans for batches that all take the same time (`in_rounds`): a start round for each request.

Nobody pauses, so that is all of a schedule.  Serial generation starts one request after the
other as soon as it fits until it ends, and its order is annealed, some times over.  It may be that no order
gives the optimum, as a request that starts later is smaller while another peaks.  A search that is handed in
(`infermax_opt.infermax.exact.rounds`) goes on from there: requests in a row, by their ends, may end far from
where they do, all others near, row after row until that is in vain; then schedules are combined, with all
ends near theirs.
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
from infermax_opt.infermax.planners.moments import passed

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from infermax_opt.infermax.planners.rounds._kernel import Requests

    Ints = npt.NDArray[np.int64]
    Merge = Callable[[list[Ints], Ints, int], tuple[Ints | None, bool] | None]

__all__ = ["MOST_REQUESTS", "RoundsPlanner", "requests_of"]

#: Requests beyond which too few orders are tried to be worth it.
MOST_REQUESTS = 2000
#: Most rounds of all requests one after the other.
MOST_ROUNDS = 10**7
#: Requests placed between two moments at which the clock is read and the order becomes that of the starts.
PLACED = 50_000
#: Rounds by which the sum of latencies may grow in a step, on average, as a multiple of the mean output: when
#: a run of annealing starts, when one from a good order does, and when it ends.
HOT, WARM, COLD = 0.4, 0.2, 0.02
#: Rounds by which the sum of latencies may be too large half-way in a step, as a multiple of the mean output.
HOPE = 1.0
#: Steps of a run for each request: several short runs find more than a long one.
STEPS = 6000
#: Runs of annealing without a deadline, and the share of the time that runs have where schedules can be
#: improved and combined.
RUNS, SHARE = 2, 0.2
#: Share of the time that a later run has.
AGAIN = 0.08
#: Schedules that are kept to be combined.
KEPT = 8
#: Looks at the clock in a run without a deadline.
LOOKS = 300
#: Requests in a row, by their ends, that may end elsewhere: at first; as multiples of what is usual, at least
#: and at most; how what is usual changes where all was tried, and where it was not.
ROW, SOME, WIDER, NARROWER = 12.0, (0.5, 1.3), 1.03, 0.95
#: Rounds by which they may end elsewhere, and all others.
FAR, CLOSE = (12, 25, 50), (0, 1, 2)
#: Rows in vain after which another schedule is improved, and pairs that are combined before that.
VAIN, PAIRS = 60, 4
#: Rounds by which ends may differ from those in one of two schedules that are combined, at most.
NEAR = 5


class RoundsPlanner:
    """Searches start rounds for one instance.

    Parameters
    ----------
    instance : Instance
        In rounds.
    seed : int
        The same seed tries the same orders, as many as there is time for.
    merge : callable, optional
        Takes the ends of known schedules, the rounds by which each may differ, and a sum of ends; returns
        ends with a smaller sum, or None, and whether all were tried; or None where it cannot do that yet.
    """

    def __init__(self, instance: Instance, *, seed: int = 0, merge: Merge | None = None):
        import numpy as np

        self.instance, self._merge = instance, merge
        self._random = np.random.default_rng(seed)
        self._alpha = instance.cost.seconds.alpha[0]
        columns = zip(
            *[(r.input_tokens, r.output_tokens, int(r.arrival / self._alpha)) for r in instance.requests],
            strict=True,
        )
        inputs, outputs, arrival = (np.array(column, np.int64) for column in columns)
        self._requests = requests_of(inputs, outputs, arrival)
        area = outputs * (2 * inputs + outputs - 1)
        self._first = np.argsort(arrival * instance.system.kv_capacity * 2 + area, kind="stable")
        #: Sum of latencies and starts: of the best schedule, and of those to combine, best first.
        self._best: tuple[int, Ints] | None = None
        self._known: list[tuple[int, Ints]] = []
        #: The one that is improved, and how many requests of it may end elsewhere.
        self._now: tuple[int, Ints] | None = None
        self._row = ROW

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
        """Runs of annealing; what they find is improved row by row and combined; a name after each step."""
        begin = time.monotonic()
        share = SHARE if self._merge is not None else 1.0
        end = None if deadline is None else begin + (deadline - begin) * share
        for run in itertools.count():
            if run >= RUNS if end is None else run > 0 and time.monotonic() >= end:
                break
            yield from self._anneal(self._first.copy(), HOT, end, str(run))
        if deadline is None:
            for _ in range(RUNS):
                yield from self._improve(None)
                yield from self._combine(None)
            return
        self._now = self._known[0] if self._known else None
        for number in itertools.count():
            yield from self._improve(deadline)
            yield from self._combine(deadline)
            if (now := time.monotonic()) >= deadline:
                return
            yield from self._again(number, now + AGAIN * (deadline - begin))

    def _again(self, number: int, end: float) -> Iterator[str]:
        """Anneal from the best order, or every other time from the start."""
        best = self._known[0][1].argsort(kind="stable")
        order, hot = (self._first.copy(), HOT) if number % 2 else (best, WARM)
        yield from self._anneal(order, hot, end, "again")

    def _note(self, value: int, starts: Ints) -> None:
        """Keep a schedule, if it is new, and the best ones."""
        if all(value != other for other, _ in self._known):
            self._known.append((value, starts.copy()))
            self._known.sort(key=lambda pair: pair[0])
            del self._known[KEPT:]
        self._is_best(value, starts)

    def _is_best(self, value: int, starts: Ints) -> bool:
        """Whether a schedule is better than all before; if so, it is the best one now."""
        better = self._best is None or value < self._best[0]
        if better:
            self._best = value, starts.copy()
        return better

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
            value, starts = _anneal()(requests, capacity, order, chances, heat, int(HOPE * scale))
            if best is None or value < best[0]:
                best = value, starts
            if self._is_best(value, starts):
                yield name
            done += PLACED // len(order) + 1
            share = done * len(order) / (LOOKS * PLACED)
            if end is not None:
                share = max(done / most, (time.monotonic() - start) / max(1e-9, end - start))
        if best is not None:
            self._now = best
            self._note(*best)
            yield name

    def _improve(self, deadline: float | None) -> Iterator[str]:
        """Let requests in a row end elsewhere, again and again until that is in vain."""
        vain, now = 0, self._now
        while vain < VAIN and now is not None and not passed(deadline):
            found = self._elsewhere(*now)
            if found is None:
                return
            vain = 0 if found[0] < now[0] else vain + 1
            self._now = now = found
            self._is_best(*now)
            yield "rows"
        if now is not None:
            self._note(*now)

    def _elsewhere(self, value: int, starts: Ints) -> tuple[int, Ints] | None:
        """A schedule that is no worse, with other ends of some requests in a row; None if none can be sought.

        Parameters
        ----------
        value : int
            Sum of latencies of a schedule.
        starts : array
            Its starts.
        """
        if self._merge is None:
            return None
        random, requests = self._random, self._requests
        ends, near = starts + requests.outputs, starts * 0 + random.choice(CLOSE)
        width = max(2, int(random.uniform(*SOME) * self._row))
        first = int(random.integers(-width // 2, len(starts) - width // 2))
        near[ends.argsort(kind="stable")[max(0, first) : first + width]] = random.choice(FAR)
        answer = self._merge([ends], near, int(ends.sum()) + 1)
        if answer is None:
            return None
        found, complete = answer
        self._row = min(len(starts), max(2.0, self._row * (WIDER if complete else NARROWER)))
        return (value, starts) if found is None else self._of(found)

    def _combine(self, deadline: float | None) -> Iterator[str]:
        """Combine schedules two by two, until that is in vain, and improve what comes of it."""
        if self._merge is None:
            return
        tried, outputs = 0, self._requests.outputs
        while tried < PAIRS and len(self._known) > 1 and not passed(deadline):
            pair = sorted(self._random.choice(len(self._known), 2, replace=False).tolist())
            near = outputs * 0 + self._random.integers(1, NEAR + 1)
            ends = [self._known[k][1] + outputs for k in pair]
            answer = self._merge(ends, near, int(ends[0].sum()))
            if answer is None:
                return
            found, _ = answer
            tried += 1
            if found is not None:
                self._now, tried = self._of(found), 0
                self._note(*self._now)
                yield from self._improve(deadline)
            yield "pairs"

    def _of(self, ends: Ints) -> tuple[int, Ints]:
        """Sum of latencies and starts of a schedule, by its ends."""
        requests = self._requests
        return int((ends - requests.arrival).sum()), ends - requests.outputs

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


def requests_of(inputs: Ints, outputs: Ints, arrival: Ints) -> Requests:
    """What annealing knows of the requests.

    Parameters
    ----------
    inputs, outputs, arrival : array
        Tokens, and rounds.
    """
    from infermax_opt.infermax.planners.rounds._kernel import Requests

    smaller = (inputs <= inputs[:, None]) & (outputs <= outputs[:, None]) & (arrival <= arrival[:, None])
    number = smaller.sum(axis=1)
    first = (~smaller).argsort(axis=1, kind="stable")[:, : number.max()]
    return Requests(inputs, outputs, arrival, int(outputs.max()), first, number)


@functools.cache
def _anneal() -> Callable[..., Any]:
    """The annealing, compiled."""
    from infermax_opt.infermax.planners.rounds import _kernel

    return compiled(_kernel.anneal, _kernel.HELPERS)
