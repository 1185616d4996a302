"""The heuristics by name."""

from __future__ import annotations

from infermax_opt.core.errors import InputError
from infermax_opt.iteration.data.instance import IterationInstance
from infermax_opt.iteration.data.selection import Selection
from infermax_opt.iteration.heuristics.algorithm1 import adapted_batch, algorithm1
from infermax_opt.iteration.heuristics.greedy import skip_greedy

__all__ = ["HEURISTICS", "select"]

HEURISTICS = {
    "skip-greedy": "for each set of urgent requests: add what pays most for its time, skip what does not fit",
    "guarded": "Algorithm 1 of BROS, with late requests last and a limit for those that are left out",
    "literal": "Algorithm 1 of BROS by the letter: a late request keeps everybody out",
}
"""What each one does."""


def select(instance: IterationInstance, name: str) -> tuple[Selection, tuple[str, ...]]:
    """What a heuristic selects, and remarks on it.

    Raises
    ------
    InputError
        If there is none of that name.
    """
    if name not in HEURISTICS:
        raise InputError(f"{name!r} is none of {', '.join(HEURISTICS)}")
    remarks: tuple[str, ...] = ()
    if name == "skip-greedy":
        batch = skip_greedy(instance)
    else:
        packed = algorithm1(instance, guarded=name == "guarded")
        batch, size = packed.batch, instance.machine.batch
        after = adapted_batch(size, packed.time_failed)
        how = "stopped" if packed.time_failed else "did not stop"
        text = f"batch size of the next iteration: {after}, as the time test {how} the real-time requests"
        remarks = (f"{text} (now {size})",)
    return Selection(instance.name, tuple(instance.requests[k].id for k in sorted(batch))), remarks
