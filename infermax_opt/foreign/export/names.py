"""Names of columns and rows that every format and solver reads."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["safe_names"]

#: Most characters of a name: LP files of CPLEX take 255, and a suffix may follow.
MOST = 200
#: Words that mean something else where a name stands in an LP file.
RESERVED = re.compile(r"(?i)(?:st|bin|binary|binaries|end|free|gen|general|generals|inf|infinity|int|max|min"
                      r"|maximize|minimize|bounds|semi|sec|sin|sos|such|subject|to|obj|nan)$")  # fmt: skip


def safe_names(texts: Iterable[str]) -> list[str]:
    """A name of letters, digits and underscores for each text, no two alike: ``x[3,r.1]`` is ``x_3_r_1``.

    One that begins with a digit or an E, which could be read as a number, or is a word of the LP format gets
    an underscore in front.  Of texts that would get one name, the later ones get a number behind it.
    """
    taken: set[str] = set()
    names = []
    for text in texts:
        plain = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")[:MOST] or "_"
        if not plain[0].isalpha() or plain[0] in "eE" or RESERVED.match(plain):
            plain = f"_{plain}"
        name, count = plain, 1
        while name in taken:
            count += 1
            name = f"{plain}__{count}"
        taken.add(name)
        names.append(name)
    return names
