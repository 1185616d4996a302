"""What files are called."""

from __future__ import annotations

import os

from infermax_opt.files.json import STANDARD

__all__ = ["stem"]


def stem(path: str | os.PathLike[str]) -> str:
    """What a file is called without its folder and its endings; standard input is called stdin."""
    if path == STANDARD:
        return "stdin"
    base = os.path.basename(os.fspath(path)).removesuffix(".gz")
    return base.rpartition(".")[0] or base
