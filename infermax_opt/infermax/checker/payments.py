"""What requests pay: of a makespan, and of finishing times in their order."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from infermax_opt.checking.fields import Field
from infermax_opt.infermax.checker.instance import Instance, Kinds
from infermax_opt.infermax.checker.pieces import Piece

#: What each of some requests pays at least, in ticks, and how many they are.
Payments = list[tuple[Fraction, int]]


def payments(instance: Instance, kinds: Kinds, earned: list[int], piece: Piece) -> Payments:
    """Least work of each request and what it earns by the prices.

    Parameters
    ----------
    instance : Instance
    kinds : Kinds
        Kinds of requests.
    earned : list[int]
        Units that one request of each kind earns.
    piece : Piece
        Affine piece of the batch time.
    """
    work = [instance.token_work([(i, o, 1)], piece.beta) + instance.squares([(i, o, 1)]) for i, o, _ in kinds]
    return [(w + e / piece.unit, c) for w, e, (*_, c) in zip(work, earned, kinds, strict=True)]


def of_all(prove: Callable[..., Payments]) -> Proof:
    """The makespan is at least what all requests pay."""

    def makespan(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
        """Seconds that all requests pay."""
        return sum((pay * c for pay, c in prove(instance, evidence, piece)), Fraction(0)) / instance.scale

    return makespan


def in_order(prove: Callable[..., Payments]) -> Proof:
    """The k-th request to finish does so no sooner than the k that pay least could.

    See `infermax_opt.infermax.bounds.finishing_order`.
    """

    def mean(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
        """Mean of what the first k requests to finish pay, over all k."""
        before = total = Fraction(0)
        for pay, count in sorted(prove(instance, evidence, piece)):
            least = max(Fraction(0), pay)
            total += count * before + least * (count * (count + 1) // 2)
            before += count * least
        return instance.mean_latency(total / instance.scale)

    return mean


#: Proof of a bound, in seconds or weight: takes the instance, the evidence and the affine piece.
Proof = Callable[[Instance, Field, Piece], Fraction]
