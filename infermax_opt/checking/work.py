"""How long a checker works at most."""

from __future__ import annotations

from infermax_opt.checking.errors import Rejected

#: Most steps of checking, each about a tenth of a microsecond: seven seconds in all.  The largest
#: certificate of the archive, one of occupancy, takes 31 million, any other less than 25 million.
MAX_STEPS = 7 * 10**7


class Work:
    """Steps of checking so far; rejects beyond `MAX_STEPS`, before they are done."""

    def __init__(self) -> None:
        self.spent = 0

    def spend(self, steps: int) -> None:
        """Count steps that come next."""
        self.spent += steps
        if self.spent > MAX_STEPS:
            raise Rejected(f"takes more than {MAX_STEPS} steps to check, the limit")
