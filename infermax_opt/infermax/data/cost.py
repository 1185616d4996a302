"""The cost model: how long one batch takes.  Nothing else computes a batch time.

For a batch that processes `tokens` tokens in all, of which decoding requests read `decode_kv`
cached tokens and prefilling requests do `prefill_work` units of attention work::

    T = max_k (alpha_k + beta_k * tokens)             non-attention operators
        + [any decode]  * (d0 + d1 * decode_kv)       decode attention
        + [any prefill] * (p0 + p1 * prefill_work)    prefill attention
        + p2 * prefill_kv                             reads of what chunks come behind
        + [both]        * (e0 + e1 * decode_kv)       what both take longer beside each other

with work ``c**2`` (attention "square", InferMax section 3.2) or ``c * (2 * m + c)`` ("exact",
which counts the reads of a chunk's cached prefix) for a chunk of c tokens behind m cached ones.
One affine piece is the paper's linear model; several make a convex roofline ("hinge").

*Without the last two terms.*  Let a schedule take its batches as they are, each started later by what these
terms add, so that it ends when it did.  Then each token is made at the same time, no member arrives after the
start of its batch, and no limit changes.  So a lower bound on any objective for the cost without them is
one with them.  Bounds, their certificates and the checker therefore read `ticks`, which has no such terms;
what must know the true time of a batch asks `batch_ticks`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

from infermax_opt.core.checks import checked_decimal
from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import Number, common_denominator

__all__ = [
    "PRICED",
    "Attention",
    "BatchFeatures",
    "Coefficients",
    "CostModel",
    "Extra",
    "batch_time",
    "checked_cost",
    "prefill_work",
]

#: Numbers of a batch that `batch_time` takes.
PRICED = 5


class Attention(enum.Enum):
    """How the attention work of a prefill chunk is counted."""

    SQUARE = "square"
    EXACT = "exact"


class BatchFeatures(NamedTuple):
    """All that the cost model needs to know of one batch.

    Attributes
    ----------
    tokens : int
        Tokens processed.
    decodes, prefills : int
        Requests that decode, and requests that process prefill tokens.
    decode_kv : int
        Tokens cached by the decoding requests before the batch.
    prefill_work : int
        Attention work of the prefilling requests, in token pairs.
    prefill_kv : int
        Tokens cached by the prefilling requests before the batch: what chunks come behind.
    """

    tokens: int
    decodes: int
    decode_kv: int
    prefills: int
    prefill_work: int
    prefill_kv: int = 0


class Extra(NamedTuple):
    """Coefficients of the terms that most bounds leave out, in one unit; 0 unless an instance gives them."""

    e0: Any = 0
    e1: Any = 0
    p2: Any = 0

    def of(self, features: BatchFeatures) -> Any:
        """What they add to a batch."""
        both = features.decodes > 0 and features.prefills > 0
        return (self.e0 + self.e1 * features.decode_kv if both else 0) + self.p2 * features.prefill_kv


class Coefficients(NamedTuple):
    """Coefficients in one unit: exact fractions of a second, integer ticks, or floats."""

    alpha: Any
    beta: Any
    d0: Any
    d1: Any
    p0: Any
    p1: Any


def batch_time(
    alpha: Any, beta: Any, d0: Any, d1: Any, p0: Any, p1: Any,
    tokens: Any, decodes: Any, decode_kv: Any, prefills: Any, work: Any,
) -> Any:  # fmt: skip
    """Time of one batch but for the terms of `Extra`, in the unit of the coefficients.

    Parameters
    ----------
    alpha, beta : sequence
        Affine pieces of the non-attention time: per batch, and per token.
    d0, d1, p0, p1
        Of a batch that decodes and per cached token read; of one that prefills and per unit of work.
    tokens, decodes, decode_kv, prefills, work
        The `BatchFeatures` but the last.

    Notes
    -----
    Written for scalars of any kind, so that exact replay (fractions, integers), compiled
    simulation (floats) and the bounds all run this very function.
    """
    time = alpha[0] + beta[0] * tokens
    for k in range(1, len(alpha)):
        other = alpha[k] + beta[k] * tokens
        if other > time:
            time = other
    if decodes > 0:
        time = time + d0 + d1 * decode_kv
    if prefills > 0:
        time = time + p0 + p1 * work
    return time


def prefill_work(exact: Any, tokens: Any, cached: Any) -> Any:
    """Attention work of a chunk, in token pairs.

    Parameters
    ----------
    exact : bool or int
        Whether attention is "exact", else "square".
    tokens : int
        Of the chunk.
    cached : int
        Tokens before it.
    """
    if exact:
        return tokens * (2 * cached + tokens)
    return tokens * tokens


@dataclass(frozen=True)
class CostModel:
    """Coefficients of the batch time, exact.

    Parameters
    ----------
    batch : sequence of (alpha, beta)
        Affine pieces of the non-attention time: seconds, seconds per token.
    decode, prefill : (Number, Number)
        (d0, d1): seconds, seconds per cached token read; (p0, p1): seconds, seconds per unit of
        attention work.
    attention : Attention or str
    profile : str, optional
        Name of the shipped profile that the coefficients came from.
    mixed : (Number, Number)
        (e0, e1): seconds and seconds per cached token read that a batch takes longer which both decodes and
        prefills.
    prefix : Number
        p2: seconds per cached token that a prefill chunk comes behind.

    Raises
    ------
    InputError
        If a coefficient is negative or no finite decimal, or if there is no piece.
    """

    batch: Sequence[tuple[Number, Number]]
    decode: tuple[Number, Number]
    prefill: tuple[Number, Number]
    attention: Attention = Attention.SQUARE
    profile: str | None = field(default=None, compare=False)
    mixed: tuple[Number, Number] = (0, 0)
    prefix: Number = 0

    def __post_init__(self) -> None:
        if not self.batch:
            raise InputError("needs at least one [alpha, beta] piece", field="cost.batch")
        pieces = tuple(_pair(piece, f"cost.batch[{index}]") for index, piece in enumerate(self.batch))
        object.__setattr__(self, "batch", pieces)
        object.__setattr__(self, "decode", _pair(self.decode, "cost.decode"))
        object.__setattr__(self, "prefill", _pair(self.prefill, "cost.prefill"))
        object.__setattr__(self, "mixed", _pair(self.mixed, "cost.mixed"))
        object.__setattr__(self, "prefix", checked_decimal(self.prefix, "cost.prefix"))
        try:
            object.__setattr__(self, "attention", Attention(self.attention))
        except ValueError:
            allowed = ", ".join(repr(kind.value) for kind in Attention)
            raise InputError(f"{self.attention!r} is none of {allowed}", field="cost.attention") from None

    @cached_property
    def seconds(self) -> Coefficients:
        """Coefficients but those of `extra` as exact fractions of a second."""
        alpha, beta = zip(*self.batch, strict=True)
        return Coefficients(alpha, beta, *self.decode, *self.prefill)

    @cached_property
    def ticks_per_second(self) -> int:
        """Ticks in a second: the coarsest unit in which every coefficient is an integer."""
        pairs = [*self.batch, self.decode, self.prefill]
        return common_denominator([*(Fraction(value) for pair in pairs for value in pair), *self.extra])

    @cached_property
    def ticks(self) -> Coefficients:
        """Coefficients but those of `extra` as integers, in ticks."""
        scale = self.ticks_per_second
        unit = self.seconds

        def integer(value: Fraction) -> int:
            return int(value * scale)

        return Coefficients(
            tuple(map(integer, unit.alpha)), tuple(map(integer, unit.beta)),
            integer(unit.d0), integer(unit.d1), integer(unit.p0), integer(unit.p1),
        )  # fmt: skip

    @cached_property
    def floats(self) -> Coefficients:
        """Coefficients but those of `extra` as floats, in seconds (for solvers and simulated clocks only)."""
        unit = self.seconds
        return Coefficients(
            tuple(map(float, unit.alpha)), tuple(map(float, unit.beta)),
            float(unit.d0), float(unit.d1), float(unit.p0), float(unit.p1),
        )  # fmt: skip

    @cached_property
    def columns(self) -> Coefficients:
        """The same with the pieces as columns, as compiled kernels take them."""
        import numpy as np

        alpha, beta, *rest = self.floats
        return Coefficients(np.array(alpha), np.array(beta), *rest)

    @cached_property
    def extra(self) -> Extra:
        """Coefficients of the terms that most bounds leave out, as exact fractions of a second."""
        e0, e1, p2 = (Fraction(value) for value in (*self.mixed, self.prefix))
        return Extra(e0, e1, p2)

    @cached_property
    def extra_ticks(self) -> Extra:
        """The same as integers, in ticks."""
        return Extra(*(int(value * self.ticks_per_second) for value in self.extra))

    @property
    def exact_attention(self) -> bool:
        """Whether a chunk pays for the reads of its cached prefix."""
        return self.attention is Attention.EXACT

    def batch_ticks(self, features: BatchFeatures) -> int:
        """Exact time of one batch, in ticks."""
        return int(batch_time(*self.ticks, *features[:PRICED])) + int(self.extra_ticks.of(features))

    def to_seconds(self, ticks: int) -> Fraction:
        """Convert ticks to exact seconds."""
        return Fraction(ticks, self.ticks_per_second)

    def many_batch_ticks(self, features: Sequence[Sequence[int]]) -> list[int]:
        """Exact times of many batches, in ticks; rows in the order of `BatchFeatures`."""
        ticks, extra = self.ticks, self.extra_ticks
        times = [batch_time(*ticks, *row[:PRICED]) for row in features]
        if any(extra):
            return [time + extra.of(BatchFeatures(*row)) for time, row in zip(times, features, strict=True)]
        return times


def checked_cost(value: object, field: str = "cost") -> None:
    """Check that it is a cost model.

    Raises
    ------
    InputError
        If it is something else, such as a profile, which has one.
    """
    if not isinstance(value, CostModel):
        inner = "; its .cost is one" if isinstance(getattr(value, "cost", None), CostModel) else ""
        raise InputError(f"a {type(value).__name__} is no CostModel{inner}", field=field)


def _pair(pair: object, name: str) -> tuple[Fraction, Fraction]:
    if isinstance(pair, str | bytes) or not isinstance(pair, Sequence) or len(pair) != 2:
        raise InputError(f"{pair!r} is not a pair of numbers", field=name)
    first, second = (checked_decimal(value, f"{name}[{index}]") for index, value in enumerate(pair))
    return first, second
