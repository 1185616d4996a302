"""Batches of aiconfigurator-core, by a stand-in for the package: what it is asked, and what becomes of it."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from infermax_opt.cli.main import cli
from infermax_opt.core.errors import InputError
from infermax_opt.infermax.data.profiles import read_profile
from infermax_opt.latency.batches.fit import fit_batches
from infermax_opt.latency.batches.read import read_batches

NAME = "aiconfigurator:maker/Model-1B@gpu_x/engine"


class Engine:
    """A machine of one line: 5 ms a batch, 10 us a token, 40 ns a KV token read, 1 ns a pair."""

    asked: list[tuple[Any, ...]] = []  # noqa: RUF012  # of the class on purpose

    @classmethod
    def compile(cls, model: str, system: str, backend: str, *, tp_size: int) -> Engine:
        if system == "none":
            raise ValueError("no such\nsystem")
        cls.asked.append((model, system, backend, tp_size))
        return cls()

    def predict_decode_latency(self, bs: int, isl: int) -> float:
        return 5 + 0.01 * bs + 4e-5 * bs * isl

    def predict_prefill_latency(self, bs: int, isl: int, prefix: int) -> float:
        chunk = isl - prefix
        assert chunk > 0, "a prompt's length counts its cached prefix"
        return 5 + 0.01 * bs * chunk + 1e-6 * bs * chunk * (2 * prefix + chunk)

    def mixed_step_latency(self, ctx_tokens: int, gen_tokens: int, isl: int, osl: int) -> float:
        assert (isl, osl) == (ctx_tokens, 2)
        return 5 + 0.01 * (ctx_tokens + gen_tokens) + 4e-5 * gen_tokens * (isl + 1) + 1e-6 * ctx_tokens**2


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Any = types.ModuleType("aiconfigurator_core.sdk.engine")
    made.EngineHandle = Engine
    for name in ("aiconfigurator_core", "aiconfigurator_core.sdk"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, made.__name__, made)
    monkeypatch.setattr(Engine, "asked", [])


@pytest.mark.usefixtures("package")
def test_coefficients_come_back() -> None:
    made = fit_batches(read_batches(NAME, gpus=4))
    assert Engine.asked == [("maker/Model-1B", "gpu_x", "engine", 4)]
    assert made.regions[0].errors.maximum < 1e-4
    assert made.cost.exact_attention
    assert float(made.cost.decode[1]) == pytest.approx(4e-8, rel=1e-3)
    assert float(made.cost.prefill[1]) == pytest.approx(1e-9, rel=1e-3)
    assert made.samples.kernel_time_only


@pytest.mark.usefixtures("package")
def test_the_command_writes_a_profile(tmp_path: Path) -> None:
    out = tmp_path / "p.json"
    done = CliRunner().invoke(cli, ["calibrate", NAME, "--for", "batches", "-o", str(out)])
    assert done.exit_code == 0, done.output
    assert "batches of aiconfigurator-core" in done.output
    assert read_profile(out).name == "Model-1B_gpu_x_engine"
    refused = CliRunner().invoke(cli, ["calibrate", NAME, "--for", "batches", "--layers", "32"])
    assert refused.exit_code == 2
    assert "a machine of aiconfigurator-core takes no --layers" in refused.stderr


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("aiconfigurator:model", "is not aiconfigurator:MODEL@SYSTEM/BACKEND"),
        ("aiconfigurator:@gpu/vllm", "is not aiconfigurator:MODEL@SYSTEM/BACKEND"),
        ("aiconfigurator:m@none/vllm", "aiconfigurator-core says: no such system"),
    ],
)
def test_what_it_does_not_know_is_one_line(name: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_batches(name)


@pytest.mark.usefixtures("package")
def test_a_question_without_an_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> float:
        raise RuntimeError("out of its table")

    monkeypatch.setattr(Engine, "predict_decode_latency", fails)
    with pytest.raises(InputError, match=r"says of predict_decode_latency\(1, 64\): out of its table"):
        read_batches(NAME)


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", None)
    with pytest.raises(InputError, match=r"pip install 'infermax-opt\[calibrate\]'"):
        read_batches(NAME)


@pytest.mark.skipif(
    importlib.util.find_spec("aiconfigurator_core") is None, reason="the extra is not installed"
)
def test_the_package_itself() -> None:
    made = fit_batches(read_batches("aiconfigurator:meta-llama/Meta-Llama-3.1-8B@h100_sxm/vllm"))
    assert made.regions[0].errors.mean < 0.04
