"""Online schedulers that know the output lengths: MC-SF, and smallest volume first.

MC-SF (Jaillet, Jiang, Mellou, Molinaro, Podimata and Zhou, 2025): before each batch the waiting
requests are looked at in order of their output tokens.  Each joins if the KV of all that run or have
joined stays within M in every batch to come, nobody else joining later; the first that does not fit
ends it.  All that run make a token in every batch, so what they will hold is known.

Smallest volume first does the same in the order of the tokens that a request holds, summed over its batches.

In an InferMax instance more than memory limits a batch: C, P, R_max, whole blocks.  Who joins must fit
these, too.  Without hybrid batching those that join are prefilled in a batch of their own, in which the
others keep what they hold.  Prompts are not split, except those longer than any batch: such a request
joins when nobody runs, and nobody joins it before its first token.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from infermax_opt.infermax.data.cost import BatchFeatures, prefill_work
from infermax_opt.infermax.data.instance import Instance, Request
from infermax_opt.infermax.data.schedule import MAX_BATCHES, Batch, Schedule, TooManyBatches

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["FORESIGHT", "Order", "foresight_schedule"]

#: What waiting requests are sorted by; ties go by arrival, then by place in the instance.
Order = Callable[[Request], int]

FORESIGHT: dict[str, Order] = {
    "mc-sf": lambda request: request.output_tokens,
    "svf": lambda request: request.output_tokens * (2 * request.input_tokens + request.output_tokens - 1),
}
"""Orders by the name of their scheduler."""

#: Tokens of a prompt, and those cached before.
Chunk = tuple[int, int]

#: Rows of `_Run.ahead`: KV held after a step, KV kept if the step were put off, tokens that it reads.
HELD, KEPT, READ = 0, 1, 2


def foresight_schedule(instance: Instance, order: Order) -> Schedule:
    """Let waiting requests join in an order, as long as what all will hold fits.

    Returns
    -------
    Schedule
        Valid for every instance, and without evictions.

    Raises
    ------
    InputError
        If it would have more than `MAX_BATCHES` batches.
    """
    run = _Run(instance, order)
    while run.coming or run.waiting or run.running:
        run.proceed()
        if run.length > MAX_BATCHES:
            raise TooManyBatches.than(MAX_BATCHES)
    return Schedule(instance.name, tuple(run.batches))


class _Run:
    """The state before a batch; a step is a batch in which those that run make a token.

    Attributes
    ----------
    coming : list of int
        Requests still to arrive, the next one last.
    waiting : heap
        Those that have arrived: order, arrival and number.
    clock : Fraction
        Seconds; it stands still once all have arrived.
    step : int
        Steps so far.
    ahead : array
        What those that run will do in each step; see `HELD`.
    leaving : Counter
        How many of them make their last token in a step.
    running : int
        Requests under way.
    """

    def __init__(self, instance: Instance, order: Order):
        import numpy as np

        self.instance, self.order = instance, order
        self.system, self.hybrid = instance.system, instance.policy.hybrid_batching
        requests = instance.requests
        self.coming = sorted(range(len(requests)), key=lambda k: requests[k].arrival)[::-1]
        self.waiting: list[tuple[int, Fraction, int]] = []
        self.clock, self.step, self.running, self.length = Fraction(0), 0, 0, 0
        self.ahead = np.zeros((3, 4 * max(request.output_tokens for request in requests)), np.int64)
        self.leaving = Counter[int]()
        self.batches: list[Batch] = []

    def proceed(self) -> None:
        """Let requests arrive and join, and run a batch."""
        start = self._arrivals()
        others, kept, read = self.running, int(self.ahead[KEPT, self.step]), int(self.ahead[READ, self.step])
        chunks: dict[str, Chunk] = {}
        while self.waiting:
            request = self.instance.requests[self.waiting[0][2]]
            if not self._fits(request, chunks, others, kept):
                break
            heapq.heappop(self.waiting)
            cached, budget = 0, self.system.prefill_budget
            while request.input_tokens - cached > budget:  # its request is alone
                self._run({request.id: (budget, cached)}, 0, 0, start)
                cached, start = cached + budget, None
            chunks[request.id] = request.input_tokens - cached, cached
            self._join(request)
        if self.hybrid or not chunks:
            self._run(chunks, others, read, start)
            self.running -= self.leaving.pop(self.step, 0)
            self.step += 1
        else:
            self._run(chunks, 0, 0, start)

    def _arrivals(self) -> Fraction | None:
        """Queue who has arrived; the start of the batch, if it has to wait for somebody."""
        import numpy as np

        requests, start = self.instance.requests, None
        if not self.waiting and not self.running and requests[self.coming[-1]].arrival > self.clock:
            self.clock = start = requests[self.coming[-1]].arrival
        while self.coming and requests[self.coming[-1]].arrival <= self.clock:
            k = self.coming.pop()
            heapq.heappush(self.waiting, (self.order(requests[k]), requests[k].arrival, k))
        if 2 * self.step >= self.ahead.shape[1]:  # steps so far are dropped
            self.ahead = np.concatenate((self.ahead[:, self.step :], 0 * self.ahead[:, : self.step]), axis=1)
            self.leaving = Counter({step - self.step: count for step, count in self.leaving.items()})
            self.step = 0
        return start

    def _fits(self, request: Request, chunks: dict[str, Chunk], others: int, kept: int) -> bool:
        """Whether a request may join.

        Parameters
        ----------
        request : Request
        chunks : dict
            Those that have joined the batch.
        others, kept : int
            Requests that ran before, and what they hold until their next step.
        """
        system, count = self.system, others + len(chunks)
        if request.input_tokens > system.prefill_budget or any(cached for _, cached in chunks.values()):
            return count == 0
        prompts = request.input_tokens + sum(tokens for tokens, _ in chunks.values())
        budget = min(system.max_prefill_tokens, system.max_batch_tokens - others * self.hybrid)
        if prompts > budget or count >= min(system.max_batch_tokens, system.max_running or count + 1):
            return False
        fresh = [tokens for tokens, _ in chunks.values()] + [request.input_tokens]
        if not self.hybrid and kept + sum(map(system.held, fresh)) > system.kv_capacity:
            return False
        will = self._will(request)[HELD]
        planned = self.ahead[HELD, self.step : self.step + len(will)] + will
        return bool((planned <= system.kv_capacity).all())

    def _will(self, request: Request) -> npt.NDArray[np.int64]:
        """What a request that joins now will do in each step."""
        import numpy as np

        # Without hybrid batching the first token comes before the next step.
        first = 0 if self.hybrid else 1
        cached = request.input_tokens + np.arange(first, request.output_tokens)
        block = self.system.block_size
        will = np.array([-(-cached // block) * block, -(-(cached - 1) // block) * block, cached - 1])
        if self.hybrid:
            will[1:, 0] = 0  # a prompt reads nothing, and has nothing to keep
        return will

    def _join(self, request: Request) -> None:
        """Note what a request that joins will do."""
        will = self._will(request)
        steps = will.shape[1]
        if steps > 0:
            self.ahead[:, self.step : self.step + steps] += will
            self.leaving[self.step + steps - 1] += 1
            self.running += 1

    def _run(self, chunks: dict[str, Chunk], decodes: int, read: int, start: Fraction | None) -> None:
        """Run a batch.

        Parameters
        ----------
        chunks : dict
            Prompt tokens of each request that joins, and those cached before.
        decodes, read : int
            Requests that decode, and the tokens that they read.
        start : Fraction, optional
            When it starts, if it waits for somebody.
        """
        if self.coming:
            cost = self.instance.cost
            work = sum(prefill_work(cost.exact_attention, *chunk) for chunk in chunks.values())
            tokens = decodes + sum(tokens for tokens, _ in chunks.values())
            behind = sum(cached for _, cached in chunks.values())
            features = BatchFeatures(tokens, decodes, read, len(chunks), work, behind)
            self.clock += cost.to_seconds(cost.batch_ticks(features))
        self.length += 1
        last = self.batches[-1] if self.batches else None
        if last is not None and not chunks and not last.tokens:
            self.batches[-1] = replace(last, repeat=last.repeat + 1)
        else:
            named = {name: tokens for name, (tokens, _) in chunks.items()}
            self.batches.append(Batch(named, start=start, decode_all=decodes > 0))
