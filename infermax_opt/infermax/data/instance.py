"""Instances: requests, the machine's limits, the policy, the cost model, the objective."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from infermax_opt.core.checks import (
    MAX_TOKENS,
    Meaning,
    checked_decimal,
    checked_ids,
    checked_text,
    checked_total,
    checked_whole,
)
from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import Number
from infermax_opt.core.shown import ShownInstance
from infermax_opt.infermax.data.cost import CostModel, checked_cost
from infermax_opt.infermax.data.intervals import check_intervals, coefficients
from infermax_opt.infermax.data.objective import BY_COUNT, Metric, Objective, shares
from infermax_opt.infermax.data.release import Release, check_release, release_sets
from infermax_opt.infermax.data.requests import (
    PLAIN,
    Request,
    RequestClass,
    RequestGroup,
    RequestType,
    ServiceLevel,
    Terms,
)

__all__ = [
    "Instance",
    "Metric",
    "Objective",
    "Policy",
    "Release",
    "Request",
    "RequestClass",
    "RequestGroup",
    "RequestType",
    "ServiceLevel",
    "System",
    "Terms",
]


@dataclass(frozen=True)
class System:
    """Limits of the machine, per batch.

    Parameters
    ----------
    kv_capacity : int
        M: tokens of KV cache.
    max_batch_tokens, max_prefill_tokens : int
        C: tokens processed in a batch; P: prefill tokens among them.
    max_running : int or None
        R_max: requests that hold KV after a batch; None is no limit.
    block_size : int
        Tokens per KV block: a request that caches m tokens holds ``s * ceil(m / s)``.
    """

    kv_capacity: int
    max_batch_tokens: int
    max_prefill_tokens: int
    max_running: int | None = None
    block_size: int = 1

    def __post_init__(self) -> None:
        for name in ("kv_capacity", "max_batch_tokens", "max_prefill_tokens", "block_size"):
            object.__setattr__(
                self, name, checked_whole(getattr(self, name), f"system.{name}", 1, MAX_TOKENS)
            )
        if self.max_running is not None:
            object.__setattr__(
                self, "max_running", checked_whole(self.max_running, "system.max_running", 1, MAX_TOKENS)
            )

    def held(self, cached: int) -> int:
        """KV tokens that a request with `cached` cached tokens occupies."""
        return -(-cached // self.block_size) * self.block_size

    @property
    def prefill_budget(self) -> int:
        """Most prefill tokens a batch can process: min(P, C)."""
        return min(self.max_prefill_tokens, self.max_batch_tokens)


@dataclass(frozen=True)
class Policy:
    """What schedules may do: mix phases in a batch, split prefills, evict."""

    hybrid_batching: bool = True
    chunked_prefill: bool = True
    preemption: bool = True

    def __post_init__(self) -> None:
        for name in ("hybrid_batching", "chunked_prefill", "preemption"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise InputError(f"{value!r} is not true or false", field=f"policy.{name}")


@dataclass(frozen=True)
class Instance(ShownInstance):
    """A workload, a machine, a policy, a cost model and an objective.

    Parameters
    ----------
    name : str
    groups : iterable of RequestGroup
        The requests, in queue order.
    system, policy, cost : System, Policy, CostModel
    objective : Objective, str or mapping
    classes : iterable of RequestClass
        What requests of a class have where they say nothing themselves.
    horizon : Number, optional
        Seconds.  Only what ends by then counts as served, or as keeping a service level.
    release : Release, optional
        A class whose requests arrive in sets, each when the one before it is complete.
    slowest : CostModel, optional
        Where the machine is known within limits only: `cost` is that of the fastest one, this of the slowest.
        Bounds read the former; see `infermax_opt.infermax.data.intervals`.

    Raises
    ------
    InputError
        If two requests share an id, two classes a name, or if a request could never be served alone: its
        peak KV does not fit, or its prompt exceeds a batch and chunked prefill is off.
    """

    name: str
    groups: tuple[RequestGroup, ...]
    system: System
    cost: CostModel
    policy: Policy = field(default_factory=Policy)
    objective: Objective = field(default_factory=lambda: Objective.of("makespan"))
    classes: tuple[RequestClass, ...] = ()
    horizon: Number | None = None
    release: Release | None = None
    slowest: CostModel | None = None

    def __post_init__(self) -> None:
        checked_text(self.name, "name")
        if self.horizon is not None:
            object.__setattr__(self, "horizon", checked_decimal(self.horizon, "horizon"))
        object.__setattr__(self, "groups", tuple(self.groups))
        object.__setattr__(self, "classes", tuple(self.classes))
        object.__setattr__(self, "objective", Objective.of(self.objective))
        checked_cost(self.cost)
        checked_total(self.groups)
        for index, group in enumerate(self.groups):
            self._check_fits(group, f"requests[{index}]")
        checked_ids(group.names() for group in self.groups)
        if len({known.name for known in self.classes}) < len(self.classes):
            raise InputError("a class is there twice", field="classes")
        check_release(self)
        check_intervals(self)
        if self.slowest == self.cost:  # one machine after all
            object.__setattr__(self, "slowest", None)

    def _check_fits(self, group: RequestGroup, where: str) -> None:
        """Whatever passes here can be served alone, so every instance has a schedule."""
        system = self.system
        peak = system.held(group.input_tokens + group.output_tokens - 1)
        if peak > system.kv_capacity:
            raise InputError(
                f"request {group.id!r} can never fit: its peak KV of {peak} tokens exceeds "
                f"system.kv_capacity {system.kv_capacity}",
                field=where,
            )
        if not self.policy.chunked_prefill and group.input_tokens > system.prefill_budget:
            raise InputError(
                f"request {group.id!r} can never be prefilled: {group.input_tokens} input tokens "
                f"exceed a batch's {system.prefill_budget} and chunked prefill is off",
                field=f"{where}.input_tokens",
            )

    @classmethod
    def of_requests(
        cls, name: str, requests: Iterable[tuple[int, int]], system: System, cost: CostModel, **rest: Any
    ) -> Instance:
        """Build an instance from (input, output) token pairs.

        Parameters
        ----------
        name : str
        requests : iterable of (int, int)
            They are named ``r1``, ``r2``, ...
        system : System
        cost : CostModel
        **rest
            Other fields of an instance.
        """
        groups = tuple(RequestGroup(f"r{k}", i, o) for k, (i, o) in enumerate(requests, 1))
        return cls(name=name, groups=groups, system=system, cost=cost, **rest)

    @property
    def unit(self) -> tuple[str, str]:
        """Unit of the objective, for one and for many."""
        return self.objective.unit

    @property
    def pays_extra(self) -> bool:
        """Whether some batch may take longer than the terms say that bounds know."""
        mixes = any(self.cost.mixed) and self.policy.hybrid_batching
        return mixes or (self.cost.prefix != 0 and self.policy.chunked_prefill)

    @property
    def objective_name(self) -> str:
        """The objective, as results name it."""
        return str(self.objective)

    @cached_property
    def requests(self) -> tuple[Request, ...]:
        """All requests, groups expanded, in queue order."""
        classes = {known.name: known for known in self.classes}
        return tuple(request for group in self.groups for request in group.expand(classes))

    @cached_property
    def required(self) -> Instance | None:
        """The same with those requests alone that must be finished; itself if these are all, None for none.

        Metrics of latencies are about these.  A schedule without the other ones has no batch that is longer.
        """
        found = [request for request in self.requests if not request.terms.optional]
        if len(found) == len(self.requests):
            return self
        return self.only(found) if found else None

    def only(self, requests: Iterable[Request]) -> Instance:
        """The same with some of its requests alone."""
        # Sets of the others would be other sets.
        return replace(self, groups=tuple(map(_alone, requests)), classes=(), release=None)

    @cached_property
    def release_sets(self) -> list[list[int]]:
        """Requests that are released together, by their place; none without a closed loop."""
        return release_sets(self)

    @cached_property
    def relaxed(self) -> Instance:
        """The same without a closed loop: released requests are there from the start.

        Every schedule is one of it, with the same times: no request arrives later.  So a bound for it is one
        for the closed loop where the objective is the same (`relaxes`).
        """
        return self if self.release is None else replace(self, release=None)

    @cached_property
    def relaxes(self) -> bool:
        """Whether the objective of any schedule is the same without the closed loop.

        It is unless the objective has latencies of released requests, which count from their release: of
        those that must be finished, in any metric of latencies, or of those with service levels in `missed`.
        """
        terms = [self.requests[i].terms for members in self.release_sets for i in members]
        metrics = set(self.objective.metrics)
        if any(one.slo for one in terms) and Metric.MISSED in metrics:
            return False
        timeless = {Metric.MAKESPAN, *BY_COUNT}
        return metrics <= timeless or all(one.optional for one in terms)

    @cached_property
    def index(self) -> dict[str, int]:
        """Position of each request id in `requests`."""
        return {request.id: k for k, request in enumerate(self.requests)}

    def _alike(self) -> Iterator[range]:
        """Places of requests that differ in their ids alone."""
        start = 0
        for group in self.groups:
            end = start + (group.count or 1)
            # In a closed loop, those of a group can be of different sets.
            step = end - start if self.release is None else 1
            yield from (range(k, k + step) for k in range(start, end, step))
            start = end

    @cached_property
    def types(self) -> tuple[RequestType, ...]:
        """Requests grouped by lengths, arrival and terms, in order of first appearance."""
        # Of a million types most have one member, and to hash a fraction takes long.
        members: dict[tuple[int, int, int, int, Terms | None, int], range | list[int]] = {}
        sets = {i: k for k, found in enumerate(self.release_sets) for i in found}
        for places in self._alike():
            r = self.requests[places[0]]
            # Plain terms, which most have, are not hashed again for each request.
            terms = None if r.terms is PLAIN else r.terms
            lengths, arrival = (r.input_tokens, r.output_tokens), r.arrival.as_integer_ratio()
            key = (*lengths, *arrival, terms, sets.get(places[0], 0))
            known = members.setdefault(key, places)
            if isinstance(known, list):
                known.extend(places)
            elif known is not places:
                members[key] = [*known, *places]
        found = list(members.values())
        del members
        return tuple(map(self._type, found))

    def _type(self, members: Sequence[int]) -> RequestType:
        """The type of requests that are alike."""
        first = self.requests[members[0]]
        return RequestType(
            first.input_tokens, first.output_tokens, first.arrival, tuple(members), first.terms
        )

    @cached_property
    def _shares(self) -> dict[Metric, list[Fraction]]:
        return {}

    def shares(self, metric: Metric) -> list[Fraction]:
        """Share of each request of each type in a sum of latencies: see `objective.shares`."""
        if metric not in self._shares:
            self._shares[metric] = shares(metric, self.types)
        return self._shares[metric]

    def told_apart(self) -> Instance:
        """The same requests, each of a type of its own, as of a class of its own."""
        groups = tuple(replace(_alone(r), class_name=r.id) for r in self.requests)
        return replace(self, groups=groups, classes=())

    @cached_property
    def offline(self) -> bool:
        """Whether every request is there from the start."""
        return len(self.release_sets) < 2 and all(group.arrival == 0 for group in self.groups)

    @cached_property
    def output_tokens(self) -> int:
        """Tokens to generate in all."""
        return sum(group.output_tokens * (group.count or 1) for group in self.groups)

    @cached_property
    def sha256(self) -> str:
        """Hash of the meaning: equal for files that differ only in notation."""
        system, policy, cost = self.system, self.policy, self.cost
        meaning = Meaning("infermax", self.name)
        feed = meaning.feed
        feed(system.kv_capacity, system.max_batch_tokens, system.max_prefill_tokens)
        feed(system.max_running, system.block_size)
        feed(policy.hybrid_batching, policy.chunked_prefill, policy.preemption)
        feed(cost.attention.value, *(v for pair in cost.batch for v in pair))
        feed(*cost.decode, *cost.prefill)
        if any(cost.mixed):
            feed("mixed", *cost.mixed)
        if cost.prefix:
            feed("prefix", cost.prefix)
        feed(*self.objective.meaning())
        if self.horizon is not None:
            feed("horizon", self.horizon)
        if self.release is not None:
            feed("release", self.release.class_name, self.release.batch)
        if self.slowest is not None:
            feed("slowest", *(value for _, value in coefficients(self.slowest)))
        for r in self.requests:
            feed(*r.meaning())
        return meaning.hexdigest()


def _alone(request: Request) -> RequestGroup:
    """A request as a group of its own, which needs no class to say what its terms are."""
    terms = request.terms
    return RequestGroup(
        request.id, request.input_tokens, request.output_tokens, request.arrival, None,
        terms.class_name, terms.weight, terms.slo, request.predicted_output_tokens, terms.optional,
    )  # fmt: skip
