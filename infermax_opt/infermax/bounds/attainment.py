r"""The attainment bound on the weight of missed service levels: who keeps them all, and the time that
takes.

A relaxation of machine time over cells of time. Fix one affine piece, in ticks. Call a request *good* if it
keeps all its limits. Its first token comes in [a + first, E] and its last one by D, where

    D = a + the least of e2e, H - a and ttft + tpot (O - 1),    E = the least of a + ttft and D - later,

and `first` and `later` are what its prompt and its later tokens take at least with the machine to itself; H
is the horizon, if there is one.  If these break a limit, it is never good.

*What is left unserved* counts in the same way: an optional request is served by H if it is good with the only
limit H - a of its end-to-end latency, and its weight is what it counts in the objective if it is not.  So the
bound is one on weighted sums of `missed`, `unserved` and `unserved_tokens`: a frontier of service levels
against best-effort work (Theorem 2 of BROS, priced by cells).  One that has a service level, too, counts for
the larger of its two weights; the other one is left out, as are all other metrics, none of which is negative.

*Credits.* A batch is spread evenly over its time. The prompt of a good request is done in the batches of
the pass that makes its first token, each with the share of its tokens (with "exact" attention, the
attention work has its own shares, by work, as chunks telescope): all within [a, E]. A later token, with s
tokens cached after it, is one credit of the batch that decodes it. If it ends a refill, each chunk of c
tokens has c / s of it. So a request has at most one credit in a batch, all lie within [a + first, D], and
they come at most at a rate of 1 / e,

    e = alpha + min(d0 + beta + d1 I, p0 + (beta + p1) (I + 1)),

the latter only with preemption: a chunk takes alpha + p0 + (beta + p1) c, at least c / s of what all takes.

*Work.* A prompt: beta I + p1 W, with W = I if chunks save attention work, else I**2; without preemption
also p0 I / P, P being the most prompt tokens of a batch. A credit: w = beta + d1 (s - 1); with preemption,
the least of this and (beta + p1) s - g, where g = min(max(0, d0 - p0), (beta + p1) (I + 1)) leaves it at 0
or more.

*Fixed costs.* f = alpha + d0 for each request; with preemption, f = alpha + min(d0, p0 + g).

*Prices.* Let l >= 0 be a price of time in each cell. In each cell a request pays a share of its f for each
credit, and shares of alpha are paid for what is scarce: for KV, s / M for each credit and I / M for each
prompt; for tokens, 1 / C and I / C; for requests, 1 / R for each credit and each prompt. No batch holds
more than 1 of any of these. Let the shares of all requests and these three be at most 1 together. Then what
a batch is paid is at most what it takes. If somebody decodes, it takes alpha + d0 and all work. If not, and
requests with numbers g have credits b <= 1 from refills, it takes alpha + p0, all work, and g b for each,
which w counts too low; and the share of f is at most that of alpha + p0, and g b. So all good requests
together pay at most the integral of l.

*The bound.* A request that is good pays at least its cheapest way: its prompt at the lowest price between a
and E; its later tokens, taken in groups, in the cheapest cells from a + first to D, less e for each token
before and after the group, at a rate of 1 / e at most; what the tokens of a group have of work and KV
beyond its first one at the lowest price there. After the last cell all is free. So

    missed >= sum over requests of min(weight, cheapest way) - integral of l.

A request that is never good counts its weight. As `missed` is a sum of weights, it is a multiple of their
greatest common divisor, so the bound is rounded up to one. QED.

Credits are what makes small limits of the TPOT dear: each request needs as many batches as it makes tokens,
within its own time, and the fixed costs of these are lost to the work of all.

Certificate: prices, and shares by cell. The best ones are the dual of a linear program
(`_attainment_program`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from infermax_opt.core.result import LowerBound
from infermax_opt.infermax.bounds._attainment_program import AttainmentProgram
from infermax_opt.infermax.bounds._attainment_proof import AttainmentProof, Prices
from infermax_opt.infermax.data.instance import Instance

__all__ = ["AttainmentProgram", "AttainmentProof", "Prices", "attainment_bounds"]

#: Pairs of requests and cells in the linear program: the first takes a second, the finest up to minutes.
PAIRS = (1_500, 6_000, 15_000, 30_000)
#: Kinds of requests beyond which it is not tried: each would have too few cells.
MAX_KINDS = 100_000


def attainment_bounds(instance: Instance, *, stop: Callable[[], bool] | None = None) -> Iterator[LowerBound]:
    """Attainment bounds above 0, each better than those before.

    Parameters
    ----------
    instance : Instance
    stop : callable, optional
        Asked whether to try no finer cells.
    """
    proofs = [AttainmentProof(instance, piece) for piece in range(len(instance.cost.batch))]
    if not 0 < len(proofs[0].guests) <= MAX_KINDS:
        return
    best, grid = Fraction(0), None  # of the best program so far
    for pairs in PAIRS:
        found: list[tuple[LowerBound, AttainmentProgram]] = []
        for proof in proofs:
            if found and stop is not None and stop():
                break
            program = AttainmentProgram(proof, pairs)
            if program.grid != grid:
                found.append((proof.bound(program.prices(stop)), program))
        if not found:  # cells of the same width: those of few requests are soon as fine as they get
            continue
        bound, program = max(found, key=lambda pair: pair[0].value)
        proofs, grid = [program.proof], program.grid
        if bound.value > best:
            best = bound.value
            yield bound
        if best == proofs[0].most or (stop is not None and stop()):
            return
