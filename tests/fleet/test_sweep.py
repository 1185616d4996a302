"""Plans that are stopped: what was known by then is the plan."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest

from infermax_opt.checking import work
from infermax_opt.core.errors import InputError
from infermax_opt.files.traces import Trace, TraceRequest
from infermax_opt.fleet.fewest import fewer_each_time
from infermax_opt.fleet.machine_types import MachineType
from infermax_opt.fleet.page import plan_page
from infermax_opt.fleet.plan_row import PlanOptions, Split
from infermax_opt.fleet.report import plan_to_json
from infermax_opt.fleet.report_text import plan_text
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


def test_pools_that_are_interrupted() -> None:
    """Of both pools the bounds stay, too."""
    slo = ServiceLevel(Fraction(1, 2), Fraction("0.011"))
    options = replace(OPTIONS, slo=slo, split=Split(Fraction(0)))
    wanted = Sweep(asked().machines[:1], [Fraction(4)], options)
    whole = sweep(TRACE, wanted).rows[0].split
    assert whole is not None
    assert whole.found is not None
    for last in ("to prefill", "to decode"):

        def tell(told: str, last: str = last) -> None:
            if told.endswith(last):
                raise KeyboardInterrupt

        plan = sweep(TRACE, wanted, tell)
        assert plan.stopped is not None
        (row,) = plan.rows
        assert row.upper is not None
        assert row.split is not None
        assert (row.split.lower, row.split.found) == (whole.lower, None)
        assert f"at least {whole.prefill.machines} + " in plan_text(plan, options)


def test_fewer_each_time() -> None:
    for fewest, least, most in ((1, 1, 9), (5, 1, 9), (9, 2, 9), (10, 1, 9), (7, 7, 99), (3, 7, 9)):
        found = list(fewer_each_time(lambda tried, fewest=fewest: tried >= fewest, least, most))
        assert found == sorted(found, reverse=True)
        assert (found[-1] if found else None) == (max(fewest, least) if fewest <= most else None)


def test_who_fits_both_pools_is_not_left_out() -> None:
    """A long output fits the large decode machine alone; a long prompt fits no pool."""
    long_output, long_prompt = TraceRequest(90, Fraction(1), 800, 900), TraceRequest(91, Fraction(2), 1600, 2)
    trace = Trace("t.csv", (*TRACE.requests[:20], long_output, *TRACE.requests[20:], long_prompt))
    large = MachineType("large", System(9_000, 1024, 512), PAPER)
    small = MachineType("small", System(1_000, 1024, 512), PAPER)
    rows = {}
    for skip, kind, decode in product((False, True), (large, small), (large, small)):
        options = replace(OPTIONS, split=Split(Fraction(0), decode), skip_unfit=skip, share=Fraction(1))
        (row,) = sweep(trace, Sweep([kind], [Fraction(1)], options)).rows
        assert row.split is not None
        rows[skip, kind.name, decode.name] = row.split.left_out, row.split.lower is None, len(row.left_out)
        if row.split.found is not None:
            assert len(row.split.found.good) == 42 - row.split.left_out
        assert row.never == (not skip and kind is small)
    assert rows == {
        (False, "large", "large"): (0, False, 0), (False, "large", "small"): (0, True, 0),
        (False, "small", "large"): (0, True, 0), (False, "small", "small"): (0, True, 0),
        (True, "large", "large"): (0, False, 0), (True, "large", "small"): (2, False, 0),
        (True, "small", "large"): (1, False, 2), (True, "small", "small"): (2, False, 2),
    }  # fmt: skip
    tiny = MachineType("tiny", System(700, 1024, 512), PAPER)
    options = replace(OPTIONS, split=Split(Fraction(0), tiny), skip_unfit=True)
    with pytest.raises(InputError, match="line 2: no request fits large to prefill and tiny to decode"):
        sweep(trace, Sweep([large], [Fraction(1)], options))


def test_proofs_that_no_checker_has_the_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    options = replace(OPTIONS, split=Split(Fraction(0)))
    one = Sweep([asked().machines[0]], [Fraction(2)], options)
    plan = sweep(TRACE, one)
    assert "not certified" not in plan_text(plan, options)
    monkeypatch.setattr(work, "MAX_STEPS", 1000)
    long = sweep(TRACE, one)
    assert plan_text(long, options).count("not certified") == 2
    (told,) = plan_to_json(long, options)["rows"]
    assert (told["certified"], told["split_certified"]) == (False, False)
    assert (told["lower"], told["split_lower"]) == (plan.rows[0].lower, plan.rows[0].split.lower)  # type: ignore[union-attr]
    assert plan_page(plan_to_json(long, options)).count("not certified") == 3
