r"""A bound at any size, without branching: prices for the root of each case, and the least ratio they prove.

The linear relaxation of a case has a best ratio, found as Dinkelbach does: maximise value - ratio * time,
take the ratio of the solution, until nothing is above 0.  The largest over all cases, raised by a hair for
what floats lose, is a ratio that the prices of every case prove (`infermax_opt.iteration.bounds.nodes`).
That is the bound of the whole, as no batch is outside all cases (`infermax_opt.iteration.bounds.cases`).
For a case all of whose calls are selected it is tight: no selection of real-time requests is left to be cut
into shares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.iteration.bounds._program import Program, exponent_of
from infermax_opt.iteration.bounds.cases import Case, all_cases
from infermax_opt.iteration.bounds.kept import most_kept
from infermax_opt.iteration.bounds.nodes import Ratio, closed, first_node
from infermax_opt.iteration.data.instance import IterationInstance
from infermax_opt.iteration.data.ticks import Ticks

__all__ = ["RELAXATION", "evidence_of", "relaxation_bound", "seconds_of"]

RELAXATION = "relaxation"
#: How an entry of a tree says that it is a leaf.
LEAF = -2
#: By how much a ratio is raised, in turn, until the prices prove it.
HAIRS = (1e-10, 1e-8, 1e-6, 1e-4)
#: Rounds of a ratio for a case, and below which gain it is left.
MOST_ROUNDS, LEAST_GAIN = 20, 1e-10
#: Most types times cases.
MOST_SIZE = 3 * 10**6

Tree = list[list[int]]


def seconds_of(ticks: Ticks, ratio: Ratio) -> Fraction:
    """The bound on the objective of a ratio that no batch exceeds."""
    if ratio.p == 0:
        return ticks.worst
    return min(ticks.worst, Fraction(ratio.q * ticks.units, ratio.p * ticks.scale))


def evidence_of(ticks: Ticks, ratio: Ratio, exponent: int, trees: Sequence[Tree]) -> Mapping[str, Any]:
    """What goes into the certificate.

    Parameters
    ----------
    ticks : Ticks
    ratio : Ratio
        That no batch exceeds.
    exponent : int
        s of the prices.
    trees : sequence of list
        Of each case.
    """
    kept = [ticks.instance.requests[k].id for k in most_kept(ticks).batch]
    return {
        "kind": "branching", "value": ratio.p, "ticks": ratio.q, "exponent": exponent, "kept": kept,
        "idle_out": True, "trees": list(trees),
    }  # fmt: skip


def relaxation_bound(
    instance: IterationInstance, *, start: Fraction | None = None, stop: Callable[[], bool] | None = None
) -> LowerBound | None:
    """The bound of the linear relaxations with its certificate; None if it is stopped, or would take too
    long.

    Parameters
    ----------
    instance : IterationInstance
    start : Fraction, optional
        Units of value for a tick that some batch has.
    stop : callable, optional
        Asked often whether to end.
    """
    ticks = Ticks.of(instance)
    cases = []
    for case in all_cases(ticks, most_kept(ticks).least):
        cases.append(case)
        if len(cases) * len(case.kinds.value) > MOST_SIZE:
            return None
    exponent, best = exponent_of(ticks.all_time), 0.0 if start is None else float(start)
    for case in cases:
        if stop is not None and stop():
            return None
        best = max(best, _best_ratio(case, best, exponent, ticks))
    for hair in HAIRS:
        ratio = ratio_of(best * (1 + hair), ticks)
        trees = []
        for case in cases:
            tree = root_tree(case, ratio, exponent)
            if tree is None or (stop is not None and stop()):
                break
            trees.append(tree)
        if len(trees) == len(cases):
            text = "the linear relaxations of all parts, their prices taken exactly"
            evidence = evidence_of(ticks, ratio, exponent, trees)
            return LowerBound(
                seconds_of(ticks, ratio), RELAXATION, Proof.CERTIFICATE, evidence=evidence, reason=text
            )
    return None


def ratio_of(value: float, ticks: Ticks) -> Ratio:
    """A float as a ratio in whole numbers, no less."""
    if value == 0:
        return Ratio(0, 1)
    q = 1 << (ticks.all_time.bit_length() + 60)
    top, bottom = value.as_integer_ratio()
    return Ratio(-(-top * q // bottom), q)


def _best_ratio(case: Case, least: float, exponent: int, ticks: Ticks) -> float:
    """The best ratio of the relaxation of a case, if it is above a number; else that number."""
    node, best = first_node(case), least
    if node is None or closed(case, node, Ratio(0, 1), exponent, ()) is None:
        return best
    for _ in range(MOST_ROUNDS):
        found = Program(case, ratio_of(best, ticks), exponent).solve(node)
        if found is None or found.lacking > 1e-6 or found.time <= 0:
            break
        now = found.value / found.time
        if now <= best * (1 + LEAST_GAIN):
            break
        best = now
    return best


def root_tree(case: Case, ratio: Ratio, exponent: int) -> Tree | None:
    """A tree of nothing but its root; None where its prices do not prove the ratio.

    Parameters
    ----------
    case : Case
    ratio : Ratio
    exponent : int
        s of the prices.
    """
    node = first_node(case)
    if node is None or closed(case, node, ratio, exponent, ()) is None:
        return [[LEAF, 0]]
    found = Program(case, ratio, exponent).solve(node)
    if found is None or closed(case, node, ratio, exponent, found.prices) is not None:
        return None
    return [[LEAF, 0, *found.prices]]
