"""Instances with another aim or another machine, as the options of that name make them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TypeVar, cast

from infermax_opt.api import on_band
from infermax_opt.core.band import Band
from infermax_opt.core.checks import checked_path, checked_texts
from infermax_opt.core.exact import Number
from infermax_opt.core.frames import plain
from infermax_opt.core.registry import problem_of_instance
from infermax_opt.core.values import AnyInstance

__all__ = ["asked", "with_aim", "with_band", "with_cost"]

I = TypeVar("I", bound=AnyInstance)  # noqa: E741


def with_aim(
    instance: I, objective: str | Mapping[str, Number] | None = None, *, slos: Sequence[str] = ()
) -> I:
    """The instance with another objective and other service levels.

    Parameters
    ----------
    instance : instance of any problem
    objective : str or mapping, optional
        Metric to be minimised, or metrics by weight; None keeps the instance's own.
    slos : sequence of str
        ``"[CLASS:]ttft=0.5,tpot=0.05,e2e=9"``, seconds, where a request has none itself.

    Raises
    ------
    InputError
        If one cannot be read, or instances of the problem have no such choice.
    """
    if objective is None and not slos:
        return instance
    text = objective if objective is None or isinstance(objective, str) else json.dumps(plain(objective))
    found: I = problem_of_instance(instance).aimed(instance, text, checked_texts(slos, "slos"))
    return found


def with_cost(instance: I, path: str | os.PathLike[str]) -> I:
    """The instance with the cost of a profile file, such as `fit_batches` gives.

    Raises
    ------
    InputError
        If the file cannot be read, or instances of the problem have no such cost.
    """
    found: tuple[I, str] = problem_of_instance(instance).priced(instance, checked_path(path, "cost"))
    return found[0]


def with_band(instance: I, band: Band | str | None) -> I:
    """The instance on all machines of a band: bounds hold for each, schedules have the worst of their values.

    Parameters
    ----------
    instance : instance of any problem
    band : Band, str or None
        ``"LO:HI"``, or a cost profile that has one; None keeps the machine.

    Raises
    ------
    InputError
        If it cannot be read, or machines of the problem have no band.
    """
    read = problem_of_instance(instance).scoring.band(band) if isinstance(band, str) else band
    return cast(I, on_band(instance, read))


def asked(instance: I, *, at_most: Sequence[str] = (), at_least: Sequence[str] = ()) -> tuple[I, Fraction]:
    """The instance to solve, and the `target` for `solve`, to ask whether a schedule keeps limits.

    Parameters
    ----------
    instance : instance of any problem
    at_most, at_least : sequence of str
        ``"mean_e2e=1.8"``, ``"makespan=0.9*vllm"``; of metrics that are to be low, and to be high.

    Raises
    ------
    InputError
        If one cannot be read, or is of something that cannot be asked.
    """
    low, high = checked_texts(at_most, "at_most"), checked_texts(at_least, "at_least")
    found: tuple[I, Fraction] = problem_of_instance(instance).question(instance, low, high)
    return found
