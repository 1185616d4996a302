"""Schedulers that take arrivals as they are given, in a closed loop.

A scheduler that knows nobody before it has arrived does the same until a set arrives, whenever that is.  So
it runs with the first set alone, which says when that is complete; then with the second set, which arrives
at that moment; and so on.  Each run begins as the one before, and the last one is the schedule.

A set of optional requests that would arrive after the horizon is left out, with all after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

from infermax_opt.core.errors import InputError
from infermax_opt.infermax.data.instance import Instance, Request, RequestGroup
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.replay.fast import replay

__all__ = ["in_closed_loop"]

#: Sets at most, as the scheduler runs once for each of them.
MOST_SETS = 200
#: Seconds by which a scheduler is told later of a set that arrives with a batch that takes no time.
MOMENT = Fraction("0.001")


def in_closed_loop(instance: Instance, name: str, scheduler: Callable[[Instance], Schedule]) -> Schedule:
    """Schedule an instance that may have a closed loop.

    Parameters
    ----------
    instance : Instance
    name : str
        Of the scheduler, for messages.
    scheduler : callable
        Takes an instance without a closed loop, and knows no request before it arrives.

    Raises
    ------
    InputError
        If there are more than `MOST_SETS` sets, or the scheduler does otherwise before a set arrives.
    """
    sets = instance.release_sets
    if not sets:
        return scheduler(instance)
    if len(sets) > MOST_SETS:
        text = f"{name} takes {MOST_SETS} sets of a closed loop at most; there are {len(sets)}"
        raise InputError(text, field="release")
    found = replace(_set_by_set(instance, sets, scheduler), instance=instance.name)
    if not replay(instance, found).valid:
        raise InputError(f"{name} goes by requests that have not arrived", field="release")
    return found


def _set_by_set(
    instance: Instance, sets: Sequence[Sequence[int]], scheduler: Callable[[Instance], Schedule]
) -> Schedule:
    """What the scheduler does once the last set that arrives is known."""
    coming = {k for members in sets[1:] for k in members}
    arrivals = {k: r.arrival for k, r in enumerate(instance.requests) if k not in coming}
    made = scheduler(_open(instance, arrivals))
    for members, following in pairwise(sets):
        complete = _complete(_open(instance, arrivals), made, [instance.requests[k].id for k in members])
        if _over(instance, complete) and all(instance.requests[k].terms.optional for k in coming):
            break
        arrivals.update(dict.fromkeys(following, complete))
        coming.difference_update(following)
        made = scheduler(_open(instance, arrivals))
    return made


def _complete(instance: Instance, made: Schedule, members: Sequence[str]) -> Fraction:
    """Seconds until the last token of these requests; a moment later where its batch takes no time."""
    done = replay(instance, made)
    last = max(done.last_batch[instance.index[name]] for name in members)
    # Batches before it may begin at that very time.
    return done.seconds(done.ends[last]) + (MOMENT if done.starts[last] == done.ends[last] else 0)


def _open(instance: Instance, arrivals: Mapping[int, Fraction]) -> Instance:
    """The same without a closed loop, with these requests only, each with its arrival."""
    groups = tuple(_group(instance.requests[k], arrivals[k]) for k in sorted(arrivals))
    return replace(instance, groups=groups, release=None)


def _group(request: Request, arrival: Fraction) -> RequestGroup:
    terms = request.terms
    return RequestGroup(
        request.id, request.input_tokens, request.output_tokens, arrival, None, terms.class_name,
        terms.weight, terms.slo, request.predicted_output_tokens, terms.optional,
    )  # fmt: skip


def _over(instance: Instance, moment: Fraction) -> bool:
    """Whether the horizon has passed."""
    return instance.horizon is not None and moment >= Fraction(instance.horizon)
