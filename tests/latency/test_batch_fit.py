"""The cost model is recovered from batches that it made, and lies where it says beside those with noise."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from infermax_opt.core.errors import InputError
from infermax_opt.infermax.data.cost import Attention, BatchFeatures, CostModel
from infermax_opt.latency._least_squares import non_negative
from infermax_opt.latency.batches.fit import BatchFit, fit_batches
from infermax_opt.latency.batches.plot import plot_residuals
from infermax_opt.latency.batches.read import read_batches
from tests.campaign import campaign
from tests.latency.batch_files import COST, HEADER, kernel_tables, vidur_profile, whole_batches


def fitted(tmp_path: Path, text: str, **options: object) -> BatchFit:
    path = tmp_path / "batches.csv"
    path.write_text(text)
    return fit_batches(read_batches(path), **options)  # type: ignore[arg-type]


def seconds(cost: CostModel, sample: object) -> Fraction:
    features: BatchFeatures = sample.features(cost.attention)  # type: ignore[attr-defined]
    return cost.to_seconds(cost.batch_ticks(features))


def test_the_axis_of_the_residuals_has_numbers(tmp_path: Path) -> None:
    """Ratios that lie within a decade have more beside them than the 1."""
    axes = plot_residuals(fitted(tmp_path, whole_batches(60, noise=0.03)))
    low, high = axes.get_ylim()
    assert len([at for at in axes.get_yticks() if low <= at <= high]) >= 3
    assert len({label.get_text() for label in axes.get_yticklabels()}) >= 3


def test_coefficients_come_back(tmp_path: Path) -> None:
    line = CostModel([("0.01", "0.00005")], ("0.0004", "2e-7"), ("0.0003", "9e-9"), "square")
    made = fitted(tmp_path, whole_batches(200, line), pieces=1)
    assert made.cost == line
    assert len(made.trials) == 2  # square and exact


def test_two_lines_come_back_but_for_where_they_meet(tmp_path: Path) -> None:
    """They meet at the tokens of a sample, which are not just those of the truth."""
    made = fitted(tmp_path, whole_batches(400), pieces=2)
    assert made.cost.attention is Attention.EXACT
    found = [*made.cost.batch, made.cost.decode, made.cost.prefill]
    for pair, true in zip(found, [*COST.batch, COST.decode, COST.prefill], strict=True):
        assert [float(v) for v in pair] == pytest.approx([float(v) for v in true], rel=5e-2)
    assert max(region.errors.maximum for region in made.regions) < 5e-3


def test_one_line_and_squared_work_are_chosen_where_they_are_true(tmp_path: Path) -> None:
    cost = CostModel([("0.01", "0.00005")], ("0.0004", "2e-7"), ("0.0003", "9e-9"), "square")
    made = fitted(tmp_path, whole_batches(300, cost, noise=0.02))
    assert (len(made.cost.batch), made.cost.attention) == (1, Attention.SQUARE)
    assert {(t.attention.value, t.pieces) for t in made.trials} == set(
        itertools.product(("exact", "square"), (1, 2, 3))
    )
    assert next(f.errors.mean for f in made.regions if f.name == "all") < 0.03


def test_several_lines_are_chosen_where_they_are_true(tmp_path: Path) -> None:
    made = fitted(tmp_path, whole_batches(600, noise=0.02))
    assert len(made.cost.batch) >= 2
    assert min(map(abs, (knee - 200 for knee in made.knees))) < 40
    one = fitted(tmp_path, whole_batches(600, noise=0.02), pieces=1)
    worse, better = (next(f.errors.mean for f in m.regions if f.name == "all") for m in (one, made))
    assert better < 0.8 * worse


@pytest.mark.parametrize("seed", campaign(2, 60))
def test_no_coefficient_is_below_0_and_lines_are_convex(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    rows = []
    for _ in range(40):
        n, c = rng.randint(0, 60), rng.randint(0, 300)
        n = n or int(not c)
        chunk = f"{c}@{rng.randint(0, 900)}" if c else ""
        rows.append(f"{n + c},{n},{n * rng.randint(1, 700)},{chunk},{rng.uniform(0.001, 0.1):.6f}\n")
    for weights, cover in itertools.product(("relative", "absolute"), ("mean", "above")):
        made = fitted(tmp_path, HEADER + "".join(rows), weights=weights, cover=cover)
        assert all(v >= 0 for pair in (*made.cost.batch, made.cost.decode, made.cost.prefill) for v in pair)
        if cover == "above":
            assert all(seconds(made.cost, s) >= s.seconds for s in made.samples.batches)
            # The least such model touches samples, but for the rounding.
            assert min(seconds(made.cost, s) / s.seconds for s in made.samples.batches) < Fraction("1.001")


def test_above_is_less_than_the_mean_raised_to_the_worst_sample(tmp_path: Path) -> None:
    text = whole_batches(300, noise=0.05)
    mean, above = (fitted(tmp_path, text, cover=cover, pieces=2) for cover in ("mean", "above"))
    raised = max(s.seconds / seconds(mean.cost, s) for s in mean.samples.batches)
    sums = [sum(seconds(m.cost, s) / s.seconds for s in m.samples.batches) for m in (mean, above)]
    assert sums[0] < sums[1] < sums[0] * raised


def test_above_covers_every_kernel(tmp_path: Path) -> None:
    samples = read_batches(kernel_tables(tmp_path / "kernels", mixed=1.5), layers=4)
    made = fit_batches(samples, cover="above")
    for part, s in samples.rows():
        dense = made.cost.to_seconds(made.cost.batch_ticks(BatchFeatures(s.tokens, 0, 0, 0, 0)))
        guess = seconds(made.cost, s) - (dense if part == "attention" else 0)
        assert guess >= s.seconds


@pytest.mark.parametrize("share", ["0.5", "0.9", "1"])
def test_the_band_holds_its_share(tmp_path: Path, share: str) -> None:
    made = fitted(tmp_path, whole_batches(301, noise=0.05), share=Fraction(share), pieces=2)
    band = made.band
    ratios = [s.seconds / seconds(made.cost, s) for s in made.samples.batches]
    assert 0 < band.lo <= band.hi
    assert sum(band.lo <= ratio <= band.hi for ratio in ratios) >= band.share * len(ratios)
    # And not much more: the factors are those of samples, rounded outwards in the fourth digit.
    inside = sum(band.lo * Fraction("1.001") <= r <= band.hi * Fraction("0.999") for r in ratios)
    assert inside <= band.share * len(ratios)


def test_errors_by_region(tmp_path: Path) -> None:
    made = fitted(tmp_path, whole_batches(300, noise=0.05), pieces=2)
    found = {region.name: region.errors for region in made.regions}
    assert list(found) == ["all", "small", "large", "pure decode", "pure prefill", "mixed"]
    assert (
        found["all"].samples == 300 == sum(found[k].samples for k in ("pure decode", "pure prefill", "mixed"))
    )
    shares = sorted(abs(float(seconds(made.cost, s) / s.seconds) - 1) for s in made.samples.batches)
    assert found["all"].mean == pytest.approx(sum(shares) / 300, rel=1e-9)
    assert found["all"].median == pytest.approx((shares[149] + shares[150]) / 2, rel=1e-9)
    assert (found["all"].p95, found["all"].maximum) == pytest.approx((shares[284], shares[299]), rel=1e-9)


def test_kernels_are_fitted_apart(tmp_path: Path) -> None:
    """Attention of batches of both kinds does not pull at the coefficients of one kind."""
    plain, slow = (
        fit_batches(read_batches(kernel_tables(tmp_path / str(times), mixed=times), layers=10), pieces=1)
        for times in (1.0, 2.0)
    )
    assert plain.cost.decode == slow.cost.decode == (Fraction("0.00004"), Fraction("1e-7"))
    assert plain.cost.prefill == slow.cost.prefill == (Fraction("0.00006"), Fraction("1e-9"))
    errors = [{f.name: f.errors.mean for f in made.regions} for made in (plain, slow)]
    assert errors[0]["attention, mixed"] < 1e-5
    assert errors[1]["attention, mixed"] == pytest.approx(0.5, abs=1e-4)
    assert errors[1]["dense"] == errors[0]["dense"]
    assert errors[1]["mixed"] > errors[0]["mixed"]


def test_what_mixed_batches_take_longer_comes_back(tmp_path: Path) -> None:
    cost = CostModel([("0.01", "0.00005")], ("0", "2e-7"), ("0", "9e-9"), "square", mixed=("0", "3e-7"))
    text = whole_batches(200, cost)
    made = fitted(tmp_path, text, pieces=1, mixed=True)
    assert made.cost == cost
    assert made.notes == ()
    plain = fitted(tmp_path, text, pieces=1)
    assert plain.cost.mixed == (0, 0)
    assert "--mixed fits a term for them" in plain.notes[-1]
    vain = fitted(tmp_path, whole_batches(200, replace(cost, mixed=(0, 0))), pieces=1, mixed=True)
    assert vain.notes == ("no batch of both kinds takes longer than the other terms say: e0 and e1 are 0",)


def test_what_chunks_take_longer_behind_others_comes_back(tmp_path: Path) -> None:
    cost = CostModel([("0.01", "0.00005")], ("0", "2e-7"), ("0", "9e-9"), "square", prefix="3e-6")
    text = whole_batches(200, cost)
    made = fitted(tmp_path, text, pieces=1, prefix=True)
    assert made.cost.prefix == pytest.approx(3e-6, rel=1e-3)
    assert max(r.errors.maximum for r in made.regions) < 1e-3
    plain = fitted(tmp_path, text, pieces=1)
    assert plain.cost.prefix == 0
    assert any("pure prefill batches are" in note and "--prefix fits" in note for note in plain.notes)
    vain = fitted(tmp_path, whole_batches(200, replace(cost, prefix=0)), pieces=1, prefix=True)
    assert vain.notes[-1] == "no chunk takes longer for what it comes behind: prefix is 0"


def test_composed_batches_are_nearer_than_kernels_apart(tmp_path: Path) -> None:
    """A term of attention alone weighs by its batch, not by itself."""
    samples = read_batches(kernel_tables(tmp_path / "kernels", mixed=1.5, behind=0.02), layers=10)
    apart, made = (fit_batches(samples, mixed=True, prefix=True, composed=c) for c in (False, True))
    for kind in ("pure decode", "pure prefill"):
        errors = [next(r.errors.mean for r in fit.regions if r.name == kind) for fit in (apart, made)]
        assert errors[1] <= errors[0] + 1e-4
        assert errors[1] < 0.02
    # The head's time a sequence is in no term, and moves the others.
    assert made.cost.prefix == pytest.approx(10 * 0.02e-6, rel=0.15)
    # What both kinds take longer is fitted to what the other terms leave, and changes none of them.
    without = fit_batches(samples, prefix=True, composed=True)
    assert replace(made.cost, mixed=(0, 0)) == without.cost
    above = fit_batches(samples, mixed=True, prefix=True, composed=True, cover="above")
    assert above.band.hi <= 1


def test_nothing_to_compose(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="composed: holds whole batches already: nothing can be composed"):
        fitted(tmp_path, whole_batches(30), composed=True)
    with pytest.raises(InputError, match="composed: holds no attention, without which there is no batch"):
        fit_batches(read_batches(vidur_profile(tmp_path / "mlp.csv"), layers=3), composed=True)


def test_above_covers_mixed_batches_with_their_term(tmp_path: Path) -> None:
    samples = read_batches(kernel_tables(tmp_path / "kernels", mixed=1.5), layers=4)
    made = fit_batches(samples, cover="above", mixed=True)
    assert any(made.cost.mixed)
    for part, s in samples.rows():
        dense = made.cost.to_seconds(made.cost.batch_ticks(BatchFeatures(s.tokens, 0, 0, 0, 0)))
        assert seconds(made.cost, s) - (dense if part == "attention" else 0) >= s.seconds


def test_the_term_of_kernels_changes_no_other(tmp_path: Path) -> None:
    samples = read_batches(kernel_tables(tmp_path / "kernels", mixed=2.0), layers=10)
    plain, made = (fit_batches(samples, pieces=1, mixed=mixed) for mixed in (False, True))
    assert replace(made.cost, mixed=(0, 0)) == plain.cost
    errors = [{f.name: f.errors.mean for f in some.regions} for some in (plain, made)]
    assert errors[1]["mixed"] < 0.5 * errors[0]["mixed"]
    assert errors[1]["pure decode"] == errors[0]["pure decode"]


def test_vidur_has_no_attention(tmp_path: Path) -> None:
    made = fit_batches(read_batches(vidur_profile(tmp_path / "mlp.csv"), layers=3))
    assert made.cost.batch == ((Fraction("0.029"), Fraction("0.00027")),)
    assert made.cost.decode == made.cost.prefill == (0, 0)
    assert [f.name for f in made.regions] == ["dense"]
    assert any("count as 0" in note for note in made.notes)


def test_overheads_that_no_sample_tells_apart_are_that_of_the_batch(tmp_path: Path) -> None:
    made = fitted(tmp_path, whole_batches(200, kinds=("decode",)), pieces=2)
    assert made.cost.decode[0] == 0
    assert float(Fraction(made.cost.batch[0][0])) == pytest.approx(0.0164, rel=1e-3)
    assert made.cost.prefill == (0, 0)
    assert made.notes == (
        "the samples do not tell d0 from the other overheads of a batch: it is in them",
        "no sample has prefill attention: p0 and p1 are 0",
    )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["3,3,600,,0.1"], "the 1 samples do not determine beta: the number of tokens must vary"),
        (["3,3,600,,0.1", "3,3,900,,0.2", "3,3,700,,0.1"], "the 3 samples do not determine beta"),
        (["3,3,600,,0.1", "4,4,800,,0.2"], r"the 2 samples do not determine d1: what decoding requests read"),
        (["3,3,30,,0.1", "5,5,50,,0.2", "9,9,90,,0.2"], r"the 3 samples do not determine d1"),
        (["3,0,,3@0,0.1", "5,0,,5@0,0.2"], "the 2 samples do not determine p1: the work of prefill chunks"),
    ],
)
def test_fits_that_are_impossible(tmp_path: Path, rows: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        fitted(tmp_path, HEADER + "\n".join(rows) + "\n")
    assert str(caught.value).startswith(str(tmp_path))


def test_batches_that_take_no_time_are_no_fit(tmp_path: Path) -> None:
    rows = "21,7,315,14@0,0.00002279\n12,0,0,12@12,0.00032396\n3,3,9,,0.00437054\n27,7,252,20@8,0.00036271\n"
    with pytest.raises(InputError, match="in the best fit a pure decode batch of 3 tokens takes no time"):
        fitted(tmp_path, HEADER + rows)


def test_options_are_checked(tmp_path: Path) -> None:
    text = whole_batches(30)
    for options, message in (
        ({"pieces": 4}, "pieces: 4 is not between 1 and 3"),
        ({"share": Fraction(0)}, "share: 0 is not above 0"),
        ({"weights": "log"}, "weights: 'log' is none of"),
        ({"cover": "below"}, "cover: 'below' is none of"),
    ):
        with pytest.raises(InputError, match=message):
            fitted(tmp_path, text, **options)  # type: ignore[arg-type]
    few = HEADER + "1,1,5,,0.1\n1,1,9,,0.1\n2,2,8,,0.2\n2,2,30,,0.3\n"
    with pytest.raises(InputError, match="pieces: 2 lines need as many numbers of tokens"):
        fitted(tmp_path, few, pieces=2)
    assert len(fitted(tmp_path, few).cost.batch) == 1


def test_a_fit_does_not_depend_on_the_run(tmp_path: Path) -> None:
    text = whole_batches(100, noise=0.03)
    first, second = (fitted(tmp_path, text) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("seed", range(200))
def test_least_squares_without_negative_coefficients(seed: int) -> None:
    """Against every set of columns."""
    rng = np.random.default_rng(seed)
    rows, columns = int(rng.integers(3, 12)), int(rng.integers(1, 6))
    matrix = rng.random((rows, columns)) * 10 ** rng.uniform(-6, 6, columns)
    measured = rng.random(rows) - (0.3 if seed % 3 == 0 else 0)
    if seed % 5 == 0:
        measured = matrix @ np.where(rng.random(columns) < 0.5, 0, rng.random(columns))
    found, free = non_negative(matrix, measured)
    assert (found >= 0).all()
    assert all(found[k] > 0 for k in free)
    best = float((measured**2).sum())
    for size in range(1, columns + 1):
        for chosen in itertools.combinations(range(columns), size):
            solved = np.linalg.lstsq(matrix[:, chosen], measured, rcond=None)[0]
            if (solved >= 0).all():
                best = min(best, float(((measured - matrix[:, chosen] @ solved) ** 2).sum()))
    assert float(((measured - matrix @ found) ** 2).sum()) <= best + 1e-12 * float((measured**2).sum())
