"""Fronts: schedules are real, half-planes hold, and what cannot be drawn is one line."""

from __future__ import annotations

import json
import signal
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from infermax_opt import api
from infermax_opt.cli.main import cli
from infermax_opt.core.errors import InputError
from infermax_opt.core.readings import Quotient
from infermax_opt.files.csv_rows import read_rows
from infermax_opt.files.instances import read_instance, write_instance
from infermax_opt.files.results import read_schedule_or_claim
from infermax_opt.gaps.fronts import trace as trace_module
from infermax_opt.gaps.fronts.axes import Axis
from infermax_opt.gaps.fronts.plot import plot_front
from infermax_opt.gaps.fronts.report import front_text
from infermax_opt.gaps.fronts.trace import Front, Point, trace_front
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Objective, Release, RequestGroup, System
from tests.campaign import campaign
from tests.infermax.oracle import optimum
from tests.infermax.tiny import tiny

TOY = "instances/toy.json"
PAIR = ("--x", "mean_tpot", "--y", "tokens_per_second")


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["front", *words])


@pytest.fixture(scope="module")
def toy() -> Front:
    return trace_front(read_instance(TOY), "mean_tpot", "tokens_per_second", time_limit=30)


def test_the_front_of_the_toy_is_proved(toy: Front) -> None:
    assert len(toy.points) == 3
    assert [toy.gap(point) for point in toy.points] == [0, 0, 0]
    assert len(toy.half_planes) == 7


def test_points_are_replayed_and_no_point_is_beaten(toy: Front) -> None:
    for point in (*toy.points, *toy.others):
        metrics = api.verify(toy.instance, point.schedule).metrics
        assert (point.x, point.y) == (metrics.mean_tpot, metrics.makespan)
        assert toy.gap(point) >= 0
    for one in toy.points:
        assert not any(other.beats(one) for other in (*toy.points, *toy.others))


@pytest.mark.parametrize("seed", campaign(3, 6))
def test_no_half_plane_is_above_the_optimum(seed: int) -> None:
    instance = tiny(seed, arrivals=seed % 2 == 0)
    front = trace_front(instance, "mean_e2e", "makespan", directions=4, time_limit=10)
    assert front.half_planes
    for plane in front.half_planes:
        weights = {"mean_e2e": plane.u, "makespan": plane.v}
        objective = Objective.of({name: weight for name, weight in weights.items() if weight})
        assert plane.bound.value <= optimum(replace(instance, objective=objective))


def test_certificates_and_schedules_of_a_front_stand_alone(tmp_path: Path) -> None:
    small = read_instance("instances/paper-csp/i64.json")
    many = replace(small, groups=(RequestGroup("r", 64, 16, count=24),))  # beyond enumeration and search
    case = str(tmp_path / "case.json")
    write_instance(replace(many, system=replace(many.system, kv_capacity=512)), case)
    parts, out = tmp_path / "parts", tmp_path / "front.json"
    pair = ("--x", "mean_e2e", "--y", "makespan")
    outcome = run(
        case, *pair, "--directions", "3", "--time-limit", "6", "--parts", str(parts), "-o", str(out)
    )
    assert outcome.exit_code == 0, outcome.output
    found = json.loads(out.read_text())
    instance = read_instance(case)
    for number, point in enumerate((p for p in found["points"] if p["on_front"]), 1):
        schedule = read_schedule_or_claim(parts / f"point-{number}.json.gz")
        metrics = api.verify(instance, schedule).metrics
        assert float(metrics.mean_e2e) == pytest.approx(point["mean_e2e"])
    assert any(plane["proof"] == "certificate" for plane in found["half_planes"])
    for number, plane in enumerate(found["half_planes"], 1):
        if plane["proof"] == "certificate":
            aimed = read_instance(parts / f"half-plane-{number}.instance.json.gz")
            certificate = parts / f"half-plane-{number}.certificate.json.gz"
            proved = api.check_certificate(aimed, certificate)
            assert float(proved) == pytest.approx(plane["lower_bound"])


