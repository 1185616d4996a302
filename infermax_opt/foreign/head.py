"""The beginning of a file: what it says about its format."""

from __future__ import annotations

import csv
import os
import re
from dataclasses import dataclass

from infermax_opt.core.errors import InputError
from infermax_opt.files.json import pieces
from infermax_opt.files.json_walk import json_events

__all__ = ["Head", "head_of"]

#: Bytes looked at.
LENGTH = 2**18
#: Deepest level whose keys are taken in.
DEPTH = 12
#: How pickles begin: protocol 2 and later; 1; and 0, which is text.
_PICKLE = re.compile(
    rb"\x80[\x02-\x05]|[\]})(]q[\x00-\x1f]|\((?:[dlt]p\d|[IFL]-?\d|[SV]['\"u]|[KMJUXGN(][\x00-\x1f\x7f-\xff(]|c\w)"
    rb"|c[A-Za-z_][\w.]*\r?\n[A-Za-z_]\w*\r?\n"
)


@dataclass(frozen=True)
class Head:
    """The beginning of a file.

    Attributes
    ----------
    columns : frozenset of str
        Of its header, where it is CSV.
    places : frozenset of str
        Keys of its JSON, where it is JSON: ``metadata.benchmark_phase``, ``requests[].ttft_ms``.
    data : bytes
        As they are, after decompression.
    """

    columns: frozenset[str]
    places: frozenset[str]
    data: bytes

    def has(self, *names: str) -> bool:
        """Whether all of these are among its columns or places."""
        return all(name in self.columns or name in self.places for name in names)


def head_of(path: str | os.PathLike[str]) -> Head:
    """Look at the beginning of a file.

    Raises
    ------
    InputError
        If it cannot be read, is empty, or is a pickle, which can run code when it is loaded.
    """
    name, data = os.fspath(path), b""
    for piece in pieces(name):
        data += piece
        if len(data) >= LENGTH:
            break
    data = data[:LENGTH]
    if _PICKLE.match(data) or re.search(r"\.(pkl|pickle)(\.gz)?$", name):
        raise InputError(
            "is a pickle, which can run any code when it is loaded: it is never read; give the tool's CSV or "
            "JSON file",
            source=name,
        )
    text = data.removeprefix(b"\xef\xbb\xbf")
    if not text.strip() and len(data) < LENGTH:
        raise InputError("is empty", source=name)
    if text.lstrip()[:1] in (b"{", b"["):
        return Head(frozenset(), _places(text), data)
    line = text.partition(b"\n")[0].decode(errors="replace")
    try:
        columns = next(csv.reader([line]), [])
    except csv.Error:
        columns = []
    return Head(frozenset(column.strip() for column in columns), frozenset(), data)


def _places(text: bytes) -> frozenset[str]:
    """Keys of the JSON that a text begins with."""
    found: set[str] = set()
    above: list[str] = []
    here = ""
    try:
        for event, value in json_events([text]):
            if event == "map_key":
                here = f"{above[-1]}.{value}".removeprefix(".")
                if len(above) <= DEPTH:
                    found.add(here)
            elif event in ("start_map", "start_array"):
                deep = len(above) >= DEPTH
                above.append("" if deep else here if event == "start_map" else f"{here}[]")
                here = above[-1]
            elif event in ("end_map", "end_array"):
                above.pop()
                here = above[-1] if above else ""
    except InputError:
        # It is the beginning of a text only.
        pass
    return frozenset(found)
