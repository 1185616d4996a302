"""The certificate: which proof its schema names, and whether that proves what is claimed."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeVar

from infermax_opt.checking.command import Held
from infermax_opt.checking.envelope import seconds
from infermax_opt.checking.errors import Rejected, require
from infermax_opt.checking.fields import Field, shown
from infermax_opt.checking.work import Work
from infermax_opt.fleet.checker.hours import HOURS_SCHEMA, seconds_of
from infermax_opt.fleet.checker.mix import MIX_SCHEMA, price_of
from infermax_opt.fleet.checker.pooled import POOLED_SCHEMA, charged, fewest_of
from infermax_opt.fleet.checker.question import quantity
from infermax_opt.fleet.checker.rate import fewest_from
from infermax_opt.fleet.checker.split import SPLIT_SCHEMA, fewest_apart
from infermax_opt.fleet.checker.windows import NEVER

Proved = TypeVar("Proved")


def least_machines(certificate: Any, most: int | None = None) -> int | str:
    """The number of machines that a certificate proves, or `NEVER`.

    Parameters
    ----------
    certificate : Any
        As parsed.
    most : int, optional
        Steps of checking; as many as for all certificates unless told otherwise.

    Raises
    ------
    Rejected
        If it is malformed, or takes too long to check.
    """
    return guarded(lambda given: fewest_of(charged(given, Work(most))), certificate)


def machines_from(certificate: Any, most: int | None = None) -> int | str:
    """The same at the rate of the certificate and at every higher one."""
    return guarded(lambda given: fewest_from(charged(given, Work(most))), certificate)


def least_price(certificate: Any, most: int | None = None) -> Fraction | str:
    """The price of an hour of a mix that a certificate proves, or `NEVER`; as `least_machines`."""
    return guarded(lambda given: price_of(given, Work(most)), certificate)


def machine_seconds(certificate: Any, most: int | None = None) -> Fraction | str:
    """Seconds for which machines are on together, at least, or `NEVER`; as `least_machines`."""
    return guarded(lambda given: seconds_of(given, Work(most)), certificate)


def least_apart(certificate: Any, most: int | None = None) -> int | str:
    """The number of machines of a pool that a certificate proves, or `NEVER`; as `least_machines`."""
    return guarded(lambda given: fewest_apart(given, Work(most))[1], certificate)


def guarded(proof: Callable[[Field], Proved], certificate: Any) -> Proved:
    """What a certificate, as parsed, proves; whatever is wrong with it is a rejection."""
    try:
        return proof(Field(certificate, "certificate"))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise Rejected(f"is malformed beyond words: {type(error).__name__} {error}") from None


def check(certificate: Any, asked: str | None = None) -> Held:
    """What a certificate holds, if it proves all that it claims.

    Parameters
    ----------
    certificate : Any
        As parsed.
    asked : str or None
        Hash of the question that it has to be of, if any.
    """
    return guarded(lambda given: _held(given, asked), certificate)


def _held(given: Field, asked: str | None) -> Held:
    schema = given["schema"].value
    if schema == POOLED_SCHEMA:
        found = charged(given, Work())
        claims = [("machines", "fleet", "machines", fewest_of(found))]
        if "machines_from" in given:
            what = "fleet at this and every higher rate"
            claims.append(("machines_from", what, "machines", fewest_from(found)))
        held = [_claimed(given, *claim) for claim in claims][-1]
    elif schema == MIX_SCHEMA:
        held = _claimed(given, "price", "price of a mix", "per hour", price_of(given, Work()))
    elif schema == HOURS_SCHEMA:
        held = _claimed(given, "seconds", "machine time", "s", seconds_of(given, Work()))
    elif schema == SPLIT_SCHEMA:
        side, proved = fewest_apart(given, Work())
        held = _claimed(given, "machines", f"{side} pool", "machines", proved)
    else:
        known = ", ".join((POOLED_SCHEMA, MIX_SCHEMA, HOURS_SCHEMA, SPLIT_SCHEMA))
        given["schema"].fail(f"{shown(schema)} is none of {known}")
    require(asked in (None, held.question), f"is for another question, {held.question}")
    return held


def _claimed(given: Field, key: str, what: str, unit: str, proved: Fraction | int | str) -> Held:
    """The claim of a certificate, if no more than what is proved.

    Parameters
    ----------
    given, key, what, unit, proved
    """
    claim, question = given[key], given["question"].text()
    if isinstance(proved, str) or claim.value == NEVER:
        require(claim.value == proved, f"claims {shown(claim.value)}; what is proved is {_told(proved)}")
        return Held(question, what, None, unit)
    claimed = quantity(claim)
    require(claimed <= proved, f"claims {_told(claimed)} {unit}, only {_told(proved)} is proved")
    return Held(question, what, claimed, unit)


def _told(value: Fraction | int | str) -> str:
    """A bound as a message shows it."""
    return value if isinstance(value, str) else seconds(Fraction(value))
