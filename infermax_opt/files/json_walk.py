"""JSON of any size, walked through once from front to back: only what is asked for is held.

Python programs write NaN, Infinity and -Infinity, which are no JSON.  They are taken here as values that no
number is: whoever reads one where a number is needed finds a `Decimal` that is not finite.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Iterable, Iterator
from decimal import Decimal
from typing import Any, NoReturn

from infermax_opt.core.errors import InputError
from infermax_opt.files.fields import shown
from infermax_opt.files.streams import utf8_pieces

__all__ = ["JsonWalk", "json_events"]

#: Deepest nesting: no tool writes more, and what reads a value calls itself at each level.
MOST_DEPTH = 100
#: Most characters of a place in a message.
MOST_PLACE = 100
#: Bytes parsed at a time; their events are held together.
PIECE = 2**16
#: In front of a text that stands for a constant which is no JSON; files hold no such texts.
MARK = "\0"
_NO_JSON = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|-?(?:NaN|Infinity)', re.DOTALL)
#: What at the end of a piece may go on in the next: a backslash, or a part of a constant.
_CUT = re.compile(rb"\\$|-?[A-Za-z]{0,8}$")
#: Bytes in which it is, a line break at the end included.
CUT = 10

Event = tuple[str, Any]


def _marked(match: re.Match[bytes]) -> bytes:
    found = match[0]
    return found if found.startswith(b'"') else b'"\\u0000' + found + b'"'


def _with_marks(source: Iterable[bytes]) -> Iterator[bytes]:
    """The same text with marked texts in place of constants that are no JSON."""
    inside, rest = False, b""
    for big in source:
        for start in range(0, len(big), PIECE):
            piece = rest + big[start : start + PIECE]
            # As long as the piece, so that places in both are the same.
            plain = piece.replace(b"\\\\", b"..").replace(b'\\"', b"..") if b"\\" in piece else piece
            cut = _CUT.search(plain, max(0, len(plain) - CUT))
            held = len(cut[0]) if cut else 0
            piece, rest = piece[: len(piece) - held], piece[len(piece) - held :]
            quotes = plain.count(b'"')
            if b"NaN" in piece or b"Infinity" in piece:
                opened = b'"' + piece if inside else piece
                changed = _NO_JSON.sub(_marked, opened)
                piece = changed[1:] if inside else changed
            inside ^= bool(quotes % 2)
            yield piece
    yield rest


def json_events(source: Iterable[bytes]) -> Iterator[Event]:
    """Parse pieces of JSON, one value or several behind each other, into events.

    Raises
    ------
    InputError
        If it is no JSON.
    """
    import ijson

    events = ijson.sendable_list()
    parser = ijson.basic_parse_coro(events, multiple_values=True)
    count = 0
    try:
        for piece in _with_marks(source):
            if not piece:
                continue
            parser.send(piece)
            count += len(piece)
            yield from events
            del events[:]
        parser.send(b"")
    except StopIteration:  # a number at the very end is known to be whole only now
        yield from events
    except ijson.JSONError as error:
        yield from events
        first = str(error.args[0] if error.args else "")
        if isinstance(error.args and error.args[0], bytes):
            first = error.args[0].decode(errors="replace")
        first = first.partition("\n")[0].removesuffix(".")
        if "premature EOF" in first:
            raise InputError(
                "is not JSON: it ends in the middle of a value" if count else "is empty"
            ) from None
        raise InputError(f"is not JSON: {first} (after byte {count})") from None
    except InputError:
        raise
    except (ValueError, ArithmeticError, SystemError):  # more digits than int() or Decimal() take
        raise InputError("is not usable: holds a number of thousands of digits") from None


class JsonWalk:
    """A JSON file, walked through from front to back.

    It stands at the beginning of a value, which one of its methods reads, and then behind it.  The loops over
    `documents`, `members` and `items` pass over values that their body does not read; they must not be left
    early.

    Parameters
    ----------
    path : path
        ``.gz`` is decompressed.

    Notes
    -----
    All of its methods raise an `InputError` that names the file and the place where it is no JSON, is nested
    too deeply, gives a key twice, or holds another kind of value.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = os.fspath(path)
        self._events = json_events(utf8_pieces(path))
        self._place: list[str] = []
        self._event: str | None = None
        self._value: Any = None
        self._unread = False

    @property
    def place(self) -> str:
        """Where it stands: ``requests[2].error``."""
        return "".join(self._place).removeprefix(".")

    def fault(self, problem: str) -> NoReturn:
        """Raise an `InputError` that names the place."""
        raise InputError(problem, field=self.place[:MOST_PLACE] or None, source=self.path)

    def _next(self) -> Event | None:
        try:
            return next(self._events, None)
        except InputError as error:
            self._place_of(error)

    def _place_of(self, error: InputError) -> NoReturn:
        """Raise an error of the parser again, with the place."""
        if error.source:
            raise error
        self.fault(error.problem)

    def _inner(self) -> Event:
        """The next event inside a value."""
        try:
            event = next(self._events, None)
        except InputError as error:
            self._place_of(error)
        if event is None:
            self.fault("is not JSON: it ends in the middle of a value")
        return event

    def _stand(self, event: str, value: Any) -> None:
        self._event, self._value, self._unread = event, value, True
        if len(self._place) > MOST_DEPTH:
            self.fault("is not usable: nested too deeply")

    def documents(self) -> Iterator[int]:
        """Numbers, from 1, of the values behind each other that the file holds."""
        number = 0
        while (found := self._next()) is not None:
            number += 1
            self._stand(*found)
            yield number
            if self._unread:
                self.skip()
        if not number:
            self.fault("is empty")

    @property
    def is_list(self) -> bool:
        """Whether a list begins here."""
        return self._event == "start_array"

    @property
    def is_object(self) -> bool:
        """Whether an object begins here."""
        return self._event == "start_map"

    @property
    def is_null(self) -> bool:
        """Whether null stands here."""
        return self._event == "null"

    def members(self) -> Iterator[str]:
        """Keys of the object that begins here."""
        if not self.is_object:
            self.fault(f"{self._text()} is not an object")
        self._unread = False
        seen: set[str] = set()
        self._place.append("")
        while True:
            event, key = self._inner()
            if event == "end_map":
                break
            self._place[-1] = f".{key}"
            if key in seen:
                self.fault("is given twice")
            seen.add(key)
            self._stand(*self._inner())
            yield key
            if self._unread:
                self.skip()
        self._place.pop()
        self._unread = False

    def items(self) -> Iterator[int]:
        """Positions, from 0, in the list that begins here."""
        if not self.is_list:
            self.fault(f"{self._text()} is not a list")
        self._unread = False
        number = 0
        self._place.append("")
        while True:
            event, value = self._inner()
            if event == "end_array":
                break
            self._place[-1] = f"[{number}]"
            self._stand(event, value)
            yield number
            if self._unread:
                self.skip()
            number += 1
        self._place.pop()
        self._unread = False

    def skip(self) -> None:
        """Pass over the value that begins here."""
        self._unread = False
        depth = _STEP.get(self._event or "", 0)
        while depth:
            event, _ = self._inner()
            if event in _STEP:
                depth += _STEP[event]
                if depth + len(self._place) > MOST_DEPTH:
                    self.fault("is not usable: nested too deeply")

    def scalar(self) -> Any:
        """The text, number, truth value or null that stands here."""
        if self.is_list or self.is_object:
            self.fault(f"{self._text()} is not a single value")
        self._unread = False
        return _unmarked(self._value)

    def column(self, kept: Callable[[Any], Any] | None = None) -> list[Any]:
        """All values of the list that begins here, none of which is a list or an object.

        Parameters
        ----------
        kept : callable, optional
            Gives what is held of a value, where that is less.
        """
        if not self.is_list:
            self.fault(f"{self._text()} is not a list")
        self._unread = False
        found: list[Any] = []
        try:
            for event, value in self._events:
                if event == "end_array":
                    break
                if event in _STEP:
                    self._place.append(f"[{len(found)}]")
                    self._event = event
                    self.fault(f"{self._text()} is not a single value")
                if type(value) is str:
                    value = _unmarked(value)
                found.append(kept(value) if kept else value)
        except InputError as error:
            self._place_of(error)
        return found

    def value(self, without: Container[str] = ()) -> Any:
        """The value that begins here, but for members with the keys `without`, wherever they are in it."""
        if self.is_object:
            return self._object(without)
        if self.is_list:
            return [self.value(without) for _ in self.items()]
        return self.scalar()

    def _object(self, without: Container[str]) -> dict[str, Any]:
        """The object that begins here: as by `members`, but with few steps for single values."""
        found: dict[str, Any] = {}
        passed: set[str] = set()
        self._place.append("")
        while True:
            event, key = self._inner()
            if event == "end_map":
                break
            self._place[-1] = f".{key}"
            if key in found or key in passed:
                self.fault("is given twice")
            event, value = self._inner()
            if key in without:
                passed.add(key)
                self._stand(event, value)
                self.skip()
            elif event in _STEP:
                self._stand(event, value)
                found[key] = self.value(without)
            else:
                found[key] = _unmarked(value) if type(value) is str else value
        self._place.pop()
        self._unread = False
        return found

    def _text(self) -> str:
        if self.is_object:
            return "an object"
        return "a list" if self.is_list else shown(self.scalar())


#: How each event changes the depth.
_STEP = {"start_map": 1, "start_array": 1, "end_map": -1, "end_array": -1}


def _unmarked(value: Any) -> Any:
    if type(value) is str and value.startswith(MARK) and value[1:] in ("NaN", "Infinity", "-Infinity"):
        return Decimal(value[1:])
    return value
