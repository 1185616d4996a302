"""The kind ``pipelining``: how much of a reservation is used, against certified bounds and the 3/4 law."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import infermax_opt as imx
from infermax_opt.core.errors import InputError
from infermax_opt.core.truth import Trust
from infermax_opt.pipelining.data.instance import PipeliningInstance, PipeliningRequest, area
from infermax_opt.pipelining.data.queues import queue
from infermax_opt.pipelining.data.schedule import Pipelining
from infermax_opt.pipelining.heuristics.place import make_schedule
from scripts.ecoserve_study.measure import Cell

__all__ = ["QUEUES", "halving", "sharing"]

#: Requests of the queues of each trace: those of suite ``pipelining``, and some whose optimum can be proved.
QUEUES = {"sharegpt": 300, "alpaca": 1200, "bookcorpus": 100}
#: Cells of the example of perfect halving.
CELLS = 1024
#: Seconds of a search for the best schedule.
SECONDS = 5.0
#: A bound that the verifier has formed itself, or followed by its certificate.
CHECKS = (Trust.RECOMPUTED, Trust.CERTIFIED, Trust.ENUMERATED)
METHODS = ("apart", "dyadic", "splitting")


def halving() -> PipeliningInstance:
    """Hosts and guests that are halves of each other: one host, 1, 2, 4, ... guests of l / 2, l / 4, ..."""
    lengths, number = [CELLS], 1
    while lengths[-1] > 1:
        lengths += [CELLS // (2 * number)] * number
        number *= 2
    requests = tuple(PipeliningRequest(f"r{k}", length) for k, length in enumerate(lengths, 1))
    return PipeliningInstance("halving", requests, CELLS, "area")


def sharing() -> Iterator[dict[str, Cell]]:
    """Rows of each queue: what methods use of the reservation, and the bound for all of them."""
    cases = [
        (trace, queue(trace, number, 0, objective=objective))
        for trace, number in QUEUES.items()
        for objective in ("tokens", "area")
    ]
    for name, of in [*cases, ("halving", halving())]:
        yield from _rows(name, of, SECONDS)


def _rows(name: str, of: PipeliningInstance, seconds: float) -> Iterator[dict[str, Cell]]:
    """Rows of a queue, verified, with a certificate that has been checked.

    Parameters
    ----------
    name : str
        What the table calls it.
    of : PipeliningInstance
    seconds : float
        Of the search.

    Raises
    ------
    InputError
        If a schedule or the bound does not pass.
    """
    result = imx.solve(of, time_limit=seconds)
    check = imx.verify(of, result)
    if not check.ok or check.bound not in CHECKS or result.schedule is None or result.lower is None:
        raise InputError(f"{of.name}: {[*check.violations, *check.faults, 'nothing found'][0]}")
    found = {method: make_schedule(of, method) for method in METHODS} | {"best": result.schedule}
    most = of.capacity / result.lower.value  # of what is maximised
    unit = of.capacity if of.objective == "tokens" else of.capacity * max(of.sizes[k] for k in of.useful)
    for method, schedule in found.items():
        value = _value(of, schedule)
        yield {
            "queue": name, "requests": len(of.requests), "objective": of.objective, "method": method,
            "use": float(value / unit), "bound": float(most / unit), "gap": float(1 - value / most),
        }  # fmt: skip


def _value(of: PipeliningInstance, schedule: Pipelining) -> Fraction:
    check = imx.verify(of, schedule)
    if not check.ok:
        raise InputError(f"{of.name}: {check.violations[0]}")
    sizes = [of.sizes[of.index[name]] for name in schedule.offsets]
    return Fraction(sum(sizes if of.objective == "tokens" else map(area, sizes)))
