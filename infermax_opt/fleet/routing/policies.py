"""Routing policies by name, and the routes that they choose with a scheduler on every machine."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from infermax_opt.core.compiled import compiled, worthwhile
from infermax_opt.core.errors import InputError
from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.infermax.schedulers.algorithm1 import LoopInput, Options, Order, loop_input

__all__ = [
    "ABOUT",
    "FOREVER",
    "PLAIN_WORK",
    "POLICIES",
    "UNCOMPILED",
    "Limits",
    "Pilot",
    "Router",
]

POLICIES = ("round_robin", "jsq", "power_of_two", "least_kv", "slo_aware", "least_work", "first_fit")
"""Names of the policies, in the order of their numbers in the kernel."""

ABOUT = {
    "round_robin": "one machine after the other; knows nothing",
    "jsq": "fewest unfinished requests",
    "power_of_two": "of two machines drawn at random, the one with fewer unfinished requests",
    "least_kv": "fewest KV tokens held, prompts that wait counted",
    "slo_aware": "soonest first token by an estimate, batch times within the TPOT first; refuses whom all "
    "would serve too late",
    "least_work": "least work to come; knows output tokens, or what is predicted of them",
    "first_fit": "the first machine that has room by far, so that the last ones can be off",
}
"""What each goes by."""

#: Output tokens up to which plain Python takes less time than loading compiled code.
PLAIN_WORK = 3_000
#: The same once the compiled code is loaded.
PLAIN_WORK_LOADED = 10
#: The same as long as there is none: so many take some seconds, and compiling a dozen.
UNCOMPILED = 200_000
#: Limit of a request that was promised none, seconds.
FOREVER = 1e9
#: By what part of a limit, and of the moment of an arrival, clocks of floats may be late for nothing.
ROUNDING = 1e-10


@dataclass(frozen=True)
class Pilot:
    """Routes, and what the simulated clocks say of them.

    Attributes
    ----------
    routes : list of int
        Machine of each request; -1 where none serves it.
    missed : list of int
        Places of the requests that miss their service level by these clocks, refused ones included.
    """

    routes: list[int]
    missed: list[int]


class Router:
    """Routes the requests of a question, with one scheduler on all machines.

    Parameters
    ----------
    question : FleetQuestion
    options : Options
        The scheduler.

    Raises
    ------
    InputError
        If the scheduler cannot run here.
    """

    def __init__(self, question: FleetQuestion, options: Options):
        if options.order is Order.QUALITY:
            raise InputError("sorted_f forms its batches for a single machine", field="scheduler")
        self.question = question
        self._input, self._limits = loop_input(question.workload, options), Limits(question)

    def route(
        self,
        machines: int,
        policy: str,
        refused: Collection[int] = (),
        among: Sequence[int] | None = None,
    ) -> Pilot:
        """Routes of a policy.

        Parameters
        ----------
        machines : int
        policy : str
            One of `POLICIES`.
        refused : collection of int
            Places of requests that no machine serves.
        among : sequence of int, optional
            Of how many machines, the first ones, each request is given to one; default: of all.
        """
        from infermax_opt.fleet.routing._kernel import route_loop as plain

        start = self._input
        fleet = self._fleet(machines, refused, among)
        shared = type(start.state)(*(column.copy() for column in start.state))
        tokens = self.question.workload.output_tokens
        # Asked each time, so that all that is done in plain Python counts.
        long = worthwhile(_compiled, tokens, PLAIN_WORK, PLAIN_WORK_LOADED, UNCOMPILED)
        loop = _compiled() if long else plain
        loop(*start[:3], shared, *start[4:], fleet, POLICIES.index(policy))
        late = self._limits.late(fleet.route, fleet.first, fleet.last)
        return Pilot(fleet.route.tolist(), late.nonzero()[0].tolist())

    def _fleet(self, machines: int, refused: Collection[int], among: Sequence[int] | None) -> Any:
        import numpy as np

        from infermax_opt.fleet.routing._kernel import Fleet

        start: LoopInput = self._input
        n = len(start.requests.inputs)
        given = np.full(n, machines, np.int64) if among is None else np.array(among, np.int64)
        given[list(refused)] = 0
        ends = np.zeros((machines, n + 1), np.int64)
        ends[:, n] = n
        return Fleet(
            decoding=np.zeros((machines, n), np.int64), prefilling=np.zeros((machines, n), np.int64),
            after=ends, before=ends.copy(), count=np.zeros((machines, len(start.state.count)), np.int64),
            load=np.zeros((machines, 3), np.int64), clock=np.zeros(machines),
            route=np.full(n, -1, np.int64), among=given,
            expected=np.where(start.requests.predicted > 0, start.requests.predicted, start.requests.outputs),
            first=np.zeros(n), last=np.zeros(n), ttft=self._limits.ttft, tpot=self._limits.tpot,
        )  # fmt: skip


def _limits_of(question: FleetQuestion, name: str) -> Any:
    """The limit of that name of each request, float seconds; `FOREVER` where it has none."""
    import numpy as np

    limits = [getattr(level, name) for level in question.levels]
    return np.array([FOREVER if limit is None else float(limit) for limit in limits])


class Limits:
    """The limits of all requests of a question, to see who misses.

    They are raised by a hair, so that rounded clocks are not late for who meets one exactly; the exact replay
    says who does.

    Parameters
    ----------
    question : FleetQuestion
    wary : bool
        Lower them by a hair instead, but where a request needs all of its time: for who fills the time up to
        a limit, and has to keep it in the replay, too.

    Attributes
    ----------
    arrival, ttft, tpot, e2e : array of float, (n,)
        Seconds; `FOREVER` where there is no limit.
    """

    def __init__(self, question: FleetQuestion, *, wary: bool = False):
        import numpy as np

        requests = question.workload.requests
        self.arrival = np.array([float(r.arrival) for r in requests])
        self._steps = np.array([r.output_tokens - 1 for r in requests], np.int64)
        ttft, tpot, e2e = (_limits_of(question, name) for name in ("ttft", "tpot", "e2e"))
        # A limit of the TPOT stays one where no token is later: policies do not know who has none.
        steps = np.maximum(1, self._steps)
        times = np.array([ttft, tpot * steps, e2e])
        hairs = np.where(times < FOREVER, ROUNDING * (1 + self.arrival + times), 0.0)
        moved = times + hairs
        if wary:
            unit = question.workload.cost.ticks_per_second
            first, later = np.array(question.least_ticks, dtype=float).T / unit
            moved = np.where(times - hairs >= [first, later, first + later], times - hairs, moved)
        self.ttft, self.tpot, self.e2e = moved[0], moved[1] / steps, moved[2]

    def late(self, route: Any, first: Any, last: Any) -> Any:
        """Whether each request misses its service level.

        Parameters
        ----------
        route : array of int, (n,)
            Below 0 for who is not served.
        first, last : array of float, (n,)
            When these tokens came, s.
        """
        import numpy as np

        span = np.where(self._steps > 0, (last - first) / np.maximum(1, self._steps), 0.0)
        late = (route < 0) | (first - self.arrival > self.ttft) | (span > self.tpot)
        return late | (last - self.arrival > self.e2e)


@functools.cache
def _compiled() -> Callable[..., Any]:
    from infermax_opt.fleet.routing import _kernel as kernel

    return compiled(kernel.route_loop, kernel.HELPERS, allocates=False)
