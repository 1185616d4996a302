r"""Prompts and later tokens beside each other: what requests that decode together cannot share.

One more way to charge good requests for the batches of their machine, for the weighted windows of
`infermax_opt.fleet.bounds.pooled`, whose words are used here.  Later tokens of many requests may share a
batch, but all of these requests had their prompts done since the first of them arrived.  So their prompts
took less than a horizon H together, and each is charged for a share of the batch, its prompt by H.

Fix an affine piece, A = alpha + p0, a horizon H and a whole number q > 1.  Requests are good ones here; a
*chunk* is one of a prompt, in the pass that makes the first token; c_b are the tokens of all chunks of a
batch b, W_b their work: beta for a token, p1 for the attention work.  What a batch takes is at least alpha,
p0 if it holds a chunk, W_b, d0 if a request decodes, and the work of all that is no chunk.

*Who shares a batch.*  Let j have its first token at most L_j after its arrival, and its last one at most T_j
after that.  The batches between take T_j at most.  Those in which j does something take, without their
chunks, no less than its later tokens take alone, say Y_j; the others take W_b or more.  So

    sum of W_b over the batches between first and last token of j  <=  s_j  =  T_j - Y_j,

and the sum of c_b there is at most s_j / beta.  If beta is 0, nothing of what follows is charged for j.

Let v_i = beta I + p1 w + A I / P for a prompt of I tokens whose attention work is w at least.  Take a batch,
and of the requests that make a later token in it those with L + s (1 + A / (beta P)) <= H; let j be the one
of them that arrived first.  All their prompts were processed after j arrived, and before this batch.  The
batches until the first token of j take L_j at most, each A + W_b or more, and A >= A c_b / P, as it holds at
most P tokens of prompts.  The ones after that hold W_b of s_j at most, and A c_b / P of s_j A / (beta P).
Every chunk counts beta c + p1 w + A c / P in one of these.  So

    sum of v_i over these requests  <=  L_j + s_j (1 + A / (beta P))  <=  H,

that is, their shares v_i / H are 1 together at most.  Others have no share.

*Charges.*  A batch charges

- each chunk its work, and A c / P times 1 - 1 / q;
- each chunk A / q by its share of the work of all chunks of the batch;
- each later token its work, as in the pooled bound, and to a request with a share v_i / H that makes a later
  token in it this share of (1 - 1 / q) alpha (1 - c_b / P), and of d0 if it decodes.

That is no more than it takes: the shares of alpha and p0 are (1 - 1 / q) (alpha + p0) c_b / P, A / q if there
is a chunk, and (1 - 1 / q) alpha (1 - c_b / P); together at most alpha, and p0 if there is a chunk.  A batch
of chunks has c_b <= P.  What lies within a window is charged to batches within it.

*Prompts.*  The chunks of a prompt lie in batches that take L together at most.  Say one of c tokens is in a
batch of t seconds.  With "square" attention it pays p1 c**2, and of A / q at least beta c / t, as all chunks
of the batch do no more work than t.  Let x >= 0 be any number and y = p1 x.  By inequalities of means,

    p1 c**2 + (A / q) beta c / t + t y**2 x / ((A / q) beta)  >=  p1 c**2 + 2 y sqrt(x c)  >=  3 y c.

Summed over the chunks a prompt pays, of these two, at least 3 y I - L y**2 x / ((A / q) beta), which is

    p1 (3 x I - q p1 x**3 L / (A beta)),

and in any case p1 times the least attention work.  The best x has x**2 = A beta I / (q p1 L); it is taken
as a whole number.  Where chunks save no attention work, that is paid alone.

*Later tokens.*  N of them, all of a request or some, are made in N batches.  The sum of c_b over these is at
most s / beta, so the request pays, beside their work, its share of

    (1 - 1 / q) alpha max(0, N - s / (beta P)) + N d0.

A token that ends a refill takes no d0 of a batch.  But the refill works on all s tokens that are cached after
it, for beta each, and is charged as if it had been a decode step, beta + min(d1, beta) (s - 1).  What is left
is at least (beta - d1) I, as s > I.  If that is d0 or more, it pays for the share of d0, which is no more
than d0.  With preemption d0 is left out unless that is so.  QED.

It does not hold where prompts are processed elsewhere: a decode pool charges later tokens for their work
alone.  The horizon is the one by which all later tokens would cost most if they lay in one window.
"""

from __future__ import annotations

from collections.abc import Sequence

from infermax_opt.fleet.checker.beside import batches_beside, reach, shared_by
from infermax_opt.fleet.checker.machine import Machine, later_ticks
from infermax_opt.fleet.checker.needs import Need

__all__ = ["horizon_of"]


def horizon_of(
    machine: Machine, prompts: Sequence[int], needs: Sequence[list[Need] | None], piece: int
) -> list[int]:
    """The horizon by which later tokens cost most together; none where they cost nothing more by any.

    Parameters
    ----------
    machine : Machine
    prompts : sequence of int
        Prompt tokens of each request.
    needs : sequence of list of Need or None
        Of each request.
    piece : int
        Affine piece of the batch time.
    """
    found = list[tuple[int, float]]()
    for prompt, some in zip(prompts, needs, strict=True):
        last = some[-1] if some else None
        if last is None or last.wait is None:
            continue
        lengths = prompt, last.outputs
        span = last.spare + later_ticks(machine, prompt, 2, last.outputs)
        least = reach(machine, lengths, piece, (last.wait, span))
        if least:
            share, whole = shared_by(machine, lengths, piece, (last.wait, span), least)
            batches = batches_beside(machine, lengths, piece, last.outputs - 1, span)
            found.append((least, batches * share / whole * least))
    best, chosen, total = 0.0, 0, 0.0
    for horizon, paid in sorted(found):
        total += paid
        if total > best * horizon:
            best, chosen = total / horizon, horizon
    return [chosen] if chosen else []
