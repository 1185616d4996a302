"""Lower bounds on the makespan of identical machines, without search.

All take lengths, longest first, and m machines; all are whole numbers, computed exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from infermax_opt.core import dual_feasible
from infermax_opt.makespan.machines.closed_form import average, counting, longest, quick

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]

__all__ = ["average", "counting", "does_not_fit", "lifted", "longest", "packing", "quick"]

#: Most pairs of jobs and machines for which the lifted bound is computed.
LIFTED_WORK = 20_000_000
#: Most thresholds, and most steps of a step function, that the packing bound tries.
THRESHOLDS, STEPS = 200, 20


def lifted(lengths: Sequence[int], machines: int) -> int:
    """The k fullest machines have many jobs (Haouari, Gharbi and Jemmali 2006).

    Of the n' longest jobs, the k machines that get most get k * floor(n' / m) + min(k, n' mod m)
    or more.  If so many of the shortest are on k machines, one of these has at least their average load.
    Taken over all n' > m and all k <= m; 0 where that is too much work.
    """
    import numpy as np

    n, m = len(lengths), machines
    if n <= m or n * m > LIFTED_WORK or sum(lengths) >= 1 << 62:
        return 0
    sums = np.concatenate([[0], np.cumsum(np.array(lengths, np.int64))])
    count = np.arange(m + 1, n + 1)
    best = 0
    for k in range(1, m + 1):
        jobs = k * (count // m) + np.minimum(k, count % m)
        best = max(best, int((-(-(sums[count] - sums[count - jobs]) // k)).max()))
    return best


def does_not_fit(sizes: Ints, copies: Ints, machines: int, capacity: int) -> bool:
    """Whether a dual-feasible function shows that the jobs do not fit on the machines.

    The values of all jobs may not exceed m f(capacity); see `infermax_opt.core.dual_feasible`.

    Parameters
    ----------
    sizes, copies : array of int
        Different lengths and jobs per length.
    machines, capacity : int
    """
    import numpy as np

    if int(sizes.max()) > capacity:
        return True
    half = sizes[2 * sizes <= capacity]
    others = capacity - sizes[2 * sizes > capacity] + 1
    levels = np.unique(np.concatenate([half, others, others - 1]))
    levels = levels[(levels >= 1) & (2 * levels <= capacity)]
    if len(levels) > THRESHOLDS:
        levels = levels[np.linspace(0, len(levels) - 1, THRESHOLDS).astype(int)]
    level = levels[:, None]
    value = dual_feasible.cut(sizes, capacity, level)
    if len(levels) and int((value @ copies).max()) > machines * capacity:
        return True
    step = np.arange(1, STEPS + 1)[:, None]
    value = dual_feasible.parts(sizes, capacity, step)
    if (value @ copies > machines * capacity * step[:, 0]).any():
        return True
    whole = capacity // level
    value = dual_feasible.steps(sizes, capacity, level)
    return bool((value @ copies > 2 * machines * whole[:, 0]).any())


def packing(sizes: Sequence[int], copies: Sequence[int], machines: int, low: int, high: int) -> int:
    """A makespan that `does_not_fit` leaves possible, with the one below ruled out.

    Parameters
    ----------
    sizes, copies : sequence of int
    machines : int
    low, high : int
        No makespan below `low` is possible; nothing above `high` is asked.

    Returns
    -------
    int
        A lower bound in [low, high].
    """
    import numpy as np

    columns: tuple[Any, Any] = (np.array(sizes, np.int64), np.array(copies, np.int64))
    return _bisect(lambda load: does_not_fit(*columns, machines, load), low, high)


def _bisect(impossible: Callable[[int], bool], low: int, high: int) -> int:
    while low < high:
        middle = (low + high) // 2
        if impossible(middle):
            low = middle + 1
        else:
            high = middle
    return low
