"""Placement policies of a stream: what decides at each heartbeat.

``aladdin`` is the paper's: best-fit (Algorithm 1) in the order of arrival; a new worker where none takes a
request.  ``aladdin-rebalanced`` corrects best-fit by what has become of predictions
(`infermax_opt.cluster.policies.rebalanced`).  ``fewest`` opens no more workers at a heartbeat than it must:
where best-fit opens one that no bound asks for, it looks for a better placement.  ``look-ahead``
(`infermax_opt.cluster.policies.look_ahead`) keeps the latency limits themselves.  ``grouped`` is best-fit by
so many schedulers, each with workers of its own (`infermax_opt.cluster.policies.grouped`).  ``jsq`` and
``power-of-two`` spread requests over a given number of workers and know of no limit.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint

from infermax_opt.cluster.policies.grouped import Grouped
from infermax_opt.cluster.policies.look_ahead import LookAhead
from infermax_opt.cluster.policies.rebalanced import Rebalanced
from infermax_opt.cluster.replay.replay import Beat, Decide
from infermax_opt.core.checks import checked_whole
from infermax_opt.core.errors import InputError
from infermax_opt.core.plugins import blaming, named_points, refuse_left_out
from infermax_opt.files.text import aligned
from infermax_opt.placement.bounds.closed_form import WorkerBound, bounds_from_simplest
from infermax_opt.placement.bounds.exhaustive import exhaust
from infermax_opt.placement.data.instance import MAX_WORKERS, PlacementInstance
from infermax_opt.placement.data.schedule import Placement
from infermax_opt.placement.heuristics.pack import pack
from infermax_opt.placement.heuristics.place import SPREADERS, place, spread

__all__ = [
    "GROUP",
    "POLICIES",
    "Fewest",
    "fewest_at",
    "keeping_policies",
    "make_policy",
    "policies_text",
    "workers_of",
]

#: Entry points of policies: functions without arguments that give a `Decide`.
GROUP = "infermax_opt.policies"

#: Policies, and what they do.
POLICIES: dict[str, str] = {
    "aladdin": "best-fit (Algorithm 1) under all limits",
    "aladdin-rebalanced": "best-fit by predictions, then Algorithm 2 where they have proved wrong",
    "grouped": "best-fit by a given number of schedulers, each with workers of its own",
    "first-fit": "the first worker that takes a request",
    "fewest": "as few workers as can be found at each heartbeat",
    "look-ahead": "best-fit that replays workers ahead: every request meets TTFT and ATGT, by prediction",
    "jsq": "join the shortest queue, whatever the limits, on a given number of workers",
    "power-of-two": "the less loaded of two random workers, whatever the limits, on a given number",
}
#: Those that keep the limits a to e at every heartbeat and need no number of workers.
KEEPING = ("aladdin", "first-fit", "fewest")
#: Heuristics by the policy that is nothing but one.
PLAIN = {"aladdin": "best-fit", "first-fit": "first-fit"}
#: Sets that an exhaustive search looks at, and steps of packing per request where that is too few.
NODES = 5_000


@dataclass(frozen=True)
class Fewest:
    """Fewest workers at a heartbeat.

    Attributes
    ----------
    placement : Placement
    workers : int
        That it uses, those in use before included.
    lower : int
        That any placement uses, ongoing requests being where they are.
    bound : WorkerBound
        The best bound of a formula; `lower` may be above it.
    exhausted : bool
        Whether `lower` comes from looking at every placement.
    """

    placement: Placement
    workers: int
    lower: int
    bound: WorkerBound
    exhausted: bool


def workers_of(instance: PlacementInstance, placement: Placement) -> int:
    """Workers in use with a placement."""
    return len(instance.in_use.union(placement.workers.values()))


def fewest_at(instance: PlacementInstance, *, seed: int = 0, nodes: int = NODES) -> Fewest:
    """Find a placement on the fewest workers, and a bound, fast.

    Best-fit first; if it opens workers, bounds from the simplest on, until one says that all of them are
    needed; if none does, ever more workers from the bound on, by exhaustive search and by packing.

    Parameters
    ----------
    instance : PlacementInstance
        One heartbeat.
    seed : int
        Of packing.
    nodes : int
        Of each exhaustive search, at most.

    Raises
    ------
    InputError
        If a request fits on no worker.
    """
    placement = place(instance, "best-fit")
    workers = workers_of(instance, placement)
    rest = bounds_from_simplest(instance)
    bound = next(rest)
    while bound.value < workers and (other := next(rest, None)) is not None:
        bound = max(bound, other, key=lambda some: some.value)
    lower, decided = bound.value, True
    for count in range(lower, workers):
        found = exhaust(instance, count, nodes=nodes)
        better = found.placement
        if not found.decided:
            decided, better = False, pack(instance, count, seed=seed)
        if better is not None:
            placement, workers = better, workers_of(instance, better)
            break
        if decided:
            lower = count + 1
    return Fewest(placement, workers, lower, bound, lower > bound.value)


def _installed() -> dict[str, EntryPoint]:
    return named_points(GROUP, tuple(POLICIES))


def keeping_policies() -> tuple[str, ...]:
    """Policies that need no number of workers and keep the limits; those of other packages last."""
    return (*KEEPING, *sorted(_installed()))


def policy_names() -> tuple[str, ...]:
    """All policies; those of other packages last."""
    return (*POLICIES, *sorted(_installed()))


def policies_text() -> str:
    """All policies, one a line, with what they do."""
    rows = [*POLICIES.items(), *((name, f"of {point.value}") for name, point in sorted(_installed().items()))]
    return "\n".join(aligned(rows))


def make_policy(name: str, *, workers: int | None = None, groups: int | None = None, seed: int = 0) -> Decide:
    """A policy by name.

    Parameters
    ----------
    name : str
        A name in `POLICIES`.
    workers : int, optional
        For those that spread requests over so many; the others open workers as they need them.
    groups : int, optional
        Schedulers of ``grouped``.
    seed : int

    Raises
    ------
    InputError
        If there is no such policy, or it lacks its number of workers or groups, or takes none.
    """
    installed = _installed()
    if name not in installed and name not in POLICIES:
        refuse_left_out(GROUP, name)
        raise InputError(f"{name!r} is none of {', '.join(policy_names())}", field="policy")
    _check_options(name, workers, groups)
    if name in installed:
        return _made(installed[name])
    if name in SPREADERS:
        if workers is None:
            raise InputError(f"{name} needs a number of workers", field="workers")
        return _spreader(name, checked_whole(workers, "workers", 1, MAX_WORKERS), seed)
    if name == "grouped":
        if groups is None:
            raise InputError("grouped needs a number of groups", field="groups")
        return Grouped(groups)
    if name == "aladdin-rebalanced":
        return Rebalanced()
    if name == "look-ahead":
        return LookAhead()
    if name == "fewest":
        return lambda beat: fewest_at(beat.instance, seed=seed).placement.workers
    return lambda beat: place(beat.instance, PLAIN[name]).workers


def _check_options(name: str, workers: int | None, groups: int | None) -> None:
    """Refuse numbers that a policy takes no notice of."""
    for field, given, owners in (("workers", workers, SPREADERS), ("groups", groups, ("grouped",))):
        if given is not None and name not in owners:
            raise InputError(f"goes with {', '.join(owners)} only, not with {name}", field=field)


def _made(point: EntryPoint) -> Decide:
    """The policy of another package, which is named if it fails at a heartbeat, too."""
    with blaming(point, refusals=True):
        made = point.load()()
        if not callable(made):
            raise TypeError(f"{made!r} is no function of a heartbeat")

    def decide(beat: Beat) -> Mapping[str, int]:
        with blaming(point, refusals=True):
            return _checked(beat, made(beat))

    return decide


def _checked(beat: Beat, chosen: object) -> Mapping[str, int]:
    """What another package decides, if it is a worker for each new request."""
    if not isinstance(chosen, Mapping):
        raise TypeError(f"{chosen!r} is no mapping of request id to worker")
    for key in beat.new:
        name = beat.stream.requests[key].id
        if name not in chosen:
            raise ValueError(f"{name!r} has no worker")
        if type(chosen[name]) is not int or chosen[name] < 1:
            raise ValueError(f"{chosen[name]!r}, the worker of {name!r}, is no whole number from 1")
    return chosen


def _spreader(name: str, workers: int, seed: int) -> Decide:
    draws = itertools.count(seed)

    def decide(beat: Beat) -> Mapping[str, int]:
        return spread(beat.instance, name, workers, seed=next(draws)).workers

    return decide
