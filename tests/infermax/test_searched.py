"""The order of searches: what is nearly always the best is not last where time is short."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from infermax_opt.infermax.bounds.searched import searched_bounds
from infermax_opt.infermax.data.instance import Instance, Objective, Policy, RequestGroup, System
from tests.infermax.tiny import tiny


@pytest.mark.parametrize("slow", [False, True])
def test_progress_comes_early_where_requests_wait(slow: bool) -> None:
    """Also where it is batches that take long, not the tokens in them."""
    toy = tiny(1)
    groups = tuple(RequestGroup(f"r{k}", 4, 3, Fraction(k)) for k in range(6))
    cost = replace(toy.cost, batch=((Fraction(3 if slow else "0.001"), Fraction("0.001")),), profile=None)
    instance = Instance("i", groups, System(16, 16, 16, 1), cost, Policy(), Objective.of("mean_e2e"))
    sources = [bound.source for bound in searched_bounds(instance)]
    assert "pace" in sources
    assert (sources.index("progress") < sources.index("pace")) == slow


@pytest.mark.parametrize("binds", [0, 1])
def test_what_takes_long_begins_with_the_piece_that_binds(binds: int) -> None:
    toy = tiny(1)
    groups = tuple(RequestGroup(f"r{k}", 4, 9, Fraction(k, 10)) for k in range(20))
    long, short = (Fraction("0.02"), Fraction("0.001")), (Fraction("0.001"), Fraction("0.0011"))
    batch = (short, long) if binds else (long, short)
    cost = replace(toy.cost, batch=batch, decode=(Fraction(0),) * 2, prefill=(Fraction(0),) * 2, profile=None)
    instance = Instance("i", groups, System(900, 64, 64), cost, Policy(), Objective.of("mean_e2e"))
    found = [(b.source, (b.evidence or {}).get("piece")) for b in searched_bounds(instance)]
    pieces = [piece for source, piece in found if source in ("pace", "interaction", "deferral", "lingering")]
    assert pieces[:2] == [binds, binds]
    assert pieces.index(1 - binds) == pieces.count(binds)
