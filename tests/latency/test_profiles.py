"""Workers of cost profiles against the profiles' own batch times."""

from __future__ import annotations

import csv
import random
from fractions import Fraction

import pytest

from infermax_opt.core.errors import InputError
from infermax_opt.infermax.data.cost import BatchFeatures, CostModel
from infermax_opt.infermax.data.profiles import Profile, load_profile, profile_names
from infermax_opt.latency.fit import fit
from infermax_opt.latency.profiles import (
    decode_lines,
    decode_seconds,
    fit_profile,
    prefill_seconds,
    profile_gpus,
    worker_of_profile,
)
from infermax_opt.latency.samples import Sample
from infermax_opt.placement.data.formats import worker_from_json, worker_to_json
from tests.support import shared_data

LINEAR = [name for name in profile_names() if len(load_profile(name).cost.batch) == 1]


@pytest.mark.parametrize("name", LINEAR)
def test_decode_of_linear_profiles_is_exact(name: str) -> None:
    cost, worker = load_profile(name).cost, worker_of_profile(name)
    chance = random.Random(1)
    for _ in range(50):
        batch, context = chance.randint(1, 2000), chance.randint(0, 10**6)
        features = BatchFeatures(batch, batch, context, 0, 0)
        exact = cost.to_seconds(cost.batch_ticks(features))
        assert decode_seconds(cost, context, batch) == exact
        model = worker.decode_context * context + worker.decode_request * batch + worker.decode_overhead
        assert model == exact


@pytest.mark.parametrize("name", profile_names())
def test_lines_make_every_profile_exact(name: str) -> None:
    cost = load_profile(name).cost
    lines = decode_lines(cost)
    assert len(lines) == len(cost.batch)
    for batch in (1, 95, 96, 97, 320, 511, 512, 513, 3000):
        for context in (0, batch, 1000 * batch):
            most = max(k2 * context + c2 * batch + c3 for k2, c2, c3 in lines)
            assert most == decode_seconds(cost, context, batch)


