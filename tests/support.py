"""Helpers shared by the tests."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path

from infermax_opt.instance import Instance
from infermax_opt.schedules import Schedule
from infermax_opt.verification import verify

ROOT = Path(__file__).resolve().parent.parent


def shared_data(name: str) -> Path | None:
    """A file of the shared folder beside the checkout (or `INFERMAX_OPT_DATA`'s parent), if there."""
    data = os.environ.get("INFERMAX_OPT_DATA")
    base = Path(data).parent if data else ROOT.parent / "shared"
    path = base / name
    return path if path.exists() else None


def value(instance: Instance, schedule: Schedule) -> Fraction:
    """Replayed makespan of a schedule, which must be valid."""
    check = verify(instance, schedule)
    assert check.ok, check.violations[:3]
    assert check.metrics is not None
    return check.metrics.makespan
