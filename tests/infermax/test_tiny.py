"""Few requests are bounded without a compiler, and with the same outcome."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infermax_opt.core.result import LowerBound
from infermax_opt.infermax.bounds import (
    _lagrangian_relaxation,
    _occupancy_graph,
    _state_flow_search,
    searched,
)
from infermax_opt.infermax.bounds.tiny import MOST_TOKENS, is_tiny
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Objective, RequestGroup, System
from tests.campaign import campaign
from tests.infermax.waiting import waiting
from tests.support import ROOT

#: Where kernels are taken from, with the function that caches them.
TAKERS = (
    (_lagrangian_relaxation, _lagrangian_relaxation._kernels),
    (_occupancy_graph, _occupancy_graph.kernels),
    (_state_flow_search, _state_flow_search.kernels),
)


def test_what_is_tiny() -> None:
    assert is_tiny(((1_000_000, MOST_TOKENS, 1),))
    assert not is_tiny(((1, MOST_TOKENS + 1, 1),))
    # Few tokens, but each request apart: five to the eighth states.
    assert not is_tiny(tuple((k, 4, 1) for k in range(1, 9)))
    assert is_tiny(((1, 4, 8),))


@pytest.mark.parametrize("name", ["toy", "paper-csp/i64"])
def test_nothing_is_compiled(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "infermax_opt", "bound", str(ROOT / f"instances/{name}.json")]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "state flow" in run.stdout
    assert list(tmp_path.rglob("*.nbi")) == []


class Compiled(Exception):
    """Compiled kernels of the occupancy bound were asked for."""


def test_two_long_prompts_are_not_left_to_plain_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their graph has few requests and ten thousands of sizes; of longer ones, that took a minute."""
    kernels = _occupancy_graph.kernels

    def asked(plain: bool) -> Any:
        if not plain:
            raise Compiled
        return kernels(plain)

    monkeypatch.setattr(_occupancy_graph, "kernels", asked)
    cost = CostModel([("0.007", "0.000075")], ("0.0003", "2.6e-7"), ("0.0003", "1.5e-9"))
    groups = (RequestGroup("long", 20_000, 16, count=2),)
    instance = Instance("long", groups, System(240_000, 40_000, 20_000), cost, objective="mean_e2e")
    assert is_tiny(((20_000, 16, 2),))
    with pytest.raises(Compiled):
        list(searched.searched_bounds(instance))


def bounds(instance: Instance) -> list[LowerBound]:
    return list(searched.searched_bounds(instance))


def test_plain_and_compiled_kernels_prove_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    instances = [replace(waiting(seed), objective=Objective.of("makespan")) for seed in campaign(4, 400)]

    def plain(function: Callable[..., Any], *_: object, **__: object) -> Callable[..., Any]:
        return function

    for module, _ in TAKERS:
        monkeypatch.setattr(module, "is_tiny", lambda kinds: False)
    compiled = [bounds(instance) for instance in instances]
    for module, _ in TAKERS:
        monkeypatch.setattr(module, "compiled", plain)
    try:
        for _, kernels in TAKERS:
            kernels.cache_clear()
        assert [bounds(instance) for instance in instances] == compiled
    finally:
        for _, kernels in TAKERS:
            kernels.cache_clear()
    assert any(compiled)
