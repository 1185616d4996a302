"""Plans that are stopped: what was known by then is the plan."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from infermax_opt.core.errors import InputError
from infermax_opt.files.traces import Trace, TraceRequest
from infermax_opt.fleet.plan import MachineType, PlanOptions
from infermax_opt.fleet.report import plan_text
from infermax_opt.fleet.sweep import Plan, Sweep, sweep
from infermax_opt.infermax.data.instance import ServiceLevel, System
from tests.support import PAPER

TRACE = Trace("t.csv", tuple(TraceRequest(k + 2, Fraction(k, 10), 900, 3) for k in range(40)))
OPTIONS = PlanOptions(ServiceLevel(Fraction(1, 2)), schedulers=("sarathi",))


def asked(time_limit: float | None = None) -> Sweep:
    kinds = [MachineType(name, System(9_000, 1024, 512), PAPER, Fraction(2)) for name in ("a", "b")]
    return Sweep(kinds, [Fraction(1), Fraction(2)], OPTIONS, (1,), True, time_limit)


def stopped_at(text: str) -> Plan:
    """The plan where Ctrl-C comes when it is at something."""

    def tell(told: str) -> None:
        if told.startswith(text):
            raise KeyboardInterrupt

    return sweep(TRACE, asked(), tell)


def test_a_plan_that_ends() -> None:
    plan = sweep(TRACE, asked())
    assert plan.stopped is None
    assert [row.machine.name for row in plan.rows] == ["a", "a", "b", "b"]
    assert [rate for rate, _ in plan.mixes] == [1, 2]
    assert [name for name, _ in plan.sustained] == ["a", "b"]


def test_a_row_shows_itself() -> None:
    row = sweep(TRACE, asked()).rows[0]
    assert repr(row).startswith("<PlanRow: machine a, rate 1, lower ")
    assert f">{row.found_by}</td>" in row._repr_html_()
    shown = row.to_dict()
    assert (shown["machine"], shown["lower"], shown["upper"]) == ("a", row.lower, row.upper)
    assert list(row.to_frame()["found_by"]) == [row.found_by]


def test_a_plan_that_is_interrupted() -> None:
    whole = sweep(TRACE, asked())
    plan = stopped_at("b at rate 2")
    assert [(row.lower, row.upper) for row in plan.rows] == [(row.lower, row.upper) for row in whole.rows[:3]]
    assert plan.stopped == "an interrupt, at: b at rate 2"
    assert "stopped by an interrupt, at: b at rate 2" in plan_text(plan, OPTIONS)
    # Of the row that it was at, the bound stays.
    searching = stopped_at("trying")
    assert [(row.lower, row.upper) for row in searching.rows] == [(whole.rows[0].lower, None)]
    assert len(stopped_at("mixes").rows) == 4
    assert stopped_at("a, 1 machines").mixes
    with pytest.raises(KeyboardInterrupt):
        stopped_at("a at rate 1")


def test_a_plan_whose_time_is_over() -> None:
    plan = sweep(TRACE, asked(1e-9))
    assert [row.status for row in plan.rows] == ["bound-only"]
    assert plan.stopped == "the time limit of 1e-09 s, at: trying 1 machine"


def test_what_would_end_a_plan_late_ends_it_at_once() -> None:
    some = asked()
    small = MachineType("small", System(700, 1024, 512), PAPER, Fraction(2))
    for wrong, problem in (
        (replace(some, machines=[*some.machines, small]), "line 2: no request fits small"),
        (replace(some, options=replace(OPTIONS, skip_unfit=True)), "mix: goes without --skip-unfit"),
        (replace(some, options=replace(OPTIONS, window=Fraction(1, 999))), "3897 windows"),
        (replace(some, options=replace(OPTIONS, slo=ServiceLevel())), "slo: needs a limit"),
    ):
        heard: list[str] = []
        with pytest.raises(InputError, match=problem):
            sweep(TRACE, wrong, heard.append)
        assert heard == []


def test_mixes_need_prices() -> None:
    some = asked()
    free = [MachineType("a", some.machines[0].system, PAPER)]
    with pytest.raises(InputError, match="price of each type"):
        sweep(TRACE, Sweep(free, [Fraction(1)], OPTIONS, mix=True))
