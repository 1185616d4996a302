"""How values show themselves: in a line, as a small table in a notebook, as a plain value, as a data frame.

A class derived from `Shown` says its `facts`, a few names with their values, and has all of it.  Instances,
schedules and metrics of any problem derive from the classes below, which need nothing more of a problem.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import Rounding, figures_text, lower_rounding
from infermax_opt.core.frames import frame, plain, request_fields

if TYPE_CHECKING:
    import pandas

    from infermax_opt.core.problem import AnyProblem
    from infermax_opt.core.values import AnyInstance, AnySchedule

__all__ = [
    "Shown",
    "ShownInstance",
    "ShownMetrics",
    "ShownRows",
    "ShownSchedule",
    "Solved",
    "request_count",
    "rows_of",
    "written_schedule",
]

#: Metrics that the line of metrics names.
FIRST = 4


class Shown:
    """A value with a few facts.

    Its `repr` is one line, however large it is; a dataclass derived from it keeps that.
    """

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # The decorator of a dataclass writes a `repr` of all fields unless the class has one itself.
        if "__repr__" not in cls.__dict__:
            cls.__repr__ = cls.__repr__  # type: ignore[method-assign]

    def facts(self) -> Mapping[str, Any]:
        """What the line and the table show: names and values; None is left out."""
        raise NotImplementedError

    #: Names of facts that are lower bounds; those whose name ends with ``gap`` are gaps.
    lower_facts: ClassVar[frozenset[str]] = frozenset({"lower_bound", "bound"})

    def __repr__(self) -> str:
        told = (f"{name} {text}" for name, text in self._told())
        return f"<{type(self).__name__}: {', '.join(told)}>"

    def _told(self) -> Iterable[tuple[str, str]]:
        """Facts that are known as words: no lower bound above, and no gap below what it is."""
        facts = self.facts()
        for name, value in facts.items():
            if value is not None:
                rounding: Rounding = "ceiling" if name.endswith("gap") else "nearest"
                if name in self.lower_facts:
                    rounding = lower_rounding(facts.get("gap"))
                yield name, _word(value, rounding)

    def _repr_html_(self) -> str:
        import html  # a command shows nothing in a notebook

        cells = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name.replace('_', ' '))}</th>"
            f"<td style='text-align:left'>{html.escape(text)}</td></tr>"
            for name, text in self._told()
        )
        return f"<table><caption>{html.escape(type(self).__name__)}</caption>{cells}</table>"

    def to_dict(self) -> dict[str, Any]:
        """A plain value, as JSON knows it; exact numbers become the nearest float."""
        found: dict[str, Any] = plain(dict(self.facts()))
        return found

    def to_frame(self) -> pandas.DataFrame:
        """One row; raises `InputError` where pandas is not installed."""
        return frame([self.facts()])


class ShownRows(Shown):
    """A value with facts and several rows."""

    __slots__ = ()

    def rows_shown(self) -> Iterable[Mapping[str, Any]]:
        """The rows, names and values."""
        raise NotImplementedError

    def to_frame(self) -> pandas.DataFrame:
        """All rows; raises `InputError` where pandas is not installed."""
        return frame(self.rows_shown())

    def to_dict(self) -> dict[str, Any]:
        """The facts, and `rows`, as JSON knows them; exact numbers become the nearest float."""
        found: dict[str, Any] = plain({**self.facts(), "rows": list(self.rows_shown())})
        return found


class ShownInstance(Shown):
    """An instance of any problem."""

    __slots__ = ()

    def facts(self) -> Mapping[str, Any]:
        """Name, number of requests, objective."""
        own: Any = self
        return {"instance": own.name, "requests": request_count(own), "objective": own.objective_name}

    def to_dict(self) -> dict[str, Any]:
        """What the file of the instance holds; its decimals become the nearest float."""
        found: dict[str, Any] = plain(_problem(self).instance_to_json(self))
        return found

    def requests_frame(self) -> pandas.DataFrame:
        """What the instance says of its requests: a row each; raises `InputError` without pandas."""
        own: Any = self
        return frame(map(request_fields, own.requests))


class ShownSchedule(Shown):
    """A schedule of any problem."""

    __slots__ = ()

    def facts(self) -> Mapping[str, Any]:
        """The instance it is for, and how many decisions it holds."""
        own: Any = self
        key = _problem(self).decisions
        decisions: Any = getattr(own, key, ())
        return {"instance": own.instance, key: len(decisions)}

    def to_dict(self) -> dict[str, Any]:
        """What the file of the schedule holds; its decimals become the nearest float."""
        found: dict[str, Any] = plain(written_schedule(self))
        return found


class ShownMetrics(Shown):
    """Metrics of any problem: attributes are exact, `floats` gives the same numbers as floats."""

    __slots__ = ()

    definitions: ClassVar[Mapping[str, str]]
    units: ClassVar[Mapping[str, str]]

    def items(self) -> Sequence[tuple[str, Fraction | int | None]]:
        """Name and value of every metric."""
        raise NotImplementedError

    def facts(self) -> Mapping[str, Any]:
        """All metrics."""
        return dict(self.items())

    def floats(self) -> dict[str, float | int | None]:
        """All metrics by name, fractions as the nearest float; None is undefined."""
        return {name: plain(value) for name, value in self.items()}

    def __repr__(self) -> str:
        known = [(name, value) for name, value in self.items() if value is not None]
        told = ", ".join(f"{name} {_word(value)}" for name, value in known[:FIRST])
        more = f", and {len(known) - FIRST} more" if len(known) > FIRST else ""
        return f"<{type(self).__name__}: {told}{more}>"


class Solved(Shown):
    """What is known of an instance and a schedule of it: a result, or a verification.

    Attributes
    ----------
    given : instance or None
        The instance itself, where it is known: files of results do not hold it.
    schedule : schedule or None
    """

    __slots__ = ()

    given: AnyInstance | None
    schedule: AnySchedule | None

    def to_frame(self) -> pandas.DataFrame:
        """One row: the facts and the metrics; raises `InputError` where pandas is not installed."""
        metrics: Any = getattr(self, "metrics", None)
        return frame([{**self.facts(), **({} if metrics is None else dict(metrics.items()))}])

    def requests_frame(self, instance: AnyInstance | None = None) -> pandas.DataFrame:
        """A row for each request: what the instance says of it, and what the schedule does to it.

        Times are in seconds; a cell is empty where a request is not served, or a latency is not defined.

        Parameters
        ----------
        instance : instance, optional
            Default: the one that was solved or verified, where this knows it.

        Raises
        ------
        InputError
            If there is no schedule, the instance is not known, or pandas is not installed.
        """
        return frame(rows_of(*self._pair(instance)))

    def batches_frame(self, instance: AnyInstance | None = None) -> pandas.DataFrame:
        """A row for each step of the schedule: a batch, a bin.

        Parameters
        ----------
        instance : instance, optional
            As in `requests_frame`.

        Raises
        ------
        InputError
            Likewise, and where schedules of the problem have no steps.
        """
        given, schedule = self._pair(instance)
        return frame(_problem(given).step_rows(given, schedule))

    def _pair(self, instance: AnyInstance | None) -> tuple[AnyInstance, AnySchedule]:
        given = self.given if instance is None else instance
        if given is None:
            raise InputError("is not known to a result of a file; give it", field="instance")
        if self.schedule is None:
            raise InputError("there is none", field="schedule")
        return given, self.schedule


def rows_of(instance: AnyInstance, schedule: AnySchedule) -> list[dict[str, Any]]:
    """What an instance says of each request, and what a valid schedule does to it."""
    told = map(request_fields, instance.requests)
    done = _problem(instance).request_rows(instance, schedule)
    return [{**one, **more} for one, more in zip(told, done, strict=True)]


def written_schedule(schedule: object | None) -> dict[str, Any] | None:
    """A schedule as a file holds it; None without one."""
    return None if schedule is None else _problem(schedule).schedule_to_json(schedule)


def request_count(instance: Any) -> int:
    """Number of requests; groups are counted, not expanded."""
    groups = getattr(instance, "groups", None)
    if groups is None or not all(hasattr(group, "count") for group in groups):
        return len(instance.requests)
    return sum(group.count or 1 for group in groups)


def _problem(value: object) -> AnyProblem:
    """The problem of an instance or schedule; by name, as values are below the problems that know them."""
    found: AnyProblem = import_module("infermax_opt.core.registry").problem_of(value)
    return found


def _word(value: object, rounding: Rounding = "nearest") -> str:
    """A value to six digits."""
    if isinstance(value, float | Fraction):
        return figures_text(value, rounding=rounding)
    return str(plain(value))
