"""Pages: well-formed, closed to the network, with all text escaped."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from infermax_opt.files.charts import band_chart, line_chart, range_chart
from infermax_opt.files.page import CSS, figure, link, page, paragraph, section, table

EVIL = '<script src="https://x.example/a.js">&\u202e"\''


def shapes(svg: str) -> dict[str, int]:
    tree = ElementTree.fromstring(svg)
    names = [child.tag for child in tree.iter()]
    return {name: names.count(name) for name in set(names)}


def test_text_is_escaped_everywhere() -> None:
    chart = range_chart(EVIL, [(EVIL, 1, 2)], EVIL)
    whole = page(EVIL, paragraph(EVIL), section(EVIL, figure(EVIL, chart, table(EVIL, [EVIL], [[EVIL]]))))
    assert "<script" not in whole
    assert "\u202e" not in whole
    assert whole.count("&lt;script") >= 9
    assert "&lt;script" not in CSS
    ElementTree.fromstring(chart)


def test_a_link_is_never_an_address() -> None:
    assert link("javascript:alert(1)", "x").startswith('<a href="./javascript%3A')
    assert link('a"b c.json', "x") == '<a href="./a%22b%20c.json">x</a>'
    assert link("../proofs/a.json", "x") == '<a href="./../proofs/a.json">x</a>'


def test_charts_hold_every_point() -> None:
    band = shapes(band_chart("b", [(0.5, 1), (1, 1), (2, 3)], [(0.5, 1), (1, 2)], "rate", "machines"))
    assert (band["circle"], band["rect"], band["polygon"]) == (3 + 1, 2 + 1, 1)  # one more in the legend
    ranges = shapes(range_chart("r", [("a", 1, 2), ("b", None, 3), ("c", 1, None), ("d", None, None)], "x"))
    assert (ranges["circle"], ranges["rect"]) == (2 + 1, 2 + 1)
    assert shapes(line_chart("l", [(1, 0.5), (2, 0.995)], 0.99, "machines", "share"))["circle"] == 2


def test_names_that_are_too_long_for_a_line() -> None:
    short = range_chart("r", [("a", 1, 2)], "x")
    assert ">a: 1 to 2<" in short
    long = range_chart("r", [("a", 1, 2), ("b" * 44, 1, 2.123), ("c" * 99, None, 3)], "x")
    assert ">a<" in long
    assert long.count(">1 to 2") == 2
    assert "c" * 47 + "\u2026" in long
    assert "c" * 48 not in long
    height, taller = (float(re.search(r'viewBox="0 0 360 (\d+)', some)[1]) for some in (short, long))  # type: ignore[index]
    assert taller - height == 3 * 56 - 40
    assert all(float(y) < taller for y in re.findall(r' y="([^"]*)"', long))


@pytest.mark.parametrize("value", [0, 1e-9, 1, 7, 99, 1e9])
def test_charts_keep_within_their_frame(value: float) -> None:
    drawn = band_chart("b", [(1, value)], [(1, value)], "x", "y") + range_chart(
        "r", [("a", value, value)], "x"
    )
    for name in ("x", "y", "cx", "cy"):
        assert all(-1 <= float(found) <= 360 for found in re.findall(rf' {name}="([^"]*)"', drawn))
    assert "nan" not in drawn
    assert drawn.count("<text") < 40


def _luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * d for d in colour[1:])
    parts = [int(digits[k : k + 2], 16) / 255 for k in (0, 2, 4)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_contrast_of_text_and_marks_in_light_dark_and_print() -> None:
    modes = re.findall(r":root \{([^}]*)\}", CSS)
    assert len(modes) == 3
    for mode in modes:
        known = dict(re.findall(r"--(\w+): (#\w+)", mode))
        on_ground = [(name, "ground") for name in ("text", "soft", "link", "lower", "upper")]
        for name, ground in [*on_ground, ("text", "head")]:
            pale, deep = sorted((_luminance(known[name]), _luminance(known[ground])))
            assert (deep + 0.05) / (pale + 0.05) >= 4.5, (name, ground, known[name])
