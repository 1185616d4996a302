"""Plans by admission for any objective, with arrivals or without: a search over who starts when.

One run of the loop (`_kernel`) takes milliseconds, so its knobs and the order of the requests are searched:
first a few that are known to be good somewhere, then random changes to the best ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import MAX_BATCHES, Batch, Schedule
from infermax_opt.infermax.planners.admission.choice import ANY, Choice

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from infermax_opt.infermax.planners.admission._kernel import Machine, Queue
    from infermax_opt.infermax.planners.admission.delays import Delays

    Floats = npt.NDArray[np.float64]

__all__ = ["AdmissionPlanner"]

#: Runs of the search without a deadline.
RUNS = 200
#: Runs after which single requests are moved in the order of the best choice, too.
SETTLED = 300
#: Share of the tries that do so then.
MOVING = 0.8
#: Share of these that split a request: it is evicted, and waits again.
SPLITTING = 0.3
#: Share of these that let requests wait for a while, where delays may help; and what part of all requests
#: may then have another delay: one of these.
WAITING, PARTS = 0.5, (0.3, 0.1, 0.03, 0.01, 0.003)
#: Tries after which all delays are sought anew, if none made the objective shorter by this share.
PATIENCE, LEAST_GAIN = 300, 1e-5
#: Most requests that are moved at once.
MOVED = 3
#: By how many places they are moved, typically: one of these each time.  Where requests arrive over time only
#: those that wait together can change places.
FAR = (3.0, 10.0, 40.0)
#: Share of the tries that change the best choice by a little; the others change it by much.
SMALL_CHANGES = 0.7
#: Prompt tokens of a request in a batch, and of all, that are tried first where prompts are side by side.
SPREADS, BUDGETS = (64, 128, 256), (512, 1024, 1536)
#: Seconds between two choices that become schedules.
PAUSE = 0.5


class AdmissionPlanner:
    """Searches choices for one instance.

    Parameters
    ----------
    instance : Instance
    seed : int
        The same seed tries the same choices, as many as there is time for.
    """

    def __init__(self, instance: Instance, *, seed: int = 0):
        import numpy as np

        from infermax_opt.infermax.planners.admission.delays import Delays, weights_of_ends
        from infermax_opt.infermax.planners.admission.estimate import Estimate

        self.instance = instance
        self._estimate = Estimate(instance)
        self.rng = np.random.default_rng(seed)
        requests = instance.requests
        self._inputs = np.array([r.input_tokens for r in requests], np.int64)
        self._outputs = np.array([r.output_tokens for r in requests], np.int64)
        self._arrival = np.array([float(r.arrival) for r in requests])
        self._arriving = np.argsort(self._arrival, kind="stable")
        self._work = self._service()
        gap = float(self._arrival.max()) / len(requests)
        self._may_split = instance.policy.preemption
        self._may_spread = instance.policy.hybrid_batching and instance.policy.chunked_prefill
        #: Logarithms and arrivals, a row for each weight of a `Choice`.
        self._features = np.array([
            np.log(np.maximum(self._work, 1e-12)), np.log(self._inputs), np.log(self._outputs),
            self._arrival / gap if gap else np.zeros(len(requests)),
        ])  # fmt: skip
        #: Best choice so far, what it gives, and how many were tried.
        self.best: Choice | None = None
        self.value = float("inf")
        self.runs = 0
        #: The choice that is changed, what it gives, first and last tokens by it, and tries since another one
        #: was clearly better.
        self._home: Choice | None = None
        self._home_value, self._idle = float("inf"), 0
        self._times = self._arrival, self._arrival
        self._coming = self._choices()
        #: Who might wait, for objectives of which these know; and the choice whose run they have seen.
        weights = None if instance.offline or not self._may_spread else weights_of_ends(instance)
        self._delays = None if weights is None else Delays(instance, weights)
        self._watched: Choice | None = None
        #: Weights, moves and order of a choice that was the best.
        self._ordered: tuple[tuple[float, ...], tuple[tuple[int, int], ...], list[int]] = (), (), []

    def _service(self) -> Floats:
        """Seconds that a request takes if the memory is full of requests like it."""
        cost, system = self.instance.cost.floats, self.instance.system
        sizes = self._inputs + self._outputs / 2
        share = sizes / system.kv_capacity
        step = (cost.alpha[0] + cost.d0) * share + cost.beta[0] + cost.d1 * sizes
        service: Floats = (
            cost.beta[0] * self._inputs + (self._outputs - 1) * step + (cost.alpha[0] + cost.p0) * share
        )
        return service

    # --- the search ---------------------------------------------------------------------------------

    def plans(self, deadline: float | None = None) -> Iterator[tuple[str, Schedule]]:
        """Ever better plans by the simulated clock; called again, it goes on where it stopped.

        Parameters
        ----------
        deadline : float, optional
            Moment of `time.monotonic` at which to stop.
        """
        told, written = time.monotonic(), None
        while time.monotonic() <= deadline if deadline is not None else self.runs < RUNS:
            self._try(next(self._coming))
            if self.best != written and time.monotonic() - told > PAUSE and self.best is not None:
                yield f"admission:{self.runs}", self.schedule(self.best)
                told, written = time.monotonic(), self.best
        if self.best is not None and self.best != written:
            yield f"admission:{self.runs}", self.schedule(self.best)

    def _try(self, choice: Choice) -> None:
        """Run a choice, and keep it if it is the best."""
        self.runs += 1
        finished, first, last = self._timed(choice)
        value = self._estimate.value(first, last) if finished else float("inf")
        self._idle = 0 if value < self._home_value * (1 - LEAST_GAIN) else self._idle + 1
        if value < self._home_value:
            self._home, self._home_value, self._times = choice, value, (first, last)
        if value < self.value:
            self.best, self.value = choice, value

    def _choices(self) -> Iterator[Choice]:
        """Choices to try: known ones, then changes to the best, without end."""
        yield from self._known()
        while True:
            home, best = self._home or Choice(), self.best or Choice()
            if self._idle > PATIENCE and (home.delays or home != best):
                self._home_value, self._idle = float("inf"), 0
                yield self._anew(best)
            elif self.runs < SETTLED or self.rng.random() >= MOVING:
                yield self._changed(home)
            elif self._delays is not None and home.is_spread and self.rng.random() < WAITING:
                yield self._delayed(home, self._delays)
            elif self._may_split and home.share == ANY and self.rng.random() < SPLITTING:
                yield self._split(home)
            else:
                yield self._moved(home)

    def _known(self) -> Iterator[Choice]:
        """Orders and caps that are good somewhere."""
        loose = Choice(arrival=1.0)
        orders = [
            loose,
            Choice(work=1.0),
            Choice(work=1.0, arrival=0.1),
            Choice(prompt=1.0),
            Choice(output=1.0),
        ]
        for order in orders:
            yield order
            yield replace(order, look=8)
        for cap in (512, 256, 192, 128, 96, 64, 32, 16, 8):
            if cap < len(self.instance.requests):
                yield replace(self.best or loose, cap=cap)
        for budget in (256, 512, 1024, 2048):
            yield replace(self.best or loose, budget=budget)
        for most in (1, 2, 4):
            yield replace(self.best or loose, most=most)
        if self._may_spread and int(self._inputs.max()) > min(SPREADS):
            for share, budget in product(SPREADS, BUDGETS):
                yield replace(self.best or loose, share=share, budget=budget, splits=())

    def _changed(self, choice: Choice) -> Choice:
        """A choice near the best one, or far from it."""
        rng, far = self.rng, self.rng.random() > SMALL_CHANGES
        step = 0.5 if far else 0.15

        def weight(value: float) -> float:
            return value + float(rng.normal(0.0, step)) if rng.random() < 0.5 else value

        def number(value: int, top: int) -> int:
            if rng.random() < (0.6 if far else 0.75):
                return value
            value = min(value, top)
            if far and rng.random() < 0.2:
                return ANY
            return self._near(value, top, step)

        pauses = [0, 0, 1, 2, 4, 8, 16] if far else [choice.pause, max(0, choice.pause - 1), choice.pause + 1]
        system = self.instance.system
        return Choice(
            work=weight(choice.work),
            prompt=weight(choice.prompt),
            output=weight(choice.output),
            arrival=weight(choice.arrival),
            cap=number(choice.cap, len(self.instance.requests)),
            budget=number(choice.budget, system.prefill_budget),
            most=number(choice.most, 64),
            pause=int(rng.choice(pauses)),
            look=number(choice.look, 64),
            share=number(choice.share, system.prefill_budget) if choice.share < ANY else ANY,
            moves=choice.moves,
            splits=choice.splits,
            delays=choice.delays,
        )

    def _near(self, value: int, top: int, step: float) -> int:
        """A number from 1 to `top`, in its logarithm typically a step from a value."""
        return max(1, min(top, round(value * float(self.rng.lognormal(0.0, step)))))

    def _anew(self, choice: Choice) -> Choice:
        """The same without delays, and with prompts in other parts."""
        most, share = self.instance.system.prefill_budget, choice.share
        return replace(choice, share=self._near(share, most, 0.1) if share < ANY else ANY, delays=())

    def _delayed(self, choice: Choice, delays: Delays) -> Choice:
        """The same, but some requests wait until those are fewer whom they would slow down, or no longer."""
        if self._watched is not choice:
            delays.watch(self._run(choice, record=True))
            self._watched = choice
        some = self.rng.random(len(self._inputs)) < self.rng.choice(PARTS)
        found = delays.better(dict(choice.delays), some.nonzero()[0], choice.share)
        return replace(choice, delays=tuple(found.items()))

    def _moved(self, choice: Choice) -> Choice:
        """The same with some requests elsewhere in the order."""
        rng, order = self.rng, self._order(choice)
        moves, far = [], float(rng.choice(FAR))
        for place in rng.integers(0, len(order), int(rng.integers(1, MOVED + 1))):
            there = min(max(0, round(place + rng.normal(0.0, far))), len(order) - 1)
            moves.append((order[place], there))
        return replace(choice, moves=choice.moves + tuple(moves))

    def _split(self, choice: Choice) -> Choice:
        """The same with one more request evicted while another one waits, one less, or one elsewhere."""
        import numpy as np

        rng, splits = self.rng, list(choice.splits)
        change, far = rng.random(), float(rng.choice(FAR))
        if splits and change < 0.5:
            request, tokens, place = splits.pop(int(rng.integers(len(splits))))
            if change < 0.25:
                return replace(choice, splits=tuple(splits))
            tokens = round(tokens * float(rng.lognormal(0.0, 0.3)))
            place = round(place + rng.normal(0.0, far))
        else:
            first, last = self._times
            waits = int(rng.integers(len(first)))
            moment = self._arrival[waits] + rng.random() * (first[waits] - self._arrival[waits])
            whole = np.ones(len(first), np.bool_)
            whole[[request for request, _, _ in splits]] = False
            there = np.flatnonzero(whole & (first < moment) & (moment < last))
            if not len(there):
                return self._moved(choice)
            request = int(rng.choice(there))
            share = (moment - first[request]) / (last[request] - first[request])
            tokens = 1 + round(share * float(self._outputs[request] - 1))
            place = (
                self._order(choice).index(waits) + 1 + round(abs(rng.normal(0.0, far)) * (rng.random() < 0.5))
            )
        # Where prompts stay whole, what is evicted has to fit into a batch again.
        system, most = self.instance.system, int(self._outputs[request]) - 1
        if not self.instance.policy.chunked_prefill:
            most = min(most, system.prefill_budget - int(self._inputs[request]))
        if most < 1:
            return self._moved(choice)
        splits.append((request, min(max(1, tokens), most), max(0, place)))
        return replace(choice, splits=tuple(splits))

    # --- one run --------------------------------------------------------------------------------------

    def _order(self, choice: Choice) -> list[int]:
        """The order in which a choice lets requests start."""
        weights, moves = (choice.work, choice.prompt, choice.output, choice.arrival), choice.moves
        known, done, order = self._ordered
        if known != weights or done != moves[: len(done)]:
            score = sum(w * row for w, row in zip(weights, self._features, strict=True))
            order, done = score.argsort(kind="stable").tolist(), ()
        order = order.copy()
        for request, place in moves[len(done) :]:
            order.remove(request)
            order.insert(place, request)
        # Most choices differ from the best one by a few moves.
        if choice == self._home:
            self._ordered = weights, moves, order
        return order

    def _queue(self, choice: Choice) -> Queue:
        """The requests in the order of a choice."""
        import numpy as np

        from infermax_opt.infermax.planners.admission import _kernel

        ordered, inputs, outputs, arrival = self._order(choice), self._inputs, self._outputs, self._arrival
        release, arriving = arrival, self._arriving
        if choice.delays and choice.is_spread:
            release = arrival.copy()
            for request, delay in choice.delays:
                release[request] += delay
            arriving = np.argsort(release, kind="stable")
        rest = np.full(len(inputs) + len(choice.splits), -1, np.int64)
        if choice.splits:
            ordered = ordered.copy()
            inputs, outputs, arrival = (np.resize(column, len(rest)) for column in (inputs, outputs, arrival))
            for part, (request, tokens, where) in enumerate(choice.splits, len(self._inputs)):
                ordered.insert(where, part)
                rest[request], arrival[part] = part, 0.0
                inputs[part], outputs[part] = inputs[request] + tokens, outputs[request] - tokens
                outputs[request] = tokens
        order = np.array(ordered, np.int64)
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        return _kernel.Queue(inputs, outputs, arrival, release, arriving, order, place, rest)

    def _machine(self) -> Machine:
        """Limits and policy of the instance."""
        from infermax_opt.infermax.planners.admission import _kernel

        system, policy, n = self.instance.system, self.instance.policy, len(self.instance.requests)
        return _kernel.Machine(
            system.kv_capacity, system.max_batch_tokens, system.max_prefill_tokens,
            min(n, system.max_running or n), system.block_size - 1,
            policy.hybrid_batching, policy.chunked_prefill, self.instance.cost.exact_attention,
        )  # fmt: skip

    def _run(self, choice: Choice, *, record: bool) -> tuple[Any, ...]:
        """What `admission_loop` gives for a choice."""
        from infermax_opt.infermax.planners.admission._loops import loop_of

        loop, knobs = loop_of(choice)
        found: tuple[Any, ...] = loop(
            self._machine(), self._queue(choice), knobs, self.instance.cost.columns, MAX_BATCHES, record
        )
        return found

    def _timed(self, choice: Choice) -> tuple[bool, Floats, Floats]:
        """Whether all end with a choice; first and last tokens of each request, in seconds."""
        finished, first, last, *_ = self._run(choice, record=False)
        count = len(self._inputs)
        for part, (request, _, _) in enumerate(choice.splits, count):
            last[request] = last[part]
        return finished, first[:count], last[:count]

    def schedule(self, choice: Choice) -> Schedule:
        """The schedule that a choice makes."""
        _, _, _, named, *entries, _, _ = self._run(choice, record=True)
        who = [*range(len(self._inputs)), *(request for request, _, _ in choice.splits)]
        return Schedule(self.instance.name, tuple(self._batches([who[part] for part in named], *entries)))

    def _batches(
        self,
        named: Sequence[int],
        chunks: Sequence[int],
        named_end: Sequence[int],
        decode: Sequence[int],
        repeat: Sequence[int],
        start: Sequence[int],
        evicted: Sequence[int] = (),
        evicted_end: Sequence[int] = (),
    ) -> list[Batch]:
        """The batches that a loop has listed."""
        requests = self.instance.requests
        batches = []
        for k in range(1, len(repeat)):
            part = range(named_end[k - 1], named_end[k])
            gone = evicted[evicted_end[k - 1] : evicted_end[k]] if evicted_end else ()
            batches.append(
                Batch(
                    tokens={requests[named[j]].id: int(chunks[j]) for j in part},
                    evict=tuple(requests[i].id for i in gone),
                    start=requests[start[k]].arrival if start[k] >= 0 else None,
                    decode_all=bool(decode[k]),
                    repeat=int(repeat[k]),
                )
            )
        return batches
