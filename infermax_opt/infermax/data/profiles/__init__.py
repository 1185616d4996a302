"""Cost profiles: fitted batch-time coefficients of LLM and GPU pairs, shipped as data or read from files.

A profile file is a JSON object.  It must have ``cost``, as in an instance; the other keys may be left out:

====================  =============================================================================
``schema``            ``infermax-opt/profile/1``
``name``              the file's, if not given
``model, device``     texts
``kv_capacity``       KV tokens that fit beside the weights, or null
``source``            where the coefficients came from
``fit_error``         ``mean_rel``, ``max_rel`` and ``n`` of the fit, or null
``band``              ``share`` of the samples that lie within [``lo`` x fit, ``hi`` x fit]
``host_overhead``     seconds a batch that the overhead of every line includes, and no sample does
``kernel_time_only``  whether the times know nothing of the CPU
``estimate``          whether nobody measured this model on this device; ``source`` says what was done instead
``errors``, ``fit``   what `calibrate` says of the fit, for readers
====================  =============================================================================
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from importlib import resources
from typing import Any

from infermax_opt.core.checks import MAX_TOKENS, checked_whole
from infermax_opt.core.errors import InputError
from infermax_opt.files.fields import Fields, shown
from infermax_opt.files.json import STANDARD, parse_json, read_as
from infermax_opt.files.text import UNKNOWN, aligned, percent
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.cost_format import cost_from_json

__all__ = [
    "PROFILE_SCHEMA",
    "Band",
    "Profile",
    "load_profile",
    "profile_from_json",
    "profile_names",
    "profile_of",
    "profiles_text",
    "read_profile",
]

PROFILE_SCHEMA = "infermax-opt/profile/1"
OPTIONAL = (
    "schema", "name", "model", "device", "kv_capacity", "source", "fit_error", "band", "host_overhead",
    "kernel_time_only", "estimate", "errors", "fit",
)  # fmt: skip


@dataclass(frozen=True)
class Band:
    """Factors between which measured times lie, as multiples of the model's.

    Attributes
    ----------
    share : Fraction
        Of the samples; at least this share lies within.
    lo, hi : Fraction
    """

    share: Fraction
    lo: Fraction
    hi: Fraction


@dataclass(frozen=True)
class Profile:
    """A cost model with its origin.

    Attributes
    ----------
    name, model, device : str
    kv_capacity : int or None
        KV tokens that fit beside the weights, where that is known.
    cost : CostModel
    source : str
        Where the coefficients came from.
    fit_error : mapping or None
        Mean and largest relative error of the fit, with its sample count.
    band : Band or None
        Where measured times lie.
    host_overhead : Fraction
        Seconds a batch that no sample has, and the overhead of every line includes.
    kernel_time_only : bool or None
        Whether the times know nothing of the CPU; None where that is not said.
    estimate : bool
        Whether nobody measured this model on this device.
    """

    name: str
    model: str
    device: str
    kv_capacity: int | None
    cost: CostModel
    source: str
    fit_error: Mapping[str, Any] | None
    band: Band | None = None
    host_overhead: Fraction = Fraction(0)
    kernel_time_only: bool | None = None
    estimate: bool = False

    @property
    def capacity(self) -> int:
        """KV tokens that fit beside the weights.

        Raises
        ------
        InputError
            If the profile does not say.
        """
        if self.kv_capacity is None:
            problem = f"the profile {shown(self.name)} does not say; --kv-capacity does"
            raise InputError(problem, field="kv_capacity")
        return self.kv_capacity


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
    loaded = profile_from_json(parse_json(text), name)
    return replace(loaded, cost=replace(loaded.cost, profile=name))


def profile_of(cost: CostModel) -> str | None:
    """Name of the shipped profile that has these coefficients and came with them; None if there is none.

    Who replaces a coefficient of a shipped cost model keeps its name by that.
    """
    name = cost.profile
    return name if name in profile_names() and load_profile(name).cost == cost else None


def read_profile(path: str | os.PathLike[str]) -> Profile:
    """Read a profile file.

    Raises
    ------
    InputError
        Naming file, field, value and limit.
    """
    name = os.fspath(path)
    stem = "stdin" if name == STANDARD else os.path.basename(name).removesuffix(".gz").removesuffix(".json")
    return read_as(path, lambda value: profile_from_json(value, stem))


def profile_from_json(value: object, name: str) -> Profile:
    """Build a profile from parsed JSON.

    Parameters
    ----------
    value : object
    name : str
        If the file has none.

    Raises
    ------
    InputError
        Naming the offending field.
    """
    top = Fields(value, "", ["cost"], OPTIONAL)
    if "schema" in top.values:
        top.schema(PROFILE_SCHEMA)
    texts = {key: top.text(key) for key in ("name", "model", "device", "source") if key in top.values}
    capacity, error = top.get("kv_capacity"), top.get("fit_error")
    if error is not None:
        _checked_error(error)
    overhead = top.seconds("host_overhead") or Fraction(0)
    if overhead < 0:
        raise InputError(f"{float(overhead):g} is negative; the least is 0", field="host_overhead")
    return Profile(
        name=texts.get("name", name),
        model=texts.get("model", UNKNOWN),
        device=texts.get("device", UNKNOWN),
        kv_capacity=None if capacity is None else checked_whole(capacity, "kv_capacity", 1, MAX_TOKENS),
        cost=cost_from_json(top.get("cost")),
        source=texts.get("source", UNKNOWN),
        fit_error=error,
        band=_band(top.get("band")),
        host_overhead=overhead,
        kernel_time_only=_truth(top, "kernel_time_only"),
        estimate=bool(_truth(top, "estimate")),
    )


def _truth(top: Fields, key: str) -> bool | None:
    value = top.get(key)
    if value is not None and not isinstance(value, bool):
        raise InputError(f"{shown(value)} is not true or false", field=key)
    return value


def _checked_error(value: object) -> None:
    fields = Fields(value, "fit_error", ["mean_rel", "max_rel", "n"])
    for key in fields.values:
        fields.decimal(key)


def _band(value: object) -> Band | None:
    if value is None:
        return None
    fields = Fields(value, "band", ["share", "lo", "hi"])
    found = Band(*map(fields.decimal, ("share", "lo", "hi")))
    if not 0 < found.share <= 1:
        problem = f"{float(found.share):g} is not above 0 and at most 1"
        raise InputError(problem, field="band.share")
    if not 0 < found.lo <= found.hi:
        problem = f"{float(found.lo):g} is not above 0 and at most hi, {float(found.hi):g}"
        raise InputError(problem, field="band.lo")
    return found


def profiles_text(profiles: Sequence[Profile]) -> str:
    """The shipped cost profiles."""
    rows = [("profile", "model", "device", "KV tokens", "mean fit error")]
    for p in profiles:
        error = percent(Fraction(p.fit_error["mean_rel"])) if p.fit_error else UNKNOWN
        rows.append(
            (p.name, p.model, p.device, str(p.capacity), error + (" (estimate)" if p.estimate else ""))
        )
    return "\n".join(aligned(rows, indent=""))
