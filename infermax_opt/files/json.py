"""JSON: files read strictly, values as text."""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
import json
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from json.encoder import encode_basestring_ascii
from typing import IO, Any, TypeVar

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import decimal_text

__all__ = [
    "MAX_BYTES", "STANDARD", "OtherLayout", "json_pieces", "limit_bytes", "load_json", "not_text",
    "parse_json", "pieces", "read_as", "read_text", "to_json_line", "to_json_text", "under",
]  # fmt: skip

T = TypeVar("T")

#: Name of standard input where a file is read, and of standard output where one is written.
STANDARD = "-"
#: How files begin that a shell hands over, as in `<(command)`: what they hold can be read once.
HANDED = ("/dev/fd/", "/proc/self/fd/")
#: Most bytes of a file, after decompression, unless told otherwise: a guard against compression bombs.
MAX_BYTES = 256 * 2**20
#: Bytes read at a time.
PIECE = 2**20
#: Rows written at a time.
ROWS = 10_000
#: Environment variable with the most bytes of a file, for processes that this one starts, too.
MAX_BYTES_NAME = "INFERMAX_OPT_MAX_BYTES"


class OtherLayout(InputError):
    """A file that is no JSON, but holds rows of another layout."""


def limit_bytes(most: int | None) -> None:
    """Set the most bytes of every file read from now on; None: `MAX_BYTES`."""
    if most is None:
        os.environ.pop(MAX_BYTES_NAME, None)
    else:
        os.environ[MAX_BYTES_NAME] = str(most)


def _most_bytes() -> int:
    text = os.environ.get(MAX_BYTES_NAME, "")
    return int(text) if text.isdecimal() else MAX_BYTES


def pieces(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """Read a file piece by piece, decompressing ``.gz``; `STANDARD` is standard input, packed or not.

    Raises
    ------
    InputError
        If the file is missing, unreadable, too large, or no valid gzip.
    """
    name, most, count = os.fspath(path), _most_bytes(), 0
    try:
        with _opened(name) as (handle, packed):
            stream: Any = gzip.GzipFile(fileobj=handle) if packed else handle
            while count <= most and (piece := stream.read(PIECE)):
                count += len(piece)
                if count <= most:
                    yield piece
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise InputError("is not a complete gzip file", source=name) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"cannot be read: {reason}", source=name or repr(name)) from None
    if count > most:
        raise InputError(f"is larger than {most} bytes; --max-size allows more", source=name)


