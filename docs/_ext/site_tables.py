"""The directive ``archive``: columns of a table of the archive, and the file to download."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.parsing import nested_parse_to_nodes

from infermax_opt.core.exact import Rounding, figures_text, lower_rounding

#: Columns that are shown where none are named, in this order, as far as a table has them and fills them.
USUAL = (
    "instance", "upper_bound_s", "workers", "lower_bound_s", "lower_bound_workers", "gap_percent", "bound",
    "proof", "schedule_source", "status", "batches", "evictions", "seconds", "verified", "certified",
)  # fmt: skip
#: Digits of what has more.
DIGITS = 6


def short(row: Mapping[str, str], column: str) -> str:
    """A cell: numbers to six digits, lower bounds rounded down and gaps up, others as they are."""
    value = row[column]
    if len(value) <= DIGITS or not is_number(value):
        return value
    rounding: Rounding = "ceiling" if column.endswith("gap_percent") else "nearest"
    if column.startswith("lower_bound"):
        rounding = lower_rounding(Fraction(row.get("gap_percent") or "1"))
    return figures_text(Fraction(value), DIGITS, rounding)


def is_number(value: str) -> bool:
    """Whether a cell is a number or empty."""
    try:
        float(value or "0")
    except ValueError:
        return False
    return True


def heading(column: str) -> str:
    """Name of a column for people."""
    for end, unit in (("_percent", ", %"), ("_s", ", s")):
        if column.endswith(end):
            column = column.removesuffix(end) + unit
    return {"upper_bound, s": "schedule, s", "workers": "schedule, workers"}.get(column, column).replace(
        "_", " "
    )


class Archive(SphinxDirective):
    """``{archive} ../instances/best-known/tables/online-60s.csv``."""

    required_arguments = 1
    option_spec = {"columns": directives.unchanged}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        """The table, with its file under it."""
        relative, path = self.env.relfn2path(self.arguments[0])
        self.env.note_dependency(path)
        with Path(path).open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        named = self.options.get("columns", "").split() or [c for c in USUAL if c in rows[0]]
        missing = [column for column in named if column not in rows[0]]
        if missing:
            raise self.error(f"{self.arguments[0]} has no columns {missing}")
        columns = [column for column in named if any(row[column] for row in rows)]
        lines = ["| " + " | ".join(heading(c) for c in columns) + " |"]
        right = {c for c in columns if all(is_number(row[c]) for row in rows)}
        lines.append("| " + " | ".join("---:" if c in right else "---" for c in columns) + " |")
        for row in rows:
            cells = (short(row, c).replace("|", r"\|") or "-" for c in columns)
            lines.append("| " + " | ".join(cells) + " |")
        lines += [
            "",
            f"{len(rows)} rows. All columns: {{download}}`{Path(path).name} <{self.arguments[0]}>`.",
        ]
        content = StringList(lines, source=relative)
        found = nested_parse_to_nodes(self.state, content)
        for table in (node for node in found if isinstance(node, nodes.table)):
            table["classes"].append("archive")
        return found


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("archive", Archive)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
