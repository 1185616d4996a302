"""A walk through the batches of a valid schedule that touches a request only where something changes for it.

Most requests of most batches are in decode and make their token as all others do.  Where each stands then
follows from how many such batches there were since it began; see `infermax_opt.infermax.replay.timeline.Walk`
for the walk that tells of every request in every batch.
"""

from __future__ import annotations

from infermax_opt.infermax.data.cost import prefill_work
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Batch
from infermax_opt.infermax.replay.plain import Replay

__all__ = ["SparseWalk"]


class SparseWalk:
    """What requests that are not in decode did so far.

    Parameters
    ----------
    instance : Instance
    replayed : Replay
        Of a valid schedule.

    Attributes
    ----------
    generated : list of int, one per request
        Tokens made so far; of one in decode, when it came there.
    begins : list of int, one per request
        First batch; -1 for none so far.
    begun, done : int
        Requests that were ever processed, and that are finished.
    evicted : set of int
        Requests without KV since an eviction.
    tokens_again, work_again, refills : int
        Of the last batch: tokens and units of attention work that were processed before, and requests that
        make up for an eviction.
    """

    def __init__(self, instance: Instance, replayed: Replay):
        self.instance = instance
        self.generated = [0] * len(instance.requests)
        self.begins = [-1] * len(instance.requests)
        self.begun = self.done = 0
        self.evicted: set[int] = set()
        self.tokens_again = self.work_again = self.refills = 0
        self._input = [request.input_tokens for request in instance.requests]
        self._output = [request.output_tokens for request in instance.requests]
        self._exact = instance.cost.exact_attention
        self._cached = [0] * len(instance.requests)
        #: Most tokens that a request ever cached; of one in decode, when it came there.
        self._highest = [0] * len(instance.requests)
        self._refilling: set[int] = set()
        #: Batches of all in decode so far, and for each of these how many there were when it came there.
        self._steps = 0
        self._decoding: dict[int, int] = {}
        self._finishing: dict[int, list[int]] = {}
        for i, last in enumerate(replayed.last_batch):
            self._finishing.setdefault(last, []).append(i)

    def step(self, j: int, batch: Batch, evict: list[int]) -> None:
        """Run batch `j`, from 0.

        Parameters
        ----------
        j : int
        batch : Batch
        evict : list of int
            Requests that lose their KV before it.
        """
        for i in evict:
            self._evict(i)
        self.tokens_again = self.work_again = self.refills = 0
        come: list[int] = []
        for name, tokens in batch.tokens.items():
            i = self.instance.index[name]
            if i not in self._decoding:
                self._prefill(j, i, tokens)
                missing = self._input[i] + self.generated[i] - self._cached[i]
                if missing == 1 and self.generated[i]:
                    come.append(i)
            elif not batch.decode_all:
                self._decoding[i] -= 1  # a step that not all take
        self._steps += batch.decode_all
        self._decoding |= dict.fromkeys(come, self._steps)
        self._refilling.difference_update(come)
        for i in self._finishing.get(j, ()):
            self._decoding.pop(i, None)
            self._refilling.discard(i)
            self.done += 1

    def _evict(self, i: int) -> None:
        """Drop the KV of a request."""
        if i in self._decoding:
            steps = self._steps - self._decoding.pop(i)
            self.generated[i] += steps
            self._highest[i] = max(self._highest[i], self._cached[i] + steps)
        self._cached[i] = 0
        self._refilling.discard(i)
        self.evicted.add(i)

    def _prefill(self, j: int, i: int, tokens: int) -> None:
        """Process tokens of a request that is not in decode."""
        if self.begins[i] < 0:
            self.begins[i] = j
            self.begun += 1
        if i in self.evicted:
            self.evicted.remove(i)
            self._refilling.add(i)
        self.refills += i in self._refilling
        before, after = self._cached[i], self._cached[i] + tokens
        again = min(after, self._highest[i]) - before
        if again > 0:
            self.tokens_again += again
            new = prefill_work(self._exact, tokens - again, before + again)
            self.work_again += prefill_work(self._exact, tokens, before) - new
        self._highest[i] = max(self._highest[i], after)
        self._cached[i] = after
        self.generated[i] += after == self._input[i] + self.generated[i]
