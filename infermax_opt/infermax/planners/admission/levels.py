"""Plans for service levels: a search over whom to serve in time; all others come at the end.

The loop (`_levels_kernel`) serves those who can still keep all their levels. Its knobs are searched, and so
is who is left out from the beginning: whoever was started and came too late took time from others.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.data.cost import batch_time
from infermax_opt.infermax.data.instance import Instance, RequestGroup
from infermax_opt.infermax.data.schedule import MAX_BATCHES, Schedule
from infermax_opt.infermax.planners.admission.choice import Choice
from infermax_opt.infermax.planners.admission.planner import AdmissionPlanner

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Flags = npt.NDArray[np.bool_]

__all__ = ["LevelChoice", "LevelsPlanner"]

#: Runs of the search without a deadline.
RUNS = 120
#: Shares of the tries that change the best choice by much, and that change whom it leaves out.
FAR, OTHERS = 0.15, 0.4
#: Seconds between two choices that become schedules.
PAUSE = 2.0
#: Tokens of a chunk, by which the time that a prompt takes alone is judged.
CHUNK = 512


@dataclass(frozen=True)
class LevelChoice:
    """What is searched.

    Attributes
    ----------
    order : Choice
        Who comes first.
    crowd, budget, spare, haste
        As in `_levels_kernel.LevelKnobs`.
    dear : float
        Share of the requests, the dearest for their weight, that are left out.
    """

    order: Choice
    crowd: float = 0.75
    budget: int = 512
    spare: float = 1.5
    haste: float = 0.7
    dear: float = 0.0


class LevelsPlanner(AdmissionPlanner):
    """Searches choices for one instance whose objective is `missed`.

    Parameters
    ----------
    instance : Instance
    seed : int
        The same seed tries the same choices, as many as there is time for.
    """

    def __init__(self, instance: Instance, *, seed: int = 0):
        import numpy as np

        super().__init__(instance, seed=seed)
        slos = [(r.terms.slo.ttft, r.terms.slo.tpot, r.terms.slo.e2e) for r in instance.requests]
        ttft, tpot, e2e = np.array([[np.inf if v is None else float(v) for v in slo] for slo in slos]).T
        steps = self._outputs - 1
        self._prompt = np.array([self._alone(int(i)) for i in self._inputs])
        lengths, floats = self._inputs + self._outputs / 2, instance.cost.floats
        step = batch_time(*floats, 1, 1, 0, 0, 0) + floats.d1 * lengths
        self._first = self._arrival + np.minimum(ttft, e2e - steps * step)
        self._last = self._arrival + e2e
        self._span = np.where(steps > 0, tpot * np.maximum(steps, 1), np.inf)
        self._limit = ttft, e2e
        weight = np.array([float(r.terms.weight) for r in instance.requests])
        promised = np.array([bool(r.terms.slo) for r in instance.requests])
        self._weight = np.where(promised, weight, 0.0)
        self._features[0] -= np.log(weight)
        #: From the dearest request for its weight to the cheapest.
        self._dearest = np.argsort(-self._features[0], kind="stable")
        self._out: Flags = ~promised
        #: Best choice, and whom it leaves out besides.
        self.chosen: tuple[LevelChoice, Flags] | None = None
        self._wasted: Flags = self._out

    def _alone(self, prompt: int) -> float:
        """Seconds that a prompt takes alone, about."""
        chunk = min(CHUNK, self.instance.system.prefill_budget)
        chunks = -(-prompt // chunk) if self.instance.policy.chunked_prefill else 1
        each = prompt / chunks
        return chunks * float(batch_time(*self.instance.cost.floats, each, 0, 0, 1, each * each))

    # --- the search ---------------------------------------------------------------------------------

    def plans(self, deadline: float | None = None) -> Iterator[tuple[str, Schedule]]:
        """Ever better plans by the simulated clock.

        Parameters
        ----------
        deadline : float, optional
            Moment of `time.monotonic` at which to stop.
        """
        told, written = time.monotonic(), None
        for choice, out in itertools.chain(self.known(), self.changes()):
            if time.monotonic() > deadline if deadline is not None else self.runs >= RUNS:
                break
            if self.better(choice, out) and time.monotonic() - told > PAUSE:
                yield f"levels:{self.runs}", self.planned()
                told, written = time.monotonic(), self.value
            if self.value == 0:
                break
        if self.chosen is not None and self.value != written:
            yield f"levels:{self.runs}", self.planned()

    def better(self, choice: LevelChoice, out: Flags) -> bool:
        """Run a choice, and keep it if none was better; whether it is better than all before."""
        self.runs += 1
        value, wasted = self._judged(choice, out)
        found = value < self.value
        if value <= self.value:
            self.chosen, self.value, self._wasted = (choice, out), value, wasted
        return found

    def known(self) -> Iterator[tuple[LevelChoice, Flags]]:
        """Choices that are good somewhere."""
        for order in (Choice(work=1.0), Choice(arrival=1.0), Choice(work=1.0, arrival=0.02)):
            for haste in (1.0, 0.5):
                for budget in (512, 4096):
                    yield LevelChoice(order, haste=haste, budget=budget), self._out

    def changes(self) -> Iterator[tuple[LevelChoice, Flags]]:
        """Changes to the best choice, without end."""
        while True:
            choice, out = self.chosen or (LevelChoice(Choice(work=1.0)), self._out)
            if self.rng.random() < OTHERS:
                yield choice, self._others(out)
            else:
                yield self._varied(choice), out

    def _others(self, out: Flags) -> Flags:
        """Leave out who came too late, and some more or fewer."""
        rng = self.rng
        found = out.copy()
        if rng.random() < 0.5:
            found |= self._wasted & (rng.random(len(out)) < rng.choice([0.1, 0.5, 1.0]))
        else:
            some = rng.random(len(out)) < rng.choice([1, 3, 10]) / len(out)
            found[some] = ~found[some]
        found |= self._weight == 0
        return found

    def _varied(self, choice: LevelChoice) -> LevelChoice:
        """A choice near another one, or far from it."""
        rng = self.rng
        size = 4.0 if rng.random() < FAR else 1.0

        def moved(value: float, step: float, low: float, high: float) -> float:
            if rng.random() < 0.6:
                return value
            return float(min(high, max(low, value + rng.normal(0.0, step * size))))

        order = replace(
            choice.order,
            work=moved(choice.order.work, 0.1, -3.0, 3.0),
            prompt=moved(choice.order.prompt, 0.1, -3.0, 3.0),
            output=moved(choice.order.output, 0.1, -3.0, 3.0),
            arrival=moved(choice.order.arrival, 0.01, -3.0, 3.0),
        )
        top = self.instance.system.prefill_budget
        return LevelChoice(
            order,
            crowd=moved(choice.crowd, 0.05, 0.1, 1.0),
            budget=round(moved(min(top, choice.budget), 0.2 * min(top, choice.budget), 1, top)),
            spare=moved(choice.spare, 0.1, 0.5, 4.0),
            haste=moved(choice.haste, 0.1, 0.0, 1.0),
            dear=moved(choice.dear, 0.02, 0.0, 0.9),
        )

    # --- one run --------------------------------------------------------------------------------------

    def _judged(self, choice: LevelChoice, out: Flags) -> tuple[float, Flags]:
        """Weight that is missed, and who was started but missed a limit."""
        import numpy as np

        from infermax_opt.infermax.planners.admission.estimate import HAIR

        end, first, last, *_ = self._served(choice, out)
        if not np.isfinite(end):
            return float("inf"), self._out
        started = np.isfinite(first)
        since, ttft, e2e = np.where(started, self._arrival, 0.0), *self._limit
        one, whole = np.where(started, first, 0.0), np.where(started, last, 0.0)
        slack = 1 + HAIR
        kept = (one - since <= ttft * slack) & (whole - since <= e2e * slack)
        kept &= (whole - one <= self._span * slack) & started
        return float(self._weight[~kept].sum()), started & ~kept

    def _served(self, choice: LevelChoice, out: Flags) -> tuple[Any, ...]:
        """What `levels_loop` gives."""
        import numpy as np

        from infermax_opt.infermax.planners.admission import _levels_kernel

        queue, machine, cost = self._queue(choice.order), self._machine(), self.instance.cost.columns
        never = out.copy()
        never[self._dearest[: int(choice.dear * len(out))]] = True
        first = np.where(never, -np.inf, self._first)
        aims = _levels_kernel.Aims(first, self._last, self._span, self._prompt)
        knobs = _levels_kernel.LevelKnobs(choice.crowd, choice.budget, choice.spare, choice.haste)
        found: tuple[Any, ...] = _loop()(machine, queue, aims, knobs, cost, MAX_BATCHES)
        return found

    def ends(self) -> Floats:
        """Moments of last tokens by the best choice, in seconds; infinite for who is not served in time."""
        import numpy as np

        if self.chosen is None:
            return np.full(len(self._out), np.inf)
        last: Floats = self._served(*self.chosen)[2]
        return last

    def planned(self) -> Schedule:
        """The schedule of the best choice: who is served in time, then the others by admission."""
        import numpy as np

        if self.chosen is None:
            raise RuntimeError("nothing was tried")
        _, first, _, *entries = self._served(*self.chosen)
        batches = self._batches(*entries)
        rest = np.flatnonzero(~np.isfinite(first))
        if len(rest):
            requests = self.instance.requests
            others = [requests[k] for k in rest.tolist()]
            groups = tuple(RequestGroup(r.id, r.input_tokens, r.output_tokens) for r in others)
            late = AdmissionPlanner(replace(self.instance, groups=groups))
            more = list(late.schedule(Choice(work=1.0, look=8)).batches)
            since = max(request.arrival for request in others)
            more[0] = replace(more[0], start=since or None)
            batches += more
        return Schedule(self.instance.name, tuple(batches))


@functools.cache
def _loop() -> Callable[..., Any]:
    """The loop, compiled."""
    from infermax_opt.infermax.planners.admission import _levels_kernel

    return compiled(_levels_kernel.levels_loop, _levels_kernel.HELPERS)
