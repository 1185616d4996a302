"""Fits of the performance models: they find what made the samples, and say how well."""

from __future__ import annotations

import gzip
import itertools
import math
import random
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infermax_opt.core.errors import InputError
from infermax_opt.latency import _least_squares
from infermax_opt.latency.calibration import calibrate
from infermax_opt.latency.fit import MODELS, fit, fit_measured
from infermax_opt.latency.samples import Sample, read_samples
from tests.campaign import examples

HEADER = "kind,tokens,kv,input_tokens,context_tokens,batch_size,gpus,seconds\n"


def decodes(k2: Fraction, c2: Fraction, c3: Fraction, noise: float = 0, seed: int = 0) -> list[Sample]:
    chance = random.Random(seed)
    found = []
    for batch in (2, 3, 5, 8, 16, 40):
        for each in (100, 333, 2000):
            seconds = k2 * each * batch + c2 * batch + c3
            seconds *= Fraction(repr(round(1 + noise * chance.uniform(-1, 1), 9)))
            found.append(Sample((each * batch, batch), seconds))
    return found


small = st.integers(0, 10**4).map(lambda n: Fraction(n, 10**10))


@given(small, small, st.integers(1, 10**5).map(lambda n: Fraction(n, 10**7)))
@examples(24, 600)
def test_exact_samples_give_their_coefficients_back(k2: Fraction, c2: Fraction, c3: Fraction) -> None:
    samples = decodes(k2, c2, c3)
    for weights, cover in itertools.product(("relative", "absolute"), ("mean", "above")):
        found = fit("decode", samples, weights=weights, cover=cover)
        assert found.max_relative < 4e-6
        for sample in samples:
            error = found.predict(*sample.given) - sample.measured
            assert abs(error) <= Fraction(4, 10**6) * sample.measured
            assert cover == "mean" or error >= 0
    if min(k2, c2) > 0:
        again = fit("decode", samples).named
        for name, value in (("k2", k2), ("c2", c2), ("c3", c3)):
            assert again[name] == pytest.approx(float(value), rel=0.02)


def test_short_coefficients_come_back_exactly() -> None:
    made = (Fraction("2.6e-7"), Fraction("4.7e-5"), Fraction("0.0094"))
    found = fit("decode", decodes(*made))
    assert found.coefficients == made
    assert found.mean_relative == found.max_relative == 0
    assert found.r_squared == 1
    assert found.standard_error == found.interval == 0


@given(st.integers(0, 10**6))
@examples(16, 400)
def test_noise_is_reported(seed: int) -> None:
    made = (Fraction("2.6e-7"), Fraction("4.7e-5"), Fraction("0.0094"))
    samples = decodes(*made, noise=0.03, seed=seed)
    found = fit("decode", samples)
    errors = [abs(float(found.predict(*s.given) / s.measured) - 1) for s in samples]
    assert found.max_relative == pytest.approx(max(errors))
    assert found.mean_relative == pytest.approx(sum(errors) / len(errors))
    assert found.max_relative < 0.07
    squares = sum(float(found.predict(*s.given) / s.measured - 1) ** 2 for s in samples)
    assert found.standard_error == pytest.approx(math.sqrt(squares / (len(samples) - 3)))
    above = fit("decode", samples, cover="above")
    assert all(above.predict(*s.given) >= s.measured for s in samples)
    assert above.standard_error is None
    assert above.interval is None


def brute_non_negative(matrix: np.ndarray, measured: np.ndarray) -> float:
    """Least squared residual over a fine projected descent; slow and simple."""
    gram, right = matrix.T @ matrix, matrix.T @ measured
    x = np.zeros(matrix.shape[1])
    for _ in range(4000):
        for k in range(len(x)):  # coordinate descent converges for this convex problem
            x[k] = max(0.0, (right[k] - gram[k] @ x + gram[k, k] * x[k]) / gram[k, k])
    return float(((matrix @ x - measured) ** 2).sum())


