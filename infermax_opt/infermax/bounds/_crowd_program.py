"""Prices for a crowd: the dual of a linear program in which all of it are on time, and time can be bought.

Cells and credits are those of `_attainment_program`, but nobody is late: it asks how much time is lacking,
and where.  Floats suffice: the bound is true for any prices (`crowds`).
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace

from infermax_opt.infermax.bounds._attainment_program import FREE, MORE, AttainmentProgram, Load
from infermax_opt.infermax.bounds._attainment_proof import AttainmentProof, Guest, Prices

__all__ = ["PARTS", "crowd_prices"]

#: Cells in the time that a request has.
PARTS = 16
#: Time of a request in parts of what its later tokens take alone above which these never want for batches.
LONG = 4
#: Number of KV among what may be scarce.
KV = 0


class CrowdProgram(AttainmentProgram):
    """The linear program of a crowd.

    Parameters
    ----------
    proof : AttainmentProof
        Of its requests alone, none of which is surely late.
    """

    def __init__(self, proof: AttainmentProof):
        super().__init__(proof, (PARTS + MORE) * len(proof.guests))

    def _counted(self, pairs: int) -> dict[int, Guest]:
        """All guests: whoever counted for others would pay for them."""
        return dict(enumerate(self.proof.guests))

    def _worthwhile(self) -> list[int]:
        """Limits for which alpha may charge something: not KV in which all find room."""
        held = sum(guest.count * (guest.prompt + guest.later) for guest in self.guests.values())
        roomy = held <= self.system.kv_capacity
        return [kind for kind in super()._worthwhile() if kind != KV or not roomy]

    def _add_guests(self) -> float:
        """All guests, each served in full, and time that is bought for that."""
        rows = self.rows
        # Nobody pays for more than its time, which costs 1 at most: no payment is cut to a weight of 1.
        longest = max(1, *(guest.end - guest.begin for guest in self.guests.values()))
        for row in self.time:
            rows.entries.append((row, rows.column(-self.width / longest, FREE), -1.0))
        for number, guest in self.guests.items():
            served = rows.column(0.0, FREE)
            rows.entries.append((rows.row(float(guest.count), equal=True), served, 1.0))
            if (guest.due or 0) - guest.ready > LONG * guest.later * guest.least:
                self._add_work(guest, self.loads[number], served)
            else:
                self._add_prompt(guest, self.loads[number], served)
                self._add_tokens(number, served)
        return 1.0

    def _add_work(self, guest: Guest, load: Load, served: int) -> None:
        """All work of a guest that does not want for batches, done in the cells where it is there."""
        rows, done = self.rows, self.rows.row(0.0, equal=True)
        work = load.prompt + guest.later * load.token
        rows.entries.append((done, served, -1.0))
        for k in self._cells(guest.begin, guest.due):
            column = rows.column(0.0, FREE)
            rows.entries += [(done, column, 1.0), (self.time[k], column, work / self.width)]
            for kind, row in zip(self.scarce, self.uses, strict=True):
                first, each = load.uses[kind]
                use = (first + guest.later * each) * self.unit / self.width
                rows.entries.append((row[k], column, use))


def crowd_prices(proof: AttainmentProof) -> Prices:
    """Prices for the requests of a proof, which count from the first arrival of those not surely late.

    Parameters
    ----------
    proof : AttainmentProof
        Of a crowd.
    """
    kept = [(k, guest) for k, guest in enumerate(proof.guests) if not guest.lost]
    since = min(guest.begin for _, guest in kept)
    moved = copy(proof)
    moved.guests = [_sooner(guest, since) for _, guest in kept]
    program = CrowdProgram(moved)
    found = program.prices()
    lead = 1 if since else 0  # time before is a cell of its own, and costs nothing
    shares: list[tuple[int, list[int]]] = [(0, [])] * len(proof.guests)
    for (k, _), (first, own) in zip(kept, found.shares, strict=True):
        shares[k] = (first + lead, list(own)) if any(own) else (0, [])
    ends = [since] * lead + [since + end for end in found.ends]
    scarce = [(0, 0, 0)] * lead + list(found.scarce)
    return Prices(found.exponent, ends, [0] * lead + list(found.prices), scarce, shares)


def _sooner(guest: Guest, by: int) -> Guest:
    """A guest that comes sooner by some ticks.

    Parameters
    ----------
    guest : Guest
    by : int
    """
    until, due = (None if end is None else end - by for end in (guest.until, guest.due))
    return replace(guest, begin=guest.begin - by, until=until, ready=guest.ready - by, due=due)
