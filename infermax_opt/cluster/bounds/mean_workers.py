r"""Mean number of workers that every policy uses, from the work there is.

The class of policies is that of `infermax_opt.cluster.bounds.any_policy`; no output may be longer than
predicted, so that limit e keeps requests from being preempted. Take one worker from a prefill that finds no
request there (of the set S, of one heartbeat) until it is empty again. Its later prefills find requests
there; there are L of them, with the requests J. With n decode iterations in all, the time that this takes is

    sum over S and J of k1 l  +  c1 (1 + L)  +  c3 n  +  sum of all increments k2 (l + g) + c2.        (1)

*Iterations, by limit d.* At a later prefill some request i is there that came with an earlier one. By d its
decode time then, with the prefill, is at most T_dec (1 + the iterations since its own prefill). From the
last prefill back, such stretches reach to the first one, L at most, one after the other; so the time from
the end of the first prefill to that of the last is at most T_dec (n' + L), with n' iterations in it. This
time is what J and the increments in it take, and c3 n'. After the last prefill, the increments of an
iteration, each cut to w = k2 (l + gamma p) + theta c2, are at most C = theta (T_dec - c3) by limit b, and C
<= T_dec - c3. Together, with a_j the sum of the cut increments of a request, and as no prefill comes
without a request,

    n (T_dec - c3)  >=  sum over J of v_j  +  sum over all of a_j,   v_j = k1 l_j - max(0, T_dec - c1).  (2)

*Iterations, by the first prefill.* n is at least the O_j - 1 of each request of S, hence at least their
mean with weights w_j. These add up to K at most, the largest weight that limits b and c let a worker take
of the requests of that heartbeat:

    n  >=  sum over S of w_j (O_j - 1) / K.                                                  (3)

For any share s of 0 to 1, n is at least s times what (2) says and 1 - s times what (3) says. So (1) is at
least a sum over requests, each of which costs what it does in S or what it does in J, and no less than the
lesser of the two. The share that gives most is taken. In split phase there is no prefill: n is at least the
sum of w_j (O_j - 1) / C by limit b.

*Heartbeats.* A worker in use for x seconds from a heartbeat on is in use at x / heartbeat of them or more.
Counted are those up to the last arrival. A request may outlast them: its prefill ends T_pre after its
heartbeat at the latest, and a token takes T_dec at most or, without prefills in between, c3 + C max((k2 (l
+ O) + c2) / w). One that might outlast them is left out (but for v_j < 0): the inequalities hold without
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from infermax_opt.cluster.bounds.any_policy import any_policy_bounds
from infermax_opt.cluster.data.stream import Stream, StreamRequest
from infermax_opt.core.result import LowerBound, Proof

__all__ = ["WorkBound", "mean_bounds", "mean_workers_bound"]

#: Shares s that are tried: multiples of 1 / SHARES.
SHARES = 32


@dataclass(frozen=True)
class WorkBound:
    """Mean number of workers in use over the heartbeats, at the least.

    Attributes
    ----------
    workers : Fraction
    share : Fraction
        s of the module's text.
    seconds : Fraction
        Worker seconds that are needed.
    left_out : int
        Requests that do not count: they may outlast the last heartbeat, or nothing is known at all.
    """

    workers: Fraction
    share: Fraction
    seconds: Fraction
    left_out: int


def mean_workers_bound(stream: Stream) -> WorkBound:
    """Bound the mean number of workers in use, over the heartbeats from the first request to the last."""
    first, last = min(stream.beats), max(stream.beats)
    longer = any(r.output_tokens > r.predicted_output_tokens for r in stream.requests)
    if longer or stream.slo.atgt <= stream.worker.decode_overhead:
        return WorkBound(Fraction(0), Fraction(0), Fraction(0), len(stream.requests))
    need = _Need(stream)
    # Decimals of few digits beside sums of many requests: floats find the share, fractions the bound.
    share = max((Fraction(k, SHARES) for k in range(SHARES + 1)), key=need.estimate)
    seconds = max(Fraction(0), need.seconds(share))
    workers = seconds / ((last - first + 1) * stream.heartbeat)
    return WorkBound(workers, share, seconds, need.left_out)


@dataclass(frozen=True, slots=True)
class _Cost:
    """Seconds of a request.

    Attributes
    ----------
    fixed : Fraction
        Wherever it is.
    first, first_alone : Fraction
        In S, times s and times 1 - s.
    joined : Fraction
        In J, times s.
    """

    fixed: Fraction
    first: Fraction
    first_alone: Fraction
    joined: Fraction

    def least(self, share: Fraction) -> Fraction:
        """For a share s, at the least."""
        first = share * self.first + (1 - share) * self.first_alone
        return self.fixed + min(first, share * self.joined)


class _Need:
    """What the requests of a stream cost."""

    def __init__(self, stream: Stream):
        self.stream = stream
        w, slo = stream.worker, stream.slo
        self.slack = slo.atgt - w.decode_overhead
        self.most = stream.theta * self.slack
        self.left_out = 0
        self.overheads = Fraction(0)  # c1, once for each heartbeat
        self.losses = Fraction(0)  # v_j < 0 of those left out
        self.costs = list(self._costs())
        self.rough = [
            (float(cost.fixed), float(cost.first), float(cost.first_alone), float(cost.joined))
            for cost in self.costs
        ]

    def estimate(self, share: Fraction) -> float:
        """Seconds that are needed, nearly."""
        s = float(share)
        return sum(f + min(s * a + (1 - s) * b, s * j) for f, a, b, j in self.rough)

    def seconds(self, share: Fraction) -> Fraction:
        """Seconds that are needed."""
        needed = sum((cost.least(share) for cost in self.costs), self.overheads)
        return needed + share * self.stream.worker.decode_overhead / self.slack * self.losses

    def weight(self, request: StreamRequest) -> Fraction:
        """What a request needs of limit b."""
        w, stream = self.stream.worker, self.stream
        tokens = request.input_tokens + stream.gamma * request.predicted_output_tokens
        return w.decode_context * tokens + stream.theta * w.decode_request

    def prefill(self, request: StreamRequest) -> Fraction:
        """Seconds of its prompt."""
        if self.stream.split_phase:
            return Fraction(0)
        return self.stream.worker.prefill_token * request.input_tokens

    def _costs(self) -> Iterator[_Cost]:
        stream, w = self.stream, self.stream.worker
        end = (max(stream.beats) + 1) * stream.heartbeat
        loss = max(Fraction(0), stream.slo.atgt - w.prefill_overhead)
        slowest = self._slowest()
        for beat, members in stream.beats.items():
            begin = beat * stream.heartbeat
            requests = [stream.requests[k] for k in members]
            heaviest = self._heaviest(requests)
            if not stream.split_phase and begin + stream.slo.ttft < end:
                self.overheads += w.prefill_overhead
            for request in requests:
                prompt = self.prefill(request)
                if begin + stream.slo.ttft + request.output_tokens * slowest >= end:
                    self.left_out += 1
                    if not stream.split_phase:
                        self.losses += min(Fraction(0), prompt - loss)
                    continue
                yield self._cost(request, prompt, prompt - loss, heaviest)

    def _cost(self, request: StreamRequest, prompt: Fraction, value: Fraction, heaviest: Fraction) -> _Cost:
        over = self.stream.worker.decode_overhead
        iterations, weight = request.output_tokens - 1, self.weight(request)
        whole, cut = self._increments(request, weight)
        alone = over * weight * iterations
        if self.stream.split_phase:
            return _Cost(whole + alone / self.most, Fraction(0), Fraction(0), Fraction(0))
        return _Cost(
            fixed=prompt + whole,
            first=over * cut / self.slack,
            first_alone=alone / heaviest if heaviest else Fraction(0),
            joined=over * (value + cut) / self.slack,
        )

    def _increments(self, request: StreamRequest, weight: Fraction) -> tuple[Fraction, Fraction]:
        """Sum of the increments of all decode iterations of a request, and of the cut ones."""
        w, count = self.stream.worker, request.output_tokens - 1
        base = w.decode_context * request.input_tokens + w.decode_request
        rise = w.decode_context

        def total(n: int) -> Fraction:
            return n * base + rise * n * (n + 1) / 2

        if rise == 0:
            return total(count), count * min(base, weight)
        # Iteration g adds base + rise g: cut from the first one above the weight on.
        whole = max(0, min(count, int((weight - base) // rise)))
        return total(count), total(whole) + (count - whole) * weight

    def _heaviest(self, requests: list[StreamRequest]) -> Fraction:
        """Most weight that a fresh worker takes of these: all, limit b, or limit c with parts of requests."""
        stream = self.stream
        w = stream.worker
        if stream.split_phase or w.prefill_token == w.prefill_overhead == 0:
            # Without prefill time, those of several heartbeats may begin together.
            return self.most
        best = min(self.most, sum((self.weight(r) for r in requests), Fraction(0)))
        room = stream.slo.ttft - w.prefill_overhead
        taken = Fraction(0)
        pairs = [(self.weight(r), self.prefill(r)) for r in requests]
        for weight, prompt in sorted(pairs, key=lambda pair: -(pair[0] / pair[1]) if pair[1] else -(10**18)):
            part = Fraction(1) if prompt <= room else room / prompt
            taken += weight * part
            room -= prompt * part
        return min(best, taken)

    def _slowest(self) -> Fraction:
        """Seconds of a token, at the most, on average from the first token to the last."""
        w = self.stream.worker
        worst = Fraction(0)
        for r in self.stream.requests:
            weight = self.weight(r)
            most = w.decode_context * (r.input_tokens + r.output_tokens) + w.decode_request
            if weight:
                worst = max(worst, most / weight)
        return max(self.stream.slo.atgt, w.decode_overhead + self.most * worst)


def mean_bounds(stream: Stream) -> list[LowerBound]:
    """Lower bounds on the mean number of workers in use, best first.

    They hold for every policy that keeps the limits a to e at every heartbeat.

    Parameters
    ----------
    stream : Stream
    """
    at_each = [bound.workers for bound in any_policy_bounds(stream)]
    scope = "for every policy that keeps the limits a to e"
    found = [
        LowerBound(
            Fraction(sum(at_each), len(at_each)), "heartbeats", Proof.CLOSED_FORM,
            reason=f"what every heartbeat needs by itself, {scope}",
        ),
        LowerBound(
            mean_workers_bound(stream).workers, "work", Proof.CLOSED_FORM,
            reason=f"the work that there is in all, {scope}",
        ),
    ]  # fmt: skip
    return sorted(found, key=lambda bound: -bound.value)
