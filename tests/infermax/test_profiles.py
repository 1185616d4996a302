"""Shipped profiles are exact and match the fits they came from."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from infermax_opt.core.errors import InputError
from infermax_opt.infermax.data.cost import BatchFeatures, CostModel
from infermax_opt.infermax.data.formats import instance_from_json, instance_to_json, read_instance
from infermax_opt.infermax.data.profiles import load_profile, profile_names, profile_of
from infermax_opt.infermax.data.suites import RUNS
from tests.support import ROOT, shared_data

PROFILES = ROOT / "infermax_opt" / "infermax" / "data" / "profiles"

FITS = shared_data("data/batch_time_coefficients.json")
RUNS_DATA = shared_data("data/vllm_runs")
#: Profiles of measured kernels.
KERNELS = {
    run.profile.removesuffix("_hinge") + kind for run in RUNS.values() for kind in ("", "_hinge", "_mixed")
}
#: Profiles of models that nobody measured.
ESTIMATES = {name for name in profile_names() if load_profile(name).estimate}
NAMES = (
    "paper-example", "llama-2-7b_a100", "llama-3.1-8b_a100", "llama-3.1-8b_h100", "llama-3.1-8b_h200",
    "llama-3.1-70b_h100_tp4",
)  # fmt: skip


def test_the_promised_profiles_are_there() -> None:
    assert set(NAMES) <= set(profile_names())
    hinged = {name for name in profile_names() if name.endswith("_hinge")}
    assert hinged == {f"{name}_hinge" for name in profile_names()} & set(profile_names())
    assert len(hinged) >= 5


@pytest.mark.parametrize("name", profile_names())
def test_profiles_load(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    assert profile.cost.profile == name
    assert profile.kv_capacity > 10_000
    lines = {"_hinge": {2}, "_mixed": {2, 3}}.get(name[name.rfind("_") :], {1})
    assert len(profile.cost.batch) in lines
    assert any(profile.cost.extra) == name.endswith("_mixed")
    assert profile.source
    assert (profile.fit_error is None) == (name == "paper-example")
    raw = (PROFILES / f"{name}.json").read_text()
    value = json.loads(raw, parse_float=Decimal)
    numbers = [
        *value["cost"]["decode"],
        *value["cost"]["prefill"],
        *(n for piece in value["cost"]["batch"] for n in piece),
    ]
    assert all(isinstance(number, str) for number in numbers)
    # One batch of an ordinary size takes milliseconds, not microseconds and not seconds.
    ticks = profile.cost.batch_ticks(BatchFeatures(512, 32, 32_000, 1, 480**2))
    assert 1e-3 < profile.cost.to_seconds(ticks) < 0.2


def test_the_example_has_the_documented_coefficients() -> None:
    cost = CostModel([("0.007", "0.000075")], ("0.0003", "2.6e-7"), ("0.0003", "1.5e-9"))
    assert load_profile("paper-example").cost == cost
    assert load_profile("paper-example").kv_capacity == 100_000


def test_unknown_profiles_are_named() -> None:
    with pytest.raises(InputError, match="'abacus' is no profile; there are llama-2-7b_a100"):
        load_profile("abacus")


@pytest.mark.skipif(FITS is None, reason="the shared coefficients are not on this machine")
def test_profiles_match_their_fits() -> None:
    assert FITS is not None
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import make_profiles
    finally:
        sys.path.pop(0)
    sets = make_profiles.FITS
    fits = {fit["name"]: fit for fit in json.loads(FITS.read_text(), parse_float=Decimal)["sets"]}
    fitted = set(profile_names()) - KERNELS - ESTIMATES
    assert {"paper-example", *sets, *(f"{name}_hinge" for name in sets)} == fitted
    for name in fitted:
        kind = "hinge" if name.endswith("_hinge") else "linear"
        source = (
            make_profiles.EXAMPLE
            if name == "paper-example"
            else f"{sets[name.removesuffix('_hinge')]}_{kind}"
        )
        fit, profile = fits[source], load_profile(name)
        coef = {key: Fraction(value) for key, value in fit["coef"].items()}
        assert profile.kv_capacity == fit["M_tokens"]
        assert profile.cost.decode == (coef["d0"], coef["d1"])
        assert profile.cost.prefill == (coef["p0"], coef["p1"])
        for tokens in (0, 1, 17, 255, 256, 257, 448, 1000, 4096):
            if kind == "linear":
                expected = coef["b0"] + coef["b1"] * tokens
            else:
                step = (coef["b1_hi"] - coef["b1_lo"]) * max(Fraction(0), tokens - coef["knee"])
                expected = coef["b0"] + coef["b1_lo"] * tokens + step
            ticks = profile.cost.batch_ticks(BatchFeatures(tokens, 0, 0, 0, 0))
            assert profile.cost.to_seconds(ticks) == expected


@pytest.mark.skipif(FITS is None, reason="the shared coefficients are not on this machine")
def test_the_script_writes_the_shipped_files(tmp_path: Path) -> None:
    script = ROOT / "scripts" / "make_profiles.py"
    subprocess.run([sys.executable, script, str(FITS), "--into", tmp_path], check=True, cwd=ROOT)
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    others = KERNELS | ESTIMATES
    shipped = {path.name: path.read_text() for path in PROFILES.glob("*.json") if path.stem not in others}
    assert written == shipped


def test_estimates_are_what_their_script_writes_and_say_what_they_are(tmp_path: Path) -> None:
    script = ROOT / "scripts" / "estimate_profiles.py"
    subprocess.run([sys.executable, script, "--into", tmp_path], check=True, cwd=ROOT)
    assert {path.stem for path in tmp_path.iterdir()} == ESTIMATES
    models = {load_profile(name).model for name in ESTIMATES}
    assert models == {"OPT-13B", "OPT-30B", "OPT-175B", "Llama-33B", "Llama-3-70B"}
    for name in sorted(ESTIMATES):
        assert (tmp_path / f"{name}.json").read_text() == (PROFILES / f"{name}.json").read_text()
        profile = load_profile(name)
        assert profile.kernel_time_only
        assert profile.source.startswith("estimate: roofline")
        assert profile.fit_error is not None
        # Further off than any fit, and within a tenth all the same.
        assert 0.05 < profile.fit_error["mean_rel"] < 0.1
    # A GPU of less memory leaves as much beside half of the weights; its memory is slower.
    one, two = load_profile("opt-13b_a100"), load_profile("opt-13b_a100-40gb_tp2")
    assert one.kv_capacity == two.kv_capacity
    assert one.cost.batch[0][0] / 2 < two.cost.batch[0][0] < one.cost.batch[0][0]


@pytest.mark.skipif(RUNS_DATA is None, reason="the measured runs are not on this machine")
def test_the_script_writes_the_profiles_and_instances_of_the_runs(tmp_path: Path) -> None:
    script = ROOT / "scripts" / "fit_vllm_runs.py"
    assert RUNS_DATA is not None
    into = ["--profiles", tmp_path / "profiles", "--instances", tmp_path / "instances"]
    subprocess.run([sys.executable, script, RUNS_DATA.parent, *into], check=True, cwd=ROOT)
    for name in KERNELS:
        assert (tmp_path / "profiles" / f"{name}.json").read_text() == (PROFILES / f"{name}.json").read_text()
    for name in RUNS:
        shipped = ROOT / "instances" / "vllm-runs" / f"{name}.json"
        assert (tmp_path / "instances" / f"{name}.json").read_text() == shipped.read_text()


def test_the_runs_that_were_measured_are_shipped() -> None:
    for name, run in RUNS.items():
        instance = read_instance(ROOT / "instances" / "vllm-runs" / f"{name}.json")
        assert (instance.name, len(instance.requests)) == (name, 300)
        assert instance.cost == load_profile(run.profile).cost
    instance = read_instance(ROOT / "instances" / "vllm-runs" / "vllm-rtx4090-llama-3.1-8b.json")
    assert sum(request.input_tokens for request in instance.requests) == 257_239
    assert (instance.output_tokens, instance.system.kv_capacity) == (195_753, 41_408)


def test_the_shipped_instances_are_what_their_script_writes(tmp_path: Path) -> None:
    script = ROOT / "scripts" / "make_instances.py"
    subprocess.run([sys.executable, script, "--into", tmp_path], check=True, cwd=ROOT)
    for path in tmp_path.rglob("*.json"):
        shipped = ROOT / "instances" / path.relative_to(tmp_path)
        assert shipped.read_text() == path.read_text()


def test_profiles_of_kernels_say_how_far_they_are() -> None:
    """Of whole batches, most of which mix: nine of ten lie in the band; mixed ones are furthest."""
    for name in sorted(KERNELS):
        profile = load_profile(name)
        assert profile.kernel_time_only is True
        assert profile.host_overhead == 0
        assert profile.band is not None
        assert profile.band.share == Fraction("0.9")
        assert Fraction("0.7") < profile.band.lo < 1 < profile.band.hi < Fraction("2.1")
        errors = json.loads((PROFILES / f"{name}.json").read_text())["errors"]
        assert {"all", "small", "large", "pure decode", "pure prefill", "mixed", "dense"} < errors.keys()
        assert errors["pure decode"]["mean"] < errors["pure prefill"]["mean"] < errors["mixed"]["mean"]
        if name.endswith("_mixed"):
            assert errors["pure prefill"]["mean"] <= 0.03
            assert errors["mixed"]["mean"] <= 0.1
    assert load_profile("llama-3.1-8b_h100").band is None


def test_a_changed_cost_model_is_written_with_its_own_coefficients() -> None:
    """Its name stays that of the profile that it came from, which says nothing of it any more."""
    instance = read_instance(ROOT / "instances" / "vllm-runs" / "vllm-rtx4090-llama-3.1-8b.json")
    assert instance_to_json(instance)["cost"] == {"profile": instance.cost.profile}
    slower = replace(instance, cost=replace(instance.cost, decode=("0.01", "0")))
    assert slower.cost.profile == instance.cost.profile
    again = instance_from_json(instance_to_json(slower))
    assert again.cost == slower.cost != instance.cost
    assert again.sha256 == slower.sha256 != instance.sha256
    assert profile_of(replace(instance.cost, profile="of a friend")) is None
