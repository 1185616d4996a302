"""The one error a user can cause: unusable input, such as a package that fails."""

from __future__ import annotations

from typing import Self

__all__ = ["InputError", "PackageError", "told"]

#: Most characters of what another package says.
MOST_TOLD = 1000


class InputError(ValueError):
    """Input that cannot be used, described in one line.

    Parameters
    ----------
    problem : str
        What is wrong, naming the value and the limit it breaks.
    field : str, optional
        Dotted path of the offending field, e.g. ``requests[2].input_tokens``.
    source : str, optional
        File (or other origin) the field was read from.
    """

    def __init__(self, problem: str, *, field: str | None = None, source: str | None = None):
        self.problem = problem
        self.field = field
        self.source = source
        super().__init__(problem)

    def within(self, source: str) -> Self:
        """Return the same error, naming `source` unless it names one already."""
        return type(self)(self.problem, field=self.field, source=self.source or source)

    def __str__(self) -> str:
        # A path may be one of bytes.
        parts = [str(part) for part in (self.source, self.field) if part]
        # Control characters in a quoted value must not break the one-line promise.
        text = ": ".join([*parts, self.problem])
        return "".join(ch if ch.isprintable() else repr(ch)[1:-1] for ch in text)


class PackageError(InputError):
    """Another package failed, which the line names; what it raised is the cause."""


def told(error: BaseException) -> str:
    """What another package raised: its type and text, of which it may have none, or far too much."""
    try:
        text = str(error)
    except MemoryError:
        raise
    except Exception as inner:
        text = f"(its text cannot be had: {type(inner).__name__})"
    short = text if len(text) <= MOST_TOLD else f"{text[:MOST_TOLD]}..."
    return f"{type(error).__name__}: {short}" if short else type(error).__name__
