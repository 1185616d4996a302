"""The journal of a table: one finished row a line, appended and never rewritten.

A line is written at once and flushed to the disk before the run goes on.  What a kill can leave
behind is a last line without its end, which the next run cuts off.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from infermax_opt.core.errors import InputError
from infermax_opt.files.json import parse_json
from infermax_opt.files.lock import locked
from infermax_opt.table.row import Row, row_from_json

__all__ = ["JOURNAL", "Journal", "open_journal"]

JOURNAL = "rows.jsonl"
LOCK = ".lock"


class Journal:
    """An open journal.

    Attributes
    ----------
    rows : dict
        Every row in it, by `Row.key`.
    """

    def __init__(self, path: Path):
        self.path = path
        self.handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            self.reload()
        except BaseException:
            self.close()
            raise

    def reload(self) -> None:
        """Read all rows again, after cutting off a last line without its end.

        Raises
        ------
        InputError
            If a line is no row.
        """
        data = self.path.read_bytes()
        end = data.rfind(b"\n") + 1
        if end < len(data):
            os.ftruncate(self.handle, end)
            os.fsync(self.handle)
        rows: dict[tuple[str, str], Row] = {}
        for number, line in enumerate(data[:end].split(b"\n")[:-1], 1):
            try:
                row = row_from_json(parse_json(line.decode()))
            except UnicodeDecodeError:
                raise InputError("is not UTF-8 text", field=f"line {number}", source=str(self.path)) from None
            except InputError as error:
                where = f"line {number}" + (f", {error.field}" if error.field else "")
                raise InputError(error.problem, field=where, source=str(self.path)) from None
            rows.setdefault(row.key, row)
        self.rows = rows

    def append(self, row: Row) -> None:
        """Add a finished row; when this returns, it is on the disk.

        Raises
        ------
        InputError
            If it cannot be written; the journal is as before then.
        """
        if row.key in self.rows:
            return
        line = json.dumps(row.to_json()).encode() + b"\n"
        size = os.fstat(self.handle).st_size
        try:
            written = os.write(self.handle, line)
            if written < len(line):
                raise OSError(28, "No space left on device")
            os.fsync(self.handle)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self.handle, size)
            reason = error.strerror or str(error)
            raise InputError(f"cannot be written: {reason}", source=str(self.path)) from None
        self.rows[row.key] = row

    def close(self) -> None:
        """Close the file."""
        os.close(self.handle)


@contextlib.contextmanager
def open_journal(folder: Path) -> Iterator[Journal]:
    """Open the journal of a table's folder, which no other run may use at the same time.

    Raises
    ------
    InputError
        If another run uses the folder, or it cannot be written, or the journal holds other lines.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise InputError("is not a directory", source=str(folder)) from None
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", source=str(folder)) from None
    with locked(folder / LOCK, wait=False):
        try:
            journal = Journal(folder / JOURNAL)
            _sync_folder(folder)
        except OSError as error:
            reason = error.strerror or str(error)
            raise InputError(f"cannot be written: {reason}", source=str(folder / JOURNAL)) from None
        try:
            yield journal
        finally:
            journal.close()


def _sync_folder(folder: Path) -> None:
    """Make sure that a new file's name is on the disk too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
