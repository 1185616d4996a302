"""Values from Python that no function takes: one line that names the field, never an error of its inside."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

import infermax_opt as imx
from infermax_opt.core.lengths import MOST_ERROR
from tests.support import ROOT

TOY = imx.read_instance(ROOT / "instances" / "toy.json")
MADE = imx.schedule(TOY, "vllm")
STREAM = imx.read_instance(ROOT / "instances" / "stream-poisson-8.json")
PAIR = Fraction(1, 10), Fraction(1, 100)


@pytest.fixture(scope="module")
def csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "trace.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,10,5\n"
        "2023-11-16 18:17:04.0319600,20,7\n"
    )
    return path


@pytest.mark.parametrize("window", [[1], (1, 2, 3), "12", ("a", "b"), (math.nan, 1)])
def test_windows(csv: Path, window: object) -> None:
    for read in (imx.read_trace, imx.import_trace):
        with pytest.raises(imx.InputError) as caught:
            read(csv, "azure", window=window)
        assert caught.value.field == "window"


def test_a_window_of_numbers_is_read(csv: Path) -> None:
    assert len(imx.read_trace(csv, "azure", window=(0, "0.01")).requests) == 1


def test_a_path_of_bytes_is_named(csv: Path) -> None:
    with pytest.raises(imx.InputError) as caught:
        imx.read_trace(b"missing.csv", "azure")  # type: ignore[arg-type]
    assert "missing.csv" in str(caught.value)


WRONG: list[tuple[str, Callable[[], object]]] = [
    ("requests", lambda: imx.gsm8k_like(requests=10**30)),
    ("clients", lambda: imx.gsm8k_like(requests=3, clients=10**30)),
    ("error", lambda: imx.gsm8k_like(requests=3, clients=2, error=1e30)),
    ("workers", lambda: imx.simulate_stream(STREAM, "jsq", workers=1.5)),  # type: ignore[arg-type]
    ("workers", lambda: imx.simulate_stream(STREAM, "jsq", workers=10**30)),
    ("groups", lambda: imx.simulate_stream(STREAM, "grouped", groups=1.5)),  # type: ignore[arg-type]
    ("lengths[0]", lambda: imx.demand_of(["x"])),  # type: ignore[list-item]
    ("lengths[1]", lambda: imx.demand_of([(1, 2), (1, 2.5)])),  # type: ignore[list-item]
    ("lengths[0]", lambda: imx.demand_of([(1, -5)])),
    ("at_most[0]", lambda: imx.asked(TOY, at_most=[1])),  # type: ignore[list-item]
    ("at_least", lambda: imx.asked(TOY, at_least="makespan=1")),
    ("slos[0]", lambda: imx.with_aim(TOY, slos=[1])),  # type: ignore[list-item]
    ("schedulers", lambda: imx.compare_schedulers(TOY, "vllm")),
    ("labels[0]", lambda: imx.gap(TOY, MADE, labels=[1])),  # type: ignore[list-item]
    ("metrics", lambda: imx.gap(TOY, MADE, metrics=5)),  # type: ignore[arg-type]
    ("parts", lambda: imx.warm("iteration")),
    ("seed", lambda: imx.run_table("mcsf", "never", seed=math.nan)),  # type: ignore[arg-type]
    ("jobs", lambda: imx.run_table("mcsf", "never", jobs=1.5)),  # type: ignore[arg-type]
    ("limit_rows", lambda: imx.run_table("mcsf", "never", limit_rows=1.5)),  # type: ignore[arg-type]
    ("only", lambda: imx.run_table("mcsf", "never", only="a*")),
    ("bounds[0]", lambda: imx.solve(TOY, bounds=[1])),  # type: ignore[list-item]
    ("instance", lambda: imx.solve(MADE)),  # type: ignore[arg-type]
    ("instance", lambda: imx.bound(MADE)),  # type: ignore[arg-type]
    ("instance", lambda: imx.schedule(MADE, "vllm")),  # type: ignore[arg-type]
    ("instance", lambda: imx.compare_schedulers(MADE, ["vllm"])),  # type: ignore[arg-type]
    ("schedule", lambda: imx.write_schedule(TOY, "never.json")),
    ("result", lambda: imx.write_result(MADE, "never.json")),  # type: ignore[arg-type]
    ("instance", lambda: imx.load_instance(1)),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("field", "call"), WRONG, ids=[f"{k}-{field}" for k, (field, _) in enumerate(WRONG)])
def test_each_is_one_line(
    field: str, call: Callable[[], object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(imx.InputError) as caught:
        call()
    assert caught.value.field == field
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_levels(csv: Path) -> None:
    with pytest.raises(imx.InputError) as caught:
        imx.client_instance(imx.read_trace(csv, "azure"), "x", 2, [], PAIR, PAIR)
    assert caught.value.field == "levels"


def test_the_largest_deviation_gives_numbers() -> None:
    assert imx.gsm8k_like(requests=50, clients=2, error=MOST_ERROR).requests


def test_a_schedule_is_no_instance_to_verify() -> None:
    with pytest.raises(imx.InputError, match="takes an instance"):
        imx.verify(MADE, MADE)  # type: ignore[arg-type]