@given(
    st.integers(2, 3).flatmap(
        lambda columns: st.lists(
            st.tuples(*[st.integers(1, 30)] * columns, st.integers(1, 60)), min_size=5, max_size=9
        )
    )
)
@settings(max_examples=40, deadline=None)
def test_non_negative_least_squares(rows: list[tuple[int, ...]]) -> None:
    table = np.array(rows, dtype=float)
    matrix, measured = table[:, :-1], table[:, -1]
    values = np.linalg.svd(matrix, compute_uv=False)
    if values[-1] < 0.05 * values[0]:
        return  # descent would take too long
    found, free = _least_squares.non_negative(matrix, measured)
    assert (found >= 0).all()
    assert all(found[k] == 0 for k in range(len(found)) if k not in free)
    residual = float(((matrix @ found - measured) ** 2).sum())
    assert residual <= brute_non_negative(matrix, measured) * (1 + 1e-6) + 1e-6


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(1, 50)), min_size=1, max_size=8)
)
@settings(max_examples=60, deadline=None)
def test_the_least_model_above(rows: list[tuple[int, int, int]]) -> None:
    features = [(Fraction(a), Fraction(b), Fraction(1)) for a, b, _ in rows]
    measured = [Fraction(y) for *_, y in rows]
    weights = [float(1 / y) for y in measured]
    found = _least_squares.least_above(features, measured, weights)
    assert min(found) >= 0

    price = [sum(Fraction(w) * row[k] for w, row in zip(weights, features, strict=True)) for k in range(3)]

    def total(model: Sequence[Fraction]) -> Fraction:
        return sum((p * x for p, x in zip(price, model, strict=True)), Fraction(0))

    for row, y in zip(features, measured, strict=True):
        assert sum(a * b for a, b in zip(found, row, strict=True)) >= y
    # All vertices of the whole program, without row generation.
    whole = _least_squares._cheapest(list(zip(features, measured, strict=True)), price)
    assert float(total(found)) == pytest.approx(float(total(whole)), rel=1e-12)


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.7062047), (2, 4.3026527), (3, 3.1824463), (7, 2.3646243), (30, 2.0422725), (60, 2.0002978),
     (120, 1.9799304)],
)  # fmt: skip
def test_student_t(freedom: int, quantile: float) -> None:
    assert _least_squares.student_t(0.95, freedom) == pytest.approx(quantile, abs=1e-6)


def test_prediction_intervals_hold_new_samples() -> None:
    chance = random.Random(5)
    held = total = 0
    for _ in range(200):
        samples = [
            Sample((n,), Fraction(repr(round((5e-5 * n + 0.01) * (1 + chance.gauss(0, 0.02)), 12))))
            for n in (100, 300, 900, 1500, 2500, 4000)
        ]
        found = fit("prefill", samples)
        for n in (200, 2000):
            width = found.half_width(n)
            assert width is not None
            new = (5e-5 * n + 0.01) * (1 + chance.gauss(0, 0.02))
            held += abs(new - float(found.predict(n))) <= width
            total += 1
    assert 0.91 <= held / total <= 0.99


