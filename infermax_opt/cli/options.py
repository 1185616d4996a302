"""Options that several commands take, and what they mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

__all__ = ["TRACE_FORMATS", "aimed", "read_aimed"]

F = TypeVar("F", bound=Callable[..., Any])

#: Layouts of traces, by name, as `infermax_opt.files.traces` reads them.
TRACE_FORMATS = ("azure", "burstgpt", "llmservingsim", "mooncake", "splitwise", "vidur")


def aimed(command: F) -> F:
    """Give a command the options ``--objective`` and ``--slo``, which `read_aimed` takes."""
    objective = click.option(
        "--objective",
        metavar="NAME|JSON",
        help="Minimise this metric, or these by weight, instead of the file's.",
    )
    slos = click.option(
        "--slo",
        "slos",
        metavar="[CLASS:]LIMITS",
        multiple=True,
        help="Service level where a request has none itself, s: ttft=0.5,tpot=0.05,e2e=9.",
    )
    return objective(slos(command))


def read_aimed(path: str, objective: str | None, slos: Sequence[str]) -> Any:
    """Read an instance of any problem, with what these options change.

    Parameters
    ----------
    path : str
    objective : str, optional
        Name of a metric, or a JSON object of weights.
    slos : sequence of str
        ``[CLASS:]ttft=S,tpot=S,e2e=S``, each limit as wanted.

    Raises
    ------
    InputError
        Also where the problem has no such choice.
    """
    from infermax_opt.core.registry import problem_of
    from infermax_opt.files.instances import read_instance

    instance = read_instance(path)
    if objective is None and not slos:
        return instance
    return problem_of(instance).aimed(instance, objective, slos)
