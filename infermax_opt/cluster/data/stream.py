"""Streams: requests that arrive over time and are placed on workers at heartbeats."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from infermax_opt.core.checks import MAX_REQUESTS, Meaning, checked_decimal, checked_text, checked_whole
from infermax_opt.core.errors import InputError
from infermax_opt.core.shown import ShownInstance
from infermax_opt.placement.data.instance import (
    MAX_TOKENS,
    PlacementGroup,
    PlacementInstance,
    Slo,
    Worker,
)
from infermax_opt.placement.data.limits import unplaceable

__all__ = ["Stream", "StreamRequest", "stream_unplaceable"]

#: Most heartbeats from the first arrival to the last.
MAX_HEARTBEATS = 10**6


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """One request: arrival in seconds, tokens of its prompt, of its predicted and of its true output."""

    id: str
    arrival: Fraction
    input_tokens: int
    predicted_output_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class Stream(ShownInstance):
    """Requests over time, the workers, and the latency limits.

    Parameters
    ----------
    name : str
    requests : iterable of StreamRequest
        Kept by arrival; of equal ones, as given.
    worker : Worker
    slo : Slo
        ``ttft``: of the first token, from the heartbeat at which a request is placed (section 4.2; the wait
        for the heartbeat is not in it).  ``atgt``: decode time / (output tokens - 1), section 2.2.
    theta, gamma : decimal
        As in `infermax_opt.placement.data.instance.PlacementInstance`.
    heartbeat : decimal
        Seconds from one heartbeat to the next; the first is at 0.
    split_phase : bool
        Whether other workers do the prefill.  Requests then begin to decode at the heartbeat, with their
        first token there and nothing but decode iterations on the workers.

    Raises
    ------
    InputError
        If a number is out of range, two requests share an id, or one does not fit on a worker alone.
    """

    unit: ClassVar[tuple[str, str]] = ("worker", "workers")

    name: str
    requests: tuple[StreamRequest, ...]
    worker: Worker
    slo: Slo
    theta: Fraction = Fraction(1)
    gamma: Fraction = Fraction(1, 2)
    heartbeat: Fraction = Fraction(1)
    split_phase: bool = False

    def __post_init__(self) -> None:
        checked_text(self.name, "name")
        for name, least, most in (("theta", 0, 1), ("gamma", 0, 1), ("heartbeat", 0, 10**6)):
            value = checked_decimal(getattr(self, name), name)
            if not least <= value <= most or (value == 0 and name != "gamma"):
                bound = "0 or more" if name == "gamma" else "above 0"
                raise InputError(f"{float(value):g} is not {bound} and up to {most}", field=name)
            object.__setattr__(self, name, value)
        if not isinstance(self.split_phase, bool):
            raise InputError(f"{self.split_phase!r} is not true or false", field="split_phase")
        object.__setattr__(self, "requests", _checked(self.requests, self.worker))
        last = self.requests[-1].arrival / self.heartbeat
        if last > MAX_HEARTBEATS:
            problem = (
                f"the last arrival is {float(last):.3g} heartbeats after 0; the most is {MAX_HEARTBEATS}"
            )
            raise InputError(problem, field="heartbeat")

    @property
    def objective_name(self) -> str:
        """The objective, as results name it."""
        return "mean_workers"

    @cached_property
    def index(self) -> dict[str, int]:
        """Position of each request id in `requests`."""
        return {request.id: k for k, request in enumerate(self.requests)}

    def beat(self, request: StreamRequest) -> int:
        """Number of the heartbeat at which a request is placed: the first at or after its arrival."""
        return -(-request.arrival // self.heartbeat)

    @cached_property
    def beats(self) -> dict[int, tuple[int, ...]]:
        """Positions of the requests placed at each heartbeat that has any, in rising order."""
        found: dict[int, list[int]] = {}
        for k, request in enumerate(self.requests):
            found.setdefault(self.beat(request), []).append(k)
        return {beat: tuple(members) for beat, members in found.items()}

    @cached_property
    def at_once(self) -> PlacementInstance:
        """All requests as the new ones of one heartbeat: what limits say of each alone."""
        groups = tuple(
            PlacementGroup(r.id, r.input_tokens, r.predicted_output_tokens, r.output_tokens)
            for r in self.requests
        )
        return PlacementInstance(
            self.name, groups, self.worker, self.slo, self.theta, self.gamma, split_phase=self.split_phase
        )

    @cached_property
    def sha256(self) -> str:
        """Hash of the meaning: equal for files that differ only in notation."""
        meaning = Meaning("stream", self.name)
        feed = meaning.feed
        feed(*(getattr(self.worker, name) for name in self.worker.__dataclass_fields__))
        feed(self.slo.ttft, self.slo.atgt, self.theta, self.gamma, self.heartbeat, self.split_phase)
        for r in self.requests:
            feed(r.id, r.arrival, r.input_tokens, r.predicted_output_tokens, r.output_tokens)
        return meaning.hexdigest()


def _checked(given: Iterable[StreamRequest], worker: Worker) -> tuple[StreamRequest, ...]:
    """The requests by arrival, every number checked."""
    found: dict[str, StreamRequest] = {}
    for index, some in enumerate(given):
        path = f"requests[{index}]"
        if index == MAX_REQUESTS:
            raise InputError(f"more than {MAX_REQUESTS} requests in all", field="requests")
        checked_text(some.id, f"{path}.id")
        if some.id in found:
            raise InputError(f"id {some.id!r} is used twice", field=f"{path}.id")
        tokens = [
            checked_whole(getattr(some, name), f"{path}.{name}", 1, MAX_TOKENS)
            for name in ("input_tokens", "output_tokens", "predicted_output_tokens")
        ]
        prompt, output, predicted = tokens
        arrival = checked_decimal(some.arrival, f"{path}.arrival")
        request = StreamRequest(some.id, arrival, prompt, predicted, output)
        # Its last token is never cached.
        most = worker.kv(request.input_tokens + request.output_tokens - 1)
        if most > worker.kv_capacity:
            raise InputError(
                f"request {some.id!r} needs KV {float(most):.9g} at its end, a worker has "
                f"{float(worker.kv_capacity):.9g}",
                field=path,
            )
        found[some.id] = request
    if not found:
        raise InputError("holds no request; at least 1 is needed", field="requests")
    return tuple(sorted(found.values(), key=lambda request: request.arrival))


def stream_unplaceable(stream: Stream) -> list[str]:
    """One line for each limit that a request exceeds by itself on a fresh worker."""
    return unplaceable(stream.at_once)
