"""A problem that says what is its own and inherits the rest.

Its values are records, which give its files.  A replay that measures a schedule and one that lists every
schedule of a small instance give its verifier.  Bars give its picture, and metrics the columns of its tables.
The page "My problem" of the documentation explains each with an example.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from infermax_opt.core.columns import SHARED, Columns, RowKind, nearest, own
from infermax_opt.core.errors import InputError
from infermax_opt.core.problem import Heuristic, Problem
from infermax_opt.core.result import Claim, LowerBound
from infermax_opt.core.truth import ROUNDING, Finding, Truth, best_of, found_by_enumerating
from infermax_opt.core.verification import BaseVerification
from infermax_opt.files.fields import INSTANCE_SCHEMA, SCHEDULE_SCHEMA
from infermax_opt.files.figure import bound_words
from infermax_opt.files.report import value_text
from infermax_opt.files.text import printable
from infermax_opt.simple.json import record_from_json, record_to_json
from infermax_opt.simple.picture import Bar, draw_bars
from infermax_opt.simple.records import BrokenRule, InstanceRecord, MetricsRecord, ScheduleRecord

__all__ = ["SimpleProblem"]

I = TypeVar("I", bound=InstanceRecord)  # noqa: E741
S = TypeVar("S", bound=ScheduleRecord)
M = TypeVar("M", bound=MetricsRecord)


class SimpleProblem(Problem[I, S, M]):
    """A problem of records: `I` of instances, `S` of schedules, `M` of metrics.

    A class of its own gives the attributes, and the methods `broken`, `measure` and `closed_forms`; the other
    methods may be given.  All are called without a time limit, as often as somebody asks, also in other
    processes.  They give the same for the same instance and schedule, and change neither.  What one of them
    raises, or gives that it should not, becomes a line that names the problem.

    Attributes
    ----------
    name, about, instance, schedule, metrics : str, str, type, type, type
        As in `Problem`: the name that instance files and the entry point say, a few words, and the records.
    decisions : str
        Name of the field of a schedule that holds what is decided.
    rules : mapping of name to function
        Its heuristics, each a function of an instance that returns a schedule.  `solve` and `table` run all
        of them in this order, `schedule` one; each schedule is verified before it counts.  One that makes no
        schedule of an instance raises `InputError`.
    most_enumerated : int
        Requests of the largest instance whose schedules `every_schedule` lists; 0 for none.
    """

    rules: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    most_enumerated: ClassVar[int] = 0

    # --- what is its own ------------------------------------------------------------------------

    @abstractmethod
    def broken(self, instance: I, schedule: S) -> Iterable[BrokenRule]:
        """Rules that a schedule breaks; none for a valid one.

        Asked first of every schedule, whether a rule, a file or `every_schedule` made it.  So nothing is sure
        but the types of its fields: ids may be unknown, missing or twice.  The house checks the name of its
        instance.

        Parameters
        ----------
        instance : I
        schedule : S

        Returns
        -------
        iterable of BrokenRule
            All of them, or as many as help.  Each `rule` is a member of an enumeration; reports count by its
            value.
        """

    @abstractmethod
    def measure(self, instance: I, schedule: S) -> M:
        """Replay a valid schedule: the one clock of the problem.

        Called only where `broken` finds nothing.

        Parameters
        ----------
        instance : I
        schedule : S

        Returns
        -------
        M
            Exact numbers, int or Fraction, in the units that the class of metrics names; None where one is
            undefined.  The one that `instance.objective_name` names is minimised and always defined.
        """

    @abstractmethod
    def closed_forms(self, instance: I) -> Iterable[LowerBound]:
        """Lower bounds, each proved by its formula.

        Called by `solve`, `bound`, `gap` and `table`, and by `verify`, which recomputes the bound of the same
        source.  On instances of more than `most_enumerated` requests nothing but `plain` refutes a false one,
        so whoever writes them vouches for the proof.

        Parameters
        ----------
        instance : I

        Returns
        -------
        iterable of LowerBound
            Each with a Fraction in the unit of the objective that no valid schedule is below, a source of its
            own, `Proof.CLOSED_FORM`, and the proof in a sentence as its reason.
        """

    def plain(self, instance: I) -> S | None:
        """A schedule that is found at once, at any size, or None; if valid, bounds above it are refuted."""
        return None

    def every_schedule(self, instance: I) -> Iterable[S]:
        """List all schedules that could be best; asked for up to `most_enumerated` requests only.

        What is listed may break rules: the verifier asks `broken` of each, and passes over those that do.  A
        best schedule must be among the others, or a bound above the optimum is confirmed.

        Parameters
        ----------
        instance : I

        Returns
        -------
        iterable of S
            An iterator is best, as it ends with the first that refutes the bound.
        """
        return ()

    def bars(self, instance: I, schedule: S) -> Iterable[Bar]:
        """What the picture of a valid schedule shows, in seconds; none where there is no picture."""
        return ()

    # --- what follows ---------------------------------------------------------------------------

    def instance_from_json(self, value: object) -> I:
        """Build an instance from parsed JSON."""
        head = {"schema": INSTANCE_SCHEMA, "problem": self.name}
        found: I = record_from_json(self.instance, value, "", head)
        return found

    def instance_to_json(self, instance: I) -> dict[str, Any]:
        """Return the JSON value of an instance."""
        return {"schema": INSTANCE_SCHEMA, "problem": self.name, **record_to_json(instance)}

    def schedule_from_json(self, value: object, path: str) -> S:
        """Build a schedule from parsed JSON."""
        found: S = record_from_json(self.schedule, value, path, {"schema": SCHEDULE_SCHEMA})
        return found

    def schedule_to_json(self, schedule: S) -> dict[str, Any]:
        """Return the JSON value of a schedule."""
        return {"schema": SCHEDULE_SCHEMA, **record_to_json(schedule)}

    def verify(self, instance: I, schedule: S | None, subject: S | Claim) -> BaseVerification[BrokenRule, M]:
        """Replay a schedule; decide what is claimed of a small instance by listing every schedule.

        Parameters
        ----------
        instance : instance
        schedule : schedule, optional
        subject : schedule or Claim
            As in `Problem.verify`.
        """
        violations = tuple(self.broken(instance, schedule)) if schedule is not None else ()
        metrics = None if schedule is None or violations else self.measure(instance, schedule)
        truth = Truth(
            instance=instance,
            violations=violations,
            metrics=metrics,
            objective=None if metrics is None else self._objective(instance, metrics),
            closed_form=lambda source: best_of(self.closed_forms(instance), source) if source else None,
            confirm=lambda lower: self._confirm(instance, lower),
            trivial=lambda: self._valid_value(instance, self.plain(instance)),
            proved_here=lambda _: False,
        )
        return BaseVerification.of(subject, truth)

    def _objective(self, instance: I, metrics: M) -> Fraction:
        return Fraction(getattr(metrics, instance.objective_name))

    def _value(self, instance: I, schedule: S) -> Fraction:
        """Objective of a valid schedule."""
        return self._objective(instance, self.measure(instance, schedule))

    def _valid_value(self, instance: I, schedule: S | None) -> Fraction | None:
        """Objective of a schedule; None without one, or if it breaks a rule."""
        if schedule is None or any(True for _ in self.broken(instance, schedule)):
            return None
        return self._value(instance, schedule)

    def _confirm(self, instance: I, lower: Fraction) -> Finding:
        """Compare a bound with every schedule that keeps the rules."""
        count = len(instance.requests)
        if count > self.most_enumerated:
            return found_by_enumerating(
                None, f"{count} requests; up to {self.most_enumerated} are enumerated"
            )
        # A rounding below, so that a bound written as a double is not refuted for that.
        least = lower * (1 - ROUNDING)
        holds: bool | None = None
        for some in self.every_schedule(instance):
            value = self._valid_value(instance, some)
            if value is not None:
                holds = value >= least
            if holds is False:
                break
        return found_by_enumerating(holds, "no schedule that keeps the rules is listed")

    def bounds(self, instance: I, *, stop: Callable[[], bool] | None = None) -> Iterable[LowerBound]:
        """Closed forms only, so there is nothing to stop."""
        return self.closed_forms(instance)

    def heuristics(self) -> Sequence[str]:
        """Names of the rules."""
        return tuple(self.rules)

    def run_heuristic(self, instance: I, name: str) -> Heuristic[S]:
        """Make a schedule by a rule."""
        if name not in self.rules:
            return super().run_heuristic(instance, name)  # raises, and names the rules
        return Heuristic(self.rules[name](instance))

    def draw(self, instance: I, subject: S | Claim, ax: Any | None = None) -> Any:
        """Draw the bars of a schedule under its value, and bound and gap of a result.

        Parameters
        ----------
        instance : instance
        subject : schedule or Claim
        ax : matplotlib.axes.Axes, optional
            As in `Problem.draw`.
        """
        schedule = subject.schedule if isinstance(subject, Claim) else subject
        if not isinstance(schedule, self.schedule):
            raise InputError("holds no schedule to draw", field="schedule")
        bars = tuple(self.bars(instance, schedule))
        if not bars:
            super().draw(instance, subject, ax)  # raises
        value = value_text(instance, self._value(instance, schedule))
        words = [printable(instance.name), f"{instance.objective_name} {value}"]
        more = bound_words(instance, subject) if isinstance(subject, Claim) else []
        return draw_bars(bars, words + more, ax)

    @cached_property
    def _columns(self) -> RowKind:
        """A column for each metric, the objective apart, which all tables have."""
        names = tuple(name for name in self.metrics.definitions if name != self.instance.objective_name)

        def cells(instance: I, result: Any) -> dict[str, Fraction | None]:
            values = dict(result.metrics.items()) if result.metrics else {}
            return {name: nearest(values.get(name)) for name in names}

        columns = Columns({**SHARED.csv, **{name: own(name) for name in names}}, SHARED.markdown)
        return RowKind(f"{self.name}/row/1", names, frozenset(names), cells, columns)

    @property
    def row_kind(self) -> RowKind:
        """The columns that all problems have, and the metrics."""
        return self._columns
