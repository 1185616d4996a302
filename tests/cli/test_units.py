"""The same words for units everywhere: s, MiB, tokens, requests, workers, tokens/s/GPU."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from click.testing import CliRunner

from infermax_opt.cli.main import cli
from infermax_opt.core.registry import problems
from infermax_opt.files.report import counted
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
