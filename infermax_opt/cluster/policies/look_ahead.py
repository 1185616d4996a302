r"""Look-ahead: best-fit that keeps the latency limits themselves instead of the limits a to e.

Requests are taken in the order of arrival.  Each goes to the most loaded worker (the paper's capacity_norm)
that *keeps its word* with it: a copy of the worker, with what was placed on it at this heartbeat and the
request, is replayed to its end as if nothing else came.  There every request must have TTFT and ATGT within
their limits, those already on the worker too, and none may lose its KV.  Where no worker does, a fresh one
takes the request.  Output lengths are the predictions, doubled as `prediction` says.  For wrong ones there is
theta: where it is below 1, the ATGT aimed at is c3 + theta (T_dec - c3), unless a request misses it alone.

*With true predictions every request meets its limits, whatever comes later.*  A worker depends on its own
requests only, and runs like its copy until it is given another one.  It is given one only after a copy with
all who are there and that one has been replayed: so after its last one, it runs like a copy in which all
requests who were there then met their limits.  Those who had ended before are in an earlier copy, which it
followed at least until they ended.

A replay takes a while, and most workers are full.  If all that wait on a worker fit at once with the
request, one prefill takes them, and then all of them get a token with each iteration until they end.  So a
request there of n more iterations and context L costs the others, in their first m iterations, D(L, min(m,
n)) = k2 (j L + j (j - 1) / 2) + c2 j with j = min(m, n), and what each of them can still lose is known from
the last copy.  These sums tell who cannot be taken, without a replay; who is taken is always replayed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from infermax_opt.cluster.data.stream import Stream
from infermax_opt.cluster.replay.replay import Beat, prediction
from infermax_opt.cluster.replay.worker import Served, WorkerReplay
from infermax_opt.core.errors import InputError

__all__ = ["LookAhead"]


class LookAhead:
    """The policy ``look-ahead`` of one replay."""

    def __init__(self) -> None:
        self._outlooks: dict[int, _Outlook] = {}

    def __call__(self, beat: Beat) -> Mapping[str, int]:
        """Choose the worker of each new request.

        Raises
        ------
        InputError
            If a request does not meet its limits even alone on a worker.
        """
        rules = _Rules(beat, beat.stream.theta)
        places = {
            number: _Place(rules, worker, self._outlooks.get(number))
            for number, worker in beat.workers.items()
        }
        chosen = {}
        for key in beat.new:
            # Of equals, the worker with the lowest number.
            for _, number in sorted((-place.load, number) for number, place in places.items()):
                if places[number].takes(key):
                    break
            else:
                number = next(n for n in itertools.count(1) if n not in places)
                places[number] = _fresh(beat, key)
            chosen[beat.stream.requests[key].id] = number
        self._outlooks = {number: place.outlook for number, place in places.items() if place.outlook}
        return chosen


def _fresh(beat: Beat, key: int) -> _Place:
    """A fresh worker with a request."""
    rules = _Rules(beat, beat.stream.theta)
    for some in (rules, _Rules(beat, Fraction(1))):
        worker = WorkerReplay(beat.units, rules.now, split_phase=beat.stream.split_phase)
        place = _Place(some, worker, None)
        if place.takes(key):
            if some is not rules:
                place.rules, place.outlook = rules, None
            return place
    name = beat.stream.requests[key].id
    raise InputError(f"request {name!r} misses TTFT or ATGT even alone on a worker", field="requests")


class _Rules:
    """The limits in ticks at a heartbeat, with a share of the time for others that ATGT leaves."""

    def __init__(self, beat: Beat, theta: Fraction):
        stream, units = beat.stream, beat.units
        self.stream, self.units, self.now = stream, units, beat.number * units.heartbeat
        self.ttft = math.floor(stream.slo.ttft * units.ticks_per_second)
        atgt = stream.slo.atgt * units.ticks_per_second
        self.atgt = min(atgt, units.decode_overhead + theta * (atgt - units.decode_overhead))

    def decode(self, output: int) -> int:
        """Most ticks from the first token to the last."""
        return math.floor(self.atgt * (output - 1))

    def first(self, key: int) -> int:
        """Latest tick of the first token."""
        return self.stream.beat(self.stream.requests[key]) * self.units.heartbeat + self.ttft

    def guess(self, key: int, served: Served) -> int:
        return prediction(self.stream.requests[key].predicted_output_tokens, served)


@dataclass(frozen=True)
class _Outlook:
    """What a replayed copy says of the requests on a worker.

    `outputs`: their tokens in the end.  `slack`: ticks by which the last one may be later, the first one
    being when it is.
    """

    outputs: Mapping[int, int]
    slack: Mapping[int, int]

    def holds(self, outputs: Mapping[int, int], stream: Stream) -> bool:
        """Whether the worker went on as it says, up to a heartbeat with these predictions of who is left."""
        return all(
            tokens == outputs.get(key, stream.requests[key].output_tokens)
            for key, tokens in self.outputs.items()
        )


@dataclass(slots=True)
class _Member:
    """A request on a worker: iterations to go, context in the next one, ticks that it may lose."""

    iterations: int
    context: int
    slack: int
    waits: bool


class _Place:
    """A worker at a heartbeat, with what has been placed on it then."""

    def __init__(self, rules: _Rules, worker: WorkerReplay, outlook: _Outlook | None):
        self.rules, self.worker = rules, worker
        self.placed: list[int] = []
        self.served = dict(worker.members())
        self.outputs = {key: rules.guess(key, served) for key, served in self.served.items()}
        kept = outlook is not None and outlook.holds(self.outputs, rules.stream)
        self.outlook = outlook if kept else None
        self.members: list[_Member] | None = None
        #: Tokens of those who wait, for a prefill or, in split phase, for the next iteration.
        self.waiting = sum(s.input_tokens + s.tokens for _, s in worker.waiting)
        self.count = len(self.served)
        self.shares = sum(self._share(key, output) for key, output in self.outputs.items())
        # Who lost its KV goes another way than the sums have it.
        self.plain = not any(served.evictions for _, served in worker.waiting)
        self.load = self._load()

    def _share(self, key: int, output: int) -> int:
        """Weighted context of a request, in tokens times the denominator of gamma."""
        gamma = self.rules.stream.gamma
        return gamma.denominator * self.rules.stream.requests[key].input_tokens + gamma.numerator * output

    def _load(self) -> int:
        """Square of capacity_norm times a constant."""
        units, scale = self.rules.units, self.rules.stream.gamma.denominator
        return (units.decode_request * scale * self.count) ** 2 + (units.decode_context * self.shares) ** 2

    def takes(self, key: int) -> bool:
        """Place a request here if all limits are kept."""
        if self.hopeless(key):
            return False
        outlook = self.look(key)
        if outlook is None:
            return False
        request = self.rules.stream.requests[key]
        self.placed.append(key)
        self.outlook, self.members = outlook, None
        self.count += 1
        self.shares += self._share(key, request.predicted_output_tokens)
        self.waiting += request.input_tokens + self.rules.stream.split_phase
        self.load = self._load()
        return True

    def look(self, key: int | None) -> _Outlook | None:
        """Replay a copy with a request more; None if a limit is broken and a request is to be placed."""
        rules, requests = self.rules, self.rules.stream.requests
        copy = self.worker.copy(self.outputs)
        everyone = dict(copy.members())
        for k in self.placed if key is None else [*self.placed, key]:
            everyone[k] = Served(requests[k].input_tokens, requests[k].predicted_output_tokens)
            copy.add(k, everyone[k], rules.now)
        copy.advance(None)
        if key is not None and copy.preemptions:
            return None
        slack = {}
        for k, served in everyone.items():
            # Where predicted KV is more than there is, a request waits for ever.
            first = copy.clock if served.first is None else served.first
            last = copy.clock if served.last is None else served.last
            slack[k] = rules.decode(served.output_tokens) - (last - first)
            if key is not None and (served.last is None or first > rules.first(k) or slack[k] < 0):
                return None
        return _Outlook({k: s.output_tokens for k, s in everyone.items()}, slack)

    def hopeless(self, key: int) -> bool:
        """Whether sums say that a limit would be broken."""
        rules, units, request = self.rules, self.rules.units, self.rules.stream.requests[key]
        split, tokens = rules.stream.split_phase, request.input_tokens
        prefill = 0 if split else units.prefill_token * tokens
        if not split:
            total = units.prefill_token * (self.waiting + tokens) + units.prefill_overhead
            if self.worker.clock + total > rules.now + rules.ttft:
                return True
        context = self.worker.context + self.waiting + tokens + split
        kv = units.kv_token * context + units.kv_request * (self.count + 1)
        if not self.plain or kv > units.kv_capacity:
            return False
        if not split and not self.waiting:
            prefill += units.prefill_overhead
        return self._too_slow(tokens + 1, request.predicted_output_tokens - 1, prefill)

    def _too_slow(self, context: int, iterations: int, prefill: int) -> bool:
        """Whether KV does not fit, or someone is too slow, if all begin at once."""
        units = self.rules.units
        a, c2, held, count = units.decode_context, units.decode_request, 0, 0
        spent = iterations * (units.decode_overhead + c2)
        spent += a * (iterations * context + iterations * (iterations - 1) // 2)
        mine = iterations  # until it is counted; -1 then
        for member in self._all_members():
            n = member.iterations
            if mine >= n:
                # Its own last iteration comes before that of those who end earlier.
                if mine > 0:
                    held, count = held + context, count + 1
                    if self._full(held, count, mine):
                        return True
                mine = -1
            held, count = held + member.context, count + 1
            if n and self._full(held, count, n):
                return True
            both = min(n, iterations)
            curve = both * (both - 1) // 2
            loss = a * (both * context + curve) + c2 * both
            if loss + (0 if member.waits else prefill) > member.slack:
                return True
            spent += a * (both * member.context + curve) + c2 * both
        if mine > 0 and self._full(held + context, count + 1, mine):
            return True
        return spent > self.rules.decode(iterations + 1)

    def _full(self, held: int, count: int, iterations: int) -> bool:
        """Whether the KV of requests who begin with so much context is too much in an iteration."""
        units = self.rules.units
        kv = units.kv_token * (held + count * (iterations - 1)) + units.kv_request * count
        return kv > units.kv_capacity

    def _all_members(self) -> list[_Member]:
        """Everyone here, who ends last first."""
        if self.members is None:
            outlook = self.outlook = self.outlook or self.look(None)
            assert outlook is not None
            found = []
            for key, served in self.served.items():
                waits = key not in self.worker.running
                tokens = max(1, served.tokens)
                left = self.outputs[key] - tokens
                found.append(_Member(left, served.input_tokens + tokens, outlook.slack[key], waits))
            for key in self.placed:
                request = self.rules.stream.requests[key]
                left = request.predicted_output_tokens - 1
                found.append(_Member(left, request.input_tokens + 1, outlook.slack[key], True))
            self.members = sorted(found, key=lambda member: -member.iterations)
        return self.members
