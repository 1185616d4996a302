"""KV that a host has reserved, and the guests that use it before the host comes (EcoServe, section 3.4).

A host fills its region of l tokens from offset 0 on, one token a step.  So do its guests from offsets of
their own.  All that is in a region takes a step at the same time, so two of them never meet if the lower one
reaches the offset of the upper one after its end, or ends before that, and the upper one's cells behind it
are not entered while it is there (Lemma 1 of the kind `pipelining`, with starts at any time).

With paged KV no two requests share a cell in truth; what counts is that all cells in use at a time are at
most what is reserved.  The cells of a region's members, each counted once, are what it takes of the KV cache.
"""

from __future__ import annotations

from typing import NamedTuple

from infermax_opt.infermax.schedulers.reservation.job import Job

__all__ = ["Member", "Region"]

#: Levels of guests, at most: the k-th has 2**(k-1) of them.
LEVELS = 6


class Member(NamedTuple):
    """Who grows in a region.

    Attributes
    ----------
    job : Job
    offset, length : int
        Its cells, tokens in whole blocks.
    since : int
        The step at which it started.
    slack : int
        Tokens that it makes before it needs its first cell.
    """

    job: Job
    offset: int
    length: int
    since: int
    slack: int

    def frontier(self, step: int, block: int) -> int:
        """The first cell that it does not use yet."""
        grown = max(0, step - self.since - self.slack)
        return self.offset + -(-grown // block) * block

    def reaches(self, cell: int, step: int) -> int:
        """Steps that it can take before it needs a cell."""
        return cell - self.offset + self.slack - (step - self.since)


class Region:
    """Cells that a host has reserved.

    Parameters
    ----------
    host : Member
        At offset 0; its length is that of the region.
    block : int
        KV block size.
    """

    def __init__(self, host: Member, block: int):
        self.length, self.block = host.length, block
        #: KV tokens that it takes: `occupied`, as last counted.
        self.commit = 0
        self.members: dict[Job, Member] = {host.job: host}
        self.vacant = self._slots()

    def _slots(self) -> list[tuple[int, int]]:
        """The paper's places for guests, widest first: width and offset, (2q+1) l / 2**k, in whole blocks."""
        slots = []
        for level in range(1, LEVELS + 1):
            width = (self.length >> level) // self.block * self.block
            if width == 0:
                break
            for q in range(2 ** (level - 1)):
                offset = (2 * q + 1) * self.length // (1 << level) // self.block * self.block
                slots.append((width, offset))
        return slots

    def room(self, offset: int, step: int) -> int:
        """Most steps that a guest who starts now at an offset can take, in whole blocks; 0 for none.

        Parameters
        ----------
        offset : int
            Its first cell, at a block's start.
        step : int
            Now.
        """
        most = self.length - offset
        for member in self.members.values():
            if member.offset <= offset:
                if member.offset + member.length <= offset:
                    continue
                if member.frontier(step, self.block) > offset:
                    return 0
                most = min(most, member.reaches(offset, step))
            elif member.reaches(member.offset + member.length, step) > member.offset - offset:
                most = min(most, member.offset - offset)
        return max(0, most) // self.block * self.block

    def slot(self, length: int, step: int) -> tuple[int, int] | None:
        """The narrowest of the paper's places that has not been used and takes a guest; and its room.

        Parameters
        ----------
        length : int
            Steps that the guest takes, with its buffer, in whole blocks.
        step : int
            Now.
        """
        for width, offset in reversed(self.vacant):
            if width >= length:
                room = min(width, self.room(offset, step))
                if room >= length:
                    return offset, room
        return None

    def gap(self, length: int, step: int) -> tuple[int, int] | None:
        """The lowest place at all that takes a guest, used before or not; see `slot`.

        The lowest one leaves the cells above, which the host needs later, to longer guests.
        """
        offsets = {self.length - length}
        for member in self.members.values():
            ahead = step - member.since - member.slack
            offsets.add(-(-max(0, member.offset + ahead + length) // self.block) * self.block)
            offsets.add(member.offset + member.length)
        for offset in sorted(offsets):
            if 0 <= offset <= self.length - length and self.room(offset, step) >= length:
                return offset, length
        return None

    def occupied(self) -> int:
        """Cells of all members, each counted once."""
        total = end = 0
        for offset, length in sorted((m.offset, m.length) for m in self.members.values()):
            total += max(0, offset + length - max(end, offset))
            end = max(end, offset + length)
        return total
