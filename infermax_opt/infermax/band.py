"""Machines whose batches take between lo and hi times as long as the cost model says.

The factor may be another one for each batch.  The same is said here of intervals of coefficients
(`infermax_opt.infermax.data.intervals`): each batch takes at least what it takes on the fastest machine, and
at most what it takes on the slowest.  `banded` makes the former the latter.

*Lower bounds.*  Let a schedule on such a machine end its batches at e_1, e_2, ...  On the machine that is
faster than all, the same batches can start later and end at e_1, e_2, ... too: none starts before it did on
the other machine, so none overlaps the one before, and everybody has arrived.  So every latency and every
metric is the same, and what no schedule of the fastest machine is below, no schedule of any machine in the
band is below.

*Worst case of a schedule.*  A schedule is a fixed sequence of batches, each with an earliest start s_j; one
that waits for those it names has their arrivals for s_j, so it is valid on every machine.  Batch j ends at
e_j = max(e_(j-1), s_j) + t_j.  That falls with none of t_1, ..., t_j: no batch ends later than on the slowest
machine, nor earlier than on the fastest.  (A scheduler that decides as it goes may well be slower on a faster
machine, for it makes other batches.)

- Makespan, TTFT, E2E, means and ranks of these, normalised latencies, and what is not served in time, fall
  with no end of a batch: the slowest machine is the worst case, exactly.
- The time from the first token of a request, in batch f, to its last, in batch l, is
  e_l - e_f = max(h(f+1, l), max over f < j <= l of s_j + h(j, l) - e_f), with h(i, l) the time of batches
  i to l.  It falls with no time after batch f, and rises with none up to batch f, which are in e_f alone.
  So it is longest where batches take least up to f, and most after it: `longest_spans`, exact for each.
  Mean and percentiles of TPOTs are then at most those of these times, which one machine need not have for all
  requests at once; where nothing waits it does, the slowest one.
- A request that keeps its limits in its own worst case keeps them everywhere.  So what is missed is at most
  the weight of the others.
- Classes are at most as far apart as one at its largest mean and another at its least.

So it is for machines with a factor of their own for each batch; one of a single factor may not get that far.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from fractions import Fraction
from math import lcm

from infermax_opt.core.band import Band
from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import MAX_DIGITS, Number
from infermax_opt.core.measured import Measured
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.intervals import coefficients, fastest, slowest
from infermax_opt.infermax.data.latencies import NEVER, Latencies
from infermax_opt.infermax.data.objective import Latency, Metric
from infermax_opt.infermax.data.release import refuse_release
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.replay.fast import replay
from infermax_opt.infermax.replay.metrics import measure
from infermax_opt.infermax.replay.plain import Replay
from infermax_opt.infermax.replay.waits import after_arrivals

__all__ = ["banded", "longest_spans", "scaled", "scaled_cost", "worst_case", "worst_objective"]

#: The machines of an instance, as it says them.
AS_GIVEN = Band.one()


def scaled_cost(cost: CostModel, factor: Fraction) -> CostModel:
    """The cost model of a machine whose batches all take `factor` times as long."""

    def pair(one: tuple[Number, Number]) -> tuple[Fraction, Fraction]:
        return Fraction(one[0]) * factor, Fraction(one[1]) * factor

    return replace(
        cost,
        batch=[pair(piece) for piece in cost.batch],
        decode=pair(cost.decode),
        prefill=pair(cost.prefill),
        mixed=pair(cost.mixed),
        prefix=Fraction(cost.prefix) * factor,
        profile=None,
    )


def scaled(instance: Instance, factor: Fraction) -> Instance:
    """The instance on a machine whose batches all take `factor` times as long as on its fastest one."""
    if factor == 1:
        return fastest(instance)
    return replace(instance, cost=scaled_cost(instance.cost, factor), slowest=None)


def banded(instance: Instance, band: Band) -> Instance:
    """The instance on the machines of a band, as intervals of its coefficients.

    Raises
    ------
    InputError
        If a coefficient gets more digits than a file can hold: its certificates would be of other machines.
    """
    if band == AS_GIVEN:
        return instance
    low, high = (
        scaled_cost(instance.cost, band.low),
        scaled_cost(instance.slowest or instance.cost, band.high),
    )
    for where, value in (*coefficients(low), *coefficients(high)):
        if 10**MAX_DIGITS % value.denominator or value >= 10**MAX_DIGITS:
            problem = (
                f"{band} times the {where} of the instance has more than {MAX_DIGITS} digits beside the point"
            )
            raise InputError(problem, field="band")
    return replace(instance, cost=low, slowest=high)


def worst_case(instance: Instance, schedule: Schedule, band: Band = AS_GIVEN) -> Measured:
    """What the metrics of a valid schedule are at most on a machine of the band; rates, at least.

    Parameters
    ----------
    instance : Instance
    schedule : Schedule
        Its batches wait for those they name.
    band : Band
        Factors of the time of a batch; of intervals, on top of these.

    Raises
    ------
    InputError
        If the instance has a closed loop, whose latencies count from what moves, too.
    ValueError
        If the schedule breaks a rule.
    """
    # With numpy, which small instances do without.
    from infermax_opt.infermax.replay.measured import latencies_by_name

    refuse_release(instance, "a band")
    machines = banded(instance, band)
    waiting = after_arrivals(instance, schedule)
    slow = replay(slowest(machines), waiting)
    metrics = measure(slowest(machines), slow)
    found = dict(metrics.items())
    latencies = latencies_by_name(metrics.latencies)
    if machines.slowest is None:
        return Measured(found, latencies)
    fast = replay(fastest(machines), waiting)
    ends = _Ends(instance, slow, fast)
    waits = any(batch.start is not None for batch in waiting.batches)
    if waits:
        spans = longest_spans(waiting, slow, fast)
        apart = ends.of(ends.firsts, [min(a + b, NEVER) for a, b in zip(ends.firsts, spans, strict=True)])
        found |= {metric.value: apart.metric(metric) for metric in Metric if metric.latency is Latency.TPOT}
        found |= ends.kept(apart, found["makespan"])
    found[Metric.CLASS_SPREAD.value] = ends.class_spread()
    # Weighted by times, of which some may be at one end and some at the other.
    found["mean_kv_use"] = None
    loose = _loose(instance, waits)
    remark = f"at most, and perhaps less: {', '.join(loose)}"
    return Measured(found, latencies, (remark,) if loose else ())


def worst_objective(instance: Instance, schedule: Schedule) -> Fraction:
    """What the objective of a valid schedule is at most on a machine of the instance."""
    found = worst_case(instance, schedule).metrics
    return instance.objective.value(lambda metric: found[metric.value])


def _loose(instance: Instance, waits: bool) -> list[str]:
    """Kinds of metrics whose worst case may be less than what is said of it."""
    found = []
    if waits and any(kind.output_tokens > 1 for kind in instance.types):
        found.append("mean and percentiles of the TPOT")
        if any(kind.terms.slo.tpot is not None for kind in instance.types):
            found.append("what is missed")
    if len({kind.terms.class_name for kind in instance.types}) > 1:
        found.append("class_spread")
    return found


class _Ends:
    """When first and last tokens are made on the slowest and on the fastest machine, in one unit."""

    def __init__(self, instance: Instance, slow: Replay, fast: Replay):
        self.instance = instance
        self.unit = lcm(slow.ticks_per_second, fast.ticks_per_second)
        self.firsts = _ticks(fast, fast.first_batch, self.unit)
        self.fast = self.of(self.firsts, _ticks(fast, fast.last_batch, self.unit))
        self.slow = self.of(
            _ticks(slow, slow.first_batch, self.unit), _ticks(slow, slow.last_batch, self.unit)
        )

    def of(self, firsts: list[int], lasts: list[int]) -> Latencies:
        """Latencies in this unit."""
        return Latencies(self.instance, self.unit, firsts, lasts)

    def kept(self, apart: Latencies, makespan: Fraction | int | None) -> dict[str, Fraction | None]:
        """What is missed at most, and what is kept at least.

        Parameters
        ----------
        apart : Latencies
            With the longest times between first and last token.
        makespan : Fraction or None
            On the slowest machine.
        """
        if self.slow.broken is None:
            return {}
        kept, count, total = Fraction(0), 0, Fraction(0)
        for i, (request, broken) in enumerate(zip(self.instance.requests, self.slow.broken, strict=True)):
            limit, weight = request.terms.slo.tpot, request.terms.weight
            keeps = not broken and (limit is None or apart.within(i, Latency.TPOT, limit))
            count += keeps
            if request.terms.slo:
                total += weight
                kept += weight if keeps else 0
        rate = count / Fraction(makespan) if makespan else None
        return {"missed": total - kept, "attainment": kept / total, "goodput": rate}

    def class_spread(self) -> Fraction | None:
        """How far classes are apart at most, s; None with one class."""
        if self.slow.required is None or self.fast.required is None:
            return None
        high, low = self.slow.required.class_means, self.fast.required.class_means
        return max((high[a] - low[b] for a in high for b in low if a != b), default=None)


def _ticks(replayed: Replay, batches: list[int], unit: int) -> list[int]:
    scale = unit // replayed.ticks_per_second
    return [replayed.ends[batch] * scale if batch >= 0 else NEVER for batch in batches]


def longest_spans(waiting: Schedule, slow: Replay, fast: Replay) -> list[int]:
    """The longest time from first to last token of each request, ticks; `NEVER` where there is no last.

    With p_l the time of all batches to l on the slowest machine, it is
    p_l + max(e_f - p_f, max over f < j <= l of s_j - p_(j-1)) - e_f, e_f being that of the fastest.

    Parameters
    ----------
    waiting : Schedule
    slow, fast : Replay
        Of it, on the slowest and on the fastest machine.
    """
    unit = lcm(slow.ticks_per_second, fast.ticks_per_second)
    scale = unit // slow.ticks_per_second
    passed = [0]
    for start, end in zip(slow.starts, slow.ends, strict=True):
        passed.append(passed[-1] + (end - start) * scale)
    waits, position = [], 0  # batches that wait, and s_j - p_(j-1)
    for batch in waiting.batches:
        if batch.start is not None:
            waits.append((position, int(batch.start * unit) - passed[position]))
        position += batch.repeat
    made = _ticks(fast, fast.first_batch, unit)
    spans = [NEVER] * len(made)
    # Requests by their last batch; on the stack the waits so far that no later one is above.
    stack: list[tuple[int, int]] = []
    upcoming = iter([*waits, (len(passed), 0)])
    j, most = next(upcoming)
    for i in sorted(range(len(made)), key=lambda i: slow.last_batch[i]):
        first, last = slow.first_batch[i], slow.last_batch[i]
        if last < 0:
            continue
        while j <= last:
            while stack and stack[-1][1] <= most:
                stack.pop()
            stack.append((j, most))
            j, most = next(upcoming)
        later = bisect_right(stack, first, key=lambda wait: wait[0])
        through = made[i] - passed[first + 1]
        through = max(through, stack[later][1]) if later < len(stack) else through
        spans[i] = passed[last + 1] + through - made[i]
    return spans
