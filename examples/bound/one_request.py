"""A lower bound: no request is served faster than with the machine to itself.

*Batches.*  The time of a batch is the greatest of several a_k + b_k * tokens, plus attention terms; no
coefficient is negative.  So a batch takes at least as long as one that holds only a part of its requests, and
less of their tokens and attention work.

*First token.*  Before it, the I prompt tokens of a request are processed in some J batches, with J >= q =
ceil(I / budget), each of which prefills.  The attention work of c tokens is c or more.  Let f(c) be the time
of a batch that prefills c tokens with work c: the greatest of some a + b * c with a, b >= 0.  For the a, b
that are greatest at c = floor(I / q), the J batches take at least J a + b I >= q (a + b c) = q f(c).
Without chunked prefill it is one batch of I tokens, and the work is that of a whole prompt.

*Later tokens.*  Each is made in a batch of its own.  With x = I + n - 1 tokens cached, either it is a decode,
which takes g(x) or more; or, after an eviction, the request is refilled with x + 1 >= I + 1 tokens: the last
chunk is priced as a decode that reads x, or the refill takes at least f(I + 1), as above with q = 1.  So it
takes at least h(x) = min(g(x), f(I + 1)), or g(x) without preemption.  As g is affine, h is concave,
and so the sum of h over x = I, ..., I + O - 2 is at least (O - 1) (h(I) + h(I + O - 2)) / 2.

*Objective.*  Nothing of a request is processed before it arrives.  So the sums above bound its TTFT,
its end-to-end latency and (O - 1) times its TPOT, whatever waits; the makespan is at least the arrival plus
the latency of any request.  Weights are not negative, so a weighted sum of metrics is bounded term by term.
"""

from collections.abc import Iterator
from fractions import Fraction

from infermax_opt import Instance, LowerBound, Metric, Proof
from infermax_opt.infermax.data.cost import BatchFeatures, prefill_work
from infermax_opt.infermax.data.instance import RequestType


def one_request(instance: Instance) -> Iterator[LowerBound]:
    """Bound makespan and plain means; the one function that the entry point names."""
    kinds = instance.types
    alone = [(k, len(k.members), _first_token(instance, k), _later_tokens(instance, k)) for k in kinds]
    requests, zero = len(instance.requests), Fraction(0)
    gaps = [(n, later / (kind.output_tokens - 1)) for kind, n, _, later in alone if kind.output_tokens > 1]
    least = {
        Metric.MAKESPAN: max(kind.arrival + first + later for kind, _, first, later in alone),
        Metric.MEAN_TTFT: sum((n * first for _, n, first, _ in alone), zero) / requests,
        Metric.MEAN_E2E: sum((n * (first + later) for _, n, first, later in alone), zero) / requests,
        Metric.MEAN_TPOT: sum((n * gap for n, gap in gaps), zero) / max(1, sum(n for n, _ in gaps)),
    }
    weights = instance.objective.weights
    if all(metric in least for metric, _ in weights):  # the proof says nothing of other metrics
        value = sum((weight * least[metric] for metric, weight in weights), zero)
        yield LowerBound(value, "one request", Proof.CLOSED_FORM, reason="no request is faster than alone")


def _seconds(instance: Instance, *features: int) -> Fraction:
    """Of a batch: tokens, decodes, tokens that these read, prefills, their work."""
    return instance.cost.to_seconds(instance.cost.batch_ticks(BatchFeatures(*features)))


def _first_token(instance: Instance, kind: RequestType) -> Fraction:
    prompt = kind.input_tokens
    if not instance.policy.chunked_prefill:
        work = prefill_work(instance.cost.exact_attention, prompt, 0)
        return _seconds(instance, prompt, 0, 0, 1, work)
    batches = -(-prompt // instance.system.prefill_budget)
    return batches * _seconds(instance, prompt // batches, 0, 0, 1, prompt // batches)


def _later_tokens(instance: Instance, kind: RequestType) -> Fraction:
    steps, prompt = kind.output_tokens - 1, kind.input_tokens
    ends = [_seconds(instance, 1, 1, prompt + read, 0, 0) for read in (0, max(0, steps - 1))]
    if instance.policy.preemption:
        refill = _seconds(instance, prompt + 1, 0, 0, 1, prompt + 1)
        ends = [min(end, refill) for end in ends]
    return steps * sum(ends, Fraction(0)) / 2
