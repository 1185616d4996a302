"""Requests that wait before they start: the best answers to a run, for objectives of sums of ends.

Work makes all end later who are there, by its time.  So a request costs, by when it joins those that wait,
what its own end counts, and what its work makes the ends of others count, by the batches of the run: the
prompt meets those who run in its batches, and each later token those of one batch after these.  That holds
for one request at a time, as each answer changes the batches: so a few answer, and the run says if it helped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.objective import LINEAR, Latency
from infermax_opt.infermax.planners.admission.estimate import of_requests

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Integers = npt.NDArray[np.int64]

__all__ = ["Delays", "weights_of_ends"]

#: Share by which the ends of batches are rounded.
ROUNDING = 1e-12
#: Delays that are tried, in mean latencies of the run: so many evenly up to the first, then so many ever
#: farther apart.
NEAR, FAR, NUMBERS = 0.8, 16.0, (60, 30)


def weights_of_ends(instance: Instance) -> Floats | None:
    """What a second counts by which each request ends later; None where anything else counts."""
    objective = instance.objective
    if objective.limits or any(LINEAR.get(metric) is not Latency.E2E for metric, _ in objective.weights):
        return None
    return of_requests(instance, objective.latency_weights(instance.types)[Latency.E2E])


class Delays:
    """Best answers to a run of `spread_loop`.

    Parameters
    ----------
    instance : Instance
    weights : array
        What a second counts by which each request ends later.
    """

    def __init__(self, instance: Instance, weights: Floats):
        requests = instance.requests
        self._weights, self._cost = weights, instance.cost.floats
        self._exact = instance.cost.exact_attention
        self._inputs = np.array([r.input_tokens for r in requests], np.int64)
        self._outputs = np.array([r.output_tokens for r in requests], np.int64)
        self._arrival = np.array([float(r.arrival) for r in requests])
        #: Of the run: when batches end, after 0; what those count together who are in the first so many; the
        #: mean latency.
        self._ends: Floats = np.zeros(1)
        self._met: Floats = np.zeros(1)
        self._scale = 0.0

    def watch(self, found: Sequence[Any]) -> None:
        """Take what `spread_loop` gives for a run that is recorded."""
        _, _, last, named, _, named_end, _, repeat, *_, passed, ends = found
        total = np.cumsum(repeat)
        self._ends = np.interp(np.arange(total[-1] + 1), passed, ends)
        self._scale = float((last - self._arrival).mean())
        begin: Integers = np.full(len(last), total[-1], np.int64)
        for entry, (since, until) in enumerate(pairwise(named_end)):
            for request in named[since:until]:
                begin[request] = min(begin[request], total[entry])
        end = np.searchsorted(self._ends, last * (1 - ROUNDING))
        changes = np.bincount(begin, self._weights, total[-1] + 1)
        changes -= np.bincount(np.minimum(end, total[-1]), self._weights, total[-1] + 1)
        self._met = np.append(0.0, np.cumsum(np.cumsum(changes)[:-1]))

    def better(self, delays: Mapping[int, float], who: Integers, share: int) -> dict[int, float]:
        """The delays with others for some requests, where these cost less by the last run.

        Parameters
        ----------
        delays : mapping of int to float
            Seconds of those requests that have one.
        who : array of int
            Requests that may change theirs.
        share : int
            Prompt tokens of a request in a batch.
        """
        near, far = NUMBERS
        grid = self._scale * np.append(np.linspace(0, NEAR, near), np.geomspace(NEAR, FAR, far + 1)[1:])
        now = np.array([delays.get(int(i), 0.0) for i in who])
        tried = np.vstack([now, np.broadcast_to(grid[:, None], (len(grid), len(who)))])
        best = self._costs(who, tried, share).argmin(axis=0)
        found = dict(delays)
        for request, delay in zip(who.tolist(), tried[best, np.arange(len(who))].tolist(), strict=True):
            found.pop(request, None)
            if delay > 0:
                found[request] = delay
        return found

    def _costs(self, who: Integers, delays: Floats, share: int) -> Floats:
        """What each of `who` costs with each of the delays, which have a column for each."""
        cost, ends, met, total = self._cost, self._ends, self._met, len(self._ends) - 1
        inputs, later = self._inputs[who], self._outputs[who] - 1
        chunks = -(-inputs // share)
        pairs = inputs * inputs / (1 if self._exact else chunks)
        work = cost.beta[0] * inputs + cost.p1 * pairs
        token = cost.beta[0] + cost.d1 * (inputs + later / 2)
        begin = np.minimum(np.searchsorted(ends, self._arrival[who] + delays), total)
        first = np.minimum(begin + chunks, total)
        beyond = np.maximum(0, first + later - total)
        last = first + later - beyond
        own = self._weights[who] * (ends[last] + beyond * (cost.alpha[0] + cost.d0))
        prompts = work * (met[first] - met[begin]) / np.maximum(1, first - begin)
        found: Floats = own + prompts + token * (met[last] - met[first])
        return found
