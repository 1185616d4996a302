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
