"""What is given in place of a cost model, a file or a band is refused in a line that says what it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import infermax_opt as io
from tests.support import ROOT

PROFILE: Any = io.load_profile("llama-2-7b_a100")
TOY = io.read_instance(ROOT / "instances" / "toy.json")
SYSTEM = io.System(100, 16, 16)
NO_COST = "cost: a Profile is no CostModel; its .cost is one"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: io.Instance("x", (io.RequestGroup("q", 3, 3),), SYSTEM, PROFILE), NO_COST),
        (lambda: replace(TOY, cost=PROFILE), NO_COST),
        (lambda: io.MachineType("m", SYSTEM, PROFILE), NO_COST),
        (lambda: replace(TOY, cost="x"), "cost: a str is no CostModel"),
        (lambda: io.with_cost(TOY, PROFILE), "cost: a Profile is no path of a file"),
        (lambda: io.gaps_on_machine(PROFILE, "x.json"), "machine: a Profile is no path of a file"),
        (lambda: io.gaps_on_machine(TOY, "x.json"), "machine: a Instance is no path of a file"),
        (lambda: io.gaps_on_machine("m.json", TOY), "paths: a Instance is no path of a file"),
        (lambda: io.with_band(TOY, PROFILE), "band: a Profile is no Band"),
        (lambda: io.solve(TOY, band=PROFILE), "band: a Profile is no Band"),
        (lambda: io.bound(TOY, band=PROFILE), "band: a Profile is no Band"),
        (lambda: io.gap(TOY, io.schedule(TOY, "vllm"), band=PROFILE), "band: a Profile is no Band"),
        (lambda: io.gaps_on_machine("m.json", "x.json", band="1:2"), "band: a str is no Band"),
    ],
)
def test_it_is_named(call: Callable[[], object], words: str) -> None:
    with pytest.raises(io.InputError) as caught:
        call()
    assert str(caught.value) == words


def test_its_cost_is_taken() -> None:
    assert replace(TOY, cost=PROFILE.cost).cost == PROFILE.cost
