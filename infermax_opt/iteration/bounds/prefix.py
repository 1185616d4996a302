r"""The optimum by a theorem: the most urgent real-time requests, and the cheapest best-effort ones.

**Theorem** (BE tokens per second; all savable requests can be kept together).  Sort the savable requests by
slack.  Some optimum selects of all real-time requests exactly the first k, for some k.

*Proof.*  Let T be the time of an optimum.  (6) holds, so T is at most the least slack of the selected ones,
and every i with slack_i - T_avg < T is selected.  These are a prefix.  Drop every other real-time request:
no cost falls when a request is added, so T does not rise, and neither do blocks and size.  The tokens are
the same ones, those left still meet their slack, and for those dropped T <= slack - T_avg (or (6) does not
ask for them).  QED.

It needs nothing but a time that does not fall when a request is added: it holds with swap, several pieces,
and attention as a product.  For given k, the time is at most the least slack (where k > 0) and what the next
request leaves, slack_(k+1) - T_avg: the windows of `infermax_opt.iteration.bounds.cases` in which all calls
are selected.

**Table.**  Without swap and with one piece the time of a batch is a sum, given which phases it holds.  So
of the best-effort requests only the number q counts: f[q][b], the least sum of q of them with b blocks at
most, is a table for all k, one for each pair of phases, and

    best ratio = max over k, q, phases of q / (fixed + sum of the prefix + f[q][M - blocks of the prefix]),

where that time is allowed.  The fixed times of a phase may be charged without a request of it: that batch
is only longer than it is without, which is compared, too.  O(N_be B M) steps for a table, O(N_rt B) for all
k.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from infermax_opt.iteration.bounds.cases import Case, Kinds, all_cases
from infermax_opt.iteration.bounds.kept import all_kept
from infermax_opt.iteration.data.instance import BE_TOKENS, IterationInstance
from infermax_opt.iteration.data.ticks import Ticks

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Table = npt.NDArray[np.int64]

__all__ = ["Prefix", "applies", "best_prefix"]

#: Most cells of a table times requests, at a few nanoseconds each.
MOST_STEPS = 2 * 10**8
#: Most types times different slacks.
MOST_SIZE = 10**6
#: Ticks beyond which sums might leave the range of 64 bits.
MOST_TICKS = 2**61


@dataclass(frozen=True)
class Prefix:
    """The optimum: seconds per token, and a batch that has it (positions); none where none has a token."""

    value: Fraction
    batch: tuple[int, ...]


def applies(instance: IterationInstance) -> bool:
    """Whether the table gives the optimum, and is not too large."""
    machine, ticks = instance.machine, Ticks.of(instance)
    single = len(machine.cost.batch) == 1 and machine.swap is None and not machine.product
    if not single or instance.objective != BE_TOKENS or ticks.all_time >= MOST_TICKS:
        return False
    able = sum(not r.real_time for r in instance.requests)
    kinds = Kinds.of(ticks)
    if len(kinds.members) * len(set(kinds.slack)) > MOST_SIZE:
        return False
    size, blocks = _limits(instance)
    return able * (size + 1) * (blocks + 1) <= MOST_STEPS and all_kept(ticks) is not None


def _limits(instance: IterationInstance) -> tuple[int, int]:
    """Best-effort requests and blocks that a table counts to."""
    able = [r.new_blocks for r in instance.requests if not r.real_time]
    return min(len(able), instance.machine.batch), min(sum(able), instance.machine.blocks)


def best_prefix(instance: IterationInstance) -> Prefix:
    """The optimum of an instance to which the theorem and the table apply, worked out once."""
    memo = vars(Ticks.of(instance))
    if "best_prefix" not in memo:
        memo["best_prefix"] = _best_prefix(instance)
    found: Prefix = memo["best_prefix"]
    return found


def _best_prefix(instance: IterationInstance) -> Prefix:
    ticks = Ticks.of(instance)
    kinds_of: dict[tuple[bool, bool], _Table] = {}
    best: tuple[int, int, Case] | None = None
    for case in all_cases(ticks, len(ticks.savable)):
        limits = case.limits()
        if limits is None:
            continue
        phases = case.decodes, case.prefills
        if phases not in kinds_of:
            kinds_of[phases] = _Table(instance, case)
        for tokens, time in kinds_of[phases].times(case, limits[0]):
            if best is None or tokens * best[1] > best[0] * time:
                best = tokens, time, case
    if best is None:
        return Prefix(ticks.worst, ())
    tokens, time, case = best
    limits = case.limits()
    assert limits is not None
    chosen = kinds_of[case.decodes, case.prefills].chosen(case, limits[0], tokens)
    return Prefix(Fraction(time, tokens * ticks.scale), tuple(chosen))


class _Table:
    """f of the phases of a case."""

    def __init__(self, instance: IterationInstance, case: Case):
        import numpy as np

        kinds, (size, self.blocks) = case.kinds, _limits(instance)
        allowed = case.decodes, case.prefills
        self.items = [
            (k, t)
            for t, (r, some) in enumerate(zip(kinds.requests, kinds.members, strict=True))
            if not r.real_time and allowed[r.prefills]
            for k in some
        ]
        _, each = case.lines([0] * len(kinds.members))[0]
        never = np.iinfo(np.int64).max // 2
        least = np.full((size + 1, self.blocks + 1), never, dtype=np.int64)
        least[0] = 0
        self.taken = np.zeros((len(self.items), size + 1, self.blocks + 1), dtype=bool)
        for at, (_, t) in enumerate(self.items):
            b = kinds.blocks[t]
            if b > self.blocks:
                continue
            other = least[:-1, : self.blocks + 1 - b] + each[t]
            shorter = other < least[1:, b:]
            self.taken[at, 1:, b:] = shorter
            least[1:, b:][shorter] = other[shorter]
        self.least: Table = least
        self.most = [int(np.searchsorted(least[:, b] >= never, True)) for b in range(self.blocks + 1)]

    def room(self, case: Case, low: list[int]) -> tuple[int, int, int]:
        """Requests, blocks and ticks of what a case selects anyway: requests and blocks left, and its
        ticks.
        """
        machine, kinds = case.kinds.ticks.machine, case.kinds
        base, _ = case.lines(low)[0]
        used = sum(b * n for b, n in zip(kinds.blocks, low, strict=True))
        return machine.batch - sum(low), machine.blocks - used, base

    def times(self, case: Case, low: list[int]) -> list[tuple[int, int]]:
        """Numbers of tokens from 1 on, and the least time of each, as far as they are allowed."""
        left, blocks, base = self.room(case, low)
        if left < 0 or blocks < 0:
            return []
        blocks = min(blocks, self.blocks)
        found = []
        for q in range(1, min(left + 1, self.most[blocks])):
            time = base + int(self.least[q, blocks])
            if time > case.tau:
                break
            found.append((q, time))
        return found

    def chosen(self, case: Case, low: list[int], tokens: int) -> list[int]:
        """The batch of so many tokens in the least time."""
        _, blocks, _ = self.room(case, low)
        q, b = tokens, min(blocks, self.blocks)
        batch = case.kinds.positions(low)
        for at in range(len(self.items) - 1, -1, -1):
            if self.taken[at, q, b]:
                k, t = self.items[at]
                batch.append(k)
                q, b = q - 1, b - case.kinds.blocks[t]
        return batch
