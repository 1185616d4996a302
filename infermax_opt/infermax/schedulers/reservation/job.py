"""A request on its way through a scheduler that reserves KV."""

from __future__ import annotations

import enum
from fractions import Fraction
from typing import TYPE_CHECKING

from infermax_opt.infermax.data.instance import Request

if TYPE_CHECKING:
    from infermax_opt.infermax.schedulers.reservation.region import Region

__all__ = ["Job", "Phase", "padded"]


class Phase(enum.Enum):
    """Where a request is."""

    #: It holds no KV.
    WAITING = "waiting"
    #: Its prompt, or what an eviction lost, is processed.
    PREFILL = "prefill"
    #: It is in decode and holds its KV, and is not executed: the queue of generations.
    QUEUED = "queued"
    #: It makes a token in every batch that decodes.
    RUNNING = "running"
    DONE = "done"


class Job:
    """State of a request; while it runs, `cached` and `generated` are those of step `since`.

    Parameters
    ----------
    place : int
        In the instance.
    request : Request
    arrival : int
        Ticks.
    deadline : int or None
        Ticks.
    expected : int
        Output tokens that it reserves for, padded.
    protected : bool
        Whether it reserves its true peak and is never evicted.

    Attributes
    ----------
    commit : int
        KV tokens that it takes of what there is, those in a region aside.
    limit : int
        The step after which it has no more KV of its own.
    region : Region or None
        Where it grows, its own or that of a host.
    stamp : int
        Number of its changes of phase; events of earlier ones are void.
    grants : int
        How often its prediction was too short.
    failed : bool
        Whether it ever needed KV while it was executed and did not get it.
    """

    __slots__ = (
        "arrival", "cached", "commit", "deadline", "expected", "failed", "generated", "grants", "group",
        "id", "inputs", "key", "level", "limit", "made_at_level", "outputs", "phase", "place", "predicted",
        "protected", "region", "since", "stamp",
    )  # fmt: skip

    def __init__(
        self,
        place: int,
        request: Request,
        arrival: int,
        deadline: int | None,
        predicted: int,
        expected: int,
        protected: bool,
    ):
        self.place, self.id = place, request.id
        self.inputs, self.outputs = request.input_tokens, request.output_tokens
        self.arrival, self.deadline = arrival, deadline
        self.predicted, self.expected, self.protected = predicted, expected, protected
        self.phase = Phase.WAITING
        self.cached = self.generated = self.since = self.limit = 0
        self.commit = self.stamp = self.grants = self.level = self.made_at_level = 0
        self.group = -1
        self.key: tuple[int | float, ...] = ()
        self.region: Region | None = None
        self.failed = False

    @property
    def target(self) -> int:
        """Tokens that have to be cached for its next one."""
        return self.inputs + self.generated

    @property
    def left(self) -> int:
        """Output tokens that it is expected to make yet, at least one."""
        return max(1, self.expected - self.generated)

    @property
    def order(self) -> tuple[int, int]:
        """Earlier arrivals first."""
        return self.arrival, self.place


def padded(tokens: int, padding: Fraction) -> int:
    """A prediction and its padding, rounded up."""
    return -(-tokens * (padding.denominator + padding.numerator) // padding.denominator)
