r"""Ranks of latencies by crowds: sets of requests that come close together, of each of which some are late.

Fix one affine piece and a limit of the latency.  The proof of `attainment` says of any prices that all
requests that keep the limit together pay at most the integral of the price.  So do those of them that are in
some set, for nobody pays less than nothing: that bound holds for the requests of a set alone, whatever the
others do.  It is a bound on how many of the set are late, a whole number, so it is rounded up.  Of *disjoint*
sets, each with prices of its own, it adds up; and whoever takes longer alone than the limit is late, too.  If
that is more than may be above the rank, the rank is above the limit. QED.

*Why sets.*  A request that is nearly as long as the limit leaves little time to the others while it is there.
In one program for all, a twentieth of it is late, and the others have what they need.  In a crowd that is as
small as can be, this twentieth counts as one.

*Which ones.*  Requests in the order of their arrivals, as few as cannot all be on time, one crowd after the
other.  If a set is a crowd, so is any that holds it; so each of as many disjoint stretches of that order as
there can be ends no sooner than the one found here.

Certificate: the limit, and for each crowd its first request in the order of arrivals, and its prices.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

from infermax_opt.core.exact import decimal_text
from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds._attainment_proof import GROUPS, AttainmentProof, Guest
from infermax_opt.infermax.bounds._crowd_program import PARTS, crowd_prices
from infermax_opt.infermax.data.instance import Instance

__all__ = ["Crowd", "CrowdSearch", "crowds_bound"]

#: Kinds of requests of the first stretch that is tried.
FEW = 16
#: Most of a crowd: the program of as many takes seconds.
MOST = 800
#: Limits of the latency by which those that count came before the last one that is known to be no crowd.
REACH = 4
#: Steps of the checker for a kind of requests, about: 80 for each cell that its prompt or a group of its
#: later tokens may be in; and most of all.
GUEST_STEPS, MAX_STEPS = 400 + (GROUPS + 1) * (PARTS + 2) * 80, 50_000_000

Stop = Callable[[], bool]


class Crowd(NamedTuple):
    """Requests of which some are late: the first of them, the one after the last, and the proof."""

    first: int
    end: int
    bound: LowerBound


class CrowdSearch:
    """Looks for crowds among requests that are promised a limit of one latency, one limit after the other.

    Parameters
    ----------
    piece : int
        Affine piece of the batch time.
    stop : callable, optional
        Asked whether to look for no more.
    """

    def __init__(self, piece: int, stop: Stop | None = None):
        self.piece = piece
        self._stop = stop if stop is not None else lambda: False
        self._proof: AttainmentProof
        # Stretches of requests: no crowds for the largest limit that is proved, so for none above it;
        # and crowds for the smallest that was not, so for all below it.
        self._none: list[tuple[int, int]] = []
        self._some: list[tuple[int, int]] = []
        self._vain = False

    def crowds(self, promised: Instance, allowed: int) -> list[Crowd] | None:
        """Crowds by which more requests are late than may be; None if they are not found.

        Parameters
        ----------
        promised : Instance
            See `ranks.promising`; the limit is between all that were proved and all others before.
        allowed : int
            Requests that may be late.
        """
        if self._vain:
            return None
        groups = sorted(promised.groups, key=lambda one: (one.arrival, one.input_tokens, one.output_tokens))
        self._proof = AttainmentProof(replace(promised, groups=tuple(groups)), self.piece)
        guests, found = self._proof.guests, list[Crowd]()
        late, steps, crowd = sum(guest.count for guest in guests if guest.lost), 0, self._next(0, FEW)
        while late <= allowed and crowd is not None and steps <= MAX_STEPS:
            found.append(crowd)
            late += self._worth(crowd)
            steps += len(self._members(crowd.first, crowd.end)) * GUEST_STEPS
            crowd = self._next(crowd.end, crowd.end - crowd.first) if late <= allowed else None
        if late <= allowed or steps > MAX_STEPS:
            if not self._stop():
                self._some = [(one.first, one.end) for one in found]
                # Programs of many requests take long; without one crowd there is little hope for many.
                self._vain = not found and len(guests) > MOST
            return None
        self._none = [(one.first, one.end - 1) for one in found]
        return found

    def _next(self, start: int, step: int) -> Crowd | None:
        """The crowd that ends first among those that begin no sooner; None if none is found.

        Parameters
        ----------
        start : int
        step : int
            Requests that are tried first.
        """
        guests = self._proof.guests
        most, stay = len(guests), REACH * max(guest.end - guest.begin for guest in guests)
        low = max([start, *(end for first, end in self._none if first <= start)])
        sure = min((end for first, end in self._some if first >= start), default=most)
        while low < most and not self._stop():
            # Those that came long before have left.
            since = bisect_left(guests, guests[low].begin - stay, key=lambda guest: guest.begin)
            start = max(start, since, low - MOST // 2)
            end = min(low + step, start + MOST, sure if sure > low else most)
            found = self._crowd(start, end)
            if found is not None:
                return self._smallest(found, low)
            low, step = end, 2 * step
        return None

    def _smallest(self, crowd: Crowd, low: int) -> Crowd:
        """The crowd that begins with the same request and ends first.

        Parameters
        ----------
        crowd : Crowd
        low : int
            One that ends here is none.
        """
        while crowd.end - low > 1 and not self._stop():
            middle = (low + crowd.end) // 2
            found = self._crowd(crowd.first, middle)
            if found is None:
                low = middle
            else:
                crowd = found
        return crowd

    def _crowd(self, first: int, end: int) -> Crowd | None:
        """The requests from `first` up to `end` as a crowd; None if they are not found to be one.

        Parameters
        ----------
        first, end : int
        """
        part = copy(self._proof)
        part.guests = self._members(first, end)
        if all(guest.lost for guest in part.guests):
            return None
        crowd = Crowd(first, end, part.bound(crowd_prices(part)))
        return crowd if self._worth(crowd) > 0 else None

    def _members(self, first: int, end: int) -> list[Guest]:
        return self._proof.guests[first:end]

    def _worth(self, crowd: Crowd) -> int:
        """Requests of a crowd that are late at least, besides those that are surely so."""
        lost = sum(guest.count for guest in self._members(crowd.first, crowd.end) if guest.lost)
        return int(crowd.bound.value) - lost


def crowds_bound(search: CrowdSearch, promised: Instance, limit: Fraction, allowed: int) -> LowerBound | None:
    """The limit as a bound on a rank, if more requests are found to be late than may be.

    Parameters
    ----------
    search : CrowdSearch
    promised : Instance
        Requests that are all promised the limit.
    limit : Fraction
        Seconds.
    allowed : int
        Requests that may be late.
    """
    crowds = search.crowds(promised, allowed)
    if crowds is None:
        return None
    evidence = {
        "kind": "crowds",
        "limit": decimal_text(limit),
        "piece": search.piece,
        "crowds": [_evidence(crowd) for crowd in crowds],
    }
    return LowerBound(limit, "crowds", Proof.CERTIFICATE, evidence=evidence)


def _evidence(crowd: Crowd) -> dict[str, Any]:
    """What the certificate holds of a crowd."""
    held = (crowd.bound.evidence or {}).items()
    return {"first": crowd.first, **{key: part for key, part in held if key not in ("kind", "piece")}}
