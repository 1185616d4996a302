"""Questions to the tables: pick rows, compare schedulers, take extremes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from infermax_opt.files.csv_rows import read_rows
from scripts.findings.measure import Row

__all__ = ["Extreme", "Tables", "read_tables"]

#: Columns that identify a case; whatever of them a table has.
KEYS = ("cost", "M", "I", "O", "rmax", "mix", "B", "seed")


@dataclass(frozen=True)
class Extreme:
    """The largest of some values and the row it belongs to."""

    value: float
    row: Row

    def at(self, *columns: str) -> str:
        """Where it was found, as in "I = 8, O = 32"."""
        return ", ".join(f"{name} = {self.row[name]}" for name in columns)


@dataclass(frozen=True)
class Tables:
    """All tables by the name of their study."""

    studies: Mapping[str, Sequence[Row]]

    def rows(self, study: str, **where: object) -> list[Row]:
        """Rows of a study whose columns have the given values."""
        wanted = {name: str(value) for name, value in where.items()}
        return [
            row for row in self.studies[study] if all(row[name] == value for name, value in wanted.items())
        ]

    def value(self, study: str, column: str, **where: object) -> float:
        """The number in one cell.

        Raises
        ------
        LookupError
            Unless exactly one row fits.
        """
        rows = self.rows(study, **where)
        if len(rows) != 1:
            raise LookupError(f"{study}: {len(rows)} rows with {where}")
        return float(rows[0][column])

    def pairs(self, study: str, one: str, other: str, **where: object) -> list[tuple[Row, Row]]:
        """Rows of two schedulers on the same case."""
        others = {_case(row): row for row in self.rows(study, scheduler=other, **where)}
        return [
            (row, others[_case(row)])
            for row in self.rows(study, scheduler=one, **where)
            if _case(row) in others
        ]

    def ratio(self, study: str, column: str, one: str, other: str, **where: object) -> Extreme:
        """Largest ratio of a column between two schedulers on the same case."""
        found = [
            Extreme(float(a[column]) / float(b[column]), a)
            for a, b in self.pairs(study, one, other, **where)
            if a[column] and b[column]
        ]
        return max(found, key=lambda extreme: extreme.value)

    def largest(
        self, study: str, column: str, keep: Callable[[Row], bool] | None = None, **where: object
    ) -> Extreme:
        """Largest value of a column."""
        rows = [row for row in self.rows(study, **where) if row[column] and (keep is None or keep(row))]
        return max((Extreme(float(row[column]), row) for row in rows), key=lambda extreme: extreme.value)

    def winner(self, study: str, among: Iterable[str], **where: object) -> tuple[str, ...]:
        """The schedulers among those with the least makespan, to the printed digits."""
        names = set(among)
        rows = [row for row in self.rows(study, **where) if row["scheduler"] in names]
        best = min(float(row["makespan_s"]) for row in rows)
        return tuple(row["scheduler"] for row in rows if float(row["makespan_s"]) == best)


def read_tables(folder: Path, studies: Iterable[str]) -> Tables:
    """Read the CSV files of some studies."""
    tables = {}
    for name in studies:
        tables[name] = read_rows((folder / f"{name}.csv").read_text(encoding="utf-8"))
    return Tables(tables)


def _case(row: Row) -> tuple[str, ...]:
    return tuple(row.get(name, "") for name in KEYS)
