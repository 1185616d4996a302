r"""Prefill and decode apart: machines of either pool that any routing and any schedules need.

The question is that of `infermax_opt.fleet.apart`.  Let at least ceil(q n) requests be *good*: keep all
their limits.  Routing and schedules may know everything in advance, and each token may be made on another
machine of its pool.

*Needs.*  Let F be what the prompt of a good request takes at least with a prefill machine to itself, X what
the transfer of its KV takes, and Y what its later tokens take at least with a decode machine to themselves; X
and Y are 0 with one token.  X + Y is at most tpot (O - 1), as first and last token are at least that far
apart.  The last token is made by D = a + min(e2e, ttft + tpot (O - 1)), the first one by
E = min(a + ttft, D - X - Y), and F <= E - a.  Who breaks one of these is never good, nor is who fits no
machine.

*Prefill.*  The prompt is processed between a and E, in batches of prefill machines.

*Decode.*  No later token is made before a + F + X.  Each is made by a decode step in a batch of a decode
machine that reads all s - 1 tokens before it, and the batches of one request follow each other; so the k-th
token is made after a + F + X and what tokens 2 to k - 1 take, and before D less what those after it take.

*Cost.*  What a batch takes is at least what its good requests are charged, as in
`infermax_opt.fleet.bounds.pooled`, by pace, too: a prefill machine is charged for prompts, a decode machine
for later tokens, nothing of which is computed again there (so d0 is shared by KV, too).  The batches of a
request follow each other wherever they run; those of its later tokens take min(tpot (O - 1), D - a - F) - X
together at most.  So in every window the needs
of one side that lie within it cost at most the number of its machines times the length of the window.  The
weights, and the adversary who chooses who misses, are those of that bound, for each side by itself.  Prompts
of prefill machines are counted in turn, too (`infermax_opt.fleet.bounds.in_turn`).  QED.

Both numbers hold at once: whoever reaches the share has at least so many machines in each pool, and at least
the sum in all.  What it does not see is what that bound does not see either; that the same requests have to
be good on both sides; and that a first token that is late leaves more time for none of the later ones, as the
TPOT counts from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from infermax_opt.fleet.apart import ApartQuestion
from infermax_opt.fleet.bounds.in_turn import machines_too_few
from infermax_opt.fleet.bounds.pooled import GROUPS, evidence, settled
from infermax_opt.fleet.bounds.windows import Weighted, best_windows
from infermax_opt.fleet.checker.certificate import least_apart
from infermax_opt.fleet.checker.machine import Machine
from infermax_opt.fleet.checker.split import SPLIT_SCHEMA, split_needs
from infermax_opt.fleet.checker.windows import NEVER
from infermax_opt.fleet.machine import machine_to_json

__all__ = ["PoolBound", "pool_bound"]


@dataclass(frozen=True)
class PoolBound:
    """Fewest machines of a pool, proved.

    Attributes
    ----------
    machines : int or None
        None: no number of machines is enough.
    certificate : dict
        For `infermax_opt.fleet.checker.split`.
    relaxed : float
        The bound before it was rounded up, about.
    certified : bool
        A checker has the time for the certificate.
    """

    machines: int | None
    certificate: dict[str, Any]
    relaxed: float
    certified: bool = True


def pool_bound(question: ApartQuestion, side: str) -> PoolBound:
    """The bound of a side, ``prefill`` or ``decode``, recomputed exactly by the checker."""
    apart, whole = question.machines, question.whole
    machine: Machine = getattr(apart, side)
    found = [split_needs(apart, side, asked, GROUPS) for asked in whole.asked]
    relaxed, windows = 0.0, list[Weighted]()
    spared = whole.may_miss - found.count(None)
    if spared >= 0:
        prompts = [request.input_tokens for request in whole.everyone]
        relaxed, windows, _ = best_windows(machine, prompts, found, spared)
    certificate = {
        "schema": SPLIT_SCHEMA,
        "side": side,
        "prefill": machine_to_json(apart.prefill),
        "decode": machine_to_json(apart.decode),
        "transfer": str(apart.transfer),
        "question": question.sha256,
        **evidence(whole, windows),
    }
    needs_of = partial(split_needs, apart, side, groups=1)
    in_turn = {"in_turn": partial(machines_too_few, certificate, machine, needs_of)}
    *_, (proved, certified) = settled(certificate, least_apart, in_turn if side == "prefill" else {})
    return PoolBound(None if proved == NEVER else int(proved), certificate, relaxed, certified)
