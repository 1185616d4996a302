"""A machine that runs one batch after the other, exactly as the replay of the schedule will."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import Number
from infermax_opt.files.fields import shown
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, System
from infermax_opt.infermax.data.intervals import refuse_intervals
from infermax_opt.infermax.data.schedule import MAX_BATCHES, Batch, Schedule, TooManyBatches
from infermax_opt.infermax.replay.machine import Machine, Step
from infermax_opt.infermax.replay.plain import tick_unit
from infermax_opt.infermax.replay.rules import Violation, before_arrival
from infermax_opt.infermax.simulator.record import Record
from infermax_opt.infermax.simulator.request import RequestView

__all__ = ["BrokenRule", "Simulator", "Tokens"]

#: Requests, or their ids, and the tokens that each processes.
Tokens = Mapping[str, int] | Mapping[RequestView, int] | Mapping[str | RequestView, int]


class BrokenRule(InputError):
    """A batch that a rule forbids; it was not run.

    Attributes
    ----------
    violation : Violation
        Rule, batch, request, value and limit.
    """

    violation: Violation

    @classmethod
    def of(cls, violation: Violation) -> BrokenRule:
        """The error that tells of a violation."""
        error = cls(str(violation))
        error.violation = violation
        return error


class Simulator:
    """Runs batches of an instance one by one, and shows in between what a scheduler may know.

    Requests that have not arrived are hidden, and so are output lengths.  Where no request is left to serve
    but others will arrive, the clock stands at the next arrival.

    Parameters
    ----------
    instance : Instance
    clairvoyant : bool
        Whether requests that have arrived show their output lengths.

    Attributes
    ----------
    system, policy, cost : System, Policy, CostModel
        Limits of the machine; what is allowed; how long a batch takes.
    """

    def __init__(self, instance: Instance, *, clairvoyant: bool = False):
        refuse_intervals(instance, "a simulator")
        self.system: System = instance.system
        self.policy: Policy = instance.policy
        self.cost: CostModel = instance.cost
        self._instance, self._machine, self._record = instance, Machine(instance), Record()
        self._clairvoyant = clairvoyant
        self._unit = tick_unit(instance, Schedule(instance.name, ()))
        #: Now, and the end of the last batch, ticks.
        self._ticks = self._ended = 0
        # The next one to arrive last.
        self._sets = instance.release_sets[::-1]  # of a closed loop, the next one last
        #: Requests of a closed loop that have not arrived; of the set that has, how many are not done.
        self._next = {i for members in self._sets[:-1] for i in members}
        self._open = set(self._sets.pop()) if self._sets else set()
        arrivals = ((int(r.arrival * self._unit), i) for i, r in enumerate(instance.requests))
        self._coming = sorted((pair for pair in arrivals if pair[1] not in self._next), reverse=True)
        self._waiting: dict[int, RequestView] = {}
        self._running: dict[int, RequestView] = {}
        #: The public tuples of these, made when they are asked for.
        self._shown: dict[str, tuple[RequestView, ...]] = {}
        self._arrive()

    # --- what a scheduler sees --------------------------------------------------------------------

    @property
    def now(self) -> Fraction:
        """Seconds since the start, exact."""
        return Fraction(self._ticks, self._unit)

    @property
    def waiting(self) -> tuple[RequestView, ...]:
        """Requests that have arrived and hold no KV, those that began to wait first in front.

        An evicted one begins to wait again.
        """
        return self._shown.get("waiting") or self._show("waiting", self._waiting.values())

    @property
    def running(self) -> tuple[RequestView, ...]:
        """Requests that hold KV, those that got theirs first in front."""
        return self._shown.get("running") or self._show("running", self._running.values())

    @property
    def decoding(self) -> tuple[RequestView, ...]:
        """Those that run and are in decode, in the same order."""
        return self._shown.get("decoding") or self._show(
            "decoding", (view for i, view in self._running.items() if i in self._machine.in_decode)
        )

    @property
    def prefilling(self) -> tuple[RequestView, ...]:
        """Those that run and are not in decode, in the same order."""
        return self._shown.get("prefilling") or self._show(
            "prefilling", (view for i, view in self._running.items() if i not in self._machine.in_decode)
        )

    @property
    def free_kv(self) -> int:
        """KV tokens that nobody holds."""
        return self.system.kv_capacity - self._machine.state.held

    @property
    def decode_growth(self) -> int:
        """KV tokens that all in decode together need more for one token each, in whole blocks."""
        return self._machine.growth(self._machine.in_decode)

    @property
    def batches(self) -> int:
        """Batches run so far."""
        return self._machine.position

    @property
    def fruitless(self) -> int:
        """Batches since one has generated a token."""
        return self._machine.position - self._machine.fruitful - 1

    @property
    def done(self) -> bool:
        """Whether every request has generated all its tokens."""
        return not (self._coming or self._waiting or self._running)

    def schedule(self) -> Schedule:
        """The schedule of all batches so far."""
        return Schedule(self._instance.name, self._record.batches())

    # --- what a scheduler does --------------------------------------------------------------------

    def step(self, batch: Batch | Tokens) -> None:
        """Run a batch, and let time pass until it ends.

        Parameters
        ----------
        batch : Batch or mapping
            A mapping of requests, or of their ids, to the tokens that each processes; or a `Batch`, which can
            also evict requests, start later, let all in decode make a token, and repeat itself.

        Raises
        ------
        BrokenRule
            If a rule forbids it.  Nothing has happened then but for the repetitions before.
        InputError
            If it is no batch, or there are more than `MAX_BATCHES`.
        """
        entry = _entry(batch)
        for k in range(entry.repeat):
            self._step(entry, opens=k == 0)

    def wait(self) -> None:
        """Let time pass until the next request arrives.

        Raises
        ------
        InputError
            If none will.
        """
        if not self._coming:
            raise InputError("nobody is to arrive any more")
        self._ticks = self._coming[-1][0]
        self._arrive()

    def wait_until(self, seconds: Number) -> None:
        """Let time pass until then, if that is later than now.

        Raises
        ------
        InputError
            If it is negative or no decimal.
        """
        self._ticks = self._tick(Batch(start=seconds))  # type: ignore[arg-type]  # which reads any number
        self._arrive()

    # --- how it works -----------------------------------------------------------------------------

    def _show(self, name: str, views: Iterable[RequestView]) -> tuple[RequestView, ...]:
        shown = self._shown[name] = tuple(views)
        return shown

    def _step(self, entry: Batch, opens: bool) -> None:
        machine = self._machine
        if machine.position >= MAX_BATCHES:
            raise TooManyBatches.than(MAX_BATCHES)
        step = machine.examine(entry, opens)
        began = self._tick(entry) if opens and entry.start is not None else self._ticks
        self._check(step, began)
        if began > self._ticks:
            self._ticks = began
            self._arrive()
        self._record.add(machine, step, Fraction(began, self._unit) if began > self._ended else None)
        done = machine.run(step)
        scale = self._unit // self.cost.ticks_per_second
        self._ticks = self._ended = began + self.cost.batch_ticks(step.features) * scale
        if step.chosen or step.evicted or done:
            self._move(step, done)
        if self._open:
            self._release(done)
        self._arrive()

    def _check(self, step: Step, began: int) -> None:
        """Refuse a batch that breaks a rule."""
        if step.faults:
            raise BrokenRule.of(step.faults[0])
        for i in step.chosen:
            if i not in self._running and i not in self._waiting:
                request, moment = self._instance.requests[i], Fraction(began, self._unit)
                arrival = None if i in self._next else request.arrival
                early = before_arrival(request, moment, self._machine.position + 1, arrival)
                if early is not None:
                    raise BrokenRule.of(early)

    def _move(self, step: Step, done: list[int]) -> None:
        """Requests begin to run, end and wait again."""
        waiting, running = self._waiting, self._running
        still = self._shown.get("waiting")
        for i in step.evicted:
            waiting[i] = running.pop(i)
        for i in step.chosen:
            if i in waiting:
                running[i] = waiting.pop(i)
                still = None
        for i in done:
            del running[i]
        self._shown.clear()
        if still is not None and not step.evicted:
            self._shown["waiting"] = still

    def _release(self, done: list[int]) -> None:
        """Let the next set of a closed loop arrive where this one is complete."""
        self._open.difference_update(done)
        if not self._open and self._sets:
            members = self._sets.pop()
            self._open = set(members)
            self._next -= self._open
            self._coming += [(self._ticks, i) for i in members]
            self._coming.sort(reverse=True)

    def _arrive(self) -> None:
        """Show who has arrived; where nobody else is left, at the next arrival."""
        coming = self._coming
        if coming and not self._waiting and not self._running:
            self._ticks = max(self._ticks, coming[-1][0])
        while coming and coming[-1][0] <= self._ticks:
            i = coming.pop()[1]
            self._waiting[i] = RequestView(self._machine, i, self._clairvoyant)
            self._shown.pop("waiting", None)

    def _tick(self, entry: Batch) -> int:
        """When an entry starts, in ticks, which become finer where they have to; now, if that is later."""
        if entry.start is None:
            return self._ticks
        finer = math.lcm(self._unit, entry.start.denominator) // self._unit
        if finer > 1:
            self._unit *= finer
            self._ticks *= finer
            self._ended *= finer
            self._coming = [(ticks * finer, i) for ticks, i in self._coming]
        return max(self._ticks, int(entry.start * self._unit))


def _entry(batch: Batch | Tokens) -> Batch:
    """A batch, however it is given, with ids for requests."""
    if isinstance(batch, Batch):
        if not (batch.tokens or batch.evict) or all(
            type(key) is str for key in (*batch.tokens, *batch.evict)
        ):
            return batch
        evict = tuple(map(_name, batch.evict))
        return replace(batch, tokens=_named(batch.tokens), evict=evict)
    if isinstance(batch, Mapping):
        return Batch(_named(batch))
    if inspect.iscoroutine(batch):
        batch.close()
        raise InputError("an async function gives no batch: nobody awaits it")
    raise InputError(f"{shown(batch)} is no batch: neither a Batch nor a mapping of requests to tokens")


def _named(tokens: Mapping[Any, int]) -> dict[str, int]:
    return {_name(key): count for key, count in tokens.items()}


def _name(key: object) -> str:
    if isinstance(key, RequestView):
        return key.id
    if isinstance(key, str):
        return key
    raise InputError(f"{key!r} is neither a request nor an id of one")
