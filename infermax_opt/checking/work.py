"""How long a checker works at most."""

from __future__ import annotations

from infermax_opt.checking.errors import Rejected

#: Most steps of checking, each about a tenth of a microsecond: seven seconds in all.  The largest
#: certificate of the archive, one of occupancy, takes 25 million, but for the ends of its schedule, which
#: have limits of their own.  The search for paths of whole prompts stops at 60 million.
MAX_STEPS = 7 * 10**7


class Exhausted(Rejected):
    """Checking would take too long."""


class Work:
    """Steps of checking so far; rejects beyond a limit, `MAX_STEPS` unless told, before they are done."""

    def __init__(self, most: int | None = None) -> None:
        self.spent, self.most = 0, MAX_STEPS if most is None else most

    def spend(self, steps: int) -> None:
        """Count steps that come next."""
        self.spent += steps
        if self.spent > self.most:
            raise Exhausted(f"takes more than {self.most} steps to check, the limit")
