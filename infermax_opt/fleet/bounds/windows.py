"""Windows and weights for the pooled bound: a linear program, grown by the windows that bind.

Minimise m, where each request may miss a share of its limits, all shares together are at most what may be
missed, and in each window what is left of the needs costs at most m times its length.  Duals are the
weights.  Floats suffice: the bound holds for any windows and weights (`infermax_opt.fleet.bounds.pooled`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from infermax_opt.core.linear import quiet_solver, sparse_program
from infermax_opt.fleet.bounds.beside import horizon_of
from infermax_opt.fleet.checker.machine import Machine
from infermax_opt.fleet.checker.needs import KINDS, SHARED, Kind, Need, cost_of, unit_of, whole_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Integers = npt.NDArray[np.int64]

__all__ = ["Weighted", "best_windows"]

#: Begin and end in ticks, piece, what shares alpha or a horizon, weight.
Weighted = tuple[int, int, int, Kind, float]
#: Needs up to which every pair of a begin and an end is a window.
FEW = 40
#: Windows that begin within the length of one.
STEPS = 8
#: Lengths of windows, each half of the one before.
LENGTHS = 14
#: Rounds of the program, at most.
ROUNDS = 40
#: Windows that are added in a round, at most.
FRESH = 6
#: Share by which the best window may exceed the program when it ends.
CLOSE = 5e-4


#: What a window holds to its length, begin, end, piece and kind.
_Ratio = tuple[float, float, float, tuple[int, Kind]]


class _Needs(NamedTuple):
    """Columns of all needs: times in ticks, whose they are, and their cost in ticks by piece and kind.

    `by_begin`, `by_end`: their places from the latest begin on, and from the soonest end on.
    """

    begin: Floats
    end: Floats
    owner: Integers
    cost: dict[tuple[int, Kind], Floats]
    by_begin: Integers
    by_end: Integers


class _Window(NamedTuple):
    """A window with what each request costs in it, in shares of its length."""

    begin: int
    end: int
    piece: int
    kind: Kind
    owners: Integers
    costs: Floats


def best_windows(
    machine: Machine, prompts: Sequence[int], needs: Sequence[list[Need] | None], spared: int
) -> tuple[float, list[Weighted], list[list[int]]]:
    """About the best bound, its windows with their weights, and guesses of who misses, most of all first.

    Parameters
    ----------
    machine : Machine
    prompts : sequence of int
        Prompt tokens of each request.
    needs : sequence of list of Need or None
        Of each request; None where it never keeps its limits.
    spared : int
        Requests of the others that may miss them.
    """
    import numpy as np

    table = _table(machine, prompts, needs)
    if not any((cost > 0).any() for cost in table.cost.values()):
        return 0.0, [], []
    # Who misses where nobody looks beyond a horizon is a good guess for plans, too.
    near = table._replace(cost={key: cost for key, cost in table.cost.items() if key[1] in KINDS})
    windows: list[_Window] = []
    _, nearly, _ = _grown(near, windows, (len(prompts), spared), moving=False)
    value, missed, weights = _grown(table, windows, (len(prompts), spared), moving=True)
    weighted = [
        (w.begin, w.end, w.piece, w.kind, float(weight) / (w.end - w.begin))
        for w, weight in zip(windows, weights, strict=True)
        if weight > 1e-9
    ]
    guesses = [
        [i for i in np.argsort(-some, kind="stable").tolist() if some[i] > 1e-9] for some in (nearly, missed)
    ]
    return value, weighted, guesses


def _grown(
    table: _Needs, windows: list[_Window], of: tuple[int, int], moving: bool
) -> tuple[float, Floats, Floats]:
    """Value of the program when no window is missing, the shares that are missed, and the weights of windows.

    Parameters
    ----------
    table : _Needs
    windows : list of _Window
        More are added.
    of : (int, int)
        Requests, and how many may miss.
    moving : bool
        Windows move to where they bind most.
    """
    import numpy as np

    value, missed, weights = _solved(windows, *of) if windows else (0.0, np.zeros(of[0]), np.zeros(0))
    for _ in range(ROUNDS):
        ratio, fresh = _tightest(table, 1.0 - missed, moving)
        if windows and ratio <= value * (1 + CLOSE) + 1e-12:
            break
        windows += fresh
        value, missed, weights = _solved(windows, *of)
    return value, missed, weights


def _table(machine: Machine, prompts: Sequence[int], needs: Sequence[list[Need] | None]) -> _Needs:
    import numpy as np

    rows = [(need, i) for i, some in enumerate(needs) for need in some or ()]
    # Where all later tokens lie in a window they cost more together than their groups: that is a row, too.
    wholes = [(whole_of(later), later, i) for i, later in _divided(needs)]
    unit = float(unit_of(machine))
    kinds: list[Kind] = [kind for kind in KINDS if kind != "running" or machine.running]

    def costs(piece: int, kind: Kind) -> Floats:
        known = [cost_of(machine, prompts[i], need, piece, kind) for need, i in rows]
        more = [0] * len(wholes)
        if kind not in SHARED:
            of = dict(zip(rows, known, strict=True))
            more = [
                max(0, cost_of(machine, prompts[i], whole, piece, kind) - sum(of[need, i] for need in later))
                for whole, later, i in wholes
            ]
        return np.array(known + more, object).astype(float) / unit

    table = {
        (piece, kind): costs(piece, kind)
        for piece in range(len(machine.alpha))
        for kind in (*kinds, *horizon_of(machine, prompts, needs, piece))
    }
    placed = [*rows, *((whole, i) for whole, _, i in wholes)]
    begin = np.array([need.begin for need, _ in placed], float)
    end = np.array([need.end for need, _ in placed], float)
    owner = np.array([i for _, i in placed], np.int64)
    return _Needs(begin, end, owner, table, np.argsort(-begin, kind="stable"), np.argsort(end, kind="stable"))


def _divided(needs: Sequence[list[Need] | None]) -> Iterator[tuple[int, list[Need]]]:
    """Requests whose later tokens are several stretches, with these."""
    for i, some in enumerate(needs):
        later = [need for need in some or () if need.first > 1]
        if len(later) > 1:
            yield i, later


def _tightest(table: _Needs, left: Floats, moving: bool) -> tuple[float, list[_Window]]:
    """The best ratio of what is left to a length, and the best window of each length and cost."""
    found: list[_Ratio] = []
    for key, cost in table.cost.items():
        weighed = cost * left[table.owner]
        tried = _every_pair(table, weighed) if len(table.begin) <= FEW else _grids(table, weighed)
        found += [(*some, key) for some in tried]
    found.sort(key=_by_ratio, reverse=True)
    if moving and len(table.begin) > FEW:
        found = sorted((_moved(table, left, some) for some in found[:FRESH]), key=_by_ratio, reverse=True)
    best = found[0][0]
    chosen = dict.fromkeys(some[1:] for some in found[:FRESH] if some[0] > best * 0.8)
    return best, [_window(table, *some) for some in chosen]


def _by_ratio(some: _Ratio) -> tuple[Any, ...]:
    """What windows are sorted by; of equal ones the same comes first each time."""
    *order, (piece, kind) = some
    return *order, piece, str(kind)


def _moved(table: _Needs, left: Floats, window: _Ratio) -> _Ratio:
    """The window with its end, and then its begin, moved to where the ratio is best, over and over."""
    import numpy as np

    best, begin, end, key = window
    weighed = table.cost[key] * left[table.owner]
    while True:
        inside = table.by_end[table.begin[table.by_end] >= begin]
        ends = table.end[inside]
        ratios = np.cumsum(weighed[inside]) / np.maximum(ends - begin, 1)
        end = float(ends[int(np.argmax(ratios))])
        inside = table.by_begin[table.end[table.by_begin] <= end]
        begins = table.begin[inside]
        ratios = np.cumsum(weighed[inside]) / np.maximum(end - begins, 1)
        k = int(np.argmax(ratios))
        begin = float(begins[k])
        if ratios[k] <= best * (1 + 1e-9):
            return max(best, float(ratios[k])), begin, end, key
        best = float(ratios[k])


def _every_pair(table: _Needs, weighed: Floats) -> list[tuple[float, float, float]]:
    """Ratio, begin and end of the best window of all."""
    import numpy as np

    begins, ends = np.unique(table.begin), np.unique(table.end)
    inside = (table.begin >= begins[:, None, None]) & (table.end <= ends[None, :, None])
    lengths = ends[None, :] - begins[:, None]
    ratios = np.where(lengths > 0, (inside * weighed).sum(axis=2) / np.where(lengths > 0, lengths, 1), 0)
    k, j = np.unravel_index(int(np.argmax(ratios)), ratios.shape)
    return [(float(ratios[k, j]), float(begins[k]), float(ends[j]))]


def _grids(table: _Needs, weighed: Floats) -> list[tuple[float, float, float]]:
    """Ratio, begin and end of the best window of each length on a grid, drawn in to what it holds."""
    import numpy as np

    origin = table.begin.min()
    length = float(table.end.max() - origin)
    found = []
    for _ in range(LENGTHS):
        step = length / STEPS
        latest = np.floor((table.begin - origin) / step).astype(np.int64)
        earliest = np.maximum(0, np.ceil((table.end - origin - length) / step).astype(np.int64))
        some = np.flatnonzero(latest >= earliest)
        if not len(some):
            break
        # Each need counts in the windows from its earliest to its latest one.
        sums = np.zeros(int(latest.max()) + 2)
        np.add.at(sums, earliest[some], weighed[some])
        np.add.at(sums, latest[some] + 1, -weighed[some])
        k = int(np.argmax(np.cumsum(sums)))
        begin, end = origin + k * step, origin + k * step + length
        within = (table.begin >= begin) & (table.end <= end) & (weighed > 0)
        if within.any():
            begin, end = table.begin[within].min(), table.end[within].max()
            held = (table.begin >= begin) & (table.end <= end)
            found.append((float(weighed[held].sum() / (end - begin)), float(begin), float(end)))
        length /= 2
    return found


def _window(table: _Needs, begin: float, end: float, key: tuple[int, Kind]) -> _Window:
    import numpy as np

    inside = np.flatnonzero((table.begin >= begin) & (table.end <= end))
    owners, places = np.unique(table.owner[inside], return_inverse=True)
    costs = np.bincount(places, table.cost[key][inside]) / (end - begin)
    # Ticks of long traces are beyond whole floats: but for their rounding, needs at the ends were outside.
    first, last = max(0, int(begin) - int(np.spacing(begin) / 2)), int(end) + int(np.spacing(end) / 2)
    return _Window(first, last, *key, owners, costs)


def _solved(windows: Sequence[_Window], requests: int, spared: int) -> tuple[float, Floats, Floats]:
    """Value of the program, the shares that are missed, and the weights of the windows."""
    import numpy as np

    used = np.unique(np.concatenate([window.owners for window in windows]))
    column = np.full(requests, -1, np.int64)
    column[used] = np.arange(len(used))
    rows = [np.full(len(w.owners), k) for k, w in enumerate(windows)]
    last = len(windows)
    row = np.concatenate([*rows, np.arange(last), np.full(len(used), last)])
    col = np.concatenate(
        [*(column[w.owners] for w in windows), np.full(last, len(used)), np.arange(len(used))]
    )
    value = np.concatenate([*(w.costs for w in windows), np.ones(last), np.ones(len(used))])
    costs, uppers = np.append(np.zeros(len(used)), 1.0), np.append(np.ones(len(used)), np.inf)
    lows = np.append([float(w.costs.sum()) for w in windows], -np.inf)
    highs = np.append(np.full(last, np.inf), float(spared))
    solver = quiet_solver()
    solver.passModel(sparse_program(costs, uppers, lows, highs, (row, col, value)))
    solver.run()
    solution = solver.getSolution()
    missed = np.zeros(requests)
    missed[used] = np.clip(np.array(solution.col_value[:-1]), 0, 1)
    duals = np.maximum(0.0, np.array(solution.row_dual[:last]))
    return float(solution.col_value[-1]), missed, duals
