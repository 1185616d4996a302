"""What theta, gamma and wrong predictions do, and what spreaders do on as many workers as best-fit uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from infermax_opt.cluster.policies.by_name import POLICIES
from scripts.aladdin_study.fleets import COLUMNS
from scripts.aladdin_study.runs import SPREAD, Run, run
from scripts.aladdin_study.workload import Workload

__all__ = ["effect_rows"]

Row = dict[str, str]
THETAS = tuple(Fraction(k, 10) for k in (6, 7, 8, 9, 10))
GAMMAS = (Fraction(0), Fraction(1, 2), Fraction(1))
ERRORS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
#: With and without the re-balancing of section 4.3, and look-ahead.
POLICY_NAMES = tuple(name for name in ("aladdin", "aladdin-rebalanced", "look-ahead") if name in POLICIES)


def effect_rows(base: Workload) -> Iterator[Row]:
    """One parameter at a time; the others stay as in `base`."""
    for theta in THETAS:
        for policy in ("aladdin", "look-ahead"):
            yield _row(replace(base, theta=theta), "theta", policy)
    for gamma in GAMMAS:
        # Look-ahead knows it in the order of its workers only.
        for policy in ("aladdin", "look-ahead"):
            yield _row(replace(base, gamma=gamma), "gamma", policy)
    for error in ERRORS:
        for policy in POLICY_NAMES:
            yield _row(replace(base, error=error), "error", policy)
    for theta in THETAS[:-1]:
        for policy in POLICY_NAMES:
            yield _row(replace(base, theta=theta, error=ERRORS[-1]), "both", policy)
    # Spreaders know of none of this: on the fleets of best-fit and of look-ahead.
    stream = base.stream()
    for sized in ("aladdin", "look-ahead"):
        workers = run(stream, sized).metrics.peak_workers
        for policy in SPREAD:
            found = run(stream, policy, workers)
            yield _written(base, f"fleet of {sized}", policy, workers, found)


def _row(workload: Workload, effect: str, policy: str) -> Row:
    found = run(workload.stream(), policy)
    return _written(workload, effect, policy, found.metrics.peak_workers, found)


def _written(workload: Workload, effect: str, policy: str, workers: int, found: Run) -> Row:
    row = dict.fromkeys(("effect", *COLUMNS), "")
    row |= workload.row() | {"effect": effect, "policy": policy, "workers": str(workers)}
    return row | {"requests": str(found.metrics.requests)} | found.row()
