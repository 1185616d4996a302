"""The set of new requests that is worth most and fits on a worker.  Whole numbers only.

Depth first, requests by rising last iteration.  So those that join a set are still there at every iteration
at which one of its requests ends, which tells how many more there may be room for.  A set that breaks a limit
is given up, as more requests mend none; so is one that cannot become worth more than `least`, if as many of
the dearest requests to come as there may be room for joined it.

The functions run as plain Python or compiled; see `infermax_opt.core.compiled`.
"""

from __future__ import annotations

from typing import Any

from infermax_opt.placement.replay._state import enter, leave, peak

__all__ = ["HELPERS", "UNKNOWN", "heaviest"]

#: Instead of a sum, where the steps did not suffice.
UNKNOWN = -1


def slots(room: Any, need: Any, many: Any) -> Any:
    """How many requests there may be room for, if each takes `need` or more."""
    if room < 0:
        return 0
    return min(many, room // need) if need > 0 else many


def joining(ends: Any, loads: Any, size: Any, most: Any, held: Any, grows: Any, many: Any) -> Any:
    """How many requests of `held` or more KV at first there may be room for where those of a set end."""
    free = many
    for i in range(size):
        free = min(free, slots(most - loads[i], held + grows * ends[i], many))
    return free


def weigh(ends: Any, loads: Any, size: Any, held: Any, grows: Any, sign: Any) -> None:
    """Add the KV of a request, or take it away, where those of a set end that end no later."""
    for i in range(size):
        loads[i] += sign * (held + grows * ends[i])


def heaviest(
    requests: Any, workers: Any, w: Any, most: Any, grows: Any, order: Any, worth: Any, tail: Any,
    least: Any, steps: Any, tops: Any, sets: Any, chosen: Any, ends: Any, loads: Any,
) -> Any:  # fmt: skip
    """Largest worth of a set that fits on worker `w` beside what is there; `least` where none is worth more.

    Long on purpose: one loop, as every step goes down, on or back.

    Parameters
    ----------
    requests, workers : see `infermax_opt.placement.replay._state`
        Workers are the same afterwards.
    w : int
    most : array of int
        Limits b, c and e of a fresh worker.
    grows : int
        KV that a request takes with each iteration.
    order, worth : array of int
        New requests, by rising last iteration, and their worth.
    tail : array of int, 4 rows
        Of the requests from each place in `order` on: most worth, least context, prompt and KV at first.
        The last column, beyond all, is not read.
    least : int
    steps : int
        Most of the search for sets with one first request.
    tops, sets : array of int
        Written for each place in `order`: the worth of the best set whose first request is there, if it is
        above `least`, or 0; and its requests, -1 after the last one.  A set of as many as `sets` has columns
        is not gone on with.
    chosen, ends, loads : array of int
        To work in, longer than a set: places of its requests, their last iterations, and the KV of the set,
        without ongoing requests, in these.

    Returns
    -------
    int
        `UNKNOWN` where not all sets were looked at.
    """
    many, widest = len(order), sets.shape[1]
    size = place = value = left = 0
    complete = True
    best, top, root = least, least, -1
    tops[:] = 0
    while True:
        if size == 0:
            if place == many:
                return best if complete else UNKNOWN
            root, top, left = place, least, steps
        context, prompt = most[0] - workers.context[w], workers.most_prompt[w] - workers.prompt[w]
        last = many if size > 0 else root + 1
        while place < last:
            left -= 1
            k = order[place]
            held, end = tail[3, place], requests.last[k]
            free = min(
                slots(context, tail[1, place], many),
                slots(prompt, tail[2, place], many),
                slots(most[2], held + grows * end, many),
                joining(ends, loads, size, most[2], held, grows, many),
            )
            if value + free * tail[0, place] <= top:
                place = last
                break
            if (
                value + worth[place] + (free - 1) * tail[0, place] > top
                and requests.context[k] <= context
                and requests.prompt[k] <= prompt
                and joining(ends, loads, size, most[2], requests.held[k], grows, 1) == 1
                and peak(workers, requests, grows, w, -1, k) <= most[2]
            ):
                break
            place += 1
        if left < 0 or size == widest:
            complete = False
            for back in range(size):
                leave(workers, requests, order[chosen[back]])
            size = value = 0
            place = root + 1
            continue
        if place < last:
            k = order[place]
            enter(workers, requests, k, w)
            weigh(ends, loads, size, requests.held[k], grows, 1)
            chosen[size], ends[size] = place, requests.last[k]
            loads[size] = requests.held[k] + grows * requests.last[k]
            size += 1
            value += worth[place]
            if value > top:
                top = value
                best = max(best, value)
                tops[root] = value
                sets[root, :] = -1
                for i in range(size):
                    sets[root, i] = order[chosen[i]]
            place += 1
        elif size > 0:
            size -= 1
            place = chosen[size]
            k = order[place]
            leave(workers, requests, k)
            weigh(ends, loads, size, requests.held[k], grows, -1)
            value -= worth[place]
            place += 1


HELPERS = (enter, leave, peak, slots, joining, weigh)
"""What `heaviest` calls, callees first."""
