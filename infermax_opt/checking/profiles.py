"""Cost models that an instance names and does not spell out."""

from __future__ import annotations

import re
from pathlib import Path

from infermax_opt.checking.fields import Field, shown
from infermax_opt.checking.reading import load

#: Where cost profiles lie in a checkout or an installation.
PROFILES = Path("infermax_opt", "infermax", "data", "profiles")


def default_profiles() -> Path:
    """The profiles of the checkout or installation that this file lies in; else a folder beside this file."""
    here = Path(__file__).resolve().parent
    inside = (folder / PROFILES for folder in here.parents)
    return next((folder for folder in inside if folder.is_dir()), here / "profiles")


def spelled_out(cost: Field, profiles: Path | None) -> Field:
    """The cost model itself, where the instance names a profile."""
    if "profile" not in cost:
        return cost
    name = cost["profile"].text()
    if re.fullmatch(r"[\w.-]+", name) is None:
        cost["profile"].fail(f"{shown(name)} is no name of a profile")
    return Field(load(Path(profiles or ".", f"{name}.json")), f"profile {name}")["cost"]
