"""The rules of a selection, checked exactly: (6) to (8)."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from infermax_opt.iteration.bounds.kept import Kept, most_kept, note_kept
from infermax_opt.iteration.data.instance import IterationInstance
from infermax_opt.iteration.data.selection import Selection
from infermax_opt.iteration.data.ticks import Ticks

__all__ = ["IterationRule", "IterationViolation", "SelectionCheck", "check_selection"]


class IterationRule(enum.Enum):
    """Rules that a selection can break."""

    UNKNOWN_REQUEST = "unknown_request"
    BATCH_SIZE = "batch_size"
    BLOCKS = "blocks"
    DEADLINE = "deadline"


@dataclass(frozen=True, slots=True)
class IterationViolation:
    """One broken rule."""

    rule: IterationRule
    request: str | None
    message: str

    def __str__(self) -> str:
        place = "selection" if self.request is None else f"request {self.request!r}"
        return f"{place}: {self.rule.value}: {self.message}"


@dataclass(frozen=True)
class SelectionCheck:
    """Outcome of a check.

    Attributes
    ----------
    violations : tuple of IterationViolation
    batch : tuple of int
        Positions of the selected requests that there are.
    undecided : str or None
        What could not be decided of a selection without violations.
    """

    violations: tuple[IterationViolation, ...]
    batch: tuple[int, ...]
    undecided: str | None

    @property
    def valid(self) -> bool:
        """Whether no rule is broken."""
        return not self.violations


def check_selection(instance: IterationInstance, selection: Selection) -> SelectionCheck:
    """Check every rule; nothing is raised for a wrong selection."""
    ticks, found = Ticks.of(instance), list[IterationViolation]()
    for name in selection.select:
        if name not in instance.index:
            text = "is not in the instance"
            found.append(IterationViolation(IterationRule.UNKNOWN_REQUEST, name, text))
    batch = tuple(instance.index[name] for name in selection.select if name in instance.index)
    machine = instance.machine
    if len(batch) > machine.batch:
        text = f"(7): {len(batch)} requests where {machine.batch} are allowed"
        found.append(IterationViolation(IterationRule.BATCH_SIZE, None, text))
    blocks = sum(instance.requests[k].new_blocks for k in batch)
    if blocks > machine.blocks:
        text = f"(8): {blocks} new blocks where {machine.blocks} are empty"
        found.append(IterationViolation(IterationRule.BLOCKS, None, text))
    late, undecided = _late(ticks, batch, fits=not found)
    return SelectionCheck((*found, *late), batch, undecided)


def _late(ticks: Ticks, batch: tuple[int, ...], *, fits: bool) -> tuple[list[IterationViolation], str | None]:
    """Savable requests that (6) is broken for, if fewer could be; and what is not known of that."""
    kept = set(ticks.kept(batch))
    late = [k for k in ticks.savable if k not in kept]
    if not late:
        return [], None
    if fits:
        note_kept(ticks, batch)
    could = most_kept(ticks)
    if len(kept) >= could.most:
        return [], None
    if len(kept) >= could.least:
        text = f"keeps {len(kept)} of {len(ticks.savable)} savable requests; whether a batch can keep"
        return [], f"{text} {could.most} is not decided"
    return [_violation(ticks, batch, k, could) for k in late], None


def _violation(ticks: Ticks, batch: tuple[int, ...], k: int, could: Kept) -> IterationViolation:
    most, time = ticks.limit(k, k in batch) / ticks.scale, ticks.time(batch) / ticks.scale
    text = f"(6): the batch takes {time:.9g} s where {most:.9g} s are allowed; a batch can keep"
    every = f"{could.least} of {len(ticks.savable)} savable requests"
    return IterationViolation(IterationRule.DEADLINE, ticks.instance.requests[k].id, f"{text} {every}")