def test_the_command_writes_every_form(tmp_path: Path) -> None:
    picture, table = tmp_path / "front.png", tmp_path / "front.csv"
    outcome = run(TOY, *PAIR, "--plot", str(picture), "-o", str(table))
    assert outcome.exit_code == 0, outcome.output
    assert "schedules that no known one beats in both" in outcome.output
    assert picture.stat().st_size > 10_000
    kinds = [row["kind"] for row in read_rows(table.read_text())]
    assert (kinds.count("front"), kinds.count("half-plane")) == (3, 7)
    other = run(
        TOY, "--x", "tokens_per_second", "--y", "p90_ttft", "--json", "--plot", str(tmp_path / "b.svg"),
        "--time-limit", "0.5",
    )  # fmt: skip
    assert json.loads(other.output)["schema"] == "infermax-opt/front/1"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--x", "speed", "--y", "mean_e2e"), "x: 'speed' is none of makespan"),
        (("--x", "mean_e2e", "--y", "batches"), "'batches' is none of makespan"),
        (
            ("--x", "makespan", "--y", "tokens_per_second"),
            "y: 'tokens_per_second' says the same as 'makespan'",
        ),
        ((*PAIR, "--plot", "front.txt"), "the name of a picture ends in .png or .svg"),
        ((*PAIR, "--parts", TOY), "File exists"),
    ],
)
def test_what_cannot_be_traced_is_one_line(words: tuple[str, ...], expected: str) -> None:
    outcome = run(TOY, *words, "--time-limit", "2")
    assert outcome.exit_code != 0
    assert expected in outcome.output + str(outcome.exception)


@pytest.mark.usefixtures("hears_ctrl_c")
def test_an_interrupt_ends_the_front_and_not_one_sum_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    solve, calls = trace_module.api.solve, []

    def stopped(*args: Any, **options: Any) -> Any:
        # As `solve` does: Ctrl-C ends the search, and what it has is returned.
        calls.append(options)
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return solve(*args, **options)

    monkeypatch.setattr(trace_module.api, "solve", stopped)
    front = trace_front(read_instance(TOY), "mean_tpot", "tokens_per_second", time_limit=20)
    assert len(calls) == 1
    assert len(front.half_planes) == 1
    assert front.stopped
    assert front_text(front).endswith("\nstopped early: not all weighted sums were solved")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_once_the_time_is_over_only_the_two_metrics_are_solved() -> None:
    front = trace_front(read_instance(TOY), "mean_tpot", "mean_e2e", time_limit=0.001)
    assert [(plane.u > 0, plane.v > 0) for plane in front.half_planes] == [(True, False), (False, True)]
    assert front.stopped
    assert front.points


def test_a_line_that_a_schedule_meets_reads_as_its_value() -> None:
    front = trace_front(read_instance(TOY), "mean_ttft", "mean_e2e", directions=2, time_limit=20)
    assert [plane.bound.value for plane in front.half_planes] == [front.points[0].x, front.points[-1].y]
    text = front_text(front)
    # Rounded down these are 0.00790004 and 0.0412428.
    assert ">= 0.00790005 s" in text
    assert ">= 0.0412429 s" in text


def test_a_metric_that_schedules_have_not_is_said_to_count_as_0() -> None:
    front = trace_front(read_instance(TOY), "missed", "makespan", directions=2, time_limit=20)
    assert front.undefined == ("missed",)
    assert front_text(front).endswith("\nmissed is undefined in some schedules and counts as 0 there")
    assert not front.stopped


def test_an_error_lists_only_what_can_be_an_axis() -> None:
    told = run(TOY, "--x", "goodput", "--y", "mean_e2e").output
    assert told.startswith("infermax-opt: x: 'goodput' is none of makespan, ")
    assert "tokens_per_second" in told
    assert "batches" not in told
    assert told.count("goodput") == 1


def test_other_problems_have_no_fronts() -> None:
    with pytest.raises(InputError, match="x: 'workers' is no axis of placement instances"):
        trace_front(read_instance("instances/placement-toy.json"), "workers", "gpus")


