"""Plans for offline workloads whose output lengths are known.

A schedule of J batches costs at least alpha J plus work that is nearly the same in every
schedule.  J is bounded by the KV area (sum of what is held) over M and by the tokens over C, so
a good plan keeps the KV full, or every batch, from the first batch to the last:

- A request starts only where its whole life fits beside those placed before; nothing is evicted
  unless that pays (`PlannerOptions.evict`).
- Plans are made *backwards* as a rule: from the end a request sheds KV instead of growing, so
  whatever fits now fits for good, and there is always something that fits exactly now.
- With "square" attention a prompt of I tokens in q chunks does I**2 / q of work but holds about
  I q / 2 of KV area; the chunk that balances them is sqrt(I alpha / (2 p1 M)) tokens.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from dataclasses import replace

from infermax_opt.instance import Instance
from infermax_opt.schedulers._planner_options import ArrivalsError, PlannerOptions, balanced_width, decide
from infermax_opt.schedulers._planner_run import Plan
from infermax_opt.schedulers._planner_write import batches_of
from infermax_opt.schedules import Schedule

__all__ = ["ArrivalsError", "PlannerOptions", "plan", "plans"]

#: Settings tried in a row without improvement, before `plans` without a deadline ends.
PATIENCE = 40
#: Relative difference of estimates that is rounding.
NOISE = 1e-9
#: Most batches that the pilot method's tries may look at, and most requests in the KV where it helps.
PILOT_WORK, PILOT_SLOTS = 4_000_000, 12


def plan(instance: Instance, options: PlannerOptions | None = None, *, seed: int = 0) -> Schedule:
    """Plan an offline instance in one pass.

    Parameters
    ----------
    instance : Instance
    options : PlannerOptions, optional
    seed : int
        Of the noise in the priorities.

    Returns
    -------
    Schedule
        Valid for every offline instance.

    Raises
    ------
    ArrivalsError
        If requests arrive over time.
    InputError
        If the schedule would have more than `infermax_opt.replay.MAX_BATCHES` batches.
    """
    return batches_of(instance, decide(instance, options or PlannerOptions(), seed))


def plans(
    instance: Instance, *, seed: int = 0, deadline: float | None = None
) -> Iterator[tuple[str, Schedule]]:
    """Ever better plans of an offline instance, by estimated makespan; none with arrivals.

    Parameters
    ----------
    instance : Instance
    seed : int
        The same seed gives the same plans, as many as there is time for.
    deadline : float, optional
        Moment of `time.monotonic` at which to stop, but for a plan in the making.  Without one it
        stops when `PATIENCE` settings in a row were no better.

    Yields
    ------
    name : str
        ``planner:`` and the number of settings tried.
    schedule : Schedule
    """
    if not instance.offline:
        return
    rng = random.Random(seed)
    best: Plan | None = None
    chosen = PlannerOptions()
    chosen_seed = seed
    failed = 0
    tried: set[PlannerOptions] = set()
    opening = _opening(instance)
    number = 0
    while failed < PATIENCE or deadline is not None:
        if best is not None and deadline is not None and time.monotonic() >= deadline:
            return
        options, shuffle = (
            (opening.pop(0), seed) if opening else _neighbour(instance, chosen, chosen_seed, rng)
        )
        if options in tried and shuffle == chosen_seed:
            failed += 1
            if failed > 10 * PATIENCE:
                return
            continue
        tried.add(options)
        number += 1
        found = decide(instance, options, shuffle)
        if best is None or found.seconds < best.seconds * (1 - NOISE):
            best, chosen, chosen_seed, failed = found, options, shuffle, 0
            yield f"planner:{number}", batches_of(instance, found)
        elif not opening:
            failed += 1


def _opening(instance: Instance) -> list[PlannerOptions]:
    """Settings that are tried first."""
    base = PlannerOptions()
    settings = [
        base,
        replace(base, by_output=1.0, by_input=-0.5, noise=0.0, slack=1.0, window=1),
        replace(base, by_output=0.9, by_input=0.3, noise=0.0, slack=1.0, window=1),
        replace(base, by_output=0.9, noise=0.0, slack=1.0, choice=2),
        replace(base, by_output=0.4, by_input=-1.0, noise=0.9, window=1, walk=64, choice=3),
        replace(base, by_output=0.8, noise=0.4),
        replace(base, backwards=False, slack=100.0, by_output=0.5, noise=0.5),
    ]
    if balanced_width(instance) is not None:
        settings[1:1] = [replace(base, chunk=chunk) for chunk in (0.5, 0.25, 0.17, 2.0)]
    if not instance.policy.hybrid_batching:
        settings += [replace(base, every=every) for every in (4, 16, 64)]
    if _pilot_helps(instance):
        near = replace(base, noise=0.0, by_output=0.0, window=1, slack=100.0, pilot=0.4)
        settings += [replace(near, by_input=bias) for bias in (0.15, 0.3, 0.0)]
    return settings


def _pilot_helps(instance: Instance) -> bool:
    """Whether types and places in the KV are few, and the tries affordable."""
    requests = instance.requests
    held = sum(r.output_tokens * (r.input_tokens + r.output_tokens / 2) for r in requests)
    slots = instance.system.kv_capacity * instance.output_tokens / held
    most_output = max(r.output_tokens for r in requests)
    tries = len(requests) * len(instance.types) * most_output * 0.4
    return len(requests) >= 64 and slots <= PILOT_SLOTS and tries <= PILOT_WORK


def _neighbour(
    instance: Instance, options: PlannerOptions, seed: int, rng: random.Random
) -> tuple[PlannerOptions, int]:
    """Change one or two settings at random."""
    values: dict[str, object] = {
        "by_output": options.by_output + rng.gauss(0, 0.2),
        "by_input": options.by_input + rng.gauss(0, 0.2),
        "noise": max(0.0, options.noise + rng.gauss(0, 0.2)),
        "slack": max(0.0, options.slack + rng.gauss(0, 0.3)),
        "reserve": max(0.0, options.reserve * math.exp(rng.gauss(0, 0.2))),
        "window": rng.choice([1, 2, 4, 8, 16, 32, 64]),
        "walk": rng.choice([4, 8, 16, 32, 64, 128, 512, 2048]),
        "choice": rng.choice([1, 1, 2, 3, 4]),
    }
    if balanced_width(instance) is not None and options.chunk is not None:
        values["chunk"] = options.chunk * math.exp(rng.gauss(0, 0.3))
        values["chunk "] = options.chunk * math.exp(rng.gauss(0, 0.1))
    if len(instance.cost.batch) > 1:
        values["fill"] = min(1.0, max(0.02, options.fill * math.exp(rng.gauss(0, 0.3))))
    if options.pilot > 0:
        values["pilot"] = options.pilot * math.exp(rng.gauss(0, 0.3))
    if not instance.policy.hybrid_batching:
        values["every"] = max(1, round(options.every * math.exp(rng.gauss(0, 0.7))))
    values["seed"] = rng.randrange(2**31)
    shuffle = seed
    for name in rng.sample(sorted(values), rng.choice([1, 1, 2, 3])):
        if name == "seed":
            shuffle = int(str(values[name]))
        else:
            options = replace(options, **{name.strip(): values[name]})  # type: ignore[arg-type]
    return options, shuffle
