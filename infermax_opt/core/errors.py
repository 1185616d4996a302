"""The one error a user can cause: unusable input, such as a package that fails."""

from __future__ import annotations

from typing import Self

__all__ = ["InputError", "PackageError"]


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
        parts = [part for part in (self.source, self.field) if part]
        # Control characters in a quoted value must not break the one-line promise.
        text = ": ".join([*parts, self.problem])
        return "".join(ch if ch.isprintable() else repr(ch)[1:-1] for ch in text)


class PackageError(InputError):
    """Another package failed, which the line names; what it raised is the cause."""
