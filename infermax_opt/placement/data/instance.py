"""Instances of the placement problem: requests, the type of worker, and the latency limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from infermax_opt.core.checks import (
    MAX_REQUESTS,
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

__all__ = ["PlacementGroup", "PlacementInstance", "PlacementRequest", "Slo", "Worker"]

#: Largest token count, number of a worker, and of GPUs of a worker.
MAX_TOKENS, MAX_WORKERS, MAX_GPUS = 10**9, 10**6, 10**4


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """One request.

    `predicted_output_tokens` is what placements go by; `output_tokens` is what it will generate.
    `generated_tokens` and `decode_seconds` are what an ongoing one has behind it, on `worker`; a new one
    has none.
    """

    id: str
    input_tokens: int
    predicted_output_tokens: int
    output_tokens: int
    generated_tokens: int = 0
    decode_seconds: Fraction = Fraction(0)
    worker: int | None = None

    @property
    def ongoing(self) -> bool:
        """Whether it is on a worker already, where it stays."""
        return self.worker is not None

    @property
    def remaining_tokens(self) -> int:
        """Output tokens that it is predicted to generate yet."""
        return max(0, self.predicted_output_tokens - self.generated_tokens)


@dataclass(frozen=True)
class PlacementGroup:
    """A request, or `count` equal ones named ``id.1`` to ``id.count``.

    Its true output is as predicted, if not given.
    """

    id: str
    input_tokens: int
    predicted_output_tokens: int
    output_tokens: int | None = None
    generated_tokens: int = 0
    decode_seconds: Fraction = Fraction(0)
    worker: int | None = None
    count: int | None = None

    def __post_init__(self) -> None:
        checked_text(self.id, "id")
        limits = {
            "input_tokens": (1, MAX_TOKENS),
            "predicted_output_tokens": (1, MAX_TOKENS),
            "output_tokens": (1, MAX_TOKENS),
            "generated_tokens": (0, MAX_TOKENS),
            "worker": (1, MAX_WORKERS),
            "count": (1, MAX_REQUESTS),
        }
        optional = ("output_tokens", "worker", "count")
        for name, (least, most) in limits.items():
            value = getattr(self, name)
            if value is not None or name not in optional:
                object.__setattr__(self, name, checked_whole(value, name, least, most))
        object.__setattr__(self, "decode_seconds", checked_decimal(self.decode_seconds, "decode_seconds"))
        if self.worker is None and (self.generated_tokens or self.decode_seconds):
            raise InputError("is missing; a request under way is on one", field="worker")

    def expand(self) -> Iterator[PlacementRequest]:
        """Yield the requests it stands for."""
        true = self.predicted_output_tokens if self.output_tokens is None else self.output_tokens
        names = [self.id] if self.count is None else [f"{self.id}.{k}" for k in range(1, self.count + 1)]
        for name in names:
            yield PlacementRequest(
                name, self.input_tokens, self.predicted_output_tokens, true,
                self.generated_tokens, self.decode_seconds, self.worker,
            )  # fmt: skip


@dataclass(frozen=True)
class Worker:
    """The type of all workers, with the performance models of section 3.

    Parameters
    ----------
    kv_capacity : decimal
        M, in the unit of KV that `kv_token` and `kv_request` have (tokens, blocks, bytes).
    kv_token, kv_request : decimal
        h and j of eq 1: KV of a request of so many tokens is h * tokens + j.
    prefill_token, prefill_overhead : decimal
        k1 and c1 of eq 2, seconds.
    decode_context, decode_request, decode_overhead : decimal
        k2, c2 and c3 of eq 3, seconds: an iteration takes k2 * context + c2 * batch size + c3.
    gpus : int
    """

    kv_capacity: Fraction
    kv_token: Fraction
    kv_request: Fraction
    prefill_token: Fraction
    prefill_overhead: Fraction
    decode_context: Fraction
    decode_request: Fraction
    decode_overhead: Fraction
    gpus: int = 1

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if name == "gpus":
                object.__setattr__(self, name, checked_whole(self.gpus, "worker.gpus", 1, MAX_GPUS))
            else:
                object.__setattr__(self, name, checked_decimal(getattr(self, name), f"worker.{name}"))
        if self.kv_capacity == 0:
            raise InputError("0 is not above 0", field="worker.kv_capacity")

    def kv(self, tokens: int) -> Fraction:
        """KV of a request of so many tokens (eq 1)."""
        return self.kv_token * tokens + self.kv_request


@dataclass(frozen=True)
class Slo:
    """Latency limits in seconds.

    Parameters
    ----------
    ttft : decimal
        T_pre: of the prefill of all new requests of a worker.
    atgt : decimal
        T_dec: average time of a generated token.
    """

    ttft: Fraction
    atgt: Fraction

    def __post_init__(self) -> None:
        for name in ("ttft", "atgt"):
            value = checked_decimal(getattr(self, name), f"slo.{name}")
            if value == 0:
                raise InputError("0 is not above 0", field=f"slo.{name}")
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class PlacementInstance(ShownInstance):
    """New and ongoing requests at a heartbeat, to be placed on as few workers as possible.

    Parameters
    ----------
    name : str
    groups : iterable of PlacementGroup
    worker : Worker
    slo : Slo
    theta : decimal
        Share of the limits b and d that may be used, above 0 and up to 1.
    gamma : decimal
        Share of the output that counts as context in limit b, 0 to 1.
    horizon : int, optional
        K: iterations for which the KV is planned; None: until all requests are done.
    busy : mapping of int to decimal, optional
        Seconds until a worker ends the iteration it is in, which count against the TTFT limit; what is
        said of its ongoing requests is as of then.  A busy worker is in use, with or without such requests.
    split_phase : bool
        Whether other workers do the prefill (section 5.1): the limits c and d do not apply then.

    Raises
    ------
    InputError
        If a number is out of range or two requests share an id.
    """

    unit: ClassVar[tuple[str, str]] = ("worker", "workers")

    name: str
    groups: tuple[PlacementGroup, ...]
    worker: Worker
    slo: Slo
    theta: Fraction = Fraction(1)
    gamma: Fraction = Fraction(1, 2)
    horizon: int | None = None
    busy: Mapping[int, Fraction] = field(default_factory=dict)
    split_phase: bool = False

    def __post_init__(self) -> None:
        checked_text(self.name, "name")
        object.__setattr__(self, "groups", tuple(self.groups))
        for name in ("theta", "gamma"):
            object.__setattr__(self, name, _share(getattr(self, name), name))
        if self.horizon is not None:
            object.__setattr__(self, "horizon", checked_whole(self.horizon, "horizon", 1, MAX_TOKENS))
        object.__setattr__(self, "busy", _busy(self.busy))
        if not isinstance(self.split_phase, bool):
            raise InputError(f"{self.split_phase!r} is not true or false", field="split_phase")
        checked_total(self.groups)
        checked_ids((request.id for request in group.expand()) for group in self.groups)

    @classmethod
    def of_requests(
        cls,
        name: str,
        requests: Iterable[tuple[int, int]],
        worker: Worker,
        slo: Slo,
        theta: Number = 1,
        gamma: Number = "0.5",
    ) -> PlacementInstance:
        """Build an instance from (input, predicted output) token pairs of new requests, named ``r1``, ...

        Parameters
        ----------
        name : str
        requests : iterable of (int, int)
        worker : Worker
        slo : Slo
        theta, gamma : decimal
            Parameters of the limits, as of the class.
        """
        groups = tuple(PlacementGroup(f"r{k}", i, o) for k, (i, o) in enumerate(requests, 1))
        return cls(
            name, groups, worker, slo, checked_decimal(theta, "theta"), checked_decimal(gamma, "gamma")
        )

    @property
    def objective_name(self) -> str:
        """The objective, as results name it."""
        return "workers"

    @cached_property
    def requests(self) -> tuple[PlacementRequest, ...]:
        """All requests, groups expanded."""
        return tuple(request for group in self.groups for request in group.expand())

    @cached_property
    def in_use(self) -> frozenset[int]:
        """Workers that are in use whatever is done."""
        return frozenset(r.worker for r in self.requests if r.worker is not None).union(self.busy)

    @cached_property
    def index(self) -> dict[str, int]:
        """Position of each request id in `requests`."""
        return {request.id: k for k, request in enumerate(self.requests)}

    @cached_property
    def sha256(self) -> str:
        """Hash of the meaning: equal for files that differ only in notation."""
        meaning = Meaning("placement", self.name)
        feed = meaning.feed
        feed(*(getattr(self.worker, name) for name in self.worker.__dataclass_fields__))
        feed(self.slo.ttft, self.slo.atgt, self.theta, self.gamma, self.horizon, self.split_phase)
        feed(*(part for pair in sorted(self.busy.items()) for part in pair))
        for r in self.requests:
            feed(
                r.id, r.input_tokens, r.predicted_output_tokens, r.output_tokens,
                r.generated_tokens, r.decode_seconds, r.worker,
            )  # fmt: skip
        return meaning.hexdigest()


def _share(value: object, name: str) -> Fraction:
    """Theta or gamma, checked."""
    share = checked_decimal(value, name)
    if share > 1 or (share == 0 and name == "theta"):
        least = "above 0" if name == "theta" else "0 or more"
        raise InputError(f"{float(share):g} is not {least} and up to 1", field=name)
    return share


def _busy(value: object) -> dict[int, Fraction]:
    """Seconds per worker, checked."""
    if not isinstance(value, Mapping):
        raise InputError(f"{value!r} is not a mapping of worker to seconds", field="busy")
    return {
        checked_whole(worker, "busy", 1, MAX_WORKERS): checked_decimal(seconds, f"busy.{worker}")
        for worker, seconds in value.items()
    }
