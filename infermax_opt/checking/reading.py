"""Files: JSON with exact decimals, no key twice, no more than a checker reads."""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

from infermax_opt.checking.errors import Unreadable
from infermax_opt.checking.fields import shown
from infermax_opt.checking.limits import MAX_BYTES, MAX_VALUES


def load(path: Path, max_bytes: int = MAX_BYTES) -> Any:
    """Read a JSON object with exact decimals; ``.gz`` is decompressed."""
    data = read_bytes(path, max_bytes)
    if sum(map(data.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise Unreadable(f"{path}: holds more than {MAX_VALUES} values")
    hooks: Any = {"parse_constant": _no_number, "object_pairs_hook": _object}
    try:
        value = json.loads(data.decode("utf-8-sig"), parse_float=str, **hooks)
    except UnicodeDecodeError as error:
        raise Unreadable(f"{path}: is not UTF-8 text (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise Unreadable(f"{path}: is not JSON: {error.msg} (line {error.lineno})") from None
    except RecursionError:
        raise Unreadable(f"{path}: is nested too deeply") from None
    except ValueError as error:  # of the two hooks; or an integer with more digits than int() takes
        raise Unreadable(f"{path}: {error}") from None
    if not isinstance(value, dict):
        raise Unreadable(f"{path}: {shown(value)} is not an object")
    return value


def read_bytes(path: Path, most: int) -> bytearray:
    """What a file holds, decompressed piece by piece up to the limit."""
    data = bytearray()
    try:
        with gzip.open(path) if path.name.endswith(".gz") else path.open("rb") as stream:
            while len(data) <= most and (piece := stream.read(2**20)):
                data += piece
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise Unreadable(f"{path}: is not a complete gzip file") from None
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror or error}") from None
    if len(data) > most:
        raise Unreadable(f"{path}: is larger than {most} bytes; --max-size allows more")
    return data


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a finite number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        twice = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise ValueError(f"key {shown(twice)} is given twice")
    return result
