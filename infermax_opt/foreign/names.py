"""Names of requests: whole numbers of a few bytes each where all of a file are such, else texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infermax_opt.foreign.columns import plain_tokens

__all__ = ["codes_of", "first_twice", "is_among", "joined_names", "listed", "names_of"]

#: Largest number that is held in 64 bits.
MOST = 2**63 - 1
#: Names that a message lists, and characters of each.
LISTED, LENGTH = 8, 40


def names_of(given: Sequence[str | int]) -> NDArray[Any]:
    """Names as numbers, each of which is written as its text; as texts where one is not."""
    if {*map(type, given)} == {int} and min(given) >= -MOST and max(given) <= MOST:  # type: ignore[operator]
        return np.array(given, dtype=np.int64)
    texts = list(map(str, given))
    numbers = plain_tokens(texts)
    if numbers is not None and list(map(str, numbers.tolist())) == texts:
        return numbers
    return np.array(texts, dtype=object)


def is_among(name: str, names: NDArray[Any]) -> bool:
    """Whether there is such a name."""
    if names.dtype == object:
        return name in names.tolist()
    return bool((names == names_of([name])).any())


def joined_names(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """All of several, of which there is at least one."""
    if any(part.dtype == object for part in parts):
        return np.array([str(name) for part in parts for name in part.tolist()], dtype=object)
    return np.concatenate(parts)


def codes_of(names: NDArray[Any]) -> NDArray[np.int64]:
    """Numbers that are equal where the names are."""
    if names.dtype != object:
        return names
    seen: dict[str, int] = {}
    return np.array([seen.setdefault(name, len(seen)) for name in names.tolist()], dtype=np.int64)


def first_twice(*columns: NDArray[np.int64]) -> tuple[int, int] | None:
    """The first place at which all columns are as at an earlier one, and that one."""
    order = np.lexsort(columns)
    same = np.ones(max(len(order) - 1, 0), dtype=bool)
    for column in columns:
        ordered = column[order]
        same &= ordered[1:] == ordered[:-1]
    # Equal ones are in the order of their places.
    again = order[1:][same]
    if not len(again):
        return None
    at = int(np.argmin(again))
    return int(again[at]), int(order[:-1][same][at])


def listed(names: Iterable[str]) -> str:
    """Names for a message, of many the first few."""
    known = sorted(names)
    return ", ".join([name[:LENGTH] for name in known[:LISTED]] + ["..."] * (len(known) > LISTED))