def read_text(path: str | os.PathLike[str]) -> str:
    """Read a UTF-8 text file, decompressing ``.gz``; `STANDARD` is standard input, packed or not.

    Raises
    ------
    InputError
        If the file is missing, unreadable, too large, no UTF-8, or no valid gzip.
    """
    data = bytearray()
    for piece in pieces(path):
        data += piece
    try:
        return str(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(not_text(error, error.start), source=os.fspath(path)) from None


#: How files begin that are no UTF-8 text, and what to do about them.
OTHERS = {
    b"\x1f\x8b": "it is gzip, whose names end in .gz",
    b"\xff\xfe": "it is UTF-16; save it as UTF-8",
    b"\xfe\xff": "it is UTF-16; save it as UTF-8",
    b"PK": "it is a ZIP archive; unpack it",
    b"(\xb5": "it is zstd; unpack it",
    b"PA": "it is Parquet; give the tool's CSV or JSON file",
}


def not_text(error: UnicodeDecodeError, at: int) -> str:
    """Why a file cannot be read that is no UTF-8.

    Parameters
    ----------
    error : UnicodeDecodeError
        Of its bytes, or of a piece of them.
    at : int
        Byte of the file that is wrong.
    """
    first = bytes(error.object[:2]) if at == error.start else b""
    return f"is not UTF-8 text (byte {at})" + (f": {OTHERS[first]}" if first in OTHERS else "")


@contextlib.contextmanager
def _opened(name: str) -> Iterator[tuple[IO[bytes], bool]]:
    """A file to read from its start, and whether it is gzipped; of pipes, their first bytes tell."""
    if name != STANDARD and not str(name).startswith(HANDED):
        with open(name, "rb") as handle:
            yield handle, name.endswith(".gz")
        return
    data = _standard_input(sys.stdin) if name == STANDARD else _handed(name, os.stat(name).st_ino)
    yield io.BytesIO(data), data.startswith(b"\x1f\x8b")


@functools.lru_cache(maxsize=1)
def _standard_input(stream: Any) -> bytes:
    """All of it, kept so that a file which two readers try can be read again."""
    return bytes(stream.buffer.read(_most_bytes() + 1))


@functools.lru_cache(maxsize=8)
def _handed(name: str, number: int) -> bytes:
    """All of a pipe that a shell hands over, kept likewise; `number` is that of the pipe."""
    with open(name, "rb") as handle:
        return handle.read(_most_bytes() + 1)


def load_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file with exact decimals.

    Raises
    ------
    InputError
        If it cannot be read, is no JSON, repeats a key, holds NaN or Infinity, or does not fit into memory.
    """
    name = os.fspath(path)
    try:
        return parse_json(read_text(name))
    except InputError as error:
        raise error.within(name) from None
    except MemoryError:
        raise InputError("takes more memory than there is", source=name) from None


def parse_json(text: str, *, finite: bool = True) -> Any:
    """Parse JSON with exact decimals; `finite` False takes NaN and Infinity, too.

    Raises
    ------
    InputError
        If it is no JSON, repeats a key, or holds NaN or Infinity where it must not.
    """
    try:
        if text.startswith("\ufeff"):
            json.loads(text)  # says so
        value = (_FINITE if finite else _ANY).decode(text)
        if "\\" in text and "\\ud" in text.lower():
            # An escape can name half a character, which no output could hold.
            json.dumps(value, ensure_ascii=False, default=str).encode()
        return value
    except InputError:
        raise
    except UnicodeEncodeError:
        raise InputError("is not usable: a text holds half a surrogate pair") from None
    except json.JSONDecodeError as error:
        layout = _other_layout(text)
        if layout is not None:
            raise OtherLayout(f"is not JSON, but {layout}") from None
        message = f"is not JSON: {error.msg} (line {error.lineno}, column {error.colno})"
        raise InputError(message) from None
    except RecursionError:
        raise InputError("is not usable: nested too deeply") from None
    except (ValueError, ArithmeticError):  # more digits than int() or Decimal() take
        raise InputError("is not usable: holds a number of thousands of digits") from None


def _other_layout(text: str) -> str | None:
    """What a text is that is no JSON: rows of another layout, as traces are; None where none is seen."""
    first, _, rest = text.lstrip().partition("\n")
    if first.startswith("{") and first.rstrip().endswith("}") and rest.startswith("{"):
        return "JSON lines"
    return "CSV" if "," in first and first[0] not in "{[" else None


def _reject_constant(text: str) -> Any:
    raise InputError(f"{text} is not a finite number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise InputError(f"key {key!r} is given twice")
            seen.add(key)
    return result


#: Made once, as a file can be a million lines of JSON.
_FINITE, _ANY = (
    json.JSONDecoder(parse_float=Decimal, parse_constant=constant, object_pairs_hook=_object)
    for constant in (_reject_constant, Decimal)
)

#: Writers of single values, of which files hold millions.
_SINGLE: dict[type, Callable[[Any], str]] = {str: encode_basestring_ascii, int: repr}


def to_json_text(value: object) -> str:
    """Write `value` as JSON, one top-level key a line; fractions become exact decimals."""
    return "".join(json_pieces(value))


def json_pieces(value: object) -> Iterator[str]:
    """Write `value` as `to_json_text` does, a piece after the other."""
    if not isinstance(value, Mapping):
        yield to_json_line(value) + "\n"
        return
    before = "{\n"
    for key, item in value.items():
        yield f"{before}  {json.dumps(key)}: "
        before = ",\n"
        if isinstance(item, list) and item and isinstance(item[0], Mapping):
            yield "["
            for first in range(0, len(item), ROWS):
                rows = ["    " + to_json_line(row) for row in item[first : first + ROWS]]
                yield ("," if first else "") + "\n" + ",\n".join(rows)
            yield "\n  ]"
        else:
            yield to_json_line(item)
    yield "\n}\n" if value else "{\n\n}\n"


def to_json_line(value: object) -> str:
    """Write `value` as JSON on one line; fractions become exact decimals."""
    single = _SINGLE.get(type(value))
    if single is not None:
        return single(value)
    if type(value) is dict or isinstance(value, Mapping):
        # Most values are single ones, and a call for each takes twice as long.
        pairs = [
            (_SINGLE.get(type(k), to_json_line)(k), _SINGLE.get(type(v), to_json_line)(v))
            for k, v in value.items()
        ]
        return "{" + ", ".join([f"{k}: {v}" for k, v in pairs]) + "}"
    if isinstance(value, Fraction):
        return decimal_text(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(map(to_json_line, value)) + "]"
    return json.dumps(value, allow_nan=False)


@contextmanager
def under(path: str) -> Iterator[None]:
    """Prefix the field of an `InputError` raised inside with `path`."""
    try:
        yield
    except InputError as error:
        field = f"{path}.{error.field}" if error.field else path
        raise InputError(error.problem, field=field, source=error.source) from None


def read_as(path: str | os.PathLike[str], parse: Callable[[Any], T]) -> T:
    """Read a JSON file and parse it; errors name the file."""
    value = load_json(path)
    try:
        return parse(value)
    except InputError as error:
        raise error.within(os.fspath(path)) from error.__cause__
