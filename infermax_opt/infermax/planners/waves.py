"""Waves of equal requests: some from the first to the last token, while the others wait, then some more.

A wave of c requests that takes T(c) makes all N that are unfinished wait for T(c), so the least sum of
finishing times is V(N) = least of V(N-c) + N T(c), by a table.  Where memory is not scarce, no other plan is
much better: `infermax_opt.infermax.bounds.waves` proves it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from infermax_opt.infermax.data.cost import batch_time
from infermax_opt.infermax.data.instance import Instance, Metric
from infermax_opt.infermax.data.schedule import Batch, Schedule

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

__all__ = ["wave_plans"]

#: Entries of the table, at most: more take a second.
MAX_ENTRIES = 5 * 10**7


def wave_plans(instance: Instance) -> Iterator[tuple[str, Schedule]]:
    """The best waves, where end-to-end latencies count and requests are equal and there from the start.

    Parameters
    ----------
    instance : Instance

    Yields
    ------
    name : str
        ``waves:`` and how many there are.
    schedule : Schedule
    """
    requests, system = instance.requests, instance.system
    if not instance.offline or Metric.MEAN_E2E not in instance.objective.metrics:
        return
    i, o = requests[0].input_tokens, requests[0].output_tokens
    if any((r.input_tokens, r.output_tokens) != (i, o) for r in requests) or i > system.prefill_budget:
        return
    largest = min(len(requests), system.kv_capacity // system.held(i + o - 1), system.max_batch_tokens)
    if system.max_running is not None:
        largest = min(largest, system.max_running)
    if len(requests) * largest > MAX_ENTRIES:
        return
    sizes = _best_sizes(len(requests), _times(instance, i, o, largest))
    yield f"waves:{len(sizes)}", _written(instance, sizes)


def _times(instance: Instance, i: int, o: int, largest: int) -> Floats:
    """Seconds of a wave of 1, ..., `largest` requests.

    Parameters
    ----------
    instance : Instance
    i, o : int
        Input and output tokens of a request.
    largest : int
    """
    import numpy as np

    cost, per = instance.cost.floats, instance.system.prefill_budget // i
    work = float(i * i)
    prefill = [float(batch_time(*cost, k * i, 0, 0, k, k * work)) if k else 0.0 for k in range(per + 1)]
    c = np.arange(1, largest + 1)
    # The steps of a wave differ by what they read alone, so one with the mean of it stands for all.
    step = np.array([float(batch_time(*cost, k, k, k * (i + (o - 2) / 2), 0, 0)) for k in c.tolist()])
    full, rest = np.divmod(c, per)
    return np.asarray(full * prefill[per] + np.array(prefill)[rest] + (o - 1) * step)


def _best_sizes(number: int, times: Floats) -> list[int]:
    """Sizes of the waves, the first to run first, with the least sum of finishing times.

    Parameters
    ----------
    number : int
        Requests.
    times : float array
        Seconds of a wave of 1, 2, ... requests.
    """
    import numpy as np

    sums, chosen = np.zeros(number + 1), np.zeros(number + 1, np.int64)
    for n in range(1, number + 1):
        most = min(n, len(times))
        tried = sums[n - most : n][::-1] + n * times[:most]
        chosen[n] = 1 + int(tried.argmin())
        sums[n] = tried[chosen[n] - 1]
    sizes, left = list[int](), number
    while left:
        sizes.append(int(chosen[left]))
        left -= sizes[-1]
    return sizes


def _written(instance: Instance, sizes: Sequence[int]) -> Schedule:
    """The schedule of waves of these sizes."""
    names = [request.id for request in instance.requests]
    i, o = instance.requests[0].input_tokens, instance.requests[0].output_tokens
    per, batches, begun = instance.system.prefill_budget // i, list[Batch](), 0
    for size in sizes:
        wave = names[begun : begun + size]
        begun += size
        prompts = [wave[at : at + per] for at in range(0, size, per)]
        batches += [Batch(dict.fromkeys(some, i)) for some in prompts]
        if o > 1:
            batches.append(Batch({}, decode_all=True, repeat=o - 1))
    return Schedule(instance.name, tuple(batches))
