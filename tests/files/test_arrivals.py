"""Other arrivals for a trace: faster ones, or those of a Poisson process."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from infermax_opt.cli.main import cli
from infermax_opt.core.errors import InputError
from infermax_opt.files.arrivals import Arrivals, compressed, poisson
from infermax_opt.files.traces import FORMATS, Trace, TraceRequest, read_trace
from infermax_opt.infermax.data.formats import read_instance
from tests.files.test_traces import TEXTS, UNIT, put


def trace_of(*arrivals: str) -> Trace:
    requests = (TraceRequest(k, Fraction(arrival), 10 + k, 5) for k, arrival in enumerate(arrivals))
    return Trace("trace", tuple(requests))


def arrivals(trace: Trace) -> list[Fraction]:
    return [r.arrival for r in trace.requests]


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_may_come_faster(tmp_path: Path, form: str) -> None:
    path = put(tmp_path, TEXTS[form])
    trace = read_trace(path, form, time_unit=UNIT.get(form))
    fast = compressed(trace, Fraction(2))
    assert [2 * a for a in arrivals(fast)] == arrivals(trace)
    lengths = [[(r.input_tokens, r.output_tokens) for r in t.requests] for t in (trace, fast)]
    assert lengths[0] == lengths[1]
    drawn = poisson(trace, Fraction(3), seed=1)
    assert arrivals(drawn)[0] == 0
    assert [r.line for r in drawn.requests] == [r.line for r in trace.requests]


def test_compressed_arrivals_are_decimals_that_end() -> None:
    assert arrivals(compressed(trace_of("0", "1", "2"), Fraction(3))) == [
        0,
        Fraction("0.333333333333"),
        Fraction("0.666666666667"),
    ]
    assert arrivals(compressed(trace_of("0", "3"), Fraction("0.5"))) == [0, 6]


def test_poisson_arrivals_are_those_of_their_seed() -> None:
    trace = trace_of(*["0"] * 4001)
    drawn = arrivals(poisson(trace, Fraction(5), seed=7))
    assert drawn == arrivals(poisson(trace, Fraction(5), seed=7)) == sorted(drawn)
    assert drawn != arrivals(poisson(trace, Fraction(5), seed=8))
    assert all((a * 10**6).denominator == 1 for a in drawn)
    # 4000 gaps of 0.2 s in the mean, with a deviation of 0.2 s: their sum is 800 +- 13 s.
    gaps = [float(b - a) for a, b in pairwise(drawn)]
    assert abs(sum(gaps) - 800) < 40
    assert abs(sum(gap < 0.2 for gap in gaps) / 4000 - 0.632) < 0.03


def test_what_cannot_be_done_is_one_line() -> None:
    trace = trace_of("0", "1")
    for rate in ("0", "10000.5"):
        with pytest.raises(InputError, match=r"poisson: .* not above 0 and up to 10000"):
            poisson(trace, Fraction(rate), seed=0)
    with pytest.raises(InputError, match="rate: 0 is not above 0"):
        compressed(trace, Fraction(0))
    with pytest.raises(InputError, match="trace: rate: goes with arrivals; --offline has none"):
        compressed(replace(trace, offline=True), Fraction(2))
    with pytest.raises(InputError, match="Poisson arrivals have a rate of their own"):
        Arrivals(Fraction(2), Fraction(2))


@pytest.mark.parametrize("problem", ["infermax", "stream"])
def test_import_says_what_became_of_the_arrivals(tmp_path: Path, problem: str) -> None:
    path, made = put(tmp_path, TEXTS["splitwise"]), tmp_path / "made.json"
    args = ["import", str(path), "--format", "splitwise", "--problem", problem, "-o", str(made)]
    done = CliRunner().invoke(cli, [*args, "--rate", "2.5", "--json"])
    summary = json.loads(done.stdout)
    assert (summary["instance"], summary["arrivals"]) == ("trace-x2.5", {"rate": 2.5})
    assert json.loads(made.read_text())["requests"][1]["arrival"] in (1.72588, "1.72588")
    done = CliRunner().invoke(cli, [*args, "--poisson", "4", "--seed", "3", "--name", "mine"])
    assert done.stdout.startswith("mine: 2 requests")
    assert "Poisson arrivals of 4 requests a second, seed 3" in done.stdout
    if problem == "infermax":
        assert read_instance(made).requests[1].arrival == Fraction("0.067941")
    done = CliRunner().invoke(cli, [*args, "--rate", "2", "--offline"])
    assert done.exit_code == 2
    assert done.stderr == f"infermax-opt: {path}: rate: goes with arrivals; --offline has none\n"


def test_requests_on_clients_have_no_arrivals_to_change(tmp_path: Path) -> None:
    path = put(tmp_path, TEXTS["vidur"])
    args = ["import", str(path), "--format", "vidur", "--problem", "makespan", "--clients", "2"]
    done = CliRunner().invoke(cli, [*args, "--rate", "2", "-o", str(tmp_path / "made.json")])
    assert done.exit_code == 2
    assert "--rate goes with --problem infermax or placement or stream only, not makespan" in done.stderr
