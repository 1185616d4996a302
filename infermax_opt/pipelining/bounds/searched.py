"""All bounds of an instance: closed forms, then those that a linear program or a table finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.pipelining.bounds.closed_form import closed_form_bounds, lower_bound
from infermax_opt.pipelining.bounds.hats import Hats
from infermax_opt.pipelining.bounds.prices import price_bound
from infermax_opt.pipelining.data.instance import PipeliningInstance

__all__ = ["all_bounds", "certified_bounds"]

#: Kinds of requests, of a length and a value, beyond which the linear program takes too long.
MOST_KINDS = 3000


def certified_bounds(instance: PipeliningInstance) -> Iterator[LowerBound]:
    """The bounds of the hats and of their prices; none where no request fits, or there are too many kinds."""
    if not instance.useful:
        return
    hats = Hats(instance)
    if len(hats.groups) > MOST_KINDS:
        return
    weights = hats.duals()
    evidence = hats.evidence(weights)
    yield lower_bound(instance, hats.most(weights), "hats", Proof.CERTIFICATE, evidence=evidence)
    found = price_bound(instance, hats, weights)
    if found is not None:
        yield found


def all_bounds(instance: PipeliningInstance, stop: Callable[[], bool] | None = None) -> Iterator[LowerBound]:
    """Every bound, closed forms first.

    Parameters
    ----------
    instance : PipeliningInstance
    stop : callable, optional
        Asked whether closed forms are enough.
    """
    yield from closed_form_bounds(instance)
    if stop is None or not stop():
        yield from certified_bounds(instance)
