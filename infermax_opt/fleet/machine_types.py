"""Types of machines, and the same somewhat slower or faster, or with time of the host beside batches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

from infermax_opt.core.exact import decimal_text
from infermax_opt.infermax.band import scaled_cost
from infermax_opt.infermax.data.cost import CostModel, checked_cost
from infermax_opt.infermax.data.instance import System

__all__ = ["AS_GIVEN", "MachineType", "Variant"]


class Variant(NamedTuple):
    """How machines differ from their cost model.

    Attributes
    ----------
    factor : Fraction
        Of the time of every batch.
    overhead : Fraction
        Seconds of the host that every batch takes besides.
    """

    factor: Fraction = Fraction(1)
    overhead: Fraction = Fraction(0)

    @property
    def words(self) -> str:
        """What it says of batches; nothing where they are as given."""
        parts = [f"x {decimal_text(self.factor)}"] if self.factor != 1 else []
        parts += [f"+ {decimal_text(self.overhead)} s"] if self.overhead else []
        return " ".join(parts)


#: Machines as their cost model says.
AS_GIVEN = Variant()


@dataclass(frozen=True)
class MachineType:
    """A type of machine.

    Attributes
    ----------
    name : str
    system : System
    cost : CostModel
    price : Fraction or None
        Of an hour, in the user's currency.
    variant : Variant
        How `cost` differs from what was given.

    Raises
    ------
    InputError
        If `cost` is no cost model, such as a whole profile.
    """

    name: str
    system: System
    cost: CostModel
    price: Fraction | None = None
    variant: Variant = AS_GIVEN

    def __post_init__(self) -> None:
        checked_cost(self.cost)

    def varied(self, variant: Variant) -> MachineType:
        """The type, which is as given, as a variant of it.

        Raises
        ------
        InputError
            If a coefficient gets more digits than a file can hold.
        """
        if variant == self.variant:
            return self
        cost = scaled_cost(self.cost, variant.factor)
        batch = [(Fraction(alpha) + variant.overhead, beta) for alpha, beta in cost.batch]
        return replace(self, cost=replace(cost, batch=batch), variant=variant)
