"""Files of a plan: JSON, a table of its rows, or a page with both beside it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.files.traces import Trace
from infermax_opt.files.writing import all_written, dump_json, write_text
from infermax_opt.fleet.page import plan_page
from infermax_opt.fleet.plan_row import PlanOptions, PlanRow
from infermax_opt.fleet.report import plan_csv, plan_to_json
from infermax_opt.fleet.sweep import Plan

__all__ = ["outputs_of", "write_page_of", "write_plan"]

PAGE, TABLE = ".html", ".csv"


def outputs_of(output: str | None) -> list[str]:
    """The files of a page: itself, and the same numbers as JSON and CSV; of other outputs none."""
    if output is None or not output.lower().endswith(PAGE):
        return []
    stem = output[: -len(PAGE)]
    return [output, f"{stem}.json", f"{stem}{TABLE}"]


def write_page_of(value: dict[str, Any], rows: Sequence[PlanRow], output: str) -> None:
    """Write the page of a plan, and the same numbers as JSON and CSV beside it.

    Parameters
    ----------
    value : dict
        The plan as JSON.
    rows : sequence of PlanRow
    output : str
        Path of the page.
    """
    page, as_json, as_csv = outputs_of(output)
    dump_json(value, as_json)
    write_text(plan_csv(rows), as_csv)
    write_text(plan_page(value, [as_json, as_csv], os.path.dirname(page) or "."), page)


def write_plan(plan: Plan, options: PlanOptions, trace: Trace, output: str | os.PathLike[str]) -> None:
    """Write a plan: a page with JSON and CSV beside it, or one of these two alone.

    Parameters
    ----------
    plan : Plan
        What `sweep` found.
    options : PlanOptions
    trace : Trace
        For which it was asked.
    output : str or path
        A name that ends in .html, in .csv, or else that of a JSON file.

    Raises
    ------
    InputError
        If a file cannot be written, or is that of the trace.
    """
    path = os.fspath(output)
    for name in outputs_of(path) or [path]:
        if os.path.exists(name) and os.path.exists(trace.path) and os.path.samefile(name, trace.path):
            raise InputError("is the trace of the plan; it is not overwritten", source=name)
    value = plan_to_json(plan, options, os.path.basename(trace.path), None, trace.dropped)
    with all_written():
        if outputs_of(path):
            write_page_of(value, plan.rows, path)
        elif path.lower().endswith(TABLE):
            write_text(plan_csv(plan.rows), path)
        else:
            dump_json(value, path)
