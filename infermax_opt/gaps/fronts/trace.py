"""Tracing a front: schedules that no known one beats in both metrics, half-planes that no schedule enters.

For weights u, v >= 0, a lower bound L on u x + v y leaves no schedule below that line.  Of a point (x, y)
the *gap* is 1 - t with the largest t such that (t x, t y) is not above all lines: no schedule has both
metrics lower by more than this share.  It is 0 where one of them is 0 already.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from infermax_opt import api
from infermax_opt.core.checks import checked_seconds
from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import decimal_text, read_whole
from infermax_opt.core.interrupts import patient
from infermax_opt.core.problem import AnyProblem
from infermax_opt.core.progress import Progress, Teller
from infermax_opt.core.registry import problem_of
from infermax_opt.core.result import AnyResult, LowerBound
from infermax_opt.core.run import WARM_START
from infermax_opt.core.shown import ShownRows
from infermax_opt.core.values import AnyInstance, AnySchedule
from infermax_opt.gaps.fronts.axes import Axis

__all__ = ["Front", "HalfPlane", "Point", "trace_front"]

#: Directions of a front unless told otherwise, both axes included.
DIRECTIONS = 7
#: Directions that are solved whatever the time: both axes.
ALONE = 2
#: Share of the time for the schedulers alone.
SCHEDULERS_SHARE = 0.2


@dataclass(frozen=True)
class Point:
    """A verified schedule: what its metrics are that are to be low, and who made it."""

    x: Fraction
    y: Fraction
    source: str
    schedule: AnySchedule

    def beats(self, other: Point) -> bool:
        """Whether it is no worse in both metrics, and the other one not the same."""
        return self.x <= other.x and self.y <= other.y and (self.x, self.y) != (other.x, other.y)


@dataclass(frozen=True)
class HalfPlane:
    """u x + v y is at least the bound, for every schedule; `instance` has that sum as its objective."""

    u: Fraction
    v: Fraction
    bound: LowerBound
    instance: AnyInstance


@dataclass(frozen=True)
class Front(ShownRows):
    """What two metrics can be together.

    Attributes
    ----------
    instance : instance
    x, y : Axis
    points : tuple of Point
        Those that no other one beats, by rising x.
    others : tuple of Point
    half_planes : tuple of HalfPlane
    undefined : tuple of str
        Metrics of both that some schedule has not, which count as 0 then.
    stopped : bool
        Whether the time was over, or Ctrl-C or SIGTERM came, before all weighted sums were solved.
    """

    instance: AnyInstance
    x: Axis
    y: Axis
    points: tuple[Point, ...]
    others: tuple[Point, ...]
    half_planes: tuple[HalfPlane, ...]
    undefined: tuple[str, ...] = ()
    stopped: bool = False

    def facts(self) -> Mapping[str, Any]:
        """The instance, both metrics, and how much is known."""
        return {
            "instance": self.instance.name,
            "x": self.x.name,
            "y": self.y.name,
            "points": len(self.points),
            "half_planes": len(self.half_planes),
            "stopped": self.stopped,
            "largest_gap": max(map(self.gap, self.points), default=None),
        }

    def rows_shown(self) -> Iterable[Mapping[str, Any]]:
        """A row for each schedule, those that no other one beats first."""
        for point in (*self.points, *self.others):
            yield {
                self.x.name: self.x.shown(point.x),
                self.y.name: self.y.shown(point.y),
                f"{self.x.name}_at_best": self.x.shown(self.least_x(point)),
                f"{self.y.name}_at_best": self.y.shown(self.least_y(point)),
                "gap": self.gap(point),
                "on_front": point in self.points,
                "found_by": point.source,
            }

    def least_x(self, point: Point) -> Fraction:
        """Least x, in what is to be low, of any schedule whose y is no higher than that of the point."""
        return max([Fraction(0), *((p.bound.value - p.v * point.y) / p.u for p in self.half_planes if p.u)])

    def least_y(self, point: Point) -> Fraction:
        """Least y of any schedule whose x is no higher than that of the point."""
        return max([Fraction(0), *((p.bound.value - p.u * point.x) / p.v for p in self.half_planes if p.v)])

    def gap(self, point: Point) -> Fraction:
        """Share by which no schedule has both metrics lower."""
        sums = ((plane, plane.u * point.x + plane.v * point.y) for plane in self.half_planes)
        # What is 0 can be no lower.
        reached = (plane.bound.value / total if total else Fraction(1) for plane, total in sums)
        return 1 - max(reached, default=Fraction(0))


def trace_front(
    instance: AnyInstance,
    x: str,
    y: str,
    *,
    directions: int = DIRECTIONS,
    time_limit: float = 60.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Front:
    """Trace the front of two metrics.

    Parameters
    ----------
    instance : instance
        Of a problem whose objectives can be weighted sums.
    x, y : str
        Metrics that can be minimised, or such as tokens per second.
    directions : int
        Weighted sums that are solved, the two metrics alone included.
    time_limit : float
        Seconds for all of it.  Once they are over no sum is begun but for the two metrics alone.
    seed : int
    progress : callable, optional
        As in `infermax_opt.solve`.

    Raises
    ------
    InputError
        If one is no such metric, both are the same, or there are fewer than two directions.
    """
    checked_seconds(time_limit)
    problem = problem_of(instance)
    axes = Axis.of(problem, instance, x, "x"), Axis.of(problem, instance, y, "y")
    if axes[0].metric == axes[1].metric:
        raise InputError(f"{y!r} says the same as {x!r}", field="y")
    if read_whole(directions, "directions") < 2:
        raise InputError(f"{directions} is too few; a front has 2 at least", field="directions")
    tracer = _Tracer(problem, instance, axes, Teller(progress))
    return tracer.run(directions, time_limit, seed)


class _Tracer:
    """The points and half-planes so far."""

    def __init__(self, problem: AnyProblem, instance: AnyInstance, axes: tuple[Axis, Axis], say: Teller):
        self.problem, self.instance, self.axes, self.say = problem, instance, axes, say
        self.points: list[Point] = []
        self.half_planes: list[HalfPlane] = []
        self.undefined: set[Axis] = set()
        self.known = set(problem.heuristics_for(instance))

    def run(self, directions: int, time_limit: float, seed: int) -> Front:
        """Schedulers, then one weighted sum after the other; Ctrl-C and the time limit end it early."""
        began, late = time.monotonic(), False
        # One that comes while a sum is solved ends this one only, with what it has: so it is noted, too.
        with patient() as patience, suppress(KeyboardInterrupt):
            patience.searching = True
            for name in self.problem.heuristics_for(self.instance):
                with suppress(InputError):  # one that makes no schedule of this instance
                    self.take(api.schedule(self.instance, name), name)
                if time.monotonic() - began > SCHEDULERS_SHARE * time_limit:
                    break
            for done, (u, v) in enumerate(self.weights(directions)):
                left = time_limit - (time.monotonic() - began)
                late = left <= 0 and done >= ALONE
                if late:
                    break
                self.solve(u, v, max(0.1, left / (directions - done)), seed)
                if patience.stopped:
                    break
        points = sorted(self.points, key=lambda point: (point.x, point.y))
        kept = [point for point in points if not any(other.beats(point) for other in points)]
        # Of several schedules with the same values the first is kept.
        first = list({(point.x, point.y): point for point in reversed(kept)}.values())[::-1]
        others = tuple(point for point in points if point not in first)
        undefined = tuple(axis.name for axis in self.axes if axis in self.undefined)
        planes, stopped = tuple(self.half_planes), patience.stopped or late
        return Front(self.instance, *self.axes, tuple(first), others, planes, undefined, stopped)

    def take(self, schedule: AnySchedule, source: str) -> None:
        """Keep a schedule, if it is one, by its metrics."""
        check = api.verify(self.instance, schedule)
        if check.ok and check.metrics is not None:
            found = {axis: axis.value(check.metrics) for axis in self.axes}
            self.undefined.update(axis for axis, value in found.items() if value is None)
            x, y = (value or Fraction(0) for value in found.values())
            self.points.append(Point(x, y, source, schedule))

    def weights(self, directions: int) -> Iterator[tuple[Fraction, Fraction]]:
        """Weights of both metrics: each alone, then between, in shares of the best values known."""
        yield Fraction(1), Fraction(0)
        yield Fraction(0), Fraction(1)
        for k in range(1, directions - 1):
            best_x = min((point.x for point in self.points), default=Fraction(1)) or Fraction(1)
            best_y = min((point.y for point in self.points), default=Fraction(1)) or Fraction(1)
            share = Fraction(k, directions - 1)
            # Weights are decimals with few figures, so that anybody can write them down.
            u, v = (decimal_text(w, digits=3) for w in (share / best_x, (1 - share) / best_y))
            yield Fraction(u), Fraction(v)

    def solve(self, u: Fraction, v: Fraction, seconds: float, seed: int) -> None:
        """Solve one weighted sum: a point and a half-plane."""
        given = zip(self.axes, (u, v), strict=True)
        weights = {axis.metric: decimal_text(weight) for axis, weight in given if weight}
        # One metric alone goes by its name: more bounds know it so.
        objective = json.dumps(weights) if len(weights) > 1 else next(iter(weights))
        aimed = self.problem.aimed(self.instance, objective, ())
        self.say(f"{aimed.objective_name}: {seconds:.3g} s", "direction", source=aimed.objective_name)
        known = self.start(aimed, u, v)
        begin = "best" if known is None else known.schedule
        result = api.solve(aimed, time_limit=seconds, seed=seed, warm_start=begin)
        if result.schedule is not None and result.upper is not None:
            source = result.upper.source
            self.take(result.schedule, known.source if known and source == WARM_START else source)
        lower = self.trusted(aimed, result)
        if lower is not None:
            self.half_planes.append(HalfPlane(u, v, lower, aimed))

    def start(self, aimed: AnyInstance, u: Fraction, v: Fraction) -> Point | None:
        """The best schedule so far; none where the sum brings heuristics of its own, so all are tried.

        Parameters
        ----------
        aimed : instance
        u, v : Fraction
            Weights of both metrics.
        """
        if self.points and self.known.issuperset(self.problem.heuristics_for(aimed)):
            return min(self.points, key=lambda point: u * point.x + v * point.y)
        return None

    def trusted(self, aimed: AnyInstance, result: AnyResult) -> LowerBound | None:
        """The bound, if the verifier can check it; else the best one that anybody can."""
        if result.lower is None:
            return None
        known = replace(result, upper=None, schedule=None, metrics=None, target=None)
        claim: Any = known.claim()
        check = self.problem.verify(aimed, None, claim)
        return result.lower if check.ok and not check.unchecked else result.certified
