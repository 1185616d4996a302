r"""Workers that every policy uses at a heartbeat, whatever it did before.

The class of policies: each places every request at its heartbeat, on one worker for good, and keeps the
limits a to e there, with the predictions of the stream (which may be the true output lengths); workers run
as `infermax_opt.cluster.replay.worker` says.

*Surely there.* Alone on its worker a request goes fastest: its prefill takes k1 l + c1 at least, and its
n-th decode iteration k2 (l + n) + c2 + c3 at least. If it is preempted, another prefill gives it the n-th
of these tokens; it takes k1 (l + n) + c1, and before it comes a decode iteration of others, as nothing else
frees KV. So with the least of k1 and k2 for k2 (of k2 alone where no prediction is too low, and there are no
preemptions), this holds for preempted requests, too. Let E(n) be the least end of iteration n, E(0) of the
prefill. A request with O tokens has its last one at E(O - 1) or later. If E(O - 2) is at the heartbeat t or
later, its last iteration has not begun before t under any policy, so the request is still on its worker
when that could begin a prefill for the heartbeat: it is *there*. So are the new requests.

*Rows.* On each worker, those that are there were all on it when the last of them came. At that heartbeat
limit b held for all of them (re-predictions only add to what they need), and so did limit e at its first
iteration, where each held the KV of its prompt at least. So b and this part of e hold for those there, as
if they could be placed anew; c holds for the requests of each heartbeat.

*Apart.* A request i that is there had at a later heartbeat h at most N tokens more than its first, N being
the number of iterations with E(n - 1) before h. So what it had saved by then is at most r_i(h) = max over n
<= N of theta (T_dec (1 + n) - (E(n) - E(0))) - c1, and by limit d no request of h whose prompt takes longer
was placed with it. For sets A_g of requests there, of successive heartbeats g, where every prompt of A_h
takes longer than r_i(h) for all i of earlier sets, no worker holds requests of two sets: the workers of all
sets add up.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from infermax_opt.cluster.data.stream import Stream
from infermax_opt.cluster.replay.worker import Units
from infermax_opt.placement.data.limits import Limits

__all__ = ["AnyPolicyBound", "any_policy_bounds"]

#: Heartbeats before the present one whose requests are held against each other.
WINDOW = 5


@dataclass(frozen=True, slots=True)
class AnyPolicyBound:
    """Workers that any policy uses at a heartbeat, and the limit that says so, by the paper's letter.

    ``-`` where it is but one worker because something is there, or none.
    """

    beat: int
    workers: int
    limit: str


def any_policy_bounds(stream: Stream) -> Iterator[AnyPolicyBound]:
    """Bound the workers in use at each heartbeat, from the first with a request to the last one."""
    there = _There(stream)
    for beat in range(min(stream.beats), max(stream.beats) + 1):
        yield there.bound(beat)


class _There:
    """Requests that are surely there, and what they need."""

    def __init__(self, stream: Stream):
        self.stream, self.units = stream, Units.of(stream)
        #: What stands for k2.
        self.context_token = self.units.decode_context
        if any(r.predicted_output_tokens < r.output_tokens for r in stream.requests):
            self.context_token = min(self.context_token, self.units.prefill_token)
        self.limits = Limits.of(stream.at_once)
        self.beat_of = [0] * len(stream.requests)
        for beat, members in stream.beats.items():
            for k in members:
                self.beat_of[k] = beat
        #: Heartbeat from which on a request may be gone.
        self.gone = [self._gone(k) for k in range(len(stream.requests))]
        self.live: list[int] = []
        self.room = cache(self._room)

    def _prefill(self, k: int) -> int:
        """Tick of the first token, at the least."""
        units, request = self.units, self.stream.requests[k]
        begin = self.beat_of[k] * units.heartbeat
        if self.stream.split_phase:
            return begin
        return begin + units.prefill_token * request.input_tokens + units.prefill_overhead

    def _decode(self, k: int, iterations: int) -> int:
        """Ticks of so many tokens after the first, at the least."""
        units, n = self.units, iterations
        one = self.context_token * (self.stream.requests[k].input_tokens + 1)
        one += units.decode_request + units.decode_overhead
        return n * one + self.context_token * n * (n - 1) // 2

    def _gone(self, k: int) -> int:
        output = self.stream.requests[k].output_tokens
        if output == 1:
            return self.beat_of[k] + 1
        end = self._prefill(k) + self._decode(k, output - 2)
        return max(self.beat_of[k], end // self.units.heartbeat) + 1

    def _room(self, k: int, beat: int) -> int:
        """The r of the module's text, in ticks of the limits, rounded down."""
        elapsed = beat * self.units.heartbeat - self._prefill(k)
        most = self.stream.requests[k].output_tokens
        begun = bisect.bisect_left(range(most), elapsed, key=lambda n: self._decode(k, n))
        ticks, slo = self.units.ticks_per_second, self.stream.slo

        def saved(n: int) -> Fraction:
            return slo.atgt * (1 + n) - Fraction(self._decode(k, n), ticks)

        # It rises while an iteration takes less than T_dec, and falls from then on.
        low, high = 0, begun
        while low < high:
            middle = (low + high) // 2
            if saved(middle + 1) > saved(middle):
                low = middle + 1
            else:
                high = middle
        room = self.stream.theta * saved(low) - self.stream.worker.prefill_overhead
        return int(room * self.limits.ticks_per_second // 1)

    def fewest(self, members: Iterable[int], *, together: bool) -> tuple[int, str]:
        """Workers for requests by the best row; c counts if they are `together` of one heartbeat."""
        limits, members = self.limits, list(members)
        rows = [
            ("b", sum(limits.context[k] for k in members), limits.most_context),
            ("e", sum(limits.held[k] for k in members), limits.most_kv),
        ]
        if together:
            rows.append(("c", sum(limits.prompt[k] for k in members), limits.most_prompt))
        best = (min(1, len(members)), "-")
        for letter, need, most in rows:
            if need and most > 0:
                best = max(best, (-(-need // most), letter), key=lambda pair: pair[0])
        return best

    def bound(self, beat: int) -> AnyPolicyBound:
        """Bound the workers of a heartbeat; heartbeats are asked for in rising order."""
        new = self.stream.beats.get(beat, ())
        self.live = [*(k for k in self.live if self.gone[k] > beat), *new]
        best = max(
            self.fewest(self.live, together=False), self.fewest(new, together=True),
            key=lambda pair: pair[0],
        )  # fmt: skip
        if not self.stream.split_phase:
            by_beat: dict[int, list[int]] = {}
            for k in self.live:
                if self.beat_of[k] >= beat - WINDOW:
                    by_beat.setdefault(self.beat_of[k], []).append(k)
            for first in sorted(by_beat):
                apart = self.apart(first, by_beat)
                if apart > best[0]:
                    best = apart, "d"
        return AnyPolicyBound(beat, *best)

    def apart(self, first: int, by_beat: dict[int, list[int]]) -> int:
        """Workers of sets that are apart, from a heartbeat on."""
        chosen: list[int] = []
        total = 0
        for beat in sorted(some for some in by_beat if some >= first):
            least = max((self.room(k, beat) for k in chosen), default=-1)
            members = [k for k in by_beat[beat] if self.limits.prompt[k] > least]
            total += self.fewest(members, together=True)[0]
            chosen += members
        return total
