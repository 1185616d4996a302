"""The same words for units everywhere: s, MiB, tokens, requests, workers, tokens/s/GPU."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from click.testing import CliRunner

import infermax_opt
from infermax_opt.cli.main import cli
from infermax_opt.core.registry import problems
from infermax_opt.files.report import bounds_text, counted
from tests.support import ROOT

#: Options whose value is a time.
TIMES = {
    "--time-limit", "--ttft", "--atgt", "--heartbeat", "--at", "--prefill-overhead", "--prefill-token",
    "--decode-overhead", "--decode-token",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_options_that_are_times_say_s(name: str) -> None:
    for parameter in cli.commands[name].params:
        if TIMES & set(parameter.opts):
            assert parameter.metavar == "S", parameter.opts
            assert re.search(r"\bs\b", str(getattr(parameter, "help", ""))), parameter.opts


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_no_other_word_for_a_unit(name: str) -> None:
    text = " ".join(CliRunner().invoke(cli, [name, "--help"]).stdout.split("Options:")[-1].split())
    assert not re.search(r"\b([Ss]econds|secs?|sec\.|tok/s|tokens per second)\b", text)


def test_columns_of_times_say_s() -> None:
    for problem in problems():
        titles = list(problem.row_kind.columns.markdown)
        assert "time, s" in titles
        assert not [title for title in titles if "seconds" in title]


def test_counts_say_what_they_count() -> None:
    assert counted(4, "workers") == "4 workers"
    assert counted(1, "workers") == "1 worker"
    assert counted(Fraction(9, 4), "requests") == "2.25 requests"
    assert counted(1, "tokens/s") == "1 tokens/s"
    assert counted(3, None) == "3"
    text = CliRunner().invoke(cli, ["simulate", str(ROOT / "instances" / "stream-poisson-8.json")]).stdout
    assert re.search(r"\n  requests +483 requests  ", text)
    assert re.search(r"\n  mean_workers +4\.[0-9]+ workers  ", text)


@pytest.mark.parametrize("row", ["i64", "i128"])
def test_bounds_of_a_report_are_none_above_what_they_are(row: str) -> None:
    instance = infermax_opt.read_instance(ROOT / "instances" / "paper-csp" / f"{row}.json")
    bounds = infermax_opt.bound(instance, time_limit=0.1)
    text = bounds_text(instance, bounds)
    told = re.findall(r"^  ([0-9.e-]+) s +.*?  +(?:certificate|closed-form)", text, re.MULTILINE)
    both = [(Fraction(value), bound.value) for value, bound in zip(told, bounds, strict=True)]
    assert len(both) > 5
    assert all(value <= true < value * (1 + Fraction(1, 10**5)) for value, true in both)
    # Among them is one that the nearest number is above.
    assert any(Fraction(f"{float(true):.6g}") > true for _, true in both)
