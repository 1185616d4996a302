"""The methods of section V by name.

``fcfs``: the baseline, first come first served, prefill first.  ``offline``: requests are assigned to
clients beforehand so that their decodes add up as evenly as possible (eqs 26-30), prefill first.
``online``: requests are dealt out in turn; sorting, online preemption and the choice between prefill and
decode.  ``hybrid``: the offline assignment with the online decisions.
"""

from __future__ import annotations

from infermax_opt.core.errors import InputError
from infermax_opt.makespan.data.instance import MakespanInstance
from infermax_opt.makespan.methods.online import OnlineOptions, OnlineRun, run_online

__all__ = ["ASSIGNMENT_SECONDS", "METHODS", "offline_assignment", "run_method"]

#: Methods, and whether they assign offline, and decide online.
METHODS: dict[str, tuple[bool, bool]] = {
    "fcfs": (False, False),
    "offline": (True, False),
    "online": (False, True),
    "hybrid": (True, True),
}
#: Seconds for the offline assignment, at most; nearly always it is proved optimal in a hundredth.
ASSIGNMENT_SECONDS = 2.0


def offline_assignment(
    instance: MakespanInstance, *, seed: int = 0, time_limit: float = ASSIGNMENT_SECONDS
) -> list[int]:
    """Client of each request, from 1: the largest sum of estimated output tokens is as small as possible.

    Parameters
    ----------
    instance : MakespanInstance
    seed : int
        Of the search for an assignment.
    time_limit : float
        Seconds.
    """
    from infermax_opt.makespan.machines.solve import solve_parallel_machines

    lengths = [request.estimated_output_tokens for request in instance.requests]
    found = solve_parallel_machines(lengths, instance.clients, time_limit=time_limit, seed=seed)
    return [machine + 1 for machine in found.machine]


def run_method(
    instance: MakespanInstance, name: str, *, seed: int = 0, time_limit: float = ASSIGNMENT_SECONDS
) -> OnlineRun:
    """Run a method; `time_limit` is for the offline assignment, in seconds.

    Parameters
    ----------
    instance : MakespanInstance
    name : str
        One of `METHODS`.
    seed, time_limit
        As `offline_assignment` takes them.

    Raises
    ------
    InputError
        If there is none of that name; the message names them.
    """
    if name not in METHODS:
        raise InputError(f"{name!r} is none of {', '.join(METHODS)}", field="scheduler")
    offline, online = METHODS[name]
    assignment = None
    if offline:
        assignment = offline_assignment(instance, seed=seed, time_limit=time_limit)
    elif online:
        assignment = [k % instance.clients + 1 for k in range(len(instance.requests))]
    return run_online(instance, OnlineOptions(assignment, preempt=online, lagrangian=online))
