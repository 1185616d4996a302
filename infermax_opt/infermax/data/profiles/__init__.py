"""Cost profiles: fitted batch-time coefficients of LLM and GPU pairs, shipped as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib import resources
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.files.json import parse_json
from infermax_opt.files.text import UNKNOWN, aligned, percent
from infermax_opt.infermax.data.cost import CostModel

__all__ = ["Profile", "load_profile", "profile_names", "profiles_text"]


@dataclass(frozen=True)
class Profile:
    """A cost model with its origin.

    Attributes
    ----------
    name, model, device : str
    kv_capacity : int
        KV tokens that fit beside the weights.
    cost : CostModel
    source : str
        Where the coefficients came from.
    fit_error : mapping or None
        Mean and largest relative error of the fit, with its sample count.
    """

    name: str
    model: str
    device: str
    kv_capacity: int
    cost: CostModel
    source: str
    fit_error: Mapping[str, Any] | None


@cache
def profile_names() -> tuple[str, ...]:
    """Names of the shipped profiles."""
    files = resources.files(__name__).iterdir()
    return tuple(sorted(f.name.removesuffix(".json") for f in files if f.name.endswith(".json")))


@cache
def load_profile(name: str) -> Profile:
    """Load a shipped profile.

    Raises
    ------
    InputError
        If there is no profile of that name.
    """
    if name not in profile_names():
        raise InputError(
            f"{name!r} is no profile; there are {', '.join(profile_names())}", field="cost.profile"
        )
    text = resources.files(__name__).joinpath(f"{name}.json").read_text(encoding="utf-8")
    value = parse_json(text)
    cost = value["cost"]
    return Profile(
        name=name,
        model=value["model"],
        device=value["device"],
        kv_capacity=value["kv_capacity"],
        cost=CostModel(cost["batch"], cost["decode"], cost["prefill"], cost["attention"], profile=name),
        source=value["source"],
        fit_error=value["fit_error"],
    )


def profiles_text(profiles: Sequence[Profile]) -> str:
    """The shipped cost profiles."""
    rows = [("profile", "model", "device", "KV tokens", "mean fit error")]
    for p in profiles:
        error = percent(Fraction(p.fit_error["mean_rel"])) if p.fit_error else UNKNOWN
        rows.append((p.name, p.model, p.device, str(p.kv_capacity), error))
    return "\n".join(aligned(rows, indent=""))
