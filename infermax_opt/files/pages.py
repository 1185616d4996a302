"""Pages of files that commands write, by what the files say that they are."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.files.fields import shown
from infermax_opt.files.json import STANDARD, read_as
from infermax_opt.files.page_gap import gap_page
from infermax_opt.files.page_result import result_page
from infermax_opt.files.page_table import table_page
from infermax_opt.files.results import claim_from_json
from infermax_opt.files.schemas import SCHEMAS
from infermax_opt.files.writing import write_text

__all__ = ["page_of", "source_of", "write_page"]

#: What `table` writes into its folder.
TABLE = "table.json"


def source_of(path: str) -> str:
    """The file that a page is made of: itself, or that in a folder of `table`."""
    return os.path.join(path, TABLE) if os.path.isdir(path) else path


def page_of(path: str, folder: str = ".") -> str:
    """The page of a file of `solve`, `bound`, `gap` or `table`.

    Raises
    ------
    InputError
        If it is none of these, or cannot be read; naming file and field.
    """

    def result(value: Any) -> str:
        return result_page(claim_from_json(value), path, folder)

    pages: dict[str, Callable[[Any], str]] = {
        SCHEMAS["solve"]: result, SCHEMAS["gap"]: gap_page, SCHEMAS["table"]: table_page,
    }  # fmt: skip

    def made(value: Any) -> str:
        schema = value.get("schema") if isinstance(value, dict) else None
        if schema == SCHEMAS["plan"]:
            raise InputError("is a plan; `plan` writes its page itself, with -o PAGE.html", field="schema")
        if not isinstance(schema, str) or schema not in pages:
            raise InputError(f"{shown(schema)} is none of {', '.join(pages)}", field="schema")
        return pages[schema](value)

    return read_as(path, made)


def write_page(path: str, output: str) -> None:
    """Write what `solve`, `bound`, `gap` or `table` wrote as one page for a browser, which loads nothing.

    Parameters
    ----------
    path : str
        A file of one of these, or the folder of a table.
    output : str
        The page; ``-`` is standard output.

    Raises
    ------
    InputError
        If the file is none of these, or cannot be read; or if the page cannot be written.
    """
    folder = "." if output == STANDARD else os.path.dirname(output) or "."
    write_text(page_of(source_of(path), folder), output)
