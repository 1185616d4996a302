"""No output replaces a file that the command reads, whichever option names it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from infermax_opt.cli.main import cli
from infermax_opt.infermax.data.formats import cost_to_json
from infermax_opt.infermax.data.profiles import load_profile

PROFILE = "llama-3.1-8b_h100"
TRACE = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,512,4\n0.1,200,3\n"


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text(TRACE)
    cost = cost_to_json(load_profile(PROFILE).cost)
    for name in ("fast", "other"):
        value = {"name": name, "kv_capacity": 20_000, "cost": cost}
        Path(f"{name}.json").write_text(json.dumps(value, default=str))
    assert run("calibrate", "--profile", PROFILE, "-o", "worker.json").exit_code == 0
    assert run("import", "t.csv", "--format", "vidur", "-o", "i.json").exit_code == 0
    assert run("schedule", "i.json", "--scheduler", "vllm", "-o", "s.json").exit_code == 0
    return tmp_path


PLAN = "plan t.csv --format vidur --ttft 1 --schedulers sarathi"
WORKERS = "t.csv --format vidur --worker worker.json --ttft 1 --atgt 0.1"


@pytest.mark.parametrize(
    ("words", "file"),
    [
        (f"{PLAN} --machines fast.json -o fast.json", "fast.json"),
        (f"{PLAN} --machines {PROFILE},fast.json -o fast.html", "fast.json"),
        (f"{PLAN} --machines {PROFILE} --split 0.001 --decode-machine fast.json -o fast.json", "fast.json"),
        (f"workers {WORKERS} -o worker.json", "worker.json"),
        (f"workers {WORKERS} --placement worker.json", "worker.json"),
        (f"simulate {WORKERS} -o worker.json", "worker.json"),
        ("import t.csv --format vidur --cost fast.json -o fast.json", "fast.json"),
        ("solve i.json --cost fast.json -o fast.json", "fast.json"),
        ("solve i.json --warm-start s.json -o s.json", "s.json"),
        ("bound i.json --band fast.json -o fast.json", "fast.json"),
        ("gap i.json s.json --cost fast.json -o fast.json", "fast.json"),
        ("gap --machine fast.json s.json -o fast.json", "fast.json"),
    ],
)
def test_no_output_replaces_an_input(words: str, file: str) -> None:
    before = Path(file).read_bytes()
    done = run(*words.split())
    assert done.exit_code == 2, done.output
    assert done.stderr == f"infermax-opt: {file}: is an input of this command; it is not overwritten\n"
    assert Path(file).read_bytes() == before


def test_a_proof_gets_a_number_behind_its_name_instead() -> None:
    before = Path("fast.json").read_bytes()
    Path("fast-rate1.json").write_bytes(before)
    done = run(*f"{PLAN} --machines fast-rate1.json --certificates .".split())
    assert done.exit_code == 0, done.output
    assert Path("fast-rate1.json").read_bytes() == before
    assert json.loads(Path("fast-rate1-2.json").read_text())["machines"] == 1


def test_a_proof_and_a_plan_of_one_path_are_two_files() -> None:
    done = run(*f"{PLAN} --machines fast.json --certificates . -o fast-rate1.html".split())
    assert done.exit_code == 0, done.output
    assert json.loads(Path("fast-rate1.json").read_text())["rows"][0]["certificate"] == "./fast-rate1-2.json"
    assert json.loads(Path("fast-rate1-2.json").read_text())["machines"] == 1


def test_no_row_names_a_proof_that_could_not_be_written() -> None:
    Path("fast-rate1.json").mkdir()
    done = run(*f"{PLAN} --machines fast.json --certificates . -o p.html".split())
    assert done.exit_code == 2, done.output
    assert "fast-rate1.json: cannot be written: is a directory" in done.stderr
    assert json.loads(Path("p.json").read_text())["rows"][0]["certificate"] is None


@pytest.mark.parametrize("output", ["new/", "fast.json/"])
def test_a_folder_is_no_output(output: str) -> None:
    done = run("solve", "i.json", "-o", output)
    assert done.exit_code == 2
    assert done.stderr == f"infermax-opt: {output}: cannot be written: is a directory\n"


def test_a_long_value_is_told_in_short() -> None:
    instance = json.loads(Path("i.json").read_text()) | {"objective": "x" * 5_000}
    Path("i.json").write_text(json.dumps(instance))
    done = run("bound", "i.json")
    assert done.exit_code == 2
    assert done.stderr.startswith("infermax-opt: i.json: objective: 'xxx")
    assert "xxx ... " in done.stderr
    assert 1_800 < len(done.stderr) < 1_900


def test_types_of_one_name_are_refused() -> None:
    other = json.loads(Path("fast.json").read_text()) | {"kv_capacity": 9_000}
    Path("again.json").write_text(json.dumps(other))
    done = run(*f"{PLAN} --machines fast.json,again.json".split())
    assert done.exit_code == 2
    assert done.stderr == "infermax-opt: again.json: name: is 'fast', as that of fast.json\n"
    done = run(*f"{PLAN} --machines fast.json --split 0.001 --decode-machine again.json".split())
    assert done.exit_code == 2
    assert done.stderr == "infermax-opt: decode-machine: has the name of another machine, fast.json\n"
    done = run(*f"{PLAN} --machines fast.json --split 0.001 --decode-machine fast.json".split())
    assert done.exit_code == 0, done.output


def test_a_window_of_those_that_fit_no_machine_counts_them() -> None:
    Path("t.csv").write_text(f"{TRACE}15,30000,4\n25,100,4\n")
    done = run(*f"{PLAN} --machines fast.json --share 0.6 --windows 10 -o plan.json".split())
    assert done.exit_code == 0, done.output
    assert "each keeps the share: in some no number of machines does" in done.stdout
    assert "(-: no number is enough)" in done.stdout
    (row,) = json.loads(Path("plan.json").read_text())["rows"]
    told = [(one["requests"], one["unfit"], one["lower"]) for one in row["windows"]]
    assert told == [(2, 0, 1), (1, 1, None), (1, 0, 1)]


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("--ttft 1", "first token after 1.00001 s at least; the limit ttft is 1 s"),
        ("--tpot 0.501", "0.50101 s a token at least; the limit tpot is 0.501 s"),
        ("--e2e 2.503", "last token after 2.50304 s at least; the limit e2e is 2.503 s"),
    ],
)
def test_what_takes_too_long_is_told_from_its_limit(limit: str, said: str) -> None:
    Path("t.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,500,4\n")
    cost = {"batch": [["0.50001", "0.001"]], "decode": [0, 0], "prefill": [0, 0], "attention": "square"}
    Path("slow.json").write_text(json.dumps({"name": "slow", "kv_capacity": 20_000, "cost": cost}))
    done = run(*f"plan t.csv --format vidur --machines slow.json --schedulers sarathi {limit}".split())
    assert done.exit_code == 1
    assert said in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--schedulers srpt", "schedulers: 'srpt' goes by predicted outputs: give --predict-error"),
        ("--compare srpt", "compare: 'srpt' goes by predicted outputs: give --predict-error"),
        ("-o plan.html.gz", "plan.html.gz: a page or a table is not compressed; name it .html or .csv"),
        ("--rates 1,1.0000001", "'1,1.0000001' has rates that are alike in six digits."),
    ],
)
def test_what_is_refused_before_the_work(words: str, said: str) -> None:
    done = run(*f"{PLAN} --machines {PROFILE} {words}".split())
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert said in done.stderr
