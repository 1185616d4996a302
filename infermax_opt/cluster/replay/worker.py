r"""One worker, replayed exactly with the latency models of section 3.

A worker runs one iteration after the other.

- *Prefill*: if requests wait, and the KV of the first of them fits beside what is held, one iteration does
  the prompts of as many as fit, in the order of arrival.  It takes k1 (tokens) + c1 (eq 2), and each of them
  has its next token at its end.
- *Decode*: else, one iteration gives every running request its next token.  It takes k2 (context) + c2 (batch
  size) + c3 (eq 3), where the context of a request are its prompt and its tokens so far, which is what it
  holds of KV meanwhile (eq 1).
- *Preemption*: if the KV of the next decode iteration does not fit, the request that came last loses its KV
  and waits, before all others, until its prompt and its tokens fit again for another prefill.  Where limit e
  held with true output lengths, this never happens: planned KV is at least what is held.

Many decode iterations between two events are one step: with b requests of context L in all, n of them take
n (k2 L + c2 b + c3) + k2 b n (n - 1) / 2.

Times are whole ticks, KV is in whole units (`Units`).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from infermax_opt.cluster.data.stream import Stream
from infermax_opt.core.exact import common_denominator

__all__ = ["Served", "Units", "WorkerReplay"]


@dataclass(frozen=True, slots=True)
class Units:
    """The performance models of a stream in ticks and units of KV."""

    ticks_per_second: int
    prefill_token: int
    prefill_overhead: int
    decode_context: int
    decode_request: int
    decode_overhead: int
    heartbeat: int
    kv_capacity: int
    kv_token: int
    kv_request: int

    @classmethod
    def of(cls, stream: Stream) -> Units:
        """Work out the units.

        A tick is half a unit of the last decimal, so that a sum of k2 b n (n - 1) / 2 is whole.
        """
        w = stream.worker
        names = (
            "prefill_token", "prefill_overhead", "decode_context", "decode_request", "decode_overhead",
        )  # fmt: skip
        times = [*(getattr(w, name) for name in names), stream.heartbeat]
        ticks = 2 * common_denominator(times)
        kv = [w.kv_capacity, w.kv_token, w.kv_request]
        scale = common_denominator(kv)
        return cls(ticks, *(int(value * ticks) for value in times), *(int(value * scale) for value in kv))


@dataclass(slots=True)
class Served:
    """What happened to a request on its worker; times in ticks, None until then.

    Attributes
    ----------
    tokens : int
        Generated so far.
    first, last : int or None
        When its first token was there, and its last one.
    evictions : int
    """

    input_tokens: int
    output_tokens: int
    tokens: int = 0
    first: int | None = None
    last: int | None = None
    evictions: int = 0


class WorkerReplay:
    """Replay of one worker.

    Attributes
    ----------
    clock : int
        Tick up to which it is replayed: the end of an iteration, or the last moment asked for.
    """

    def __init__(self, units: Units, clock: int, *, split_phase: bool):
        self.units, self.clock, self.split_phase = units, clock, split_phase
        self.steps = 0  # decode iterations so far
        self.context = 0  # of all running requests, in the next iteration
        #: Running requests by key, in the order of their prefill, with `steps` then less their tokens.
        self.running: dict[int, tuple[Served, int]] = {}
        self.ends: list[tuple[int, int]] = []  # `steps` at the end, key
        self.waiting: deque[tuple[int, Served]] = deque()
        self.preemptions = 0

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self.running and not self.waiting

    def copy(self, outputs: Mapping[int, int]) -> WorkerReplay:
        """A worker in the same state whose requests, by key, generate so many tokens in the end."""
        other = WorkerReplay(self.units, self.clock, split_phase=self.split_phase)
        other.steps, other.context = self.steps, self.context

        def copied(key: int, served: Served, tokens: int) -> Served:
            return Served(
                served.input_tokens, outputs[key], tokens, served.first, served.last, served.evictions
            )

        for key, (served, base) in self.running.items():
            other.running[key] = copied(key, served, self.steps - base), base
            other.ends.append((base + outputs[key], key))
        heapq.heapify(other.ends)
        other.waiting.extend((key, copied(key, served, served.tokens)) for key, served in self.waiting)
        return other

    def add(self, key: int, served: Served, now: int) -> None:
        """Let a new request wait for its prefill; in split phase, for its second token.

        Parameters
        ----------
        key : int
            Its name on this worker.
        served : Served
            Its lengths; its times are set as they come.
        now : int
            Tick of its arrival.
        """
        if self.split_phase:
            served.tokens, served.first = 1, now
            if served.output_tokens == 1:
                served.last = now
                return
        self.waiting.append((key, served))

    def members(self) -> list[tuple[int, Served]]:
        """Requests on the worker, with their tokens so far."""
        for served, base in self.running.values():
            served.tokens = self.steps - base
        return [*((key, served) for key, (served, _) in self.running.items()), *self.waiting]

    def advance(self, until: int | None) -> None:
        """Replay all iterations that begin before a tick; None: until all is done."""
        while until is None or self.clock < until:
            if self._admit():
                continue
            if self.running:
                self._decode(until)
            elif until is None:
                return
            else:
                self.clock = until

    def _kv(self, context: int, requests: int) -> int:
        return self.units.kv_token * context + self.units.kv_request * requests

    def _admit(self) -> bool:
        """Run a prefill of the requests that wait and fit, if any."""
        chosen: list[tuple[int, Served]] = []
        tokens = 0
        for key, served in self.waiting:
            more = tokens + served.input_tokens + served.tokens
            number = len(self.running) + len(chosen) + 1
            if self._kv(self.context + more, number) > self.units.kv_capacity:
                break
            chosen.append((key, served))
            tokens = more
        if not chosen:
            return False
        # In split phase, what was not evicted comes with its KV.
        work = tokens
        if self.split_phase:
            work = sum(s.input_tokens + s.tokens for _, s in chosen if s.evictions)
        if work:
            self.clock += self.units.prefill_token * work + self.units.prefill_overhead
        for key, served in chosen:
            self.waiting.popleft()
            if not self.split_phase or served.evictions:
                served.tokens += 1
            if served.first is None:
                served.first = self.clock
            if served.tokens == served.output_tokens:
                served.last = self.clock
                continue
            self.running[key] = served, self.steps - served.tokens
            self.context += served.input_tokens + served.tokens
            heapq.heappush(self.ends, (self.steps + served.output_tokens - served.tokens, key))
        return True

    def _decode(self, until: int | None) -> None:
        """Run decode iterations up to the next event, the first that ends at or after `until` included."""
        units, batch = self.units, len(self.running)
        room = units.kv_capacity - self._kv(self.context, batch)
        if room < 0:
            self._evict()
            return
        number = self.ends[0][0] - self.steps
        growth = units.kv_token * batch
        if growth:
            number = min(number, room // growth + 1)
        one = units.decode_context * self.context + units.decode_request * batch + units.decode_overhead
        rise = units.decode_context * batch

        def takes(n: int) -> int:
            return n * one + rise * n * (n - 1) // 2

        if until is not None and takes(number) > until - self.clock:
            low = 0
            while number - low > 1:
                middle = (low + number) // 2
                if takes(middle) >= until - self.clock:
                    number = middle
                else:
                    low = middle
        self.clock += takes(number)
        self.steps += number
        self.context += number * batch
        while self.ends and self.ends[0][0] == self.steps:
            served, _ = self.running.pop(heapq.heappop(self.ends)[1])
            served.tokens, served.last = served.output_tokens, self.clock
            self.context -= served.input_tokens + served.tokens

    def _evict(self) -> None:
        """Take the KV of the request that came last."""
        key = next(reversed(self.running))
        served, base = self.running.pop(key)
        served.tokens = self.steps - base
        served.evictions += 1
        self.preemptions += 1
        self.context -= served.input_tokens + served.tokens
        self.waiting.appendleft((key, served))
        # Its end is another one now.
        self.ends = [(step, other) for step, other in self.ends if other != key]
        heapq.heapify(self.ends)
