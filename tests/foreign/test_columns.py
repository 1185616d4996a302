"""Files with a list for each value: read by column, exactly, in little memory."""

from __future__ import annotations

import json
import random
import tracemalloc
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infermax_opt.core.errors import InputError
from infermax_opt.files.rows import number, token_count
from infermax_opt.foreign.columns import Times, exact_times, read_times, read_tokens
from infermax_opt.foreign.reading import read_run
from infermax_opt.foreign.traces import read_trace

#: What a column may hold: plain, long, with an exponent, and what is no time.
ODD = [
    0, 7, Decimal("0.5"), Decimal("54321.123456789012"), Decimal("0.1000"), 10**30, Decimal("1e-9"),
    Decimal("12e3"), Decimal("0." + "3" * 39), None, "", "0.25", "x", True, -1, Decimal("-0.5"),
    Decimal("NaN"), Decimal("Infinity"), Decimal("1e-999999"), 10**41,
    Decimal("1." + "0" * 50), Decimal("-0"),
    "5.", ".5", ".", "1.2.3", "1\n2", " 5", "+5", "1_0", "٣", "1e-9", "007", "9" * 30, "0." + "3" * 41, "NaN",
]  # fmt: skip


def one_by_one(values: list[Any], read: Any) -> tuple[list[Any], list[bool], dict[int, str]]:
    found, faults = [], {}
    for k, value in enumerate(values):
        try:
            found.append(0 if value in (None, "") else read(value))
        except ValueError as error:
            found.append(0)
            faults[k] = str(error)
    return found, [value in (None, "") for value in values], faults


@pytest.mark.parametrize("seed", range(60))
def test_columns_are_read_as_their_values_are(seed: int) -> None:
    draw = random.Random(seed)
    plain = [Decimal(draw.randrange(10**18)).scaleb(-draw.randrange(19)) for _ in range(9)]
    values = draw.choices(ODD[:5] + plain if seed % 2 else ODD, k=draw.randint(0, 8))
    times, tokens = read_times("t", values), read_tokens("t", values)
    assert (times.values.list(), times.absent.tolist(), times.faults) == one_by_one(values, number)
    assert (tokens.values.tolist(), tokens.absent.tolist(), tokens.faults) == one_by_one(values, token_count)
    assert [times.values[k] for k in range(len(values))] == times.values.list()


@pytest.mark.parametrize("seed", range(60))
def test_columns_of_texts_are_read_as_their_values_are(seed: int) -> None:
    draw = random.Random(seed)
    plain = [f"{Decimal(draw.randrange(10**12)).scaleb(-draw.randrange(12)):f}" for _ in range(9)]
    plain = [str(draw.randrange(10**9)) for _ in range(9)] if seed % 3 == 0 else plain
    odd = [value for value in ODD if isinstance(value, str)] if seed % 2 else []
    values = draw.choices(plain + odd, k=draw.randint(0, 8))
    times, tokens = read_times("t", values, 9), read_tokens("t", values)
    found, absent, faults = one_by_one(values, number)
    assert times.values.list() == [Fraction(value) / 10**9 for value in found]
    assert (times.absent.tolist(), times.faults) == (absent, faults)
    wrong = {k: "is missing" for k, none in enumerate(absent) if none} | faults
    assert times.first_fault == min(wrong.items(), default=None)
    assert times.plain == (not wrong)
    assert (tokens.values.tolist(), tokens.absent.tolist(), tokens.faults) == one_by_one(values, token_count)


@pytest.mark.parametrize("seed", range(60))
def test_times_are_rounded_to_the_nearest_tick(seed: int) -> None:
    draw = random.Random(seed)
    parts, unit = draw.choice([1, 3, 10, 10**9, 10**25]), draw.choice([1, 10, 7, 10**9])
    times = [Fraction(draw.randint(-20, 10 ** draw.randint(1, 20)), parts) for _ in range(9)]
    assert Times.of(times).rounded(unit).tolist() == [round(time * unit) for time in times]


def test_tokens_that_are_all_whole_numbers() -> None:
    assert read_tokens("t", [3, 10**9]).values.tolist() == [3, 10**9]
    assert set(read_tokens("t", [3, 10**9 + 1]).faults) == {1}
    assert set(read_tokens("t", [-1, 3]).faults) == {0}


@pytest.mark.parametrize("seed", range(60))
def test_times_are_added_and_compared_exactly(seed: int) -> None:
    """Also where ticks leave 64 bits."""
    draw = random.Random(seed)
    sides = []
    for _ in range(2):
        most, places = draw.choice([9, 10**6, 2**62 - 1, 10**25]), draw.randrange(25)
        sides.append([Fraction(draw.randint(0, most), 10**places) for _ in range(5)])
    one, two = (Times.of(side) for side in sides)
    assert (one + two).list() == [a + b for a, b in zip(*sides, strict=True)]
    assert (one - two).list() == [a - b for a, b in zip(*sides, strict=True)]
    chosen = np.array([draw.random() < 0.5 for _ in range(5)])
    assert one.where(chosen, two).list() == [
        a if k else b for k, a, b in zip(chosen.tolist(), *sides, strict=True)
    ]
    assert exact_times([Decimal("0.5"), 3]).list() == [Fraction(1, 2), 3]


