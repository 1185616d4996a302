"""Runs on other systems as InferMax instances, and the machines that they ran on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import starmap

from infermax_opt.core.errors import InputError
from infermax_opt.files.fields import shown
from infermax_opt.files.json import read_as
from infermax_opt.files.traces import Trace, TraceRequest
from infermax_opt.foreign.run import Run
from infermax_opt.foreign.run_columns import columns_of
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.formats import instance_from_json
from infermax_opt.infermax.data.instance import Instance, Objective, Policy, System
from infermax_opt.infermax.data.profiles import profile_from_json
from infermax_opt.infermax.data.traces import trace_instance

__all__ = ["Machine", "read_machine", "run_instance"]

#: Arrivals are rounded down to so many parts of a second: clocks of systems are no finer.
PARTS = 10**9


@dataclass(frozen=True)
class Machine:
    """All of an instance but its requests."""

    system: System
    cost: CostModel
    policy: Policy
    objective: Objective


def read_machine(path: str, limits: Mapping[str, str]) -> Machine:
    """Read the machine of an instance file, or of a cost profile and limits.

    Parameters
    ----------
    path : str
        The file has the key ``requests`` if it is an instance.
    limits : mapping of limit to value
        Fields of `System`, whole numbers, instead of those of the file.

    Raises
    ------
    InputError
        Naming the field; also if there is no such limit, or a profile lacks one.
    """
    given = _numbers(limits)

    def parse(value: object) -> Machine:
        if isinstance(value, dict) and "requests" in value:
            known = instance_from_json(value)
            return Machine(replace(known.system, **given), known.cost, known.policy, known.objective)
        return _of_profile(value, given)

    return read_as(path, parse)


def _of_profile(value: object, given: Mapping[str, int]) -> Machine:
    profile = profile_from_json(value, "machine")
    known = {} if profile.kv_capacity is None else {"kv_capacity": profile.kv_capacity}
    known |= given
    for name in ("kv_capacity", "max_batch_tokens"):
        if name not in known:
            raise InputError(f"a cost profile has none; say --limit {name}=N", field=name)
    known.setdefault("max_prefill_tokens", known["max_batch_tokens"])
    return Machine(System(**known), profile.cost, Policy(), Objective.of("makespan"))


def _numbers(limits: Mapping[str, str]) -> dict[str, int]:
    known = System.__dataclass_fields__
    for name, value in limits.items():
        if name not in known:
            raise InputError(f"{shown(name)} is none of {', '.join(known)}", field="limit")
        if not (value.isascii() and value.isdigit()):
            raise InputError(f"{shown(value)} is not a whole number", field=f"limit {name}")
    return {name: int(value) for name, value in limits.items()}


def run_instance(machine: Machine, run: Run, name: str) -> Instance:
    """The requests of a run, named ``r1``, ``r2``, ... by arrival, on a machine.

    Parameters
    ----------
    machine : Machine
    run : Run
    name : str

    Raises
    ------
    InputError
        If a request can never fit, or the run is a summary without requests.
    """
    run.require_requests()
    columns = columns_of(run.requests)
    columns = replace(columns, arrivals=columns.arrivals.floored(PARTS))
    trace = Trace(run.path, tuple(starmap(TraceRequest, columns.arrived())), run.left_out)
    return trace_instance(trace, name, machine.system, machine.cost, machine.policy, machine.objective)