def test_a_gap_is_the_share_by_which_both_may_fall() -> None:
    instance: Instance = read_instance(TOY)
    axis = Axis("makespan", "makespan")
    front = trace_front(instance, "mean_e2e", "makespan", directions=2, time_limit=10)
    best = min(plane.bound.value for plane in front.half_planes if not plane.u)
    assert front.gap(Point(Fraction(10**6), 2 * best, "nobody", None)) == Fraction(1, 2)  # type: ignore[arg-type]
    assert axis.shown(Fraction(2)) == 2
    assert Axis("rate", "makespan", "", Quotient("makespan", 6)).shown(Fraction(0)) is None


def test_what_is_0_can_be_no_lower() -> None:
    easy = replace(read_instance(TOY), objective=Objective.of("missed"))
    front = trace_front(easy, "makespan", "missed", directions=2, time_limit=2)
    assert [(point.y, front.gap(point)) for point in front.points] == [(0, 0)]


def slots() -> Instance:
    """A batch a second with one token: four real-time requests for the first one, beside a closed loop."""
    real_time = RequestGroup("a", 1, 1, count=4, slo={"ttft": 1})
    best_effort = RequestGroup("b", 1, 1, count=4, class_name="be", optional=True)
    return Instance(
        "slots",
        (real_time, best_effort),
        System(9, 1, 1),
        CostModel([(1, 0)], (0, 0), (0, 0)),
        objective=Objective.of("missed"),
        horizon=4,
        release=Release("be", 2),
    )


def test_attainment_against_best_effort_rate_with_both_sides() -> None:
    front = trace_front(slots(), "be_requests_per_second", "attainment", directions=3, time_limit=4)
    (best, *_) = front.points
    rows = list(front.rows_shown())
    assert rows[0]["attainment"] == rows[0]["attainment_at_best"] == Fraction(1, 4)  # that is certified
    for point, row in zip((*front.points, *front.others), rows, strict=True):
        metrics = api.verify(front.instance, point.schedule).metrics
        assert row["be_requests_per_second"] == metrics.be_requests_per_second
        assert row["attainment"] == metrics.attainment
        assert row["be_requests_per_second_at_best"] >= row["be_requests_per_second"]
    assert front.gap(best) == 0
    planes = {plane.bound.source: plane for plane in front.half_planes}
    assert planes["attainment"].bound.value == 3
    text = front_text(front)
    assert "be_requests_per_second at best" in text
    assert "25 %" in text
    plot_front(front)


@pytest.mark.parametrize(("factor", "scale"), [(9, "linear"), (11, "log")])
def test_points_far_apart_are_told_apart(factor: int, scale: str) -> None:
    front = trace_front(read_instance(TOY), "mean_ttft", "mean_tpot", directions=2, time_limit=5)
    first = front.points[0]
    far = Point(first.x * factor, first.y, "far", first.schedule)
    axes = plot_front(replace(front, points=(first, far)))
    assert (axes.get_xscale(), axes.get_yscale()) == (scale, "linear")
    low, high = axes.get_xlim()
    least = max(p.bound.value / p.u for p in front.half_planes if p.u and not p.v)
    assert low < least <= first.x < far.x < high, "what no schedule reaches is in the picture"


def test_what_an_axis_needs_is_told() -> None:
    whole = slots()
    alone = replace(whole, groups=whole.groups[:1], release=None)
    promised = replace(whole, groups=(whole.groups[0], replace(whole.groups[1], slo={"e2e": 3})))
    for of, name, problem in (
        (replace(whole, horizon=None), "be_tokens_per_second", "has no horizon above 0"),
        (alone, "be_tokens_per_second", "no request is optional"),
        (replace(promised, release=None), "be_requests_per_second", "'b.1' is optional and has a service"),
        (whole, "tokens_per_second", "there are optional requests"),
    ):
        with pytest.raises(InputError, match=f"x.{name}: .*{problem}"):
            trace_front(of, name, "missed")
