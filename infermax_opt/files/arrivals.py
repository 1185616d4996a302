"""Other arrivals for a trace, whose lengths stay: faster ones, or those of a Poisson process."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import click

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import decimal_text
from infermax_opt.core.options import LARGEST_SEED, decimal_option
from infermax_opt.files.traces import Trace

__all__ = ["Arrivals", "arrival_options", "compressed", "instance_name", "poisson"]

#: Compressed arrivals are rounded to picoseconds: a trace in tenths of microseconds stays exact up to rate 32
#: of the powers of two.
COMPRESSED_UNIT = Fraction(1, 10**12)
#: Drawn arrivals are whole microseconds.
DRAWN_UNIT = Fraction(1, 10**6)
#: Most requests a second that are drawn, so that a gap is some hundred of those units.
MOST_DRAWN = 10_000


def compressed(trace: Trace, rate: Fraction) -> Trace:
    """The trace with all arrivals divided by `rate`: 2 halves them.

    Raises
    ------
    InputError
        If the rate is not above 0, or nothing is left to divide.
    """
    if rate <= 0:
        raise InputError(f"{decimal_text(rate)} is not above 0", field="rate")
    _check_online(trace, "rate")
    requests = tuple(
        replace(r, arrival=round(r.arrival / rate / COMPRESSED_UNIT) * COMPRESSED_UNIT)
        for r in trace.requests
    )
    return replace(trace, requests=requests)


def poisson(trace: Trace, per_second: Fraction, seed: int) -> Trace:
    """The trace with arrivals of a Poisson process; the first request arrives at 0, the order stays.

    Parameters
    ----------
    trace : Trace
    per_second : Fraction
        Requests in a second in the mean.
    seed : int
        The same seed draws the same arrivals.

    Raises
    ------
    InputError
        If the rate is not above 0 or above `MOST_DRAWN`, or the trace was made offline.
    """
    if not 0 < per_second <= MOST_DRAWN:
        problem = f"{decimal_text(per_second)} requests a second are not above 0 and up to {MOST_DRAWN}"
        raise InputError(problem, field="poisson")
    _check_online(trace, "poisson")
    draw = random.Random(seed)
    units, requests = 0, []
    for request in trace.requests:
        requests.append(replace(request, arrival=units * DRAWN_UNIT))
        units += round(draw.expovariate(float(per_second)) / float(DRAWN_UNIT))
    return replace(trace, requests=tuple(requests))


def _check_online(trace: Trace, field: str) -> None:
    if trace.offline:
        raise InputError("goes with arrivals; --offline has none", field=field, source=trace.path)


@dataclass(frozen=True)
class Arrivals:
    """What becomes of the arrivals of a trace: at most one of both, and nothing without.

    Attributes
    ----------
    rate : Fraction or None
        See `compressed`.
    poisson : Fraction or None
        See `poisson`.
    seed : int
        Of the latter.
    """

    rate: Fraction | None = None
    poisson: Fraction | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rate is not None and self.poisson is not None:
            raise InputError("Poisson arrivals have a rate of their own", field="rate")

    def of(self, trace: Trace) -> Trace:
        """The trace with these arrivals."""
        if self.rate is not None:
            return compressed(trace, self.rate)
        if self.poisson is not None:
            return poisson(trace, self.poisson, self.seed)
        return trace

    @property
    def facts(self) -> dict[str, Any]:
        """For a summary."""
        if self.rate is not None:
            return {"arrivals": {"rate": self.rate}}
        if self.poisson is not None:
            return {"arrivals": {"poisson": self.poisson, "seed": self.seed}}
        return {}

    @property
    def text(self) -> str:
        """The same in words, to follow others."""
        if self.rate is not None:
            return f", arrivals of the trace at {decimal_text(self.rate)} times its rate"
        if self.poisson is not None:
            drawn = f"{decimal_text(self.poisson)} requests a second, seed {self.seed}"
            return f", Poisson arrivals of {drawn}"
        return ""

    @property
    def ending(self) -> str:
        """The same in a name."""
        if self.rate is not None:
            return f"-x{decimal_text(self.rate)}"
        return f"-poisson{decimal_text(self.poisson)}-s{self.seed}" if self.poisson is not None else ""


def arrival_options() -> list[click.Option]:
    """Options of a problem whose requests arrive; see `Arrivals`."""
    return [
        decimal_option("--rate", None, "Let requests come X times as fast: 2 halves all arrivals.", "X"),
        decimal_option(
            "--poisson", None, "Replace the arrivals by a Poisson process of R requests a second.", "R"
        ),
        click.Option(
            ["--seed"], type=click.IntRange(0, LARGEST_SEED), default=0, show_default=True,
            help="Of Poisson arrivals, estimates and predictions.",
        ),
    ]  # fmt: skip


def instance_name(stem: str, options: dict[str, Any]) -> str:
    """Name of an instance for which none was asked: that of the trace, and what was done to its arrivals."""
    return stem + Arrivals(options["rate"], options["poisson"], options["seed"]).ending
