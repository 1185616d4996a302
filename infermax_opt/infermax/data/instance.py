"""Instances: requests, the machine's limits, the policy, the cost model, the objective."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

from infermax_opt.core.checks import (
    MAX_REQUESTS,
    MAX_TOKENS,
    Meaning,
    checked_ids,
    checked_text,
    checked_total,
    checked_whole,
)
from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import Number, decimal_text, to_fraction
from infermax_opt.infermax.data.cost import CostModel

__all__ = [
    "Instance",
    "Metric",
    "Objective",
    "Policy",
    "Request",
    "RequestGroup",
    "RequestType",
    "System",
]


class Metric(enum.Enum):
    """What can be minimised.

    ``makespan``: end of the last batch.  ``mean_ttft``: mean of (first token - arrival).
    ``mean_tpot``: mean over requests with at least two output tokens of
    (last token - first token) / (output tokens - 1).  ``mean_e2e``: mean of
    (last token - arrival).
    """

    MAKESPAN = "makespan"
    MEAN_TTFT = "mean_ttft"
    MEAN_TPOT = "mean_tpot"
    MEAN_E2E = "mean_e2e"


def _weight(key: str, number: Number) -> tuple[Metric, Fraction]:
    """One weight of an objective."""
    try:
        metric = Metric(key)
    except ValueError:
        weighable = ", ".join(metric.value for metric in Metric)
        raise InputError(f"{key!r} is none of {weighable}", field="objective") from None
    try:
        weight = to_fraction(number)
    except ValueError as error:
        raise InputError(str(error), field=f"objective.{key}") from None
    if weight < 0:
        raise InputError(f"{number} is negative; the least is 0", field=f"objective.{key}")
    return metric, weight


@dataclass(frozen=True)
class Objective:
    """A weighted sum of metrics, to be minimised, in seconds.

    ``"throughput"`` (tokens per second, maximised) has the optimal schedules of the makespan, as
    the number of generated tokens is fixed; its bounds are stated on the makespan.
    """

    weights: tuple[tuple[Metric, Fraction], ...]
    name: str | None = None

    @classmethod
    def of(cls, value: Objective | str | Mapping[str, Number]) -> Objective:
        """Read an objective: a metric's name, ``"throughput"``, or a mapping metric -> weight."""
        if isinstance(value, Objective):
            return value
        allowed = ", ".join([*(metric.value for metric in Metric), "throughput"])
        if isinstance(value, str):
            if value == "throughput":
                return cls(((Metric.MAKESPAN, Fraction(1)),), name="throughput")
            try:
                return cls(((Metric(value), Fraction(1)),), name=value)
            except ValueError:
                raise InputError(f"{value!r} is none of {allowed}", field="objective") from None
        if not isinstance(value, Mapping) or not value:
            raise InputError(f"{value!r} is neither a name nor an object of weights", field="objective")
        weights = dict(_weight(key, number) for key, number in value.items())
        if not any(weights.values()):
            raise InputError("every weight is 0", field="objective")
        return cls(tuple((metric, weights[metric]) for metric in Metric if weights.get(metric)))

    @property
    def is_makespan(self) -> bool:
        """Whether only the makespan counts, with weight one."""
        return self.weights == ((Metric.MAKESPAN, Fraction(1)),)

    @property
    def is_searched(self) -> bool:
        """Whether bounds on it are searched for, which closed forms are not."""
        return self.is_makespan or self.name == Metric.MEAN_E2E.value

    def weight(self, metric: Metric) -> Fraction:
        """Weight of `metric`, 0 where it does not count."""
        return dict(self.weights).get(metric, Fraction(0))

    def to_json(self) -> str | dict[str, str]:
        """Return the value that `of` reads."""
        if self.name is not None:
            return self.name
        return {metric.value: decimal_text(weight) for metric, weight in self.weights}

    def __str__(self) -> str:
        if self.name is not None:
            return self.name
        return " + ".join(f"{decimal_text(w)} {metric.value}" for metric, w in self.weights)


