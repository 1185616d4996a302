"""Numbers as text: which way they are rounded."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from types import SimpleNamespace

import pytest

from infermax_opt.checking.envelope import seconds as checked
from infermax_opt.core.columns import gap_text
from infermax_opt.core.exact import (
    Rounding,
    decimal_text,
    figures_text,
    fixed_text,
    lower_rounding,
    percent_text,
    to_fraction,
)
from infermax_opt.files.report import percent
from infermax_opt.infermax import columns as infermax
from infermax_opt.iteration import columns as iteration
from infermax_opt.pipelining import columns as pipelining

ALMOST = Fraction(9996, 10_000)


@pytest.mark.parametrize(
    ("rounding", "share", "expected"),
    [
        ("nearest", ALMOST, "100"),
        ("floor", ALMOST, "99.9"),
        ("floor", Fraction(10**9 - 1, 10**9), "99.9"),
        ("floor", Fraction(1), "100"),
        ("ceiling", Fraction(2, 300), "0.667"),
        ("ceiling", Fraction(1, 300), "0.334"),
        ("ceiling", Fraction(1, 3 * 10**9), "3.34e-08"),
        ("ceiling", Fraction(0), "0"),
        ("ceiling", ALMOST, "100"),
    ],
)
def test_shares_are_rounded_as_asked(rounding: Rounding, share: Fraction, expected: str) -> None:
    assert percent_text(share, rounding=rounding) == expected
    assert percent(share, rounding) == f"{expected} %"


def test_a_gap_is_never_shown_smaller_than_it_is() -> None:
    for numerator in range(1, 200):
        gap = Fraction(numerator, 7919)
        assert 0 <= Fraction(gap_text(gap)) / 100 - gap < gap / 1000
    assert gap_text(None) == "-"


def test_fixed_decimals() -> None:
    assert fixed_text(100 * ALMOST, 1, "floor") == "99.9"
    assert fixed_text(Fraction(100), 1, "floor") == "100.0"
    assert fixed_text(Fraction(1, 3), 2, "ceiling") == "0.34"


def test_what_may_be_put_in_is_written_out_exactly() -> None:
    for text in ("1" * 40 + "." + "1" * 40, "0." + "0" * 39 + "1", "9" * 40):
        assert decimal_text(to_fraction(text)) == text


def test_what_is_written_can_be_read_again() -> None:
    tiny = Fraction(1, 10**12 * 7**8)
    for value in (
        tiny,
        Fraction(1, 2**90),
        Fraction(1, 3 * 10**45),
        1 + Fraction(1, 2**90),
        10**38 + Fraction(1, 3),
    ):
        for rounding, low, high in (("floor", -1, 0), ("nearest", -1, 1), ("ceiling", 0, 1)):
            read = to_fraction(decimal_text(value, rounding=rounding))
            step = max(Fraction(1, 10**40), value / 10**29)
            assert low * step <= read - value <= high * step


def test_a_lower_bound_is_never_shown_above_what_it_is() -> None:
    rng = random.Random(18)
    for _ in range(2000):
        value = Fraction(rng.randrange(1, 10**12), rng.randrange(1, 10**12)) * Fraction(10) ** rng.randint(
            -9, 9
        )
        told = Fraction(figures_text(value, rounding=lower_rounding()))
        assert 0 <= value - told < value / 10**5
        assert told == Fraction(figures_text(value, rounding=lower_rounding(Fraction(1, 10**9))))
        assert 0 <= value - Fraction(checked(value)) <= value / 10**15
        # One that a schedule meets looks as the schedule does.
        assert figures_text(value, rounding=lower_rounding(Fraction(0))) == f"{float(value):.6g}"


def test_figures_of_floats_are_those_of_their_repr() -> None:
    assert figures_text(0.3, rounding="floor") == figures_text(0.3, rounding="ceiling") == "0.3"
    assert figures_text(0.1 + 0.2, rounding="ceiling") == "0.300001"
    assert figures_text(math.inf, rounding="floor") == "inf"
    assert figures_text(Fraction(2, 3), 4, "floor") == "0.6666"
    assert figures_text(0, rounding="floor") == "0"
    assert checked(Fraction("8.33")) == "8.33"


def test_tables_show_no_bound_better_than_it_is() -> None:
    third = Fraction(2, 3)

    def cells(gap: Fraction) -> list[str]:
        row = SimpleNamespace(gap=gap, lower_bound=third, own={"most": third, "bound_rate": third})
        told = {**infermax.ROW_KIND.columns.markdown, **pipelining.ROW_KIND.columns.markdown}
        told |= iteration.ROW_KIND.columns.markdown
        return [str(told[name](row)) for name in ("lower bound, s", "bound, / M", "bound, /s")]

    assert cells(Fraction(1, 10**9)) == ["0.666666666", "0.6667", "0.66667"]
    assert cells(Fraction(0)) == ["0.666666667", "0.6667", "0.66667"]
    low = Fraction(33334, 10**5) + Fraction(1, 10**9)
    row = SimpleNamespace(gap=Fraction(1), own={"most": low, "bound_rate": low})
    assert pipelining.ROW_KIND.columns.markdown["bound, / M"](row) == "0.3334"
    assert iteration.ROW_KIND.columns.markdown["bound, /s"](row) == "0.33335"
