"""`calibrate --for batches` and the option --cost: what they print and write, one line for what is wrong."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from infermax_opt.cli.main import cli
from infermax_opt.files.instances import read_instance
from infermax_opt.files.json import load_json
from infermax_opt.infermax.data.profiles import Band, profile_from_json, read_profile
from tests.latency.batch_files import HEADER, kernel_tables, vidur_profile, whole_batches
from tests.support import ROOT

TOY = ROOT / "instances" / "toy.json"


def run(*args: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli, [str(arg) for arg in args], input=stdin)


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    path = tmp_path / "my-gpu.csv"
    path.write_text(whole_batches(150, noise=0.03))
    return path


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A profile, fitted once."""
    folder = tmp_path_factory.mktemp("fitted")
    (folder / "my-gpu.csv").write_text(whole_batches(150, noise=0.03))
    out = folder / "profile.json"
    done = run("calibrate", folder / "my-gpu.csv", "--for", "batches", "--kv-capacity", 5000, "-o", out)
    assert done.exit_code == 0, done.output
    return out.read_text()


@pytest.fixture
def profile(fitted: str, tmp_path: Path) -> Path:
    path = tmp_path / "profile.json"
    path.write_text(fitted)
    return path


def test_a_profile_is_written_and_read_back(samples: Path, tmp_path: Path) -> None:
    out, picture = tmp_path / "profile.json", tmp_path / "fit.png"
    done = run(
        "calibrate", samples, "--for", "batches", "--kv-capacity", "5000", "--share", "0.8", "-o", out,
        "--plot", picture, "--model", "Llama", "--device", "h100 x2",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    for text in (
        "rows of whole batches: 150 whole",
        "of whole batches, as they were measured",
        "80 % of the samples lie within",
        "pure decode",
        "cross-validation",
        f"wrote {out}\nwrote {picture}\n",
    ):
        assert text in done.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    found, value = read_profile(out), load_json(out)
    assert (found.name, found.model, found.device, found.kv_capacity) == ("my-gpu", "Llama", "h100 x2", 5000)
    assert (found.host_overhead, found.kernel_time_only) == (0, False)
    assert found.band == Band(*(Fraction(value["band"][key]) for key in ("share", "lo", "hi")))
    assert list(value["band"]) == ["share", "lo", "hi"]
    assert found.band.share == Fraction("0.8")
    assert value["errors"]["mixed"]["n"] == 50
    assert all(isinstance(v, str) for pair in value["cost"]["batch"] for v in pair)
    printed = run(
        "calibrate", samples, "--for", "batches", "--kv-capacity", "5000", "--share", "0.8", "--json"
    )
    assert json.loads(printed.stdout) == {**json.loads(out.read_text()), "model": "-", "device": "-"}


def test_the_overhead_of_the_host_is_added_to_every_line_and_said(tmp_path: Path) -> None:
    folder = kernel_tables(tmp_path / "kernels")
    values = []
    for overhead in ("0", "0.002"):
        done = run(
            "calibrate", folder, "--for", "batches", "--layers", 4, "--host-overhead", overhead, "--json"
        )
        assert done.exit_code == 0, done.output
        values.append(json.loads(done.stdout))
    without, with_it = values
    assert (without["kernel_time_only"], without["host_overhead"]) == (True, "0")
    assert (with_it["kernel_time_only"], with_it["host_overhead"]) == (False, "0.002")
    for first, second in zip(without["cost"]["batch"], with_it["cost"]["batch"], strict=True):
        assert Fraction(second[0]) == Fraction(first[0]) + Fraction("0.002")
        assert second[1] == first[1]
    assert without["errors"] == with_it["errors"]
    assert without["band"] == with_it["band"]
    assert profile_from_json(with_it, "x").kv_capacity is None


def test_a_term_for_mixed_batches(tmp_path: Path) -> None:
    folder, out = kernel_tables(tmp_path / "kernels", mixed=1.5), tmp_path / "profile.json"
    done = run(
        "calibrate", folder, "--for", "batches", "--layers", 4, "--mixed", "-o", out, "--host-overhead", "0.1"
    )
    assert done.exit_code == 0, done.output
    assert "  mixed      " in done.output
    assert any(read_profile(out).cost.mixed)
    refused = run("solve", TOY, "--cost", out, "--solver", "highs")
    assert refused.exit_code == 2
    assert refused.stderr.endswith(
        "batches take longer than the terms say that it knows (cost.mixed, cost.prefix)\n"
    )


def test_vidur_and_standard_input(tmp_path: Path) -> None:
    done = run(
        "calibrate", vidur_profile(tmp_path / "mlp.csv"), "--for", "batches", "--layers", 3, "--gpus", 2
    )
    assert done.exit_code == 0, done.output
    assert "attention, the head of the model and traffic between GPUs are not measured" in done.output
    done = run("calibrate", "-", "--for", "batches", "--json", stdin=whole_batches(60))
    assert json.loads(done.stdout)["name"] == "stdin"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "give a file or a folder of samples."),
        (("{samples}", "--profile", "paper-example"), "--profile goes with --for worker only."),
        (("{samples}", "--max-batch", "5"), "--max-batch goes with --for worker only."),
        (("{samples}", "--layers", "5"), "my-gpu.csv: layers: a file of whole batches takes no --layers"),
        (("{samples}", "--share", "0"), "Invalid value for '--share': 0 is not above 0 and at most 1."),
        (("{samples}", "--share", "x"), "Invalid value for '--share': 'x' is not a decimal number."),
        (
            ("{samples}", "--host-overhead", "-1"),
            "Invalid value for '--host-overhead': -1 is not between 0 and",
        ),
        (
            ("{samples}", "--kv-capacity", "1.5"),
            "--kv-capacity of a cost profile is a whole number of tokens.",
        ),
        (("{samples}", "--plot", "x.pdf"), "the name of a picture ends in .png or .svg"),
        (("{samples}", "-o", "{samples}"), "is an input of this command; it is not overwritten"),
        (("{samples}", "--plot", "x.png", "-o", "x.png"), "x.png: is to be written twice"),
        (("missing.csv",), "missing.csv: cannot be read: No such file or directory"),
        (("{folder}",), "layers: the times are of one layer: --layers N says how many the model has"),
        (("{folder}", "--layers", "5"), "kernels_dense.csv: cannot be read: No such file or directory"),
    ],
)
def test_unusable_input_is_one_line(samples: Path, args: tuple[str, ...], message: str) -> None:
    done = run(
        "calibrate", "--for", "batches", *(a.format(samples=samples, folder=samples.parent) for a in args)
    )
    assert done.exit_code == 2
    assert message in done.stderr
    assert (done.stderr.count("\n"), done.stdout) == (1, "")


