"""Runs on other systems as InferMax instances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from math import floor

from infermax_opt.core.errors import InputError
from infermax_opt.files.fields import shown
from infermax_opt.files.traces import Trace, TraceRequest
from infermax_opt.foreign.run import Run
from infermax_opt.infermax.data.instance import Instance, System
from infermax_opt.infermax.data.traces import trace_instance

__all__ = ["run_instance"]

#: Arrivals are rounded down to so many parts of a second: clocks of systems are no finer.
PARTS = 10**9


def run_instance(machine: Instance, run: Run, name: str, limits: Mapping[str, str]) -> Instance:
    """The requests of a run, named ``r1``, ``r2``, ... by arrival, on the machine of another instance.

    Parameters
    ----------
    machine : Instance
        Whose system, cost, policy and objective are taken.
    run : Run
    name : str
    limits : mapping of limit to value
        Fields of `System` to be replaced, whole numbers.

    Raises
    ------
    InputError
        If there is no such limit, it is no whole number, or a request can never fit.
    """
    trace = Trace(
        run.path,
        tuple(
            TraceRequest(
                came.line, Fraction(floor(came.arrival * PARTS), PARTS), came.input_tokens, came.output_tokens
            )
            for came in run.requests
        ),
        run.left_out,
    )
    system = _limited(machine.system, limits)
    return trace_instance(trace, name, system, machine.cost, machine.policy, machine.objective)


def _limited(system: System, limits: Mapping[str, str]) -> System:
    known = System.__dataclass_fields__
    for name, value in limits.items():
        if name not in known:
            raise InputError(f"{shown(name)} is none of {', '.join(known)}", field="limit")
        if not (value.isascii() and value.isdigit()):
            raise InputError(f"{shown(value)} is not a whole number", field=f"limit {name}")
    return replace(system, **{name: int(value) for name, value in limits.items()})
