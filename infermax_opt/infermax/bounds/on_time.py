r"""Ranks of the TTFT: how many prompts can be on time, one after the other on one machine.

Fix one affine piece, in ticks, and a limit L of the TTFT. A request is *on time* if its first token comes at
most L after its arrival. If more requests must be late than may be above the r-th smallest TTFT, that is more
than n - r, the r-th smallest is above L.

*Batches.* Let S be the requests that are on time in some schedule, and A = alpha + p0. The prompt of a
request i of S is processed in the pass that makes its first token, in chunks of c tokens each in a batch of
its own. These batches lie between its arrival and L later, since a batch starts after its members have
arrived. A chunk does work g = beta c + p1 w(c), w being the attention work. So a batch that does work G for
requests of S takes A + G or more, whatever else it holds; let this be its *worth*.

*Payments.* Each request of S pays g (A + G) / G for each of its chunks: its share of the worth, by work. Then
a set of requests pays no more than the batches take that hold chunks of it. Say i has q chunks, whose work is
gamma in all. Its batches take L together at most, so the G of these sum to L - q A at most, and by Cauchy it
pays

    gamma + A sum g / G  >=  gamma + A (sum sqrt(g))**2 / (L - q A)  =  gamma (1 + A r / (L - q A)),

with r = (sum sqrt(g))**2 / gamma, from 1 to q.

- Without chunks or with "exact" attention, where chunks telescope, gamma = beta I + p1 I**2, r >= 1, and q is
  least: ceil(I / P), P being the most prompt tokens of a batch.
- With "square" attention let a = beta I, b = p1 I**2 and rho = I**2 / (sum of c**2), from 1 to q: gamma = a +
  b / rho. Chunks in falling order of c have sqrt(g) / c = sqrt(beta / c + p1) rising; so the shares of the
  roots in their sum are majorised by those of the tokens, the sum of their squares is no larger, and r >=
  rho. With D = L - q A it pays at least v(q), the least over rho <= q of

      h(q, rho) = a + a A rho / D + b / rho + b A / D.

  If b D >= a A q**2 this is h(q, q) = (a + b / q) L / D, else a + b A / D + 2 sqrt(a b A / D) or more.

*How many chunks.* Let F(x) = h(x, x). Its derivative has the sign of A a x**2 + 2 A b x - b L, which rises,
so F falls up to some x* and rises from there. For q <= x* the first case holds, as a A q**2 <= b (L - 2 A q)
<= b D, so v(q) = F(q), which falls. For x* <= q < q' let rho be best for q'. If rho <= q, v(q') = h(q', rho)
>= h(q, rho) >= v(q), as h rises with q. Else v(q') >= h(rho, rho) = F(rho) >= F(q) >= v(q). So the least v(q)
is that of the whole numbers beside x*, or of ceil(I / P) if that is more. And q chunks are in time only if a
+ b / q + q A <= L, that is F(q) <= L: where neither of the two is, none is.

*One machine.* Sort S by arrival, and let h come before r in it. The chunks of all from h to r are in batches
between the arrival of h and L after that of r. So arrival of h + payments of h, ..., r <= arrival of r + L,
for all h and r. That is: served in the order of their arrivals on one machine, each as long as its payment,
all of S end in time. How many can do so at most follows from a table (Kise, Ibaraki and Mine 1978): the least
end of those that were chosen among the first i requests, if k of these are late. The next request is late, or
ends at max(end, arrival) + payment if that is in time; and nothing is lost by keeping the least end alone. If
k must exceed n - r after the last one, the r-th smallest TTFT is above L. QED.

Later tokens count for nothing here: they can be made when nobody waits for a first one.  For end-to-end
latencies the same would hold with the work of all tokens.

Certificate: the limit, and the piece.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil, floor, isqrt

from infermax_opt.core.exact import decimal_text
from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds.least_work import spreads
from infermax_opt.infermax.data.instance import Instance

__all__ = ["NOT_DECIDED", "most_late", "on_time_bound", "payment"]

#: Figures of a limit.
FIGURES = 6
#: The search ends when the limit is known up to this factor.
CLOSE = Fraction(10_001, 10_000)
#: Doublings of a limit, at most.
DOUBLINGS = 40
#: Entries of the table, at most: what the checker does in a few seconds.
MAX_ENTRIES = 4_000_000
#: Steps of checking a request, a kind of requests and a prompt length, and the most of all these together.
REQUEST_STEPS, KIND_STEPS, PROMPT_STEPS, MAX_STEPS = 42, 100, 250, 20_000_000
#: Requests late that are said where the table would be larger.
NOT_DECIDED = -1

Stop = Callable[[], bool]


def on_time_bound(
    instance: Instance, late: int, known: Fraction, *, stop: Stop | None = None
) -> LowerBound | None:
    """The bound on the TTFT that all requests but `late` of them keep, if it is above a known one.

    Parameters
    ----------
    instance : Instance
    late : int
        Requests that may be late.
    known : Fraction
        A bound in seconds.
    stop : callable, optional
        Asked whether to try no other limit.
    """
    low, chosen = known, None
    if not _soon_checked(instance):
        return None
    for piece in range(len(instance.cost.batch)):
        found = _best_limit(instance, piece, late, low, stop)
        if found > low:
            low, chosen = found, piece
    if chosen is None:
        return None
    evidence = {"kind": "on-time", "piece": chosen, "limit": decimal_text(low)}
    return LowerBound(low, "on time", Proof.CERTIFICATE, evidence=evidence)


def _soon_checked(instance: Instance) -> bool:
    """Whether what the checker does besides the table is within its limit."""
    prompts = len({kind.input_tokens for kind in instance.types})
    steps = REQUEST_STEPS * len(instance.requests) + KIND_STEPS * len(instance.types)
    return steps + PROMPT_STEPS * prompts <= MAX_STEPS


def _best_limit(instance: Instance, piece: int, late: int, low: Fraction, stop: Stop | None) -> Fraction:
    """The highest limit found that more requests miss than may, or `low`."""
    high: Fraction | None = None
    for _ in range(DOUBLINGS):
        if (stop is not None and stop()) or (high is not None and high <= low * CLOSE):
            break
        middle = (2 * low or Fraction(1)) if high is None else (low + high) / 2
        limit = Fraction(decimal_text(middle, digits=FIGURES))
        if limit <= low or limit == high:
            break
        if most_late(instance, piece, limit, late) > late:
            low = limit
        else:
            high = limit
    return low


def most_late(instance: Instance, piece: int, limit: Fraction, late: int) -> int:
    """Requests that are late at least, for a limit of the TTFT; not counted beyond `late` + 1.

    `NOT_DECIDED` where the table would be too large.

    Parameters
    ----------
    instance : Instance
    piece : int
        Affine piece of the batch time.
    limit : Fraction
        Seconds.
    late : int
    """
    ticks = instance.cost.ticks_per_second
    # A stretch of time of the same length for all, which holds that of each.
    window = max(ceil((k.arrival + limit) * ticks) - floor(k.arrival * ticks) for k in instance.types)
    paid = {i: payment(instance, piece, i, window) for i in {k.input_tokens for k in instance.types}}
    arriving = sorted(instance.types, key=lambda kind: kind.arrival)
    jobs = [(floor(kind.arrival * ticks), paid[kind.input_tokens]) for kind in arriving for _ in kind.members]
    return _fewest_late(jobs, window, late)


def payment(instance: Instance, piece: int, prompt: int, window: int) -> int | None:
    """What a prompt that is on time pays at least, in ticks; None if it never is.

    Parameters
    ----------
    instance : Instance
    piece : int
        Affine piece of the batch time.
    prompt : int
        Tokens.
    window : int
        Ticks between its arrival and the latest moment of its first token.
    """
    ticks, fewest = instance.cost.ticks, -(-prompt // instance.system.prefill_budget)
    fixed, a, b = ticks.alpha[piece] + ticks.p0, ticks.beta[piece] * prompt, ticks.p1 * prompt**2
    if a + b == 0:
        return 0
    if not spreads(instance):
        left = window - fewest * fixed
        return (a + b) * (left + fixed) // left if left >= a + b else None
    best = _best_chunks(fixed, a, b, window) if fixed else prompt
    tried = {max(fewest, min(prompt, q)) for q in (best, best + 1)}
    able = [q for q in tried if a * q + b <= (window - q * fixed) * q]
    return min((_in_chunks(fixed, a, b, window, q) for q in able), default=None)


def _best_chunks(fixed: int, a: int, b: int, window: int) -> int:
    """The x* of the proof, rounded down.

    Parameters
    ----------
    fixed, a, b, window : int
        A, which is above 0, a, b and L of the proof.
    """
    if a == 0:
        return window // (2 * fixed)
    each = fixed * b
    return (isqrt(each * (each + a * window)) - each) // (fixed * a)


def _in_chunks(fixed: int, a: int, b: int, window: int, chunks: int) -> int:
    """The v(q) of the proof, rounded down.

    Parameters
    ----------
    fixed, a, b, window, chunks : int
        A, a, b, L and q of the proof.
    """
    left = window - chunks * fixed
    if b * left >= a * fixed * chunks**2:
        return (a * chunks + b) * window // (chunks * left)
    return a + (b * fixed + isqrt(4 * a * b * fixed * left)) // left


def _fewest_late(jobs: Sequence[tuple[int, int | None]], window: int, most: int) -> int:
    """Fewest jobs that end more than a window after their arrival, up to most + 1.

    Parameters
    ----------
    jobs : sequence of (int, int or None)
        Arrival and length in ticks, by arrival; no length: always late.
    window, most : int
    """
    # Least end of those in time if `fewest`, fewest + 1, ... are late: it falls.
    fewest, ends, entries = 0, [0], 0
    for arrival, length in jobs:
        while len(ends) > 1 and ends[-2] <= arrival:
            ends.pop()
        ends[-1] = max(ends[-1], arrival)
        entries += len(ends)
        if entries > MAX_ENTRIES:
            return NOT_DECIDED
        served = [] if length is None else [end + length for end in ends]
        missed = next((k for k, end in enumerate(served) if end <= arrival + window), len(ends))
        if missed == len(ends):
            fewest += 1
        else:
            either = zip(served[max(1, missed) :], ends[max(0, missed - 1) :], strict=False)
            rest = [*map(min, either), ends[-1]]
            fewest += missed > 0
            ends = [*ends[: missed - 1], *rest] if missed else [served[0], *rest]
        if fewest > most:
            return fewest
        del ends[most - fewest + 1 :]
    return fewest
