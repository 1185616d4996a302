"""What machines cost: a CSV file of the user's.  There is no list of ours, as prices change."""

from __future__ import annotations

import os
from fractions import Fraction

from infermax_opt.core.exact import to_fraction
from infermax_opt.files.rows import csv_rows, fault

__all__ = ["read_prices"]


def read_prices(path: str | os.PathLike[str]) -> dict[str, Fraction]:
    """Read prices by machine: columns ``machine`` and ``price_per_hour``, others are ignored.

    Raises
    ------
    InputError
        Naming file, line and value.
    """
    name, found = os.fspath(path), dict[str, Fraction]()
    for line, row in csv_rows(name, ("machine", "price_per_hour")):
        machine = row["machine"].strip()
        try:
            price = to_fraction(row["price_per_hour"].strip())
        except ValueError as error:
            fault(name, line, "price_per_hour", str(error))
        if price <= 0:
            fault(name, line, "price_per_hour", f"{float(price):g} is not above 0")
        if not machine or machine in found:
            fault(name, line, "machine", f"{machine!r} is there twice" if machine else "is empty")
        found[machine] = price
    return found