def results(count: int) -> dict[str, Any]:
    draw = random.Random(0)
    return {
        "tokenizer_id": "m", "num_prompts": count, "request_rate": "inf", "max_concurrency": None,
        "input_lens": [draw.randint(1, 9) for _ in range(count)], "output_lens": [2] * count,
        "ttfts": [round(draw.random() + 0.1, 6) for _ in range(count)],
        "itls": [[round(draw.random(), 6)] for _ in range(count)],
        "start_times": [round(k + draw.random(), 6) for k in range(count)], "errors": [""] * count,
    }  # fmt: skip


def test_times_of_zero_beside_very_fine_ones() -> None:
    fine = Times.of([Fraction(39999999999999996, 10**21), Fraction(0)])
    for found in (
        Times.zero(2) + fine,
        fine - Times.zero(2),
        fine.where(np.array([True, False]), Times.zero(2)),
    ):
        assert found.list() == fine.list()


def test_a_run_that_never_waited_and_has_gaps_of_microseconds(tmp_path: Path) -> None:
    """As vLLM writes it: 0 for who did not wait, and floats of 21 digits for tokens that came together."""
    run = {
        "input_lens": [5], "output_lens": [3], "ttfts": [0.04], "itls": [[3.9999999999999996e-05, 0.02]],
        "start_times": [100.0], "queue_times": [0.0], "errors": [""],
    }  # fmt: skip
    path = tmp_path / "run.json"
    path.write_text(json.dumps(run))
    (request,) = read_run(path, "vllm").requests
    assert request.e2e == Fraction("0.06") + Fraction("0.000039999999999999996")


def test_many_small_requests_take_little_memory(tmp_path: Path) -> None:
    """Some numbers of 64 bits each; while it is read, a list of its decimals."""
    path, count = tmp_path / "run.json", 20_000
    path.write_text(json.dumps(results(count)))
    read_run(path, "vllm")  # whatever is imported
    tracemalloc.start()
    run = read_run(path, "vllm")
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(run.requests) == count
    assert held < 150 * count
    assert peak < 500 * count


def test_requests_in_columns_are_those_of_the_file(tmp_path: Path) -> None:
    path, values = tmp_path / "run.json", results(50)
    values["start_times"] = values["start_times"][::-1]
    values["errors"][7] = "E"
    path.write_text(json.dumps(values))
    run = read_run(path, "vllm")
    assert [r.line for r in run.requests] == [k for k in range(50, 0, -1) if k != 8]
    origin = Fraction(str(values["start_times"][-1]))
    for r in run.requests:
        k = r.line - 1
        assert (r.name, r.input_tokens, r.output_tokens) == (str(k + 1), values["input_lens"][k], 2)
        assert r.arrival == Fraction(str(values["start_times"][k])) - origin
        assert r.ttft == Fraction(str(values["ttfts"][k]))
        assert r.e2e == r.ttft + Fraction(str(values["itls"][k][0]))
    assert run.requests[-1].line == run.requests[48].line == 1
    assert tuple(run.requests[3:5]) == tuple(run.requests)[3:5]
    with pytest.raises(IndexError):
        run.requests[49]


def test_the_first_requests_of_a_run(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(results(30)))
    whole = read_trace(path, "vllm")
    for first in (1, 7, 30, 40):
        assert read_trace(path, "vllm", first=first).requests == whole.requests[:first]
    window = Fraction(5), Fraction(20)
    part = read_trace(path, "vllm", window=window)
    assert read_trace(path, "vllm", window=window, first=3).requests == part.requests[:3]


def test_the_first_wrong_request_that_counts_is_named(tmp_path: Path) -> None:
    path, values = tmp_path / "run.json", results(9)
    values["ttfts"][2] = values["ttfts"][5] = None
    path.write_text(json.dumps(values))
    with pytest.raises(InputError, match=r"request 3\.ttfts: is missing"):
        read_run(path, "vllm")
    values["errors"][2] = "E"
    path.write_text(json.dumps(values))
    with pytest.raises(InputError, match=r"request 6\.ttfts: is missing"):
        read_run(path, "vllm")


@pytest.mark.parametrize("unit", [1, 7, 10**9, 10**30])
def test_times_are_rounded_down(unit: int) -> None:
    draw = random.Random(unit)
    times = [Fraction(draw.randrange(10**12), 10 ** draw.randrange(13)) for _ in range(20)]
    assert Times.of(times).floored(unit).list() == [Fraction(time * unit // 1, unit) for time in times]
