"""Schedules are drawn; a failure leaves nothing behind."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from infermax_opt.core.errors import InputError
from infermax_opt.files.figure import Phase, save_picture
from infermax_opt.infermax import plot
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, RequestGroup, System
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.replay.plain import replay_plain
from infermax_opt.infermax.replay.timeline import timeline

COST = CostModel([("0.007", "0.000075")], ("0.0003", "2.6e-7"), ("0.0003", "1.5e-9"))
TOY = Instance("toy $x_", (RequestGroup("a", 4, 4), RequestGroup("b\n", 4, 4)), System(9, 16, 16), COST)
EVICTING = Schedule(
    TOY.name,
    (
        Batch({"a": 4, "b\n": 4}),
        Batch(evict=("b\n",), decode_all=True, repeat=3),
        Batch({"b\n": 3}),
        Batch({"b\n": 2}),
        Batch(decode_all=True, repeat=2),
    ),
)


def many(count: int, rounds: int, arrival: Fraction = Fraction(0)) -> tuple[Instance, Schedule]:
    """Requests one after the other, `count` in each round."""
    groups = tuple(RequestGroup(f"g{k}", 3, 5, arrival * k, count=count) for k in range(rounds))
    instance = Instance("many", groups, System(10 * count, 8 * count, 8 * count), COST)
    batches: list[Batch] = []
    for k, group in enumerate(groups):
        start = arrival * k if arrival else None
        batches.append(Batch({r.id: 3 for r in group.expand()}, start=start))
        batches.append(Batch(decode_all=True, repeat=4))
    return instance, Schedule("many", tuple(batches))


def test_phases_of_an_eviction() -> None:
    lines = timeline(TOY, EVICTING, rows=True)
    assert lines.rows is not None
    second = [row.get(1) for row in lines.rows]
    assert second == [
        (Phase.PREFILL, 4),
        *[(Phase.EVICTED, 0)] * 3,
        (Phase.REFILL, 3),
        (Phase.REFILL, 2),
        *[(Phase.DECODE, 1)] * 2,
    ]
    assert [row.get(0) for row in lines.rows[3:5]] == [(Phase.DECODE, 1), None]


@pytest.mark.parametrize("arrival", [Fraction(0), Fraction(1, 10), Fraction(1, 100)])
def test_counts_agree_with_replay_and_rows(arrival: Fraction) -> None:
    instance, schedule = many(4, 6, arrival)
    lines = timeline(instance, schedule, rows=True)
    replayed = replay_plain(instance, schedule)
    assert replayed.valid
    assert lines.rows is not None
    assert lines.counts[Phase.DECODE] == [f.decodes for f in replayed.features]
    for j, row in enumerate(lines.rows):
        tally = {phase: sum(p is phase for p, _ in row.values()) for phase in Phase}
        assert tally == {phase: lines.counts[phase][j] for phase in Phase}


def test_wrong_schedules_have_no_timeline() -> None:
    with pytest.raises(ValueError, match="breaks a rule"):
        timeline(TOY, Schedule(TOY.name, (Batch({"a": 4}),)), rows=False)


@pytest.mark.parametrize("suffix", ["png", "svg"])
@pytest.mark.parametrize(
    ("instance", "schedule"),
    [(TOY, EVICTING), many(2, 20), many(20, 30, Fraction(1, 4))],
    ids=["toy", "rows", "aggregated"],
)
def test_pictures(tmp_path: Path, suffix: str, instance: Instance, schedule: Schedule) -> None:
    path = tmp_path / f"picture.{suffix}"
    save_picture(plot.plot_schedule(instance, schedule), path)
    content = path.read_bytes()
    if suffix == "png":
        assert content.startswith(b"\x89PNG")
        assert content.endswith(b"IEND\xaeB`\x82")
    else:
        ET.fromstring(content)
    assert len(content) > 10_000
    assert list(tmp_path.iterdir()) == [path]


def test_equal_schedules_give_equal_svg(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        save_picture(plot.plot_schedule(TOY, EVICTING), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_averages_keep_the_integral() -> None:
    instance, schedule = many(3, 500, Fraction("0.077"))
    lines = timeline(instance, schedule, rows=False)
    edges, (mean,), busy = plot._averaged(lines, [lines.counts[Phase.DECODE]])
    assert len(mean) == plot.BINS
    widths = edges[1:] - edges[:-1]
    total = sum(
        n * (b - a) for n, a, b in zip(lines.counts[Phase.DECODE], lines.starts, lines.ends, strict=True)
    )
    assert float((mean * widths).sum()) == pytest.approx(total)
    spent = sum(b - a for a, b in zip(lines.starts, lines.ends, strict=True))
    assert float((busy * widths).sum()) == pytest.approx(spent)


def test_failures_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    with pytest.raises(InputError, match="ends in"):
        save_picture(plot.plot_schedule(TOY, EVICTING), tmp_path / "picture.jpg")
    with pytest.raises(InputError, match="cannot be written"):
        save_picture(plot.plot_schedule(TOY, EVICTING), tmp_path / "missing" / "picture.png")
    path = tmp_path / "picture.png"
    path.write_text("before")

    def full(figure: Any, target: str, **options: Any) -> None:
        Path(target).write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", full)
    with pytest.raises(InputError, match="No space left"):
        save_picture(plot.plot_schedule(TOY, EVICTING), path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
