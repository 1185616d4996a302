"""What a scheduler sees of a request that has arrived."""

from __future__ import annotations

from fractions import Fraction

from infermax_opt.core.errors import InputError
from infermax_opt.infermax.data.instance import Request, ServiceLevel
from infermax_opt.infermax.replay.machine import Machine

__all__ = ["RequestView"]


class RequestView:
    """A request that has arrived, as it is now.

    Parameters
    ----------
    machine : Machine
        Tells of its progress.
    place : int
        Of the request in the instance.
    clairvoyant : bool
        Whether its output length is shown.
    """

    __slots__ = ("_clairvoyant", "_machine", "_place", "_request", "id", "input_tokens")

    id: str
    input_tokens: int

    def __init__(self, machine: Machine, place: int, clairvoyant: bool):
        request: Request = machine.instance.requests[place]
        self._machine, self._place, self._request = machine, place, request
        self._clairvoyant = clairvoyant
        self.id, self.input_tokens = request.id, request.input_tokens

    def __repr__(self) -> str:
        done = f"{self.cached_tokens} cached, {self.generated_tokens} generated"
        return f"<request {self.id!r}: {self.input_tokens} input tokens, {done}>"

    @property
    def arrival(self) -> Fraction:
        """Seconds."""
        return self._request.arrival

    @property
    def generated_tokens(self) -> int:
        """Tokens generated so far; an eviction loses none of them."""
        return self._machine.state.generated[self._place]

    @property
    def cached_tokens(self) -> int:
        """Tokens whose KV is cached; 0 for one that waits."""
        return self._machine.state.cached[self._place]

    @property
    def decoding(self) -> bool:
        """Whether its next token takes a decode step, which processes one token."""
        return self._place in self._machine.in_decode

    @property
    def prefill_left(self) -> int:
        """Tokens to process before its next one is generated, those generated before an eviction among them.

        0 for one in decode.
        """
        return 0 if self.decoding else self._machine.state.missing(self._place)

    @property
    def predicted_output_tokens(self) -> int | None:
        """What is predicted of its output; None where nothing is."""
        return self._request.predicted_output_tokens

    @property
    def output_tokens(self) -> int:
        """Tokens that it will have generated in the end, for the clairvoyant only.

        Raises
        ------
        InputError
            If the simulator is not clairvoyant.
        """
        if not self._clairvoyant:
            text = "are unknown before the last one; a scheduler with `clairvoyant = True` is shown them"
            raise InputError(text, field="output_tokens")
        return self._request.output_tokens

    @property
    def class_name(self) -> str | None:
        """Its class, if it has one."""
        return self._request.terms.class_name

    @property
    def weight(self) -> Fraction:
        """Its weight in objectives."""
        return self._request.terms.weight

    @property
    def slo(self) -> ServiceLevel:
        """Limits of its latencies, seconds; each is None where there is none."""
        return self._request.terms.slo

    @property
    def optional(self) -> bool:
        """Whether it may be left unfinished."""
        return self._request.terms.optional
