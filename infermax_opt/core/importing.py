"""What the command ``import`` makes of a trace, and the options that one problem has for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from infermax_opt.core.shown import Shown, request_count
from infermax_opt.core.values import AnyInstance

__all__ = ["Importer", "Made"]


@dataclass(frozen=True)
class Made(Shown):
    """What was made of a trace.

    Attributes
    ----------
    instance : AnyInstance
    left_out : mapping of reason to int
        Requests of the trace that are not in it.
    figures : mapping
        What was chosen and found, for the summary.
    text : str
        The figures in words.
    """

    instance: AnyInstance
    left_out: Mapping[str, int]
    figures: Mapping[str, Any]
    text: str

    def facts(self) -> Mapping[str, Any]:
        """Name, number of requests, how many are left out, and the figures."""
        own = {"instance": self.instance.name, "requests": request_count(self.instance)}
        return {**own, "left_out": sum(self.left_out.values()), **self.figures}


def _as_it_is(name: str, options: dict[str, Any]) -> str:
    return name


@dataclass(frozen=True)
class Importer:
    """How instances of one problem are made of a trace.

    Attributes
    ----------
    about : str
        In a few words, for the help text.
    options : callable
        Gives the click options that ``import`` has for this problem; problems may share one by its name.
    make : callable
        Takes the trace, the name of the instance, whether to leave out requests that can never fit, and
        the options by name; returns `Made`.
    named : callable, optional
        Takes the trace's name and the options by name; returns what an instance is called for which the
        user has no name.  Default: the trace's name.
    """

    about: str
    options: Callable[[], list[Any]]
    make: Callable[..., Made]
    named: Callable[[str, dict[str, Any]], str] = _as_it_is