def test_options_of_batches_are_refused_for_workers() -> None:
    done = run("calibrate", "--profile", "paper-example", "--share", "0.5")
    assert (done.exit_code, done.stderr) == (2, "infermax-opt: --share goes with --for batches only.\n")


def test_nothing_is_written_where_the_fit_is_impossible(tmp_path: Path) -> None:
    path, out = tmp_path / "one.csv", tmp_path / "profile.json"
    path.write_text(HEADER + "3,3,600,,0.1\n")
    done = run("calibrate", path, "--for", "batches", "-o", out)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"infermax-opt: {path}: the 1 samples do not determine beta")
    assert not out.exists()


# --- the option --cost ----------------------------------------------------------------------------


def test_solve_bound_schedule_and_verify_take_a_cost(profile: Path, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    done = run("solve", TOY, "--cost", profile, "-o", result)
    assert done.exit_code == 0, done.output
    said = f"cost: {profile}: my-gpu, instead of the coefficients that the instance has\n"
    assert done.stdout.startswith(said)
    value = load_json(result)
    own = read_instance(TOY)
    assert value["instance_sha256"] != own.sha256
    assert run("verify", TOY, result, "--cost", profile).exit_code == 0
    refused = run("verify", TOY, result)
    assert refused.exit_code == 1
    assert "instance_sha256 differs" in refused.output
    bound = run("bound", TOY, "--cost", profile, "--json")
    assert json.loads(bound.stdout)["instance_sha256"] == value["instance_sha256"]
    assert bound.stderr.startswith(said)
    assert run("schedule", TOY, "--scheduler", "vllm", "--cost", profile).stdout.startswith(said)


def test_an_instance_is_imported_with_a_cost(profile: Path, tmp_path: Path) -> None:
    trace, out = tmp_path / "t.csv", tmp_path / "i.json"
    trace.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,30,4\n1,20,5\n")
    done = run("import", trace, "--format", "vidur", "--cost", profile, "-o", out)
    assert done.exit_code == 0, done.output
    instance = read_instance(out)
    assert instance.cost == read_profile(profile).cost
    assert instance.system.kv_capacity == 5000
    done = run("import", trace, "--format", "vidur", "--cost", profile, "-o", profile)
    assert done.exit_code == 2
    assert "is an input of this command; it is not overwritten" in done.stderr


def test_an_unknown_capacity_is_asked_for(samples: Path, tmp_path: Path) -> None:
    out, trace = tmp_path / "p.json", tmp_path / "t.csv"
    assert run("calibrate", samples, "--for", "batches", "-o", out).exit_code == 0
    trace.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,30,4\n")
    call = ("import", trace, "--format", "vidur", "--cost", out, "-o", tmp_path / "i.json")
    done = run(*call)
    assert (done.exit_code, done.stderr) == (
        2,
        "infermax-opt: kv_capacity: the profile 'my-gpu' does not say; --kv-capacity does\n",
    )
    assert run(*call, "--kv-capacity", 100).exit_code == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cost": None}, "cost: None is not an object"),
        ({"cost": {"profile": "paper-example"}}, "cost.profile: is not a known key"),
        ({"coast": 1}, "coast: is not a known key"),
        ({"schema": "infermax-opt/instance/1"}, "schema: 'infermax-opt/instance/1' is not"),
        (
            {"band": {"share": "0.9", "lo": "1.2", "hi": "1.1"}},
            "band.lo: 1.2 is not above 0 and at most hi, 1.1",
        ),
        ({"band": {"share": "1.5", "lo": "1", "hi": "2"}}, "band.share: 1.5 is not above 0 and at most 1"),
        ({"band": {"share": "0.9", "lo": "1"}}, "band.hi: is missing"),
        ({"host_overhead": -1}, "host_overhead: -1 is negative"),
        ({"host_overhead": "x"}, "host_overhead: 'x' is not a decimal number"),
        ({"kernel_time_only": 1}, "kernel_time_only: 1 is not true or false"),
        ({"kv_capacity": 0}, "kv_capacity: 0 is not between 1 and"),
        ({"fit_error": {"mean_rel": 1}}, "fit_error.max_rel: is missing"),
        ({"name": ""}, "name: '' is not a non-empty text"),
    ],
)
def test_profiles_that_are_wrong(profile: Path, change: dict[str, object], message: str) -> None:
    profile.write_text(json.dumps({**json.loads(profile.read_text()), **change}))
    done = run("solve", TOY, "--cost", profile)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"infermax-opt: {profile}: {message}")
    assert done.stderr.count("\n") == 1


def test_a_profile_needs_only_a_cost(profile: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps({"cost": json.loads(profile.read_text())["cost"]}))
    assert read_profile(bare).name == "bare"
    assert run("bound", TOY, "--cost", bare).exit_code == 0


def test_what_cannot_have_a_cost_says_so(profile: Path) -> None:
    path = ROOT / "instances" / "placement-toy.json"
    done = run("solve", path, "--cost", profile)
    assert (done.exit_code, done.stderr) == (
        2,
        f"infermax-opt: {path}: cost: placement instances are solved without this option\n",
    )
    done = run("solve", "-", "--cost", "-")
    assert "is to be read twice" in done.stderr
    done = run("solve", TOY, "--cost", profile, "-o", profile)
    assert "is an input of this command; it is not overwritten" in done.stderr
