"""Pictures take and return axes, say what they show, and stay readable with many requests."""

from __future__ import annotations

import re
import sys
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

import infermax_opt
from infermax_opt import InputError
from tests.support import ROOT

SVG = "{http://www.w3.org/2000/svg}"


def read(name: str) -> Any:
    return infermax_opt.read_instance(ROOT / "instances" / f"{name}.json")


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """What a test leaves open in pyplot, which shows figures until they are closed, ends with it."""
    yield
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close("all")


@pytest.fixture(scope="module")
def toy() -> Any:
    return read("toy")


@pytest.fixture(scope="module")
def result(toy: Any) -> Any:
    return infermax_opt.solve(toy, time_limit=10)


@pytest.fixture(scope="module")
def makespan() -> tuple[Any, Any]:
    instance = read("makespan-100x20")
    return instance, infermax_opt.solve(instance, time_limit=0.2)


@pytest.fixture(scope="module")
def group(toy: Any) -> Any:
    return infermax_opt.compare_schedulers(toy, ["vllm", "sarathi"], time_limit=1)


@pytest.fixture(scope="module")
def pictures(toy: Any, result: Any, makespan: Any, group: Any) -> dict[str, Callable[..., Any]]:
    """Every function, with its subject: to be called with axes or without."""
    front = infermax_opt.trace_front(toy, "mean_ttft", "mean_tpot", time_limit=1, directions=3)
    series = infermax_opt.worker_series(read("stream-poisson-8"), time_limit=1)
    return {
        "schedule": lambda ax=None: infermax_opt.plot_schedule(toy, result, ax),
        "gantt": lambda ax=None: infermax_opt.plot_schedule(*makespan, ax),
        "requests": lambda ax=None: infermax_opt.plot_requests(toy, result, ax),
        "client requests": lambda ax=None: infermax_opt.plot_requests(*makespan, ax),
        "latencies": lambda ax=None: infermax_opt.plot_latencies(toy, {"best": result}, ax=ax),
        "convergence": lambda ax=None: infermax_opt.plot_convergence(result, ax),
        "gap": lambda ax=None: infermax_opt.plot_gap(group, "makespan", ax),
        "comparison": lambda ax=None: infermax_opt.plot_comparison(group, ax),
        "front": lambda ax=None: infermax_opt.plot_front(front, ax),
        "workers": lambda ax=None: infermax_opt.plot_workers(series, ax),
    }