@pytest.mark.parametrize(
    ("kind", "rows", "message"),
    [
        ("prefill", [(100,)] * 3, "column 'input_tokens': is 100 in all 3 rows of kind 'prefill'"),
        ("decode", [(100, 8), (200, 8), (300, 8)], "column 'batch_size': is 8 in all 3 rows"),
        ("decode", [(200, 2), (400, 4), (800, 8)], "'context_tokens' and 'batch_size': .* k2, c2, c3 apart"),
        ("decode", [(200, 2), (450, 4)], "2 rows of kind 'decode'; eq 3 has 3 coefficients"),
        ("compute", [(4,), (4,)], "column 'gpus': is 4 in all 2 rows"),
        ("kv", [], "holds no row of kind 'kv', which eq 1 needs"),
    ],
)
def test_samples_that_do_not_tell(kind: str, rows: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit(kind, [Sample(row, Fraction(1)) for row in rows])


def test_options_are_checked() -> None:
    with pytest.raises(InputError, match="weights: 'square' is none of relative, absolute"):
        fit("kv", [], weights="square")
    with pytest.raises(InputError, match="cover: 'below' is none of mean, above"):
        fit("kv", [], cover="below")


def test_the_models_are_those_of_the_paper() -> None:
    rows = {
        "kv": ((10,), (10, 1)),
        "prefill": ((10,), (10, 1)),
        "decode": ((300, 3), (300, 3, 1)),
        "compute": ((4,), (Fraction(1, 4), 1)),
        "comm": ((4,), (Fraction(3, 4),)),
    }
    assert rows.keys() == MODELS.keys()
    for kind, (values, features) in rows.items():
        assert MODELS[kind].features(values) == features


# --- files --------------------------------------------------------------------------------------


def test_a_file_of_all_kinds(tmp_path: Path) -> None:
    text = HEADER + (
        "kv,100,0.06,,,,,\nkv, 200 ,0.11,,,,,\n\n"
        "prefill,,,100,,,2,0.01\nprefill,,,200,,,2,0.015\n"
        "decode,,,,100,1,2,99\ndecode,,,,200,2,2,0.0126\ndecode,,,,900,2,2,0.0196\ndecode,,,,600,4,2,0.0172\n"
        "compute,,,,,,1,0.02\ncompute,,,,,,2,0.011\ncomm,,,,,,2,0.001\ncomm,,,,,,4,1.5e-3\n"
    )
    path = tmp_path / "samples.csv.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + text.encode()))
    samples = read_samples(path)
    assert samples.gpus("prefill", "decode") == (2,)
    assert samples.gpus("compute", "comm") == (1, 2, 4)
    found = calibrate(samples)
    coefficients = {kind: made.coefficients for kind, made in found.fits.items()}
    assert coefficients == {
        "kv": (Fraction("0.0005"), Fraction("0.01")),
        "prefill": (Fraction("0.00005"), Fraction("0.005")),
        "decode": (Fraction("0.00001"), Fraction("0.0003"), Fraction("0.01")),
        "compute": (Fraction("0.018"), Fraction("0.002")),
        "comm": (Fraction("0.002"),),
    }
    assert (found.fits["decode"].samples, found.fits["decode"].left_out) == (3, 1)
    worker = found.worker(Fraction(7))
    assert (worker.kv_capacity, worker.gpus, worker.decode_request) == (7, 2, Fraction("0.0003"))
    with pytest.raises(InputError, match=r"samples\.csv\.gz: kind: holds no row of kind 'decode'"):
        fit_measured(samples, "decode", gpus=8)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        (HEADER, "holds no sample"),
        ("tokens,kv\n1,1\n", "line 1, column 'kind': is missing"),
        ("kind,kv,kv\nkv,1,1\n", "line 1, column 'kv': is there twice"),
        ("kind,tokens\nkv,1\n", "line 1, column 'kv': is missing; row 2 of kind 'kv' needs it"),
        (HEADER + "abc,,,,,,,\n", "line 2, column 'kind': 'abc' is none of kv, prefill, decode, compute"),
        (HEADER + "kv,1\n", "line 2: has 2 columns; the header has 8"),
        (HEADER + "kv,x,1,,,,,\n", "line 2, column 'tokens': 'x' is not a decimal number"),
        (HEADER + "kv,,1,,,,,\n", "line 2, column 'tokens': '' is not a decimal number"),
        (HEADER + "kv,1_0,1,,,,,\n", "line 2, column 'tokens': '1_0' is not a decimal number"),
        (HEADER + "kv,1.5,1,,,,,\n", "column 'tokens': '1.5' is not a whole number from 1 to 1000000000"),
        (HEADER + "kv,0,1,,,,,\n", "column 'tokens': '0' is not a whole number from 1"),
        (HEADER + "kv,1,nan,,,,,\n", "line 2, column 'kv': 'nan' is not finite"),
        (HEADER + "kv,1,0,,,,,\n", r"line 2, column 'kv': '0' is not between 1e-09 and 1e\+15"),
        (HEADER + "prefill,,,1,,,,-1\n", r"column 'seconds': '-1' is not between 1e-09 and 1e\+06"),
        (HEADER + "prefill,,,1,,,0,1\n", "column 'gpus': '0' is not a whole number from 1 to 10000"),
        (HEADER + "comm,,,,,,1,1\n", "column 'gpus': is 1, which needs no communication; the least is 2"),
        (HEADER + "decode,,,,3,4,,1\n", "column 'context_tokens': 3 is below the batch size of 4"),
        (HEADER + 'kv,"1,1,,,,,\n', "is not CSV"),
    ],
)  # fmt: skip
def test_wrong_files_are_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "samples.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        read_samples(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
