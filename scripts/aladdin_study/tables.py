"""Tables as CSV, and the setting in which they were measured."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path

from infermax_opt.core.versions import package_versions
from infermax_opt.files.csv_rows import read_rows, rows_text
from infermax_opt.files.writing import write_text

__all__ = ["Row", "read_table", "setting", "write_table"]

Row = dict[str, str]


def write_table(rows: Sequence[Row], path: Path) -> None:
    """Write rows; columns in the order in which they first appear."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    write_text(rows_text(names, [[row.get(name) for name in names] for row in rows]), path)


def read_table(path: Path) -> list[Row]:
    """Rows of a table."""
    return read_rows(path.read_text(encoding="utf-8"))


def setting() -> Row:
    """Versions and hardware."""
    versions = {"python": platform.python_version(), **package_versions()}
    return {
        "versions": " ".join(f"{name}={version}" for name, version in versions.items()),
        "processor": processor(),
        "cores_of_machine": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.machine()}",
    }


def processor() -> str:
    """Name of the processor, as far as the system tells."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
