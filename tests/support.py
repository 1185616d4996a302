"""Helpers shared by the tests."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def shared_data(name: str) -> Path | None:
    """A file of the shared folder beside the checkout (or `INFERMAX_OPT_DATA`'s parent), if there."""
    data = os.environ.get("INFERMAX_OPT_DATA")
    base = Path(data).parent if data else ROOT.parent / "shared"
    path = base / name
    return path if path.exists() else None
