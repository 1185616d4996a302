"""The schedule of what a simulator ran, in as few entries as it takes."""

from __future__ import annotations

from fractions import Fraction

from infermax_opt.infermax.data.schedule import Batch, run_length
from infermax_opt.infermax.replay.machine import Machine, Step

__all__ = ["Record"]


class Record:
    """Batches so far.

    One in which all in decode make a token says so with `decode_all`, however the scheduler put it.
    """

    def __init__(self) -> None:
        self._entries: list[Batch] = []
        #: Batches behind these in which all in decode make a token, and nothing else happens.
        self._decodes = 0

    def add(self, machine: Machine, step: Step, start: Fraction | None) -> None:
        """Add a batch that is about to run.

        Parameters
        ----------
        machine : Machine
        step : Step
            What the batch does.
        start : Fraction or None
            When it starts, seconds, if it waits.
        """
        in_decode, requests = machine.in_decode, machine.instance.requests
        if step.rest is in_decode and in_decode and not step.chosen and not step.evicted and start is None:
            self._decodes += 1
            return
        able = len(in_decode) - sum(i in in_decode for i in step.evicted)
        everybody = 0 < step.features.decodes == able
        tokens = {
            requests[i].id: count
            for i, count in step.chosen.items()
            if not (everybody and i in in_decode)
        }  # fmt: skip
        self._settle()
        evict = tuple(requests[i].id for i in step.evicted)
        self._entries.append(Batch(tokens, evict, start, everybody))

    def batches(self) -> tuple[Batch, ...]:
        """All so far, equal ones in a row as one entry."""
        self._settle()
        return run_length(self._entries)

    def _settle(self) -> None:
        if self._decodes:
            self._entries.append(Batch(decode_all=True, repeat=self._decodes))
            self._decodes = 0