@dataclass(frozen=True, slots=True)
class Request:
    """One request: known input and output lengths in tokens, arrival in seconds."""

    id: str
    input_tokens: int
    output_tokens: int
    arrival: Fraction = Fraction(0)

    @property
    def peak_kv(self) -> int:
        """Most tokens it ever caches: the last generated token never is."""
        return self.input_tokens + self.output_tokens - 1


@dataclass(frozen=True)
class RequestGroup:
    """A request, or `count` identical ones named ``id.1`` to ``id.count``."""

    id: str
    input_tokens: int
    output_tokens: int
    arrival: Number = Fraction(0)
    count: int | None = None

    def __post_init__(self) -> None:
        checked_text(self.id, "id")
        for name in ("input_tokens", "output_tokens"):
            object.__setattr__(self, name, checked_whole(getattr(self, name), name, 1, MAX_TOKENS))
        if self.count is not None:
            object.__setattr__(self, "count", checked_whole(self.count, "count", 1, MAX_REQUESTS))
        try:
            arrival = to_fraction(self.arrival)
        except ValueError as error:
            raise InputError(str(error), field="arrival") from None
        if arrival < 0:
            raise InputError(f"{self.arrival} is negative; the least is 0", field="arrival")
        object.__setattr__(self, "arrival", arrival)

    def expand(self) -> Iterator[Request]:
        """Yield the requests it stands for."""
        arrival = Fraction(self.arrival)
        if self.count is None:
            yield Request(self.id, self.input_tokens, self.output_tokens, arrival)
            return
        for k in range(1, self.count + 1):
            yield Request(f"{self.id}.{k}", self.input_tokens, self.output_tokens, arrival)


@dataclass(frozen=True)
class RequestType:
    """Requests that no schedule can tell apart, but for their names."""

    input_tokens: int
    output_tokens: int
    arrival: Fraction
    members: tuple[int, ...]


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
class Instance:
    """A workload, a machine, a policy, a cost model and an objective.

    Parameters
    ----------
    name : str
    groups : iterable of RequestGroup
        The requests, in queue order.
    system, policy, cost : System, Policy, CostModel
    objective : Objective, str or mapping

    Raises
    ------
    InputError
        If two requests share an id, or if a request could never be served alone: its peak KV
        does not fit, or its prompt exceeds a batch and chunked prefill is off.
    """

    unit: ClassVar[tuple[str, str]] = ("s", "s")

    name: str
    groups: tuple[RequestGroup, ...]
    system: System
    cost: CostModel
    policy: Policy = field(default_factory=Policy)
    objective: Objective = field(default_factory=lambda: Objective.of("makespan"))

    def __post_init__(self) -> None:
        checked_text(self.name, "name")
        object.__setattr__(self, "groups", tuple(self.groups))
        object.__setattr__(self, "objective", Objective.of(self.objective))
        checked_total(self.groups)
        for index, group in enumerate(self.groups):
            self._check_fits(group, f"requests[{index}]")
        checked_ids((request.id for request in group.expand()) for group in self.groups)

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
    def objective_name(self) -> str:
        """The objective, as results name it."""
        return str(self.objective)

    @cached_property
    def requests(self) -> tuple[Request, ...]:
        """All requests, groups expanded, in queue order."""
        return tuple(request for group in self.groups for request in group.expand())

    @cached_property
    def index(self) -> dict[str, int]:
        """Position of each request id in `requests`."""
        return {request.id: k for k, request in enumerate(self.requests)}

    @cached_property
    def types(self) -> tuple[RequestType, ...]:
        """Requests grouped by (input, output, arrival), in order of first appearance."""
        members: dict[tuple[int, int, Fraction], list[int]] = {}
        for k, r in enumerate(self.requests):
            members.setdefault((r.input_tokens, r.output_tokens, r.arrival), []).append(k)
        return tuple(RequestType(*key, tuple(value)) for key, value in members.items())

    @cached_property
    def offline(self) -> bool:
        """Whether every request is there from the start."""
        return all(group.arrival == 0 for group in self.groups)

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
        feed(self.objective.name, *(v for w in self.objective.weights for v in (w[0].value, w[1])))
        for r in self.requests:
            feed(r.id, r.input_tokens, r.output_tokens, r.arrival)
        return meaning.hexdigest()