@pytest.mark.parametrize("name", profile_names())
@pytest.mark.parametrize(("longest", "most"), [(4096, 16384), (1000, 7777)])
def test_models_above_are_above_every_batch_in_range(name: str, longest: int, most: int) -> None:
    made = fit_profile(name, cover="above", max_context=longest, max_prefill_tokens=most, max_batch=700)
    cost, worker = made.profile.cost, made.worker
    chance = random.Random(2)
    batches = [[1], [longest], [longest] * (most // longest), [1] * most, [longest - 1, longest]]
    for _ in range(150):
        left, prompts = chance.randint(1, most), []
        size = chance.choice((longest, longest // 7, 40))
        while left:
            prompts.append(chance.randint(1, min(size, left)))
            left -= prompts[-1]
        batches.append(prompts)
    slack = []
    for prompts in batches:
        model = worker.prefill_token * sum(prompts) + worker.prefill_overhead
        slack.append(model / prefill_seconds(cost, prompts) - 1)
    assert min(slack) >= 0
    assert min(slack) < Fraction(1, 100)  # it touches: no smaller one would do
    for _ in range(300):
        batch = chance.choice((1, 700, chance.randint(1, 700)))
        context = batch * chance.choice((1, longest, chance.randint(1, longest)))
        model = worker.decode_context * context + worker.decode_request * batch + worker.decode_overhead
        assert model >= decode_seconds(cost, context, batch)


@pytest.mark.parametrize("name", profile_names())
def test_mean_models_are_near(name: str) -> None:
    made = fit_profile(name)
    assert made.prefill.mean_relative < 0.13
    # Lines that meet at a sharper angle are further from the one line of a worker.
    assert made.prefill.max_relative < (0.45 if name.endswith("_mixed") else 0.4)
    assert (made.decode is None) == (name in LINEAR)
    if made.decode:
        assert made.decode.mean_relative < 0.03
    above = fit_profile(name, cover="above").prefill
    assert made.prefill.mean_relative <= above.mean_relative


def test_a_worker_has_the_machine_of_its_profile() -> None:
    worker = worker_of_profile("llama-3.1-70b_h100_tp8")
    assert (worker.kv_capacity, worker.kv_token, worker.kv_request, worker.gpus) == (1456833, 1, 0, 8)
    assert worker.kv(100) == 100
    assert {name: profile_gpus(load_profile(name)) for name in LINEAR if "_tp" in name} == {
        "llama-3-70b_a100_tp8": 8,
        "llama-3.1-70b_a100_tp4": 4,
        "llama-3.1-70b_h100_tp4": 4,
        "llama-3.1-70b_h100_tp8": 8,
        "llama-3.1-70b_h200_tp2": 2,
        "qwen3-32b_h100_tp2": 2,
        "llama-33b_a100_tp2": 2,
        "opt-13b_a100-40gb_tp2": 2,
        "opt-175b_a100_tp8": 8,
        "opt-30b_a100-40gb_tp4": 4,
        "qwen3-32b_rtxpro6000_tp2": 2,
    }
    assert worker_of_profile("llama-3.1-8b_h100").gpus == 1


def test_a_profile_of_ones_own() -> None:
    cost = CostModel([("0.01", "0.001")], ("0", "0.00001"), ("0.002", "0"))
    worker = worker_of_profile(Profile("mine", "m", "gpu x3", 5000, cost, "", None))
    expected = ("0.001", "0.012", "0.00001", "0.001", "0.01")
    found = (
        worker.prefill_token, worker.prefill_overhead, worker.decode_context, worker.decode_request,
        worker.decode_overhead,
    )  # fmt: skip
    assert found == tuple(map(Fraction, expected))
    assert worker.gpus == 3


def test_workers_survive_their_file() -> None:
    for name in profile_names():
        worker = worker_of_profile(name, cover="above")
        assert worker_from_json(worker_to_json(worker)) == worker


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_context": 1}, "max_context: 1 is not between 16 and 10000000"),
        ({"max_context": 9000, "max_prefill_tokens": 8999}, "max_prefill_tokens: 8999 is not between 9000"),
        ({"max_batch": 1}, "max_batch: 1 is not between 2"),
        ({"cover": "below"}, "cover: 'below' is none of"),
    ],
)
def test_ranges_are_checked(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        worker_of_profile("llama-3.1-8b_h100", **arguments)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'abacus' is no profile"):
        worker_of_profile("abacus")


#: Operators of a layer of Llama-2-7B, of which there are 32.
OPERATORS = (
    "input_layernorm", "attn_pre_proj", "attn_rope", "attn_post_proj", "post_attention_layernorm",
    "mlp_up_proj", "mlp_act", "mlp_down_proj", "add",
)  # fmt: skip


@pytest.mark.parametrize(
    ("gpu", "tokens", "k4", "c4"),
    [
        ("a100", 32, "0.0083063", "0.0012274"),
        ("a100", 1024, "0.0620605", "0.0025351"),
        ("h100", 32, "0.0047990", "0.0009720"),
        ("h100", 1024, "0.0187483", "0.0025610"),
    ],
)
def test_eq_5_fits_measured_operators(gpu: str, tokens: int, k4: str, c4: str) -> None:
    """Computing time on 1, 2, 4 and 8 GPUs, attention aside, as Vidur measured it."""
    path = shared_data(f"data/vidur_mlp_{gpu}_llama-2-7b.csv")
    if path is None:
        pytest.skip("the Vidur measurements are not here: see INFERMAX_OPT_DATA")
    samples = []
    with path.open(newline="") as stream:
        for row in csv.DictReader(stream):
            if int(row["num_tokens"]) == tokens:
                layer = sum(float(row[f"time_stats.{name}.mean"]) for name in OPERATORS) / 1000
                gpus = int(row["num_tensor_parallel_workers"])
                samples.append(Sample((gpus,), Fraction(repr(round(32 * layer, 9))), gpus))
    assert {s.gpus for s in samples} == {1, 2, 4, 8}
    found = fit("compute", samples)
    assert found.named["k4"] == pytest.approx(float(k4), abs=1e-7)
    assert found.named["c4"] == pytest.approx(float(c4), abs=1e-7)
    assert found.mean_relative < 0.035
    assert found.max_relative < 0.05
