"""Requests: their lengths and arrivals, and what they are promised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from infermax_opt.core.checks import (
    MAX_REQUESTS,
    MAX_TOKENS,
    checked_decimal,
    checked_text,
    checked_whole,
)
from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import Number

__all__ = ["PLAIN", "Request", "RequestClass", "RequestGroup", "RequestType", "ServiceLevel", "Terms"]


@dataclass(frozen=True, slots=True)
class ServiceLevel:
    """Most seconds that a request may take; None is no limit.

    Parameters
    ----------
    ttft : Fraction or None
        First token - arrival.
    tpot : Fraction or None
        (Last token - first token) / (output tokens - 1); a request of one output token keeps it.
    e2e : Fraction or None
        Last token - arrival.
    """

    ttft: Fraction | None = None
    tpot: Fraction | None = None
    e2e: Fraction | None = None

    @classmethod
    def of(cls, value: ServiceLevel | Mapping[str, Number] | None, field: str) -> ServiceLevel:
        """Read a service level: a mapping of ``ttft``, ``tpot``, ``e2e`` to seconds; None has no limit.

        Parameters
        ----------
        value : ServiceLevel, mapping or None
        field : str
            Names it in an error.

        Raises
        ------
        InputError
        """
        if value is None or value is UNLIMITED:
            return UNLIMITED
        if isinstance(value, ServiceLevel):
            value = value.given()
        if not isinstance(value, Mapping):
            raise InputError(f"{value!r} is not an object of seconds", field=field)
        names = [some.name for some in fields(cls)]
        for key in value:
            if key not in names:
                raise InputError("is not a known key", field=f"{field}.{key}")
        limits = {key: checked_decimal(limit, f"{field}.{key}") for key, limit in value.items()}
        return cls(**limits) if limits else UNLIMITED

    def given(self) -> dict[str, Fraction]:
        """The limits that there are."""
        limits = {some.name: getattr(self, some.name) for some in fields(self)}
        return {name: limit for name, limit in limits.items() if limit is not None}

    @property
    def limits(self) -> tuple[Fraction | None, Fraction | None, Fraction | None]:
        """All three, None where there is none."""
        return self.ttft, self.tpot, self.e2e

    def over(self, other: ServiceLevel) -> ServiceLevel:
        """These limits, and those of another one where there is none."""
        return ServiceLevel(**{**other.given(), **self.given()})

    def __bool__(self) -> bool:
        return self != UNLIMITED


UNLIMITED = ServiceLevel()


@dataclass(frozen=True, slots=True)
class Terms:
    """How a request is counted, and what it is promised.

    Attributes
    ----------
    class_name : str or None
    weight : Fraction
        Of its latencies in weighted means, and of a broken service level.
    slo : ServiceLevel
    optional : bool
        Whether a schedule may leave it unfinished.
    """

    class_name: str | None = None
    weight: Fraction = Fraction(1)
    slo: ServiceLevel = UNLIMITED
    optional: bool = False

    def meaning(self) -> tuple[object, ...]:
        """Parts of the hash of an instance; none for `PLAIN` terms, as in files that are older than these."""
        if self == PLAIN:
            return ()
        rest = ("optional",) if self.optional else ()
        return self.class_name or "", self.weight, self.slo.ttft, self.slo.tpot, self.slo.e2e, *rest


#: Terms of a request of which nothing is said.
PLAIN = Terms()


@dataclass(frozen=True, slots=True)
class Request:
    """One request: known input and output lengths in tokens, arrival in seconds."""

    id: str
    input_tokens: int
    output_tokens: int
    arrival: Fraction = Fraction(0)
    terms: Terms = PLAIN
    predicted_output_tokens: int | None = None

    @property
    def peak_kv(self) -> int:
        """Most tokens it ever caches: the last generated token never is."""
        return self.input_tokens + self.output_tokens - 1

    def meaning(self) -> tuple[object, ...]:
        """Parts of the hash of an instance."""
        plain = (self.id, self.input_tokens, self.output_tokens, self.arrival, *self.terms.meaning())
        predicted = self.predicted_output_tokens
        return plain if predicted is None else (*plain, "predicted", predicted)


@dataclass(frozen=True, slots=True)
class RequestType:
    """Requests that no schedule and no objective can tell apart, but for their names."""

    input_tokens: int
    output_tokens: int
    arrival: Fraction
    members: tuple[int, ...]
    terms: Terms = PLAIN


def _checked_weight(value: Number | None, field: str) -> Fraction | None:
    """A weight above 0, or None."""
    if value is None:
        return None
    weight = checked_decimal(value, field)
    if weight == 0:
        raise InputError("0 is too little; a weight is above 0", field=field)
    return weight


def _check_flag(value: object, field: str) -> None:
    """Check for true, false or nothing."""
    if value is not None and not isinstance(value, bool):
        raise InputError(f"{value!r} is not true or false", field=field)


@dataclass(frozen=True)
class RequestClass:
    """What the requests of a class have where they say nothing themselves.

    Parameters
    ----------
    name : str
    weight : Number, optional
        Above 0.
    slo : ServiceLevel or mapping, optional
        Its limits, each where the request has none.
    optional : bool, optional
        Whether a schedule may leave them unfinished.
    """

    name: str
    weight: Number | None = None
    slo: ServiceLevel | Mapping[str, Number] | None = None
    optional: bool | None = None

    def __post_init__(self) -> None:
        checked_text(self.name, "classes")
        where = f"classes.{self.name}"
        _check_flag(self.optional, f"{where}.optional")
        object.__setattr__(self, "weight", _checked_weight(self.weight, f"{where}.weight"))
        object.__setattr__(self, "slo", ServiceLevel.of(self.slo, f"{where}.slo"))


#: A class of which nothing is said.
NOTHING = RequestClass("nothing")
#: Classes of an instance that says nothing of any.
NO_CLASSES: Mapping[str, RequestClass] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class RequestGroup:
    """A request, or `count` identical ones named ``id.1`` to ``id.count``.

    Parameters
    ----------
    id : str
    input_tokens, output_tokens : int
    arrival : Number
        Seconds.
    count : int, optional
    class_name : str, optional
        A class, whose defaults the instance may hold.
    weight : Number, optional
        Above 0; that of its class by default, else 1.
    slo : ServiceLevel or mapping, optional
        Limits in seconds; those of its class where it has none.
    predicted_output_tokens : int, optional
        What a scheduler may know of the output.
    optional : bool, optional
        Whether a schedule may leave it unfinished; what its class says by default, else false.
    """

    id: str
    input_tokens: int
    output_tokens: int
    arrival: Number = Fraction(0)
    count: int | None = None
    class_name: str | None = None
    weight: Number | None = None
    slo: ServiceLevel | Mapping[str, Number] | None = UNLIMITED
    predicted_output_tokens: int | None = None
    optional: bool | None = None

    def __post_init__(self) -> None:
        checked_text(self.id, "id")
        _check_flag(self.optional, "optional")
        for name in ("input_tokens", "output_tokens"):
            given = getattr(self, name)
            if type(given) is not int or not 1 <= given <= MAX_TOKENS:
                object.__setattr__(self, name, checked_whole(given, name, 1, MAX_TOKENS))
        for name, most in (("count", MAX_REQUESTS), ("predicted_output_tokens", MAX_TOKENS)):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, checked_whole(value, name, 1, most))
        arrival = checked_decimal(self.arrival, "arrival")
        if arrival is not self.arrival:
            object.__setattr__(self, "arrival", arrival)
        if self.class_name is not None:
            checked_text(self.class_name, "class")
        if self.weight is not None:
            object.__setattr__(self, "weight", _checked_weight(self.weight, "weight"))
        if self.slo is not UNLIMITED:
            object.__setattr__(self, "slo", ServiceLevel.of(self.slo, "slo"))

    def terms(self, classes: Mapping[str, RequestClass]) -> Terms:
        """Its terms."""
        if self.class_name is None and self.weight is None and self.slo is UNLIMITED and not self.optional:
            return PLAIN
        own = ServiceLevel.of(self.slo, "slo")
        default = classes.get(self.class_name or "", NOTHING)
        weight = next((w for w in (self.weight, default.weight) if w is not None), 1)
        slo = own.over(ServiceLevel.of(default.slo, "slo"))
        optional = bool(default.optional if self.optional is None else self.optional)
        terms = Terms(self.class_name, Fraction(weight), slo, optional)
        return PLAIN if terms == PLAIN else terms

    def expand(self, classes: Mapping[str, RequestClass] = NO_CLASSES) -> Sequence[Request]:
        """The requests it stands for; what it does not say its class does."""
        arrival = self.arrival if type(self.arrival) is Fraction else Fraction(self.arrival)
        rest: tuple[Any, ...] = (self.input_tokens, self.output_tokens, arrival)
        rest += (self.terms(classes), self.predicted_output_tokens)
        return [Request(name, *rest) for name in self.names()]

    def names(self) -> Sequence[str]:
        """Ids of the requests it stands for."""
        if self.count is None:
            return (self.id,)
        return [f"{self.id}.{k}" for k in range(1, self.count + 1)]
