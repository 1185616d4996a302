"""What a format of runs is: one object, in a module of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from infermax_opt.files.traces import Trace
from infermax_opt.foreign.head import Head
from infermax_opt.foreign.run import Run

__all__ = ["Choices", "RunFormat"]


@dataclass(frozen=True)
class Choices:
    """What a file does not say itself.

    Attributes
    ----------
    benchmark : int or None
        Which of several runs in the file, from 1.
    replica : int or None
        Which of several machines.
    trace : Trace or None
        When its requests arrived.
    """

    benchmark: int | None = None
    replica: int | None = None
    trace: Trace | None = None


@dataclass(frozen=True)
class RunFormat:
    """A format of files that hold a run.

    Attributes
    ----------
    name : str
    about : str
        Tool and file, in a few words.
    read : callable
        Takes the path and `Choices`, returns the `Run`.
    known : callable
        Whether the beginning of a file shows that it is of this format and of no other.
    takes : tuple of str
        Which of the `Choices` it takes.
    """

    name: str
    about: str
    read: Callable[[str, Choices], Run]
    known: Callable[[Head], bool]
    takes: tuple[str, ...] = ()
