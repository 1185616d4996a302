"""Requests placed by the planner's loop: columns in, chunks and early evictions out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NamedTuple

from infermax_opt.infermax.data.cost import Coefficients, batch_time
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import MAX_BATCHES, TooManyBatches
from infermax_opt.infermax.planners.plan._early_evictions import Early, attention, occupy
from infermax_opt.infermax.planners.plan._kernel import Jobs, area
from infermax_opt.infermax.planners.plan._profile import Profiles, Rules, Trial

__all__ = ["Kernels", "Placement", "expected_horizon", "longest_stay", "place"]


class Kernels(NamedTuple):
    """The planner's kernels, all plain or all compiled, and what makes columns for them."""

    loop: Callable[..., Any]
    regroup: Callable[..., Any]
    integers: Callable[[Iterable[int]], Any]
    floats: Callable[[Iterable[float]], Any]

    def zeros(self, size: int) -> Any:
        """A column of whole zeros."""
        return self.integers([0] * size)

    def cost(self, instance: Instance) -> Coefficients:
        """Coefficients of the batch time, as columns of floats."""
        unit = instance.cost.floats
        return Coefficients(self.floats(unit.alpha), self.floats(unit.beta), *unit[2:])


@dataclass
class Placement:
    """What the loop placed.  Times are batches from 0, in the loop's direction.

    Attributes
    ----------
    profiles : Profiles
    batches : int
    seconds : float
        Estimated makespan.
    time, request, chunk : list of int
        Prefill chunks.
    start : column of int
        Batch, per request, in which it was placed.
    made : sequence of int
        Tokens, per request, made before an early eviction; 0 for the others.
    cuts : list of (time, request)
        Early evictions: the batch at whose start, and who.
    """

    profiles: Profiles
    batches: int
    seconds: float
    time: list[int]
    request: list[int]
    chunk: list[int]
    start: Any
    made: Sequence[int]
    cuts: list[tuple[int, int]] = field(default_factory=list)

    def decodes(self, hybrid: bool) -> list[bool]:
        """Whether a request decodes, per batch; prefills share its tokens only if `hybrid`."""
        tokens, prefill = self.profiles.tokens[: self.batches], self.profiles.prefill[: self.batches]
        return [bool(c > (p if hybrid else 0)) for c, p in zip(tokens, prefill, strict=True)]


def place(
    instance: Instance,
    rules: Rules,
    order: Sequence[int],
    width: Sequence[int],
    early: Early | None,
    kernels: Kernels,
) -> Placement:
    """Place every request by the loop, in profiles that are made longer until they suffice."""
    made = early.tokens if early else [0] * len(instance.requests)
    least = early.batches if early else 0
    cost = kernels.cost(instance)
    longest = longest_stay(instance, rules)
    # The limit may be overstepped by what is reserved for the longest request.
    limit = MAX_BATCHES + 2 * longest
    horizon = expected_horizon(instance, rules) + least
    while True:
        horizon = min(horizon, limit)
        jobs = _jobs(instance, made, order, width, kernels)
        profiles = Profiles(*(kernels.zeros(horizon) for _ in range(4)))
        if early:
            occupy(instance, early, profiles)
        trial = Trial(kernels.zeros(longest), kernels.zeros(longest), kernels.zeros(4))
        batches, seconds, time, request, chunk = kernels.loop(rules, jobs, profiles, trial, cost, least)
        if batches > MAX_BATCHES or (batches < 0 and horizon == limit):
            raise TooManyBatches.than(MAX_BATCHES)
        if batches >= 0:
            break
        horizon *= 2
    placed = Placement(profiles, batches, seconds, time, request, chunk, jobs.start, made)
    if early:
        placed.seconds += attention(instance, early)
        _add_early_starts(instance, placed)
    return placed


def _jobs(
    instance: Instance,
    made: Sequence[int],
    order: Sequence[int],
    width: Sequence[int],
    kernels: Kernels,
) -> Jobs:
    """Columns of the requests; of an early start, what is left after its eviction."""
    integers, zeros = kernels.integers, kernels.zeros
    n = len(instance.requests)
    inputs = [r.input_tokens + some for r, some in zip(instance.requests, made, strict=True)]
    outputs = [r.output_tokens - some for r, some in zip(instance.requests, made, strict=True)]
    numbers: dict[tuple[int, int], int] = {}
    kinds = [numbers.setdefault(sizes, len(numbers)) for sizes in zip(inputs, outputs, strict=True)]
    queue = [n] * (n + 1)
    for i, following in zip_longest([n, *order], order, fillvalue=n):
        queue[i] = following
    return Jobs(
        integers(inputs), integers(outputs), integers(width), integers(kinds), integers(queue),
        zeros(len(numbers)), zeros(n),
    )  # fmt: skip


def _add_early_starts(instance: Instance, placed: Placement) -> None:
    """Add the first prompts and the evictions of early starts, of which the loop knows nothing."""
    last = placed.batches - 1
    for i, tokens in enumerate(placed.made):
        if tokens:
            placed.time.append(last)
            placed.request.append(i)
            placed.chunk.append(instance.requests[i].input_tokens)
            placed.cuts.append((last - tokens, i))
    # A batch that only evicts takes its time, too.
    empty = {u for u, _ in placed.cuts if placed.profiles.tokens[u] == 0}
    placed.seconds += len(empty) * batch_time(*instance.cost.floats, 0, 0, 0, 0, 0)


def longest_stay(instance: Instance, rules: Rules) -> int:
    """Batches in which one request holds KV, at most."""
    return max(r.input_tokens + r.output_tokens for r in instance.requests) + rules.group


def expected_horizon(instance: Instance, rules: Rules) -> int:
    """Batches that a plan will hardly need."""
    requests = instance.requests
    held = sum(int(area(r.input_tokens, r.output_tokens)) for r in requests)
    prompts = sum(r.input_tokens for r in requests)
    batches = max(held // rules.capacity, prompts // min(rules.tokens, rules.prefill))
    return 2 * batches + 3 * longest_stay(instance, rules)
