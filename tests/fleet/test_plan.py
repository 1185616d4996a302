"""The command `plan`: rows, files, prices, and what it says of wrong input."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from infermax_opt.cli.main import cli
from infermax_opt.core.errors import InputError
from infermax_opt.files.csv_rows import read_rows
from infermax_opt.fleet import autoscaling, upper
from infermax_opt.fleet.checker.certificate import least_machines, machines_from
from infermax_opt.fleet.machine_types import MachineType
from infermax_opt.fleet.plan import plan
from infermax_opt.fleet.plan_row import PlanOptions
from infermax_opt.fleet.routing.policies import POLICIES
from infermax_opt.foreign.traces import read_trace
from infermax_opt.infermax.data.cost_format import cost_to_json
from infermax_opt.infermax.data.instance import ServiceLevel, System
from infermax_opt.infermax.data.profiles import load_profile
from tests.support import shared_data

PROFILE = "llama-3.1-8b_h100"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["plan", *arguments])


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A request every tenth of a second, for six seconds."""
    monkeypatch.chdir(tmp_path)
    rows = [f"{k / 10},{4000 + 13 * k % 900},{5 + k % 7}" for k in range(60)]
    Path("trace.csv").write_text("\n".join(["arrived_at,num_prefill_tokens,num_decode_tokens", *rows]) + "\n")
    return "trace.csv"


def test_rows_files_and_certificates(trace: str) -> None:
    Path("prices.csv").write_text(f"machine,price_per_hour\n{PROFILE},4\n")
    common = (
        trace,
        "--format",
        "vidur",
        "--machines",
        PROFILE,
        "--rates",
        "1,4",
        "--ttft",
        "0.5",
        "--tpot",
        "0.1",
        "--schedulers",
        "sarathi",
    )
    done = run(
        *common, "--prices", "prices.csv", "--fleet", "2", "--certificates", "proofs", "-o", "plan.csv"
    )
    assert done.exit_code == 0, done.output
    rows = read_rows(Path("plan.csv").read_text())
    assert [row["rate"] for row in rows] == ["1.0", "4.0"]
    for row in rows:
        assert 1 <= int(row["lower"]) <= int(row["upper"])
        proof = json.loads(Path("proofs", f"{PROFILE}-rate{float(row['rate']):g}.json").read_text())
        assert least_machines(proof) == int(row["lower"])
        assert proof["question"] == row["question_sha256"]
        assert 0 < float(row["cost_per_million_lower"]) <= float(row["cost_per_million_upper"])
    assert int(rows[1]["lower"]) > 1
    told = json.loads(run(*common, "--fleet", "1", "--start-up", "1", "--min-stay", "2", "--json").stdout)
    assert 0 < told["rows"][1]["machine_hours_lower"] <= told["rows"][1]["machine_hours_upper"]
    assert told["schema"] == "infermax-opt/plan/1"
    held = told["sustained"][0]
    assert held["machines"] == 1
    assert 0 < held["lower"] < held["upper"]
    proof = json.loads(Path("proofs", f"{PROFILE}-fleet2.json").read_text())
    assert machines_from(proof) == proof["machines_from"] > 2
    assert told["rows"][0]["status"] in ("optimal", "feasible")


