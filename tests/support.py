"""Helpers shared by the tests."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from infermax_opt.api import verify
from infermax_opt.core.registry import problem_of
from infermax_opt.core.result import LowerBound
from infermax_opt.core.values import AnyInstance
from infermax_opt.files import certificates
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.data.schedule import Schedule

ROOT = Path(__file__).resolve().parent.parent

PAPER = CostModel([("0.007", "0.000075")], ("0.0003", "2.6e-7"), ("0.0003", "1.5e-9"))
FLAT = CostModel([("1", "0")], ("0", "0"), ("0", "0"))


def shared_data(name: str) -> Path | None:
    """A file of the shared folder beside the checkout (or `INFERMAX_OPT_DATA`'s parent), if there."""
    data = os.environ.get("INFERMAX_OPT_DATA")
    base = Path(data).parent if data else ROOT.parent / "shared"
    path = base / name
    return path if path.exists() else None


def value(instance: Instance, schedule: Schedule) -> Fraction:
    """Replayed makespan of a schedule, which must be valid."""
    check = verify(instance, schedule)
    assert check.ok, check.violations[:3]
    assert check.metrics is not None
    return check.metrics.makespan


def few(calls: int) -> Callable[[], bool]:
    """A deadline that does not depend on the machine: it passes when asked so many times."""
    count = itertools.count(1)
    return lambda: next(count) > calls


def case(count: int, i: int, o: int, m: int, *, cost: CostModel = PAPER, preemption: bool = True) -> Instance:
    """Equal requests of I = i and O = o, all there from the start, in a KV cache of m tokens."""
    system = System(m, 4096, 4096)
    policy = Policy(preemption=preemption)
    return Instance("case", (RequestGroup("r", i, o, count=count),), system, cost, policy)


def certificate_to_json(instance: AnyInstance, lower: LowerBound) -> dict[str, Any]:
    """The certificate of a bound, as its problem makes it."""
    certification = problem_of(instance).require_certification()
    return certificates.certificate_to_json(instance, lower, certification)


def stand_alone(problem: str) -> Path:
    """The one file that checks certificates of a problem."""
    return ROOT / "scripts" / "checkers" / f"check_{problem}.py"


@cache
def one_file(problem: str) -> ModuleType:
    """That file as a module."""
    spec = spec_from_file_location(f"check_{problem}", stand_alone(problem))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_evidence(instance: AnyInstance, lower: LowerBound) -> Fraction:
    """Bound that the evidence of a bound proves, by the stand-alone checker of its problem."""
    return certificates.check_evidence(instance, lower, problem_of(instance).require_certification())
