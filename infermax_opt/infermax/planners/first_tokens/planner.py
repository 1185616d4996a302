"""Plans for first tokens: a search over the order of prompts, and over what batches hold.

Nothing after the first token counts: whoever has it may be evicted, and decodes when no prompt waits.
One run of the loop (`_kernel`) takes milliseconds.  So the score by which prompts come, the knobs of the loop
and who is given up are searched: first some that are known to be good somewhere, then random changes to the
best ones.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.data.cost import batch_time
from infermax_opt.infermax.data.first_tokens import only_first_tokens
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import MAX_BATCHES, Batch, Schedule

if TYPE_CHECKING:
    from infermax_opt.infermax.planners.first_tokens._kernel import Knobs
    from infermax_opt.infermax.planners.first_tokens._state import Queue
    from infermax_opt.infermax.planners.first_tokens.aims import Flags, Floats
    from infermax_opt.infermax.planners.first_tokens.choices import Choices, FirstChoice

__all__ = ["FirstTokensPlanner"]

#: Runs of the search without a deadline.
RUNS = 200
#: Runs after which single requests are moved as well, and the share of the tries that do so then.
SETTLED, MOVING = 250, 0.7
#: Seconds between two choices that become schedules, at least and by those that the last one took.
PAUSE, PATIENCE = 1.0, 4.0
#: What the score of a request that is given up, or does not count, is above all others, and what it weighs.
LATE, LEAST = 1e6, 1e-3


class FirstTokensPlanner:
    """Searches choices for one instance.

    Parameters
    ----------
    instance : Instance
    seed : int
        The same seed tries the same choices, as many as there is time for.
    """

    def __init__(self, instance: Instance, *, seed: int = 0):
        import numpy as np

        from infermax_opt.infermax.planners.admission.estimate import Estimate
        from infermax_opt.infermax.planners.first_tokens.aims import aims_of
        from infermax_opt.infermax.planners.first_tokens.choices import TINY, FirstChoice

        self.instance = instance
        self._aims = aims_of(instance)
        self._estimate = Estimate(instance)
        self._only = only_first_tokens(instance)
        self.rng = np.random.default_rng(seed)
        requests, policy, floats = instance.requests, instance.policy, instance.cost.floats
        self._inputs = np.array([r.input_tokens for r in requests], np.int64)
        self._outputs = np.array([r.output_tokens for r in requests], np.int64)
        self._arrival = np.array([float(r.arrival) for r in requests])
        self._arriving = np.argsort(self._arrival, kind="stable")
        self._gap = float(self._arrival.max()) / len(requests) or 1.0
        self._fixed = np.full(len(requests), not policy.preemption)
        if not policy.chunked_prefill:  # a refill has to fit into one batch
            self._fixed |= self._inputs + self._outputs - 1 > instance.system.prefill_budget
        self._work = np.array([batch_time(*floats, i, 0, 0, 1, i * i) for i in self._inputs.tolist()])
        weight = np.where(self._aims.counted, self._aims.weight, 1.0)
        self._cheap = np.log(np.maximum(self._work, TINY) / np.maximum(weight, TINY))
        self._search = self._choosing()
        #: Best choice so far, what it gives, who comes too late by it, how long each waits; tries so far.
        self.best = FirstChoice()
        self.value = float("inf")
        self.late: Flags = np.zeros(len(requests), np.bool_)
        self.waited: Floats = np.zeros(len(requests))
        self.runs = 0
        self._coming, self._written = self._choices(), float("inf")

    def _choosing(self) -> Choices:
        """What gives the choices to try."""
        import numpy as np

        from infermax_opt.infermax.planners.first_tokens.choices import Choices
        from infermax_opt.infermax.planners.first_tokens.crowds import Crowds

        instance, floats, inputs = self.instance, self.instance.cost.floats, self._inputs.tolist()
        chunked, exact = instance.policy.chunked_prefill, instance.cost.exact_attention
        top, fixed, chunk, crowds = instance.system.prefill_budget, floats.alpha[0] + floats.p0, 0.0, None
        if chunked and not exact and floats.p1 > 0:
            chunk = float(fixed / floats.p1) ** 0.5
        told = {i: self._alone(i, chunk) for i in set(inputs)}
        alone = np.array([told[i][0] for i in inputs])
        if chunked:
            parts = np.array([told[i][1] for i in inputs])
            unit = max(1, min(top, round(chunk) or top))
            crowds = Crowds(
                self._arrival, alone, self._inputs, parts, unit, top, self.instance.cost.columns, exact
            )  # fmt: skip
        return Choices(
            self._aims, self._arrival, alone, fixed=fixed, top=top, chunk=chunk, crowds=crowds, rng=self.rng
        )

    def _alone(self, prompt: int, chunk: float) -> tuple[float, int]:
        """Seconds of a prompt alone, in equal parts, few or nearly of the best size; their size.

        Parameters
        ----------
        prompt : int
            Tokens.
        chunk : float
            The best size; 0 for as large as can be.
        """
        floats, least = self.instance.cost.floats, -(-prompt // self.instance.system.prefill_budget)
        if not chunk:
            seconds = batch_time(*floats, prompt, 0, 0, 1, prompt**2) + (least - 1) * floats.alpha[0]
            return float(seconds), -(-prompt // least)
        beside = (int(prompt / chunk), int(prompt / chunk) + 1)
        parts = [max(least, min(prompt, count)) for count in beside]
        return min(
            (float(q * batch_time(*floats, prompt / q, 0, 0, 1, (prompt / q) ** 2)), -(-prompt // q))
            for q in parts
        )

    # --- the search ---------------------------------------------------------------------------------

    def plans(self, deadline: float | None = None) -> Iterator[tuple[str, Schedule]]:
        """Ever better plans by the simulated clock; called again, it goes on where it stopped.

        Parameters
        ----------
        deadline : float, optional
            Moment of `time.monotonic` at which to stop; one choice is tried in any case.
        """
        told, pause = time.monotonic(), PAUSE
        while not self.runs or (time.monotonic() < deadline if deadline is not None else self.runs < RUNS):
            self._try(next(self._coming))
            began = time.monotonic()
            if self.value < self._written and began - told > pause:
                yield self._written_out()  # whoever asked replays it
                told = time.monotonic()
                pause = max(PAUSE, PATIENCE * (told - began))
        if self.value < self._written:
            yield self._written_out()

    def _written_out(self) -> tuple[str, Schedule]:
        """The best plan, with its source."""
        self._written = self.value
        return f"first tokens:{self.runs}", self.schedule(self.best)

    def _try(self, choice: FirstChoice) -> None:
        """Run a choice, and keep it if it is the best."""
        self.runs += 1
        finished, first, last, _ = self._run(choice, whole=not self._only)
        value = self._estimate.value(first, last) if finished else float("inf")
        if value < self.value:
            self.best, self.value = choice, value
            self.waited = first - (self._aims.due if self._aims.levels else self._arrival)
            self.late = self._too_late(first)

    def _too_late(self, first: Floats) -> Flags:
        """Who misses its service level, or is beyond the least percentile that counts."""
        from infermax_opt.infermax.planners.admission.estimate import HAIR, of_rank

        aims = self._aims
        late, waited = first > aims.due * (1 + HAIR), first - self._arrival
        if aims.percents and not aims.levels:
            late = waited > of_rank(waited[aims.counted], aims.percents[0])
        return late & aims.counted

    def _choices(self) -> Iterator[FirstChoice]:
        """Choices to try: known ones, then changes to the best, without end."""
        yield from self._search.known(lambda: self.best)
        while True:
            moving = self.runs >= SETTLED and self.rng.random() < MOVING
            if moving:
                yield self._search.moved(self.best)
            else:
                yield self._search.changed(self.best, self.late, self.waited)

    # --- one run --------------------------------------------------------------------------------------

    def _run(self, choice: FirstChoice, *, whole: bool) -> tuple[Any, ...]:
        """What `first_tokens_loop` gives for a choice: whether it ended, first and last tokens, the log."""
        import numpy as np

        from infermax_opt.infermax.planners.first_tokens import _state

        instance, n = self.instance, len(self._inputs)
        system = instance.system
        limits = _state.Limits(
            system.kv_capacity, system.max_batch_tokens, system.max_prefill_tokens,
            min(n, system.max_running or n), system.block_size,
            instance.policy.chunked_prefill, instance.cost.exact_attention,
        )  # fmt: skip
        state, numbers = _state.started(n), (np.zeros(3, np.int64), np.zeros(3))
        finished, log = _loop()(
            limits, self._queue(choice), state, self._knobs(choice), self.instance.cost.columns, numbers,
            np.zeros(n, np.int64), MAX_BATCHES, whole,
        )  # fmt: skip
        return finished, state.times[:, _state.FIRST], state.times[:, _state.FINAL], log

    def _queue(self, choice: FirstChoice) -> Queue:
        """The requests in the order of a choice."""
        import numpy as np

        from infermax_opt.infermax.planners.first_tokens._state import ANY, Queue

        score = choice.work * self._cheap + choice.arrival * self._aims.due / self._gap
        for i, change in choice.moves:
            score[i] += change
        last = ~self._aims.counted
        last[list(choice.out)] = True
        score += LATE * last
        order = np.argsort(score, kind="stable")
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        piece, room = np.full((2, len(order)), ANY)
        for i, part, batch in choice.sizes:
            piece[i], room[i] = part, batch
        whole_numbers = (
            self._inputs, self._outputs, self._arriving, order, place, last, self._fixed | choice.keep, piece,
            room,
        )  # fmt: skip
        weight = np.where(last, LEAST, self._aims.weight)
        return Queue(
            np.stack(whole_numbers, axis=1).astype(np.int64), np.stack((self._arrival, score, weight), axis=1)
        )

    @staticmethod
    def _knobs(choice: FirstChoice) -> Knobs:
        """The knobs of a choice."""
        from infermax_opt.infermax.planners.first_tokens._kernel import Knobs

        return Knobs(
            choice.budget, choice.share, choice.hold, choice.cut, choice.fill, choice.work, choice.look
        )

    def schedule(self, choice: FirstChoice) -> Schedule:
        """The schedule that a choice makes."""
        from infermax_opt.infermax.planners.first_tokens._state import END

        _, _, _, log = self._run(choice, whole=True)
        requests, entries = self.instance.requests, iter(log)
        batches: list[Batch] = []
        tokens: dict[str, int] = {}
        evict: list[str] = []
        for who in entries:
            count = int(next(entries))
            if who != END:
                name = requests[who].id
                if count:
                    tokens[name] = count
                else:
                    evict.append(name)
                continue
            everyone, start = bool(next(entries)), next(entries)
            since = requests[start].arrival if start >= 0 else None
            batches.append(Batch(tokens, tuple(evict), since, everyone, count))
            tokens, evict = {}, []
        return Schedule(self.instance.name, tuple(batches))


@functools.cache
def _loop() -> Callable[..., Any]:
    """The loop, compiled."""
    from infermax_opt.infermax.planners.first_tokens import _kernel

    return compiled(_kernel.first_tokens_loop, _kernel.HELPERS)