def test_predictions(trace: str) -> None:
    common = (trace, "--format", "vidur", "--machines", PROFILE, "--rates", "4", "--ttft", "0.5", "--json")
    plain = json.loads(run(*common).stdout)["rows"][0]
    done = run(*common, "--predict-error", "0,0.5", "--seed", "7", "-o", "plan.html", "--fleet", "1")
    assert done.exit_code == 0, done.output
    told = json.loads(Path("plan.json").read_text())
    assert [row["predict_error"] for row in told["rows"]] == [0, 0.5]
    assert {row["lower"] for row in told["rows"]} == {plain["lower"]}
    assert all(row["lower"] <= row["upper"] for row in told["rows"])
    assert (plain["predict_error"], told["seed"], told["predict_errors"]) == (None, 7, [0, 0.5])
    assert "\u00b150 %" in Path("plan.html").read_text()
    Path("prices.csv").write_text(f"machine,price_per_hour\nllama-2-7b_a100,9\n{PROFILE},4\n")
    two = ("--machines", f"llama-2-7b_a100,{PROFILE}", "--prices", "prices.csv", "--mix")
    mixed = run(*common, *two, "--predict-error", "0.1,0.2", "--schedulers", "sarathi")
    (mix,) = json.loads(mixed.stdout)["mixes"]
    assert mix["price_per_hour_upper"] == 4 * mix["machines"][PROFILE]
    needs = run(*common, "--schedulers", "srpt")
    assert needs.exit_code == 2
    assert "'srpt' goes by predicted outputs: give --predict-error" in needs.stderr


def test_sensitivity_to_band_and_overhead(trace: str) -> None:
    common = (trace, "--format", "vidur", "--machines", PROFILE, "--rates", "4", "--ttft", "1.5", "--json")
    asked = ("--schedulers", "sarathi", "--fleet", "1", "--certificates", "proofs")
    done = run(*common, *asked, "--band", "0.5:2", "--overhead", "0,0.05", "-o", "plan.html")
    assert done.exit_code == 0, done.output
    told = json.loads(Path("plan.json").read_text())
    rows = {(row["cost_factor"], row["overhead"]): row for row in told["rows"]}
    assert list(rows) == [(1, 0), (0.5, 0), (2, 0), (1, 0.05), (0.5, 0.05), (2, 0.05)]
    # What is slower never needs less.
    for one, other in product(rows, rows):
        if one[0] <= other[0] and one[1] <= other[1]:
            assert rows[one]["lower"] <= rows[other]["lower"]
            assert rows[one]["lower"] <= rows[other]["upper"]
    assert rows[0.5, 0]["upper"] < rows[2, 0]["lower"]
    proofs = [path.name for path in Path("proofs").iterdir()]
    assert len({row["question_sha256"] for row in rows.values()}) == len(rows) == len(proofs) - 1
    # The same as a machine that is given so.
    profile = load_profile(PROFILE)
    slow = replace(
        profile.cost, profile=None, prefill=tuple(2 * Fraction(x) for x in profile.cost.prefill),
        decode=tuple(2 * Fraction(x) for x in profile.cost.decode),
        batch=[(2 * Fraction(a) + Fraction("0.05"), 2 * Fraction(b)) for a, b in profile.cost.batch],
    )  # fmt: skip
    value = {"name": "slow", "kv_capacity": profile.capacity, "cost": cost_to_json(slow)}
    Path("slow.json").write_text(json.dumps(value, default=str))
    plain = json.loads(run(*common[:4], "slow.json", *common[5:], *asked[:2]).stdout)["rows"][0]
    assert plain["question_sha256"] == rows[2, 0.05]["question_sha256"]
    page = Path("plan.html").read_text()
    assert "Sensitivity" in page
    assert f"{PROFILE} x 0.5 + 50 ms" in page
    said = run(*common[:-1], *asked[:2], "--band", "0.5:2").stdout
    assert "x 0.5" in said
    assert "as given" in said


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("--band 2:1", "LO:HI"),
        ("--band 0:1", "LO:HI"),
        ("--band x", "LO:HI"),
        ("--overhead -1", "overhead"),
        ("--overhead 11", "from 0 to 10"),
        ("--split x", "x"),
        ("--split 1/0", "BYTES/BANDWIDTH"),
        ("--split 1/2/3", "BYTES/BANDWIDTH"),
        ("--decode-machine llama-2-7b_a100", "--split"),
        ("--split 1 --decode-machine nobody", "nobody"),
    ],
)
def test_pools_and_variants_that_cannot_be(trace: str, asked: str, said: str) -> None:
    done = run(trace, "--format", "vidur", "--machines", PROFILE, "--ttft", "0.5", *asked.split())
    assert done.exit_code == 2
    assert said in done.stderr
    assert "Traceback" not in done.output


