"""Machines whose batches take between lo and hi times as long as the cost model says.

The factor may be another one for each batch.

*Lower bounds.*  Let a schedule on such a machine end its batches at e_1, e_2, ...  On the machine that is
faster than all, with batches of lo times the model's time, the same batches can start later and end at
e_1, e_2, ... too: none starts before it did on the other machine, so none overlaps the one before, and
everybody has arrived.  So every latency and every metric is the same, and what no schedule of the fastest
machine is below, no schedule of any machine in the band is below.  The same holds for a machine whose
coefficients are each at least lo times the model's.

*Worst case of a schedule.*  A batch waits for those it names, if the machine is early.  By induction each
batch ends no later than with factor hi throughout, and no earlier than with lo.  Metrics that no later token
improves are at most those of the slowest machine.  So is a TPOT where nothing waits, for then it is a sum of
batch times; else it is at most what lies between a first token of the fastest and a last one of the slowest.
Of other metrics the worst case is not known: how far classes are apart, and who keeps a limit of the TPOT.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import lcm

from infermax_opt.core.band import Band
from infermax_opt.core.exact import Number
from infermax_opt.core.measured import Measured
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.latencies import NEVER, Latencies
from infermax_opt.infermax.data.objective import Latency, Metric
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.replay.fast import replay
from infermax_opt.infermax.replay.measured import latencies_by_name
from infermax_opt.infermax.replay.metrics import measure
from infermax_opt.infermax.replay.plain import Replay
from infermax_opt.infermax.replay.waits import after_arrivals

__all__ = ["scaled", "worst_case"]


def scaled(instance: Instance, factor: Fraction) -> Instance:
    """The instance on a machine whose batches all take `factor` times as long."""
    if factor == 1:
        return instance
    cost = instance.cost

    def pair(one: tuple[Number, Number]) -> tuple[Fraction, Fraction]:
        return Fraction(one[0]) * factor, Fraction(one[1]) * factor

    made = replace(
        cost,
        batch=[pair(piece) for piece in cost.batch],
        decode=pair(cost.decode),
        prefill=pair(cost.prefill),
        mixed=pair(cost.mixed),
        prefix=Fraction(cost.prefix) * factor,
        profile=None,
    )
    return replace(instance, cost=made)


def worst_case(instance: Instance, schedule: Schedule, band: Band) -> Measured:
    """What the metrics of a valid schedule are at most on a machine of the band.

    Parameters
    ----------
    instance : Instance
    schedule : Schedule
    band : Band
        Factors of the time of a batch.

    Raises
    ------
    ValueError
        If the schedule breaks a rule.
    """
    waiting = after_arrivals(instance, schedule)
    slow = replay(scaled(instance, band.high), waiting)
    metrics = measure(instance, slow)
    found = dict(metrics.items())
    if any(batch.start is not None for batch in waiting.batches):
        fast = replay(scaled(instance, band.low), waiting)
        unit = lcm(slow.ticks_per_second, fast.ticks_per_second)
        firsts, lasts = _ticks(fast, fast.first_batch, unit), _ticks(slow, slow.last_batch, unit)
        apart = Latencies(instance, unit, firsts, lasts)
        for metric in Metric:
            if metric.latency is Latency.TPOT:
                found[metric.value] = apart.metric(metric)
    if any(kind.terms.slo.tpot is not None for kind in instance.types):
        # A limit of the TPOT may be kept by the slowest machine and not by another one.
        found |= dict.fromkeys(("missed", "attainment", "goodput"))
    return Measured({**found, "class_spread": None}, latencies_by_name(metrics.latencies))


def _ticks(replayed: Replay, batches: list[int], unit: int) -> list[int]:
    scale = unit // replayed.ticks_per_second
    return [replayed.ends[batch] * scale if batch >= 0 else NEVER for batch in batches]
