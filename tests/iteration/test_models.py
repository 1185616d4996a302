"""Valid selections set into the formulations satisfy every row, have their objective, and come back."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pyomo.environ as pyo
import pytest

from infermax_opt.core.errors import InputError
from infermax_opt.iteration.data.instance import IterationInstance
from infermax_opt.iteration.data.selection import Selection
from infermax_opt.iteration.data.ticks import Ticks
from infermax_opt.iteration.exact.solve_formulation import build_formulation, get_iteration_formulation
from infermax_opt.iteration.heuristics.greedy import skip_greedy
from tests.campaign import campaign
from tests.iteration.oracle import tiny


def started(name: str, instance: IterationInstance) -> tuple[Any, Any, tuple[int, ...]] | None:
    batch = skip_greedy(instance)
    if not batch:
        return None
    formulation = get_iteration_formulation(name)
    m = formulation.build(instance, 3, 7)
    formulation.warm_start(m, Selection(instance.name, tuple(instance.requests[k].id for k in batch)))
    return formulation, m, batch


@pytest.mark.parametrize("seed", campaign(12, 400))
def test_dinkelbach_holds_every_valid_selection(seed: int) -> None:
    instance = tiny(seed)
    found = started("dinkelbach", instance)
    if found is None:
        return
    formulation, m, batch = found
    ticks = Ticks.of(instance)
    for row in m.component_data_objects(pyo.Constraint, active=True):
        assert row.slack() >= 0, (row.name, row.slack())
    assert pyo.value(m.less_value) == 3 * ticks.time(batch) - 7 * ticks.worth(batch)
    assert formulation.extract(m).select == tuple(instance.requests[k].id for k in sorted(batch))


@pytest.mark.parametrize("seed", campaign(12, 400))
def test_charnes_cooper_holds_every_valid_selection(seed: int) -> None:
    instance = tiny(seed)
    if instance.machine.product:
        with pytest.raises(InputError, match="does not hold attention as a product"):
            build_formulation(instance, "charnes-cooper", warm=None)
        return
    found = started("charnes-cooper", instance)
    if found is None:
        return
    formulation, m, batch = found
    ticks = Ticks.of(instance)
    for row in m.component_data_objects(pyo.Constraint, active=True):
        # u is rounded down to a whole number of parts.
        least = -Fraction(ticks.all_time) if row.name.startswith("deadline") else -1
        assert row.slack() >= 2 * least, (row.name, row.slack())
    rate = Fraction(ticks.worth(batch), ticks.time(batch))
    assert abs(-pyo.value(m.rate) / m.scale - rate) <= rate / 10**9
    assert formulation.extract(m).select == tuple(instance.requests[k].id for k in sorted(batch))


def test_a_wrong_start_is_refused() -> None:
    instance = tiny(3)
    m = get_iteration_formulation("dinkelbach").build(instance, 1, 1)
    with pytest.raises(ValueError, match="not valid"):
        get_iteration_formulation("dinkelbach").warm_start(m, Selection(instance.name, ("nobody",)))