def test_each_row_has_a_certificate_in_the_folder(trace: str) -> None:
    """Whatever its profile is called, and however close rates are."""
    cost = cost_to_json(replace(load_profile(PROFILE).cost, profile=None))
    for k, name in enumerate(["../up", "a/b", "a_b"]):
        value = {"name": name, "kv_capacity": 100_000 + k, "cost": cost}
        Path(f"p{k}.json").write_text(json.dumps(value, default=str))
    machines, rates = "p0.json,p1.json,p2.json", "1,1.00001"
    done = run(trace, "--format", "vidur", "--machines", machines, "--rates", rates, "--ttft", "0.5",
               "--first", "5", "--schedulers", "sarathi", "--certificates", "proofs", "--json")  # fmt: skip
    assert done.exit_code == 0, done.output
    proofs = [json.loads(path.read_text())["question"] for path in Path("proofs").iterdir()]
    assert len(proofs) == len(set(proofs)) == 6
    assert set(proofs) == {row["question_sha256"] for row in json.loads(done.stdout)["rows"]}


def test_each_policy_by_itself(trace: str) -> None:
    done = run(
        trace, "--format", "vidur", "--machines", PROFILE, "--ttft", "0.5", "--compare", "sarathi", "--json"
    )
    row = json.loads(done.stdout)["rows"][0]
    assert set(row["policies"]) == set(POLICIES)
    assert all(count >= row["lower"] for count in row["policies"].values())


def test_an_impossible_limit_names_request_and_limit(trace: str) -> None:
    done = run(trace, "--format", "vidur", "--machines", PROFILE, "--ttft", "0.01")
    assert done.exit_code == 1
    assert "request 'r1' (line 2; 4000 input, 5 output tokens): first token after" in done.stdout
    assert "the limit ttft is 0.01 s" in done.stdout
    assert "needs that many (-: no number is enough), proved" in done.stdout
    slow = run(trace, "--format", "vidur", "--machines", PROFILE, "--tpot", "0.001", "--ttft", "9")
    assert "the limit tpot is 0.001 s" in slow.stdout


