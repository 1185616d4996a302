r"""An instance in whole numbers: ticks for times, units for values; and what a batch takes.

*Time* (2) to (5).  The computation takes what `infermax_opt.infermax.data.cost.batch_time` says of the batch.
Where attention is a product, the cached tokens that decodes read are their number times the sum of their
contexts, and the work of prefills the sum of their tokens times that of their contexts.  Beside it s0 + s1 H
pass for H blocks from the host; the longer counts.  A batch of no request takes no time.

*Slack.*  (6) for a selected request: T <= slack = T_SLO - t - (k - 1) T_avg; for another one:
T <= slack - T_avg.  A real-time request is *savable* if a batch of it alone meets its slack.  The others
cannot be helped: (6) does not ask for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import cached_property

from infermax_opt.core.exact import common_denominator
from infermax_opt.infermax.data.cost import BatchFeatures, prefill_work
from infermax_opt.iteration.data.instance import BE_TOKENS, IterationInstance, IterationRequest

__all__ = ["Load", "Ticks"]

#: Sums over a batch: tokens, decodes, what these read, prefills, their work, their contexts, blocks from
#: the host.
#: Where attention is a product, decodes read their contexts, and the work of a prefill is its tokens.
Load = tuple[int, int, int, int, int, int, int]


class Ticks:
    """An instance in whole numbers, by position of a request.

    Attributes
    ----------
    scale : int
        Ticks of a second.
    t_avg : int
        Ticks.
    slack : list of int or None
        Ticks; None of best-effort requests.
    savable : list of int
        Positions of real-time requests that can be saved, least slack first.
    value : list of int
        What each request is worth for the objective, in units.
    units : int
        Units of a value of 1.
    """

    def __init__(self, instance: IterationInstance):
        machine, requests = instance.machine, instance.requests
        self.instance, self.machine, cost = instance, machine, machine.cost
        swap = machine.swap or (Fraction(0), Fraction(0))
        times = [machine.t_avg, machine.ttft, machine.tpot, *swap, *(r.waited for r in requests)]
        own = cost.ticks_per_second
        self.scale = common_denominator([Fraction(1, own), *times])
        self.factor = self.scale // own
        self.swap = None if machine.swap is None else (self.ticks(swap[0]), self.ticks(swap[1]))
        self.t_avg = self.ticks(machine.t_avg)
        self.slack = [self._slack(r) for r in requests]
        able = [k for k, s in enumerate(self.slack) if s is not None and self.time([k]) <= s]
        self.savable = sorted(able, key=lambda k: (self.slack[k] or 0, k))
        self.units, worths = 1, [Fraction(int(not r.real_time)) for r in requests]
        if instance.objective != BE_TOKENS:
            worths = [r.value for r in requests]
            self.units = common_denominator(worths)
        self.value = [int(worth * self.units) for worth in worths]

    def _slack(self, request: IterationRequest) -> int | None:
        """Most ticks of a batch that takes a real-time request."""
        if not request.real_time:
            return None
        machine = self.machine
        limit = machine.ttft if request.prefills else machine.tpot * (machine.group or 1)
        return self.ticks(limit - request.waited) - (request.group - 1) * self.t_avg

    @classmethod
    def of(cls, instance: IterationInstance) -> Ticks:
        """Those of an instance, which are worked out once."""
        memo = vars(instance)
        if "ticks" not in memo:
            memo["ticks"] = cls(instance)
        made: Ticks = memo["ticks"]
        return made

    def ticks(self, seconds: Fraction) -> int:
        """A time of the instance in ticks."""
        return int(seconds * self.scale)

    @cached_property
    def loads(self) -> list[Load]:
        """What each request adds to a batch."""
        exact, product = self.machine.cost.exact_attention, self.machine.product
        found = []
        for r in self.instance.requests:
            one = r.context if product else r.cached
            work = r.input if product else prefill_work(exact, r.input, r.cached)
            phase = (0, 0, 1, work, r.context) if r.prefills else (1, one, 0, 0, 0)
            found.append((r.input, *phase, r.host_blocks))
        return found

    def load_time(self, load: Load) -> int:
        """Ticks of a batch whose requests add up to this; of one request at least."""
        tokens, decodes, read, prefills, work, contexts, host = load
        if self.machine.product:
            read, work = decodes * read, work * contexts
        cost = self.machine.cost
        batch = BatchFeatures(tokens, decodes, read, prefills, work)
        computed = self.factor * cost.batch_ticks(batch)
        return int(computed if self.swap is None else max(computed, self.swap[0] + self.swap[1] * host))

    def time(self, batch: Iterable[int]) -> int:
        """Ticks of a batch."""
        some = [self.loads[k] for k in batch]
        return self.load_time(tuple(map(sum, zip(*some, strict=True)))) if some else 0  # type: ignore[arg-type]

    def kept(self, batch: Iterable[int]) -> list[int]:
        """Savable requests for which (6) holds."""
        chosen = set(batch)
        time = self.time(chosen)
        return [k for k in self.savable if time <= self.limit(k, k in chosen)]

    def limit(self, k: int, selected: bool) -> int:
        """Most ticks that (6) allows the batch for the sake of a real-time request."""
        slack = self.slack[k]
        assert slack is not None
        return slack if selected else slack - self.t_avg

    def fits(self, batch: Iterable[int]) -> bool:
        """Whether (7) and (8) hold."""
        some = [self.instance.requests[k] for k in batch]
        machine = self.machine
        return len(some) <= machine.batch and sum(r.new_blocks for r in some) <= machine.blocks

    def worth(self, batch: Iterable[int]) -> int:
        """Units of value of a batch."""
        return sum(self.value[k] for k in batch)

    @cached_property
    def all_time(self) -> int:
        """Ticks of a batch of all requests: no batch takes more."""
        return self.time(range(len(self.instance.requests)))

    @cached_property
    def worst(self) -> Fraction:
        """The objective of a batch without value, seconds: no batch with some value has more."""
        least = min((v for v in self.value if v), default=self.units)
        return Fraction(self.all_time * self.units, least * self.scale)

    def objective(self, batch: Iterable[int]) -> Fraction:
        """Seconds per value of a batch."""
        chosen = list(batch)
        worth = self.worth(chosen)
        return Fraction(self.time(chosen) * self.units, worth * self.scale) if worth else self.worst