NAMES = (
    "schedule", "gantt", "requests", "client requests", "latencies", "convergence", "gap", "comparison",
    "front", "workers",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_drawn_into_axes_and_into_a_figure(
    name: str, pictures: dict[str, Callable[..., Any]], tmp_path: Path
) -> None:
    alone = pictures[name]()
    assert isinstance(alone, Axes)
    figure = Figure(figsize=(12, 5), layout="constrained")
    mine, other = figure.subplots(1, 2)
    assert pictures[name](mine) is mine
    assert not other.lines
    assert not other.collections
    infermax_opt.save_plot(mine, tmp_path / "two.png")
    words = infermax_opt.alt_text(alone)
    assert len(words) > 60
    assert "\n" not in words
    assert words in infermax_opt.alt_text(mine)
    infermax_opt.save_plot(alone, tmp_path / "one.svg")
    root = ET.parse(tmp_path / "one.svg").getroot()
    assert root.get("role") == "img"
    (told,) = root.findall(f"{SVG}desc")
    (title,) = root.findall(f"{SVG}title")
    assert told.text == words
    assert title.text
    assert words.startswith(title.text)


@pytest.mark.parametrize("name", ["placement-toy", "iteration-toy"])
def test_other_problems_draw_into_axes_too(name: str) -> None:
    instance = read(name)
    found = infermax_opt.solve(instance, time_limit=2)
    figure = Figure(figsize=(12, 5))
    mine, _ = figure.subplots(1, 2)
    assert infermax_opt.plot_schedule(instance, found, mine) is mine
    assert "lower bound" in mine.get_title()


def test_a_reservation_is_drawn_into_axes_too() -> None:
    instance = read("pipelining-small")
    mine = Figure().subplots()
    schedule = infermax_opt.schedule(instance, infermax_opt.schedulers("pipelining")[0])
    assert infermax_opt.plot_schedule(instance, schedule, mine) is mine


def test_a_png_holds_its_words(toy: Any, result: Any, tmp_path: Path) -> None:
    ax = infermax_opt.plot_schedule(toy, result)
    infermax_opt.save_plot(ax, tmp_path / "toy.png")
    assert infermax_opt.alt_text(ax).encode("latin-1") in (tmp_path / "toy.png").read_bytes()


def test_scheduler_and_bound_are_named(toy: Any, result: Any, makespan: Any) -> None:
    for instance, found in ((toy, result), makespan):
        title = infermax_opt.plot_schedule(instance, found).figure.get_suptitle()
        assert f"found by {found.upper.source}" in title
        assert f"({found.lower.source}, {found.lower.proof.value})" in title
        assert "gap" in title
    alone = infermax_opt.plot_schedule(toy, infermax_opt.schedule(toy, "vllm"), label="vllm")
    assert alone.figure.get_suptitle().endswith(", by vllm")
    assert "by vllm" in infermax_opt.alt_text(alone)


def many(count: int) -> tuple[Any, Any]:
    """So many requests that arrive over time, too fast for their KV cache."""
    toy = read("toy")
    groups = tuple(
        infermax_opt.RequestGroup(f"r{k}", 16 + k % 90, 8 + k % 40, arrival=k * 12, count=count // 32)
        for k in range(32)
    )
    system = replace(toy.system, kv_capacity=4000, max_batch_tokens=512, max_prefill_tokens=512)
    instance = replace(toy, name=f"many-{count}", groups=groups, system=system)
    return instance, infermax_opt.schedule(instance, "vllm")


def test_titles_stay_off_legends_and_numbers_with_their_units(result: Any, toy: Any) -> None:
    ax = Figure(figsize=(4, 4)).subplots()
    infermax_opt.plot_schedule(toy, result, ax, label="somebody with a long name, " * 4)
    ax.figure.canvas.draw()
    legend = ax.child_axes[0].get_legend().get_window_extent()
    assert ax.title.get_window_extent().y0 >= legend.y1 - 1
    assert not re.search(r"^(%|s\b)", ax.get_title(), re.MULTILINE)
    assert "\u00a0" not in ax.get_title()


@pytest.mark.parametrize("count", [1024, 19_360])
def test_many_requests_are_summed_up(count: int, tmp_path: Path) -> None:
    instance, schedule = many(count)
    ax = infermax_opt.plot_schedule(instance, schedule, label="vllm")
    assert [len(one.patches) < 10 for one in ax.figure.axes] == [True] * 4
    infermax_opt.save_plot(ax, tmp_path / "many.svg")
    assert (tmp_path / "many.svg").stat().st_size < 2**20
    assert "waiting after an eviction" in infermax_opt.alt_text(ax)
    running, waiting = (one.get_ylim()[1] for one in ax.figure.axes[:2])
    assert running != waiting, "each has a scale of its own"
    if count > 2000:
        return
    lines = infermax_opt.plot_requests(instance, schedule)
    infermax_opt.save_plot(lines, tmp_path / "lines.svg")
    assert (tmp_path / "lines.svg").stat().st_size < 2**20, "lines of many requests are pixels"


def test_requests_of_the_gantt_are_apart(makespan: Any) -> None:
    """Bars of requests that follow each other on a client have different shades."""
    from infermax_opt.makespan.plot import SHADES

    ax = infermax_opt.plot_schedule(*makespan)
    seen: dict[int, list[tuple[float, Any]]] = {}
    from matplotlib.colors import to_hex

    for bar in ax.patches:
        colour = to_hex(bar.get_facecolor()).upper()
        if colour in SHADES:
            client = round(bar.get_y() + bar.get_height() / 2)
            seen.setdefault(client, []).append((bar.get_x(), colour))
    rows = makespan[1].requests_frame()
    for client, bars in seen.items():
        bars.sort()
        changes = sum(a[1] != b[1] for a, b in pairwise(bars))
        assert changes == (rows["client"] == client).sum() - 1


def test_convergence_shows_both_sides(result: Any) -> None:
    ax = infermax_opt.plot_convergence(result)
    labels = {line.get_label() for line in ax.lines}
    assert {"best schedule", "lower bound"} <= labels
    assert ax.get_ylabel() == "makespan (s)"
    assert infermax_opt.plot_convergence(list(result.events)) is not None
    with pytest.raises(InputError, match="events: there are none"):
        infermax_opt.plot_convergence(replace(result, events=()))


def test_what_cannot_be_drawn_is_one_line(toy: Any, result: Any, group: Any, tmp_path: Path) -> None:
    wrong = infermax_opt.Schedule(toy.name, (infermax_opt.Batch({"a": 4}),))
    with pytest.raises(InputError, match="schedule: is not drawn, it is wrong"):
        infermax_opt.plot_schedule(toy, wrong)
    with pytest.raises(InputError, match="schedule: there is none to draw"):
        infermax_opt.plot_schedule(toy, replace(result, schedule=None, upper=None, metrics=None))
    with pytest.raises(InputError, match="latency: 'x' is none of ttft, tpot, e2e"):
        infermax_opt.plot_latencies(toy, result, "x")
    with pytest.raises(InputError, match="metric: 'x' is none of"):
        infermax_opt.plot_gap(group, "x")
    placement = read("placement-toy")
    with pytest.raises(InputError, match="placement instances have no"):
        infermax_opt.plot_requests(placement, infermax_opt.schedule(placement, "best-fit"))
    with pytest.raises(InputError, match="ends in"):
        infermax_opt.save_plot(infermax_opt.plot_schedule(toy, result), tmp_path / "a.pdf")


def test_a_picture_is_one_of_pyplot_where_that_is_loaded(toy: Any, result: Any) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    before = pyplot.get_fignums()
    ax = infermax_opt.plot_schedule(toy, result)
    assert len(pyplot.get_fignums()) == len(before) + 1
    pyplot.close(ax.figure)


def test_pyplot_forgets_pictures_that_are_written(
    monkeypatch: pytest.MonkeyPatch, toy: Any, result: Any, tmp_path: Path
) -> None:
    """Where it cannot show them; axes of the caller's figure stay in it."""
    import matplotlib as mpl

    mpl.use("agg")
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    from matplotlib import pyplot

    before = pyplot.get_fignums()
    for name in ("a.png", "b.svg"):
        infermax_opt.save_plot(infermax_opt.plot_schedule(toy, result), tmp_path / name)
    assert pyplot.get_fignums() == before
    figure, ax = pyplot.subplots()
    infermax_opt.save_plot(infermax_opt.plot_schedule(toy, result, ax), tmp_path / "c.png")
    assert pyplot.get_fignums() == [*before, figure.number]


def test_pyplot_keeps_written_pictures_that_it_can_show(
    monkeypatch: pytest.MonkeyPatch, toy: Any, result: Any, tmp_path: Path
) -> None:
    """In a notebook, at the end of its cell; in a window, on `show`."""
    import matplotlib as mpl

    mpl.use("agg")
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    from matplotlib import pyplot
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    def kept() -> bool:
        before = pyplot.get_fignums()
        ax = infermax_opt.plot_schedule(toy, result)
        infermax_opt.save_plot(ax, tmp_path / "a.png")
        return pyplot.get_fignums() == [*before, ax.figure.number]

    with monkeypatch.context() as windows:
        windows.setattr(FigureCanvasAgg, "required_interactive_framework", "tk")
        assert kept()
    assert not kept()
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    assert kept()


#: What a formula, a tag, a hidden label and a character without a letterform look like.
HOSTILE = '_q$x_1$ <b>&"ä\\frac\n日'


def written(figure: Any) -> list[Any]:
    return [text for text in figure.findobj(Text) if "q$x" in text.get_text()]


def test_names_are_written_as_they_are(toy: Any, tmp_path: Path) -> None:
    groups = (infermax_opt.RequestGroup(HOSTILE, 5, 3, count=2),)
    instance = replace(toy, name=HOSTILE, groups=groups)
    run = infermax_opt.schedule(instance, "vllm")
    group = infermax_opt.gap(instance, run, labels=[HOSTILE], metrics=["makespan"], time_limit=1)
    drawn = {
        "schedule": infermax_opt.plot_schedule(instance, run),
        "requests": infermax_opt.plot_requests(instance, run),
        "latencies": infermax_opt.plot_latencies(instance, {HOSTILE: run}),
        "gap": infermax_opt.plot_gap(group),
        "gaps": infermax_opt.plot_gaps(group),
        "comparison": infermax_opt.plot_comparison(group),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, axes in drawn.items():
            infermax_opt.save_plot(axes, tmp_path / f"{name}.png")
            infermax_opt.save_plot(axes, tmp_path / f"{name}.svg")
            texts = written(axes.figure)
            assert len(texts) >= 2, f"{name}: only the title has a name"
            assert not any(text.get_parse_math() for text in texts), name
            ET.parse(tmp_path / f"{name}.svg")
