"""Text files of any size, read in pieces that fit into memory."""

from __future__ import annotations

import codecs
import io
import os
from collections.abc import Iterator
from typing import Any, TextIO

from infermax_opt.core.errors import InputError
from infermax_opt.files.json import not_text, pieces

__all__ = ["open_text", "utf8_pieces"]


def utf8_pieces(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """Give the bytes of a UTF-8 file piece by piece, without a byte order mark; ``.gz`` is decompressed.

    Raises
    ------
    InputError
        If the file cannot be read, is too large, or no UTF-8.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    count = 0
    try:
        for piece in pieces(path):
            # How many bytes of a character wait for the rest of it.
            held = len(decoder.getstate()[0])
            start = count - held
            decoder.decode(piece)
            yield piece.removeprefix(codecs.BOM_UTF8) if count == 0 else piece
            count += len(piece)
        held = len(decoder.getstate()[0])
        start = count - held
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise InputError(not_text(error, start + error.start), source=os.fspath(path)) from None


class _Bytes(io.RawIOBase):
    """Pieces as a stream of bytes."""

    def __init__(self, source: Iterator[bytes]):
        self._source = source
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            self._rest = next(self._source, b"")
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def open_text(path: str | os.PathLike[str], newline: str) -> TextIO:
    r"""Open a UTF-8 text file to be read line by line; ``.gz`` is decompressed.

    Parameters
    ----------
    path : path
    newline : {"", "\n"}
        As the built-in ``open`` takes it: any line end, kept as it is; or that one alone.

    Notes
    -----
    What is wrong with the file is an `InputError` where it is read.
    """
    raw = io.BufferedReader(_Bytes(utf8_pieces(path)), buffer_size=2**16)
    return io.TextIOWrapper(raw, encoding="utf-8", newline=newline)
