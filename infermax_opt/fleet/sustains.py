r"""The highest rate that so many machines sustain, from below and from above.

*From below.*  At a rate the machines are seen to reach the share, by exact replay.  It says nothing of lower
rates: slower arrivals may break limits that faster ones keep, as requests that came together were one batch.

*From above.*  A certificate of the pooled bound (`infermax_opt.fleet.bounds.pooled`) at a rate holds at every
higher one, if its windows are long enough.  Let S be the needs that lie in a window of length L at rate r.
The need i lies between a_i / r + x_i and a_i / r + y_i, where a_i is the arrival in the trace, and x_i and
y_i do not depend on the rate.  At a rate R >= r, the end of one need of S is after the begin of another by

    (a_i - a_j) / R + y_i - x_j,

which is linear in 1 / R.  At R = r it is at most L; where 1 / R is 0 it is at most the largest y less the
smallest x of S.  So it is at most the larger of both in between, and S lies in a window of that length.
What S costs does not depend on the rate, either.  So the bound holds from r on with windows made that long.
QED.

Arrivals are rounded to a picosecond, at both rates: two more are added.  Which certificate proves it is
searched for by halving, which is a guess; what it proves is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

from infermax_opt.files.text import counted
from infermax_opt.fleet.bounds.pooled import ANY_STEPS, pooled_bounds
from infermax_opt.fleet.checker.certificate import machines_from
from infermax_opt.fleet.checker.windows import NEVER
from infermax_opt.fleet.planned import may_plan, online_of, planned_with
from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.fleet.upper import Found, enough

__all__ = ["Sustained", "sustained"]

#: Factor to which both rates are searched.
CLOSE = Fraction(51, 50)
#: Most doublings, and halvings, of the rate from which the search starts.
DOUBLINGS = 12
#: Digits of the rates that are tried.
DIGITS = 3

Asked = Callable[[Fraction], FleetQuestion]
Tell = Callable[[str], None] | None


@dataclass(frozen=True)
class Sustained:
    """Rates that so many machines of a type sustain.

    Attributes
    ----------
    machines : int
    lower : Fraction or None
        A rate at which they reach the share, replayed; None where none was found.
    upper : Fraction or None
        A rate from which on they never do, proved; None where none was found; 0: they do at none.
    found : Found or None
        Routes at the lower one.
    certificate : dict or None
        Of the upper one, for `infermax_opt.fleet.checker.rate`.
    """

    machines: int
    lower: Fraction | None = None
    upper: Fraction | None = None
    found: Found | None = None
    certificate: dict[str, Any] | None = None


def sustained(
    asked: Asked, machines: int, start: Fraction, schedulers: Sequence[str], tell: Tell = None
) -> Sustained:
    """Search for both rates.

    Parameters
    ----------
    asked : callable
        The question at a rate.
    machines : int
    start : Fraction
        Rate from which the search starts.
    schedulers : sequence of str
        Tried on the machines.
    tell : callable, optional
        Takes lines of progress.

    Raises
    ------
    ArithmeticError
        If a rate is reached that is refuted: never, where both are right.
    """

    def told(rate: Fraction, what: str) -> FleetQuestion:
        if tell is not None:
            tell(f"{counted(machines, 'machines')}: {what} rate {float(rate):g}")
        return asked(rate)

    def reaches(rate: Fraction) -> Found | None:
        question = told(rate, "trying")
        some = min(machines, question.size)  # more than one for each request are no better
        found = enough(question, some, schedulers=online_of(schedulers))
        return planned_with(question, some) if found is None and may_plan(question, schedulers) else found

    @cache
    def refuted(rate: Fraction) -> dict[str, Any] | None:
        # The first is by windows alone, and nothing else holds at other rates.
        certificate = next(pooled_bounds(told(rate, "refuting"))).certificate
        proved = machines_from(certificate, ANY_STEPS)
        return (
            {**certificate, "machines_from": proved} if isinstance(proved, str) or proved > machines else None
        )

    first = refuted(start)
    if first is not None and first["machines_from"] == NEVER:  # who never is in time is so at no rate
        return Sustained(machines, upper=Fraction(0), certificate=first)
    upper, certificate = _least(refuted, start)
    lower, found = _least(reaches, start, falling=True)
    if lower is not None and upper is not None and lower >= upper:
        raise ArithmeticError(f"rate {lower} is reached, and refuted from {upper} on")
    return Sustained(machines, lower, upper, found, certificate)


def _least(
    tried: Callable[[Fraction], Any], start: Fraction, falling: bool = False
) -> tuple[Fraction | None, Any]:
    """About the least rate, or where `falling` the highest, at which something is found; and that.

    Parameters
    ----------
    tried : callable
        What is found at a rate, or None.
    start : Fraction
    falling : bool
    """
    # In the direction `on` it is ever more likely to be found.
    on = Fraction(1, 2) if falling else Fraction(2)
    best, other, rate = None, None, start
    for _ in range(DOUBLINGS + 1):
        found = tried(rate)
        if found is not None:
            best = rate, found
            rate = rate / on
        else:
            other = rate
            rate = rate * on
        if best is not None and other is not None:
            break
    if best is None:
        return None, None
    while other is not None and max(best[0], other) > CLOSE * min(best[0], other):
        middle = _rounded((best[0] + other) / 2)
        if middle in (best[0], other):
            break
        found = tried(middle)
        if found is None:
            other = middle
        else:
            best = middle, found
    return best


def _rounded(rate: Fraction) -> Fraction:
    """A rate with few digits, so that it can be typed."""
    return Fraction(f"{float(rate):.{DIGITS}g}")
