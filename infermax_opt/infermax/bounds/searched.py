"""Bounds with parameters that have to be searched for, the more promising first.

Each is loaded where its objective is asked for: a command asks for one, and all of them take longer to load
than many a search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial

from infermax_opt.core.result import LowerBound
from infermax_opt.infermax.bounds.closed_form import makespan_bounds
from infermax_opt.infermax.data.instance import Instance, Metric, Objective
from infermax_opt.infermax.data.objective import BY_COUNT, SEARCHED_QUANTILES, UNSERVED, ratio

__all__ = ["searched_bounds"]

#: Requests of mean size in the KV below which whole requests matter more than how memory fills.
FEW_SLOTS = 30
#: Batches by area, as a multiple of the longest output, below which how memory fills matters more.
LONG = 8
#: Makespan as a multiple of the time of all arrivals above which the machine is crowded.
CROWDED = 2
#: States of the occupancy graph up to which it takes no time worth mentioning.
SMALL = 60_000


def searched_bounds(instance: Instance, *, stop: Callable[[], bool] | None = None) -> Iterator[LowerBound]:
    """Lower bounds on the objective, each as soon as its search ends; none where it has none.

    Parameters
    ----------
    instance : Instance
    stop : callable, optional
        Asked often whether to search no longer.
    """
    whole, objective = instance.relaxed, instance.objective
    if not instance.relaxes:
        return
    if objective.limits:
        yield from _on_each_limit(whole, stop)
    elif set(objective.metrics) <= set(BY_COUNT):  # also of requests that need not be finished
        from infermax_opt.infermax.bounds.attainment import attainment_bounds

        yield from attainment_bounds(whole, stop=stop)
    elif whole.required is not None:
        yield from _on_times(whole, whole.required, stop)


def _on_times(whole: Instance, instance: Instance, stop: Callable[[], bool] | None) -> Iterator[LowerBound]:
    """Bounds on what is about those that must be finished: a schedule of these alone has no longer batch.

    Parameters
    ----------
    whole : Instance
    instance : Instance
        Those of its requests that must be finished.
    stop : callable, optional
        Asked often whether to search no longer.
    """
    objective = whole.objective
    if objective.name is None:
        from infermax_opt.infermax.bounds.parts import part_bounds

        # Levels count for requests, too, that need not be finished.
        yield from part_bounds(
            instance, lambda aim: searched_bounds(replace(whole, objective=aim), stop=stop)
        )
        if not UNSERVED.isdisjoint(objective.metrics):
            from infermax_opt.infermax.bounds.attainment import attainment_bounds

            yield from attainment_bounds(whole, stop=stop)
    elif objective.is_makespan:
        yield from _on_the_makespan(instance, stop)
    elif Metric(objective.name) in SEARCHED_QUANTILES:
        from infermax_opt.infermax.bounds.ranks import rank_bounds

        yield from rank_bounds(instance, stop=stop)
    elif objective.is_searched:
        # The mean arrival is subtracted, which may leave less than nothing.
        yield from (bound for bound in _on_the_mean_latency(instance, stop) if bound.value > 0)


def _on_each_limit(instance: Instance, stop: Callable[[], bool] | None) -> Iterator[LowerBound]:
    """The largest ratio to a limit is at least that of a metric with bounds of its own."""
    for metric, limit in instance.objective.limits:
        alone = replace(instance, objective=Objective.of(metric.value))
        for bound in searched_bounds(alone, stop=stop):
            source, value = f"{metric.value}: {bound.source}", ratio(bound.value, limit)
            evidence = None if bound.evidence is None else {**bound.evidence, "metric": metric.value}
            yield replace(bound, value=value, source=source, evidence=evidence)


def _on_the_mean_latency(instance: Instance, stop: Callable[[], bool] | None) -> Iterator[LowerBound]:
    """Those that are far better where they apply first, then by what they cost."""
    from infermax_opt.infermax.bounds.backwards import backwards_bounds
    from infermax_opt.infermax.bounds.finishing_order import finishing_order_bounds
    from infermax_opt.infermax.bounds.progress import progress_bound
    from infermax_opt.infermax.bounds.waves import waves_bound

    yield from backwards_bounds(instance, stop=stop)
    if not instance.offline:
        yield from _with_arrivals(instance, stop)
    else:
        yield from _in_turn(instance, (waves_bound, progress_bound), stop)
    if stop is None or not stop():
        yield from finishing_order_bounds(instance, stop=stop)


def _with_arrivals(instance: Instance, stop: Callable[[], bool] | None) -> Iterator[LowerBound]:
    """Bounds on the mean latency: what takes long begins with the piece under which the others are best."""
    from infermax_opt.infermax.bounds.deferral import deferral_bound
    from infermax_opt.infermax.bounds.interaction import interaction_bound
    from infermax_opt.infermax.bounds.lingering import lingering_bound
    from infermax_opt.infermax.bounds.mutual import mutual_bound
    from infermax_opt.infermax.bounds.overload import overload_bound
    from infermax_opt.infermax.bounds.pace import pace_bounds
    from infermax_opt.infermax.bounds.progress import progress_bound

    # Where most requests wait, progress is nearly always the best, and is done before any of these.
    early, late = ((progress_bound,), ()) if _crowded(instance) else ((), (progress_bound,))
    best: LowerBound | None = None
    for found in _in_turn(instance, (mutual_bound, *early, overload_bound), stop):
        best = found if best is None or found.value > best.value else best
        yield found
    if stop is not None and stop():
        return
    binding = 0 if best is None or best.evidence is None else int(best.evidence["piece"])
    rest = [piece for piece in range(len(instance.cost.batch)) if piece != binding]
    searches = (pace_bounds, interaction_bound, deferral_bound, lingering_bound, *late)
    turns = [partial(search, pieces=pieces) for pieces in ([binding], rest) if pieces for search in searches]
    yield from _in_turn(instance, turns, stop)


def _in_turn(
    instance: Instance,
    searches: Sequence[Callable[..., LowerBound | Iterable[LowerBound] | None]],
    stop: Callable[[], bool] | None,
) -> Iterator[LowerBound]:
    """What each search finds, until there is no more time."""
    for search in searches:
        found = search(instance, stop=stop)
        if isinstance(found, LowerBound):
            yield found
        elif found is not None:
            yield from found
        if stop is not None and stop():
            return


def _on_the_makespan(instance: Instance, stop: Callable[[], bool] | None) -> Iterator[LowerBound]:
    """How memory fills; three searches, in an order that depends on how many requests fit, then levels."""
    from infermax_opt.infermax.bounds.beginning import beginning_bound
    from infermax_opt.infermax.bounds.branching import branching_bound
    from infermax_opt.infermax.bounds.filling import filling_bound
    from infermax_opt.infermax.bounds.lagrangian import lagrangian_bound
    from infermax_opt.infermax.bounds.levels import levels_bounds, one_token_fits
    from infermax_opt.infermax.bounds.occupancy import occupancy_bound
    from infermax_opt.infermax.bounds.state_flow import state_flow_bound

    few = _holds_few(instance)
    others = (occupancy_bound, lagrangian_bound) if few else (lagrangian_bound, occupancy_bound)
    yield from _filled(instance)
    best: dict[str, Fraction] = {}
    # Where all states can be listed this is nearly always the best, and finding out takes no time.
    for search in (beginning_bound, filling_bound, state_flow_bound, *others):
        found = search(instance, stop=stop)
        if found is not None:
            best[found.source] = found.value
            yield found
        if stop is not None and stop():
            return
    # These take all the time that there is, where they prove more at first.
    above = max(best.values(), default=Fraction(0))
    found = branching_bound(instance, above=above, stop=stop)
    if found is not None and found.value > above:
        yield found
    # On levels of one token all states and batches are told apart: better with more slots, too.
    if "state flow" not in best and (few or (_is_long(instance) and one_token_fits(instance))):
        yield from levels_bounds(instance, above=above, stop=stop)


def _filled(instance: Instance) -> Iterator[LowerBound]:
    """What it costs to run, to fill memory, and again, and to keep prompts and decodes apart: at once."""
    from infermax_opt.infermax.bounds.apart import apart_bound
    from infermax_opt.infermax.bounds.knee import knee_bound
    from infermax_opt.infermax.bounds.ramp import ramp_bound
    from infermax_opt.infermax.bounds.running import running_bound

    for search in (running_bound, ramp_bound, knee_bound, apart_bound):
        found = search(instance)
        if found is not None:
            yield found


def _holds_few(instance: Instance) -> bool:
    """Whether so few requests fit that whole ones matter, and they follow each other for long."""
    from infermax_opt.infermax.bounds._occupancy_graph import MAX_ACTIVE

    tokens = sum(kind.output_tokens * len(kind.members) for kind in instance.types)
    capacity = instance.system.kv_capacity
    shortest = min(kind.input_tokens for kind in instance.types)
    small = capacity * min(MAX_ACTIVE + 1, capacity // shortest + 1) <= SMALL
    return capacity * tokens < FEW_SLOTS * _volume(instance) and (small or _is_long(instance))


def _is_long(instance: Instance) -> bool:
    """Whether requests follow each other for long: how memory fills and empties hardly matters."""
    longest = max(kind.output_tokens for kind in instance.types)
    return _volume(instance) > LONG * longest * instance.system.kv_capacity


def _volume(instance: Instance) -> int:
    """KV tokens times batches of all requests."""
    volume = 0
    for kind in instance.types:
        i, o = kind.input_tokens, kind.output_tokens
        volume += (i * o + o * (o - 1) // 2) * len(kind.members)
    return volume


def _crowded(instance: Instance) -> bool:
    """Whether most requests wait for those before them: work comes much faster than it is done."""
    span = max(kind.arrival for kind in instance.types)
    return max(bound.value for bound in makespan_bounds(instance)) > CROWDED * span