def test_what_online_numbers_know_ahead_is_told(trace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = (trace, "--format", "vidur", "--machines", PROFILE, "--ttft", "1", "--schedulers", "sarathi")
    assert run(*words).stdout.endswith("without the plan that knows the future\n")
    known = run(*words[:-1], "sarathi_ef").stdout
    assert known.endswith("; sarathi_ef knows outputs\n")
    made = upper._Search.candidates

    def only_work(self: Any, machines: int) -> Any:
        for pilot, _, name, _ in made(self, machines):
            yield pilot, "least_work", name, True

    monkeypatch.setattr(upper._Search, "candidates", only_work)
    told = run(*words).stdout
    assert "; least_work knows outputs, or what is predicted of them" in told
    assert told.endswith("; whom to refuse is known from a first run\n")


def test_a_share_that_is_nearly_all_is_not_called_all(trace: str) -> None:
    Path(trace).write_text("\n".join(Path(trace).read_text().splitlines()[:2]) + "\n")
    done = run(trace, "--format", "vidur", "--machines", PROFILE, "--ttft", "9", "--share", "0.999999")
    assert "so that 99.9999 % of the requests keep ttft 9 s" in done.stdout


def test_no_cost_is_told_where_all_arrive_at_once(trace: str) -> None:
    Path(trace).write_text("\n".join(Path(trace).read_text().splitlines()[:2]) + "\n")
    Path("prices.csv").write_text(f"machine,price_per_hour\n{PROFILE},4\n")
    words = (trace, "--format", "vidur", "--machines", PROFILE, "--ttft", "9", "--prices", "prices.csv")
    assert "for a million output tokens" not in run(*words).stdout


def test_who_fits_no_machine_is_named_and_misses(trace: str) -> None:
    text = Path(trace).read_text() + "2.05,2000000,7\n"
    Path(trace).write_text(text)
    common = (trace, "--format", "vidur", "--machines", PROFILE, "--ttft", "1")
    done = run(*common, "--share", "0.98")
    assert done.exit_code == 0, done.output
    assert "requests that count as missed: 1 too large, 0 never in time; 1 may miss" in done.stdout
    assert "request 'r22' (line 62): its peak KV of 2000006 tokens exceeds the KV capacity" in done.stdout
    row = json.loads(run(*common, "--share", "0.98", "--json").stdout)["rows"][0]
    assert (row["requests"], row["unfit"], row["left_out"], row["missed"]) == (61, 1, 0, 1)
    # With a share that allows none to miss, no number of machines is enough; without it, one is.
    strict = run(*common, "--share", "1")
    assert strict.exit_code == 1
    assert "0 may miss" in strict.stdout
    left = run(*common, "--share", "1", "--skip-unfit", "--json")
    row = json.loads(left.stdout)["rows"][0]
    assert (row["requests"], row["unfit"], row["left_out"], row["status"]) == (60, 0, 1, "optimal")
    Path(trace).write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,2000000,7\n")
    none = run(*common)
    assert none.exit_code == 2
    assert "line 2: no request fits" in none.stderr


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--machines", PROFILE), "slo: needs a limit"),
        (("--machines", "abacus", "--ttft", "1"), "'abacus' is no profile"),
        (("--machines", PROFILE, "--ttft", "1", "--share", "0"), "share: 0 is not above 0 and at most 1"),
        (("--machines", PROFILE, "--ttft", "1", "--share", "2"), "share: 2 is not above 0 and at most 1"),
        (("--machines", PROFILE, "--ttft", "1", "--rates", "0"), "not a list of numbers above 0"),
        (("--machines", PROFILE, "--ttft", "1", "--rates", "x"), "'x'"),
        (("--machines", PROFILE, "--ttft", "1", "--schedulers", "magic"), "schedulers: no scheduler 'magic'"),
        (("--machines", PROFILE, "--ttft", "1", "--schedulers", "magic"), "planned (presets"),
        (("--machines", PROFILE, "--ttft", "1", "--compare", "planned"), "compare: no scheduler 'planned'"),
        (
            ("--machines", PROFILE, "--ttft", "1", "--schedulers", "planned", "--predict-error", "0.1"),
            "schedulers: 'planned' knows all outputs",
        ),
        (("--machines", PROFILE, "--ttft", "1", "--prices", "none.csv"), "none.csv: has no price"),
        (("--machines", PROFILE, "--ttft", "1", "--prices", "free.csv"), "free.csv: line 2"),
        (("--machines", PROFILE, "--ttft", "1", "--mix"), "mix: needs the prices"),
        (("--machines", PROFILE, "--ttft", "1", "--predict-error", "11"), "11 is not from 0 to 10"),
        (("--machines", PROFILE, "--ttft", "1", "--predict-error", "x"), "x"),
        (("--machines", PROFILE, "--ttft", "1", "--windows", "0"), "windows: 0 s is no length"),
        (("--machines", PROFILE, "--ttft", "1", "--windows", "0.001"), "windows: 0.001 s make 5901 windows"),
        (("--machines", PROFILE, "--ttft", "1", "--certificates", "trace.csv"), "trace.csv: cannot be made"),
        (("--machines", PROFILE, "--ttft", "1", "-o", "trace.csv"), "is an input of this command"),
    ],
)
def test_wrong_input_is_one_line(trace: str, options: tuple[str, ...], problem: str) -> None:
    Path("none.csv").write_text("machine,price_per_hour\nother,1\n")
    Path("free.csv").write_text(f"machine,price_per_hour\n{PROFILE},0\n")
    done = run(trace, "--format", "vidur", *options)
    assert done.exit_code == 2
    assert problem in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(shared_data("data/AzureLLMInferenceTrace_code.csv") is None, reason="no Azure trace here")
