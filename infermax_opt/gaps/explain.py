"""Where the time above a bound goes, and where two schedules differ: tables that add up exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from infermax_opt.core.checks import checked_kind
from infermax_opt.core.explanation import Explanation
from infermax_opt.core.registry import problem_of
from infermax_opt.files.text import UNKNOWN, aligned, printable
from infermax_opt.gaps.score import Compared, Group

__all__ = ["Explained", "explained", "explained_text", "explained_to_json"]

#: What a bound has beyond what is needed, in words.
BESIDES = "what the bound counts besides"


@dataclass(frozen=True)
class Explained:
    """A metric of a schedule in parts, beside its bound.

    Attributes
    ----------
    label : str
        Of the run.
    parts : Explanation
    bound : Fraction or None
        None where none is known.
    """

    label: str
    parts: Explanation
    bound: Fraction | None

    @property
    def besides(self) -> Fraction | None:
        """What the bound has beyond what all parts need: for batches, waiting and the like."""
        return None if self.bound is None else self.bound - self.parts.needed


def explained(group: Group) -> list[Explained]:
    """Explanations of all runs of a group whose schedules are known, metric by metric."""
    checked_kind(group, Group, "group")
    scoring = problem_of(group.instance).scoring
    found = [
        Explained(run.subject.label, parts, _bound(group, run, parts.metric))
        for run in group.runs
        if run.subject.schedule is not None
        for parts in scoring.explain(group.instance, run.subject.schedule)
    ]
    order = list(dict.fromkeys(some.parts.metric for some in found))
    return sorted(found, key=lambda some: order.index(some.parts.metric))


def _bound(group: Group, run: Compared, metric: str) -> Fraction | None:
    if group.band is not None:  # the parts are those of one machine, the bound is not
        return None
    return next((row.lower.value for row in run.rows if row.metric == metric and row.lower), None)


# --- text ---------------------------------------------------------------------------------------


def explained_text(found: Sequence[Explained]) -> str:
    """A table for each run and metric, then one for each run against the best of a metric."""
    lines: list[str] = []
    for some in found:
        lines += ["", *_table(some)]
    for metric in dict.fromkeys(some.parts.metric for some in found):
        same = [some for some in found if some.parts.metric == metric]
        best = min(same, key=lambda some: some.parts.value)
        for other in same:
            if other is not best:
                lines += ["", *_difference(best, other)]
    return "\n".join(lines[1:])


def _table(some: Explained) -> list[str]:
    parts = some.parts
    head = f"{parts.metric} of {printable(some.label)}: {_s(parts.value)} s"
    if some.bound is not None:
        head += f", {_s(parts.value - some.bound)} s above the lower bound"
    rows = [("", "s", "needed", "above", *parts.stages, "")]
    rows += [
        (part.name, _s(part.value), _s(part.needed), _s(part.above), *map(_s, part.stages), part.words)
        for part in parts.parts
        if part.value or part.needed
    ]
    blank = [""] * (len(parts.stages) + 1)
    if some.besides is not None:
        rows.append((BESIDES, UNKNOWN, _s(some.besides), _s(-some.besides), *blank))
    total = some.bound if some.bound is not None else parts.needed
    sums = [sum((part.stages[k] for part in parts.parts), Fraction(0)) for k in range(len(parts.stages))]
    rows.append(("total", _s(parts.value), _s(total), _s(parts.value - total), *map(_s, sums), ""))
    return [head, *aligned(rows)]


def _difference(best: Explained, other: Explained) -> list[str]:
    """What one run spends more than the other, part by part."""
    more = other.parts.value - best.parts.value
    head = (
        f"{other.parts.metric} of {printable(other.label)} beside {printable(best.label)}: {_s(more)} s more"
    )
    values = {part.name: part.value for part in best.parts.parts}
    rows = [
        (part.name, _s(part.value - values.get(part.name, Fraction(0))))
        for part in other.parts.parts
        if part.value != values.get(part.name, Fraction(0))
    ]
    return [head, *aligned([*rows, ("total", _s(more))])]


def _s(value: Fraction) -> str:
    """Seconds to the millisecond, as sums are to be seen."""
    return f"{float(value):.3f}"


# --- JSON ---------------------------------------------------------------------------------------


def explained_to_json(found: Sequence[Explained]) -> list[dict[str, Any]]:
    """Parts with exact values, where decimals end."""
    return [
        {
            "file": some.label,
            "metric": some.parts.metric,
            "value": some.parts.value,
            "lower_bound": some.bound,
            "bound_besides_needed": some.besides,
            "stages": list(some.parts.stages),
            "parts": [
                {
                    "name": part.name,
                    "value": part.value,
                    "needed": part.needed,
                    "words": part.words,
                    "stages": list(part.stages),
                }
                for part in some.parts.parts
            ],
        }
        for some in found
    ]
