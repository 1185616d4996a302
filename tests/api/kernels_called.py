"""Which kernels `warm` and others call, and by which types: run as a program, it writes them as JSON.

Kernels run as plain Python, so that it takes seconds.  numba compiles a kernel once for each list of types.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numba
import numpy as np

from infermax_opt.core import compiled as compiling

Called = dict[str, set[tuple[str, ...]]]
called: Called = defaultdict(set)


def noting(function: Any, helpers: Sequence[object], **_: object) -> Callable[..., Any]:
    """Stand-in for `compiled`."""
    name = f"{function.__module__.removeprefix('infermax_opt.')}.{function.__name__}"

    def run(*arguments: Any) -> Any:
        called[name].add(tuple(str(numba.typeof(some)) for some in arguments))
        return function(*arguments)

    return run


compiling.compiled = noting  # before anybody imports it


def of_warm() -> None:
    """Call what `warm` calls."""
    from infermax_opt.api.warming import _works

    for rehearsals in _works().values():
        for rehearse in rehearsals():
            rehearse()


def of_others() -> None:
    """Bounds, schedulers and planners of instances of many kinds."""
    from infermax_opt.infermax.bounds.searched import searched_bounds
    from infermax_opt.infermax.data.instance import Objective, ServiceLevel
    from infermax_opt.infermax.heuristics import run_scheduler
    from infermax_opt.infermax.planners.anytime import anytime_plans
    from infermax_opt.infermax.planners.latencies import latency_plans
    from infermax_opt.infermax.replay.fast import replay
    from tests.infermax.waiting import waiting

    level = ServiceLevel(ttft=3, tpot=1)
    for seed in range(3):
        instance = waiting(seed)
        replay(instance, run_scheduler(instance, "sarathi"))
        for bound in searched_bounds(instance, stop=few(20)):
            assert bound.value >= 0
        plans = anytime_plans if instance.offline and instance.objective.is_makespan else latency_plans
        first(plans(instance), 3)
        promised = tuple(replace(group, slo=level) for group in instance.groups)
        missed = replace(instance, groups=promised, objective=Objective.of("missed"))
        first(latency_plans(missed), 3)


def few(calls: int) -> Callable[[], bool]:
    """Whether it was called so often."""
    count = itertools.count(1)
    return lambda: next(count) > calls


def first(plans: Iterable[object], count: int) -> None:
    """Take some plans."""
    for _ in itertools.islice(plans, count):
        pass


def main() -> None:
    found = []
    with np.errstate(over="ignore"), compiling.rehearsing(lambda name, seconds: None):
        for call in (of_warm, of_others):
            called.clear()
            call()
            found.append({name: sorted(types) for name, types in called.items()})
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