def test_azure() -> None:
    path = shared_data("data/AzureLLMInferenceTrace_code.csv")
    done = run(
        str(path), "--format", "azure", "--first", "300", "--machines", "llama-2-7b_a100", "--rates", "2",
        "--ttft", "2", "--tpot", "0.05", "--json",
    )  # fmt: skip
    (row,) = json.loads(done.stdout)["rows"]
    assert 1 <= row["lower"] <= row["upper"] <= 12


def test_who_is_late_by_a_hair_is_in_the_schedule(tmp_path: Path) -> None:
    """The last first token comes at 0.033 s, as it must: clocks of floats and exact numbers differ there."""
    cost = {"batch": [["0.008", "0"]], "decode": ["0", "0"], "prefill": ["0.001", "0"], "attention": "square"}
    profile = {"schema": "infermax-opt/profile/1", "name": "m", "kv_capacity": 200, "cost": cost}
    machine, rows = tmp_path / "m.json", tmp_path / "rows.csv"
    machine.write_text(json.dumps(profile))
    times = "0", "0.015", "0.015", "0.020"
    rows.write_text(
        "\n".join(["arrived_at,num_prefill_tokens,num_decode_tokens", *(f"{t},100,1" for t in times)])
    )
    limits = "--max-prefill-tokens", "100", "--ttft", "0.013", "--share", "0.5", "--windows", "0.025"
    done = run(str(rows), "--format", "vidur", "--machines", str(machine), *limits)
    assert done.exit_code == 0, done.output
    assert "lower/upper: 1/1" in done.output


def test_machines_that_take_no_time_for_prompts(tmp_path: Path, trace: str) -> None:
    cost = {"batch": [["0", "0"]], "decode": ["0.01", "0"], "prefill": ["0", "0"], "attention": "square"}
    profile = {"schema": "infermax-opt/profile/1", "name": "m", "kv_capacity": 10_000, "cost": cost}
    machine = tmp_path / "m.json"
    machine.write_text(json.dumps(profile))
    done = run(
        trace, "--format", "vidur", "--machines", str(machine), "--ttft", "1", "--schedulers", "sarathi"
    )
    assert done.exit_code == 0, done.output


def test_what_cannot_be_asked_is_refused_from_python_too(trace: str) -> None:
    machines = [MachineType(PROFILE, System(1000, 100, 100), load_profile(PROFILE).cost)]
    asked = PlanOptions(ServiceLevel(ttft=Fraction(1)))
    some = read_trace(trace, "vidur")
    both = replace(asked, errors=(Fraction(1, 5),), schedulers=("planned",))
    for rates, options, problem in [
        ([], asked, "rates: needs a rate"),
        ([Fraction(1)], replace(asked, window=Fraction(0)), "0 s is no length of windows"),
        ([Fraction(1)], both, "knows all outputs"),
    ]:
        with pytest.raises(InputError, match=problem):
            plan(some, machines, rates, options)


def test_machine_hours_have_proofs_for_the_whole_trace_and_by_windows(trace: str) -> None:
    asked = (
        "--ttft 0.5 --schedulers sarathi --start-up 1 --min-stay 2 --windows 2 --certificates proofs --json"
    )
    done = run(trace, "--format", "vidur", "--machines", PROFILE, *asked.split())
    assert done.exit_code == 0, done.output
    (row,) = json.loads(done.stdout)["rows"]
    for kind in ("hours", "windows"):
        proof = json.loads(Path(f"proofs/{PROFILE}-rate1-{kind}.json").read_text())
        assert proof["question"] == row[f"{kind}_question_sha256"]
    assert row["hours_question_sha256"] != row["windows_question_sha256"]


def test_windows_for_which_nothing_is_found_say_so(trace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autoscaling, "planned_windows", lambda *_: None)
    asked = "--ttft 0.5 --schedulers planned --windows 2"
    done = run(trace, "--format", "vidur", "--machines", PROFILE, *asked.split())
    assert done.exit_code == 0, done.output
    assert " to - machine-hours; nothing was found that keeps it in all of them\n" in done.stdout
