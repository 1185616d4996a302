"""Instances with intervals of coefficients: bounds and worst cases hold for all machines between the ends."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import lcm
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from infermax_opt import Simulator, api
from infermax_opt.cli.main import cli
from infermax_opt.core.band import Band
from infermax_opt.core.errors import InputError
from infermax_opt.core.result import Status
from infermax_opt.files.certificates import certificate_to_json
from infermax_opt.files.json import load_json
from infermax_opt.files.results import claim_from_json, result_to_json
from infermax_opt.files.writing import dump_json
from infermax_opt.infermax import checker
from infermax_opt.infermax.band import banded, longest_spans, scaled, worst_case
from infermax_opt.infermax.bounds import closed_form_bounds
from infermax_opt.infermax.certificates import CERTIFICATION
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.formats import instance_from_json, instance_to_json
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.intervals import coefficients, fastest, slowest
from infermax_opt.infermax.data.latencies import Latencies
from infermax_opt.infermax.data.objective import Metric
from infermax_opt.infermax.data.requests import ServiceLevel
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.replay.fast import replay
from infermax_opt.infermax.replay.plain import replay_plain
from infermax_opt.infermax.replay.waits import after_arrivals
from tests.campaign import campaign, in_blocks
from tests.infermax.oracle import optimum
from tests.infermax.tiny import tiny

#: What the oracle knows; for the TPOT it waits at every tick, of which there are too many here.
OBJECTIVES = ("makespan", "mean_ttft", "mean_e2e", {"makespan": 1, "mean_e2e": 2})
#: Ticks a second in which all times of these tests are whole.
UNIT = 10**16


def rebuilt(cost: CostModel, change: Callable[[Fraction], Fraction]) -> CostModel:
    """A cost with each coefficient changed."""

    def pair(one: tuple[Any, Any]) -> tuple[Fraction, Fraction]:
        return change(Fraction(one[0])), change(Fraction(one[1]))

    return replace(
        cost, batch=[pair(one) for one in cost.batch], decode=pair(cost.decode), prefill=pair(cost.prefill),
        mixed=pair(cost.mixed), prefix=change(Fraction(cost.prefix)),
    )  # fmt: skip


def with_intervals(seed: int, objective: object = "makespan") -> Instance:
    """A tiny instance whose coefficients have intervals: some of no width, some from 0."""
    rng = random.Random(seed)
    instance = tiny(seed, arrivals=rng.random() < 0.7, objective=objective)
    if rng.random() < 0.3:
        dear = replace(instance.cost, mixed=("0.1", "0.05"), prefix=rng.choice(["0", "0.01"]))
        instance = replace(instance, cost=dear)

    def wider(value: Fraction) -> Fraction:
        more = rng.choice([Fraction(0), Fraction(1, 10), Fraction(1, 2), Fraction(2)])
        return value * (1 + more) + (Fraction(1, 10) if rng.random() < 0.1 else 0)

    return replace(instance, slowest=rebuilt(instance.cost, wider))


def between(instance: Instance, rng: random.Random) -> Instance:
    """One of its machines, ends included."""
    ends = list(coefficients(slowest(instance).cost))
    highs = iter([high for _, high in ends])

    def some(low: Fraction) -> Fraction:
        return low + (next(highs) - low) * rng.choice([Fraction(0), Fraction(1), Fraction(3, 10)])

    return replace(instance, cost=rebuilt(instance.cost, some), slowest=None)


def through_a_file(value: Any, folder: Path) -> Any:
    """What is read of a JSON value that was written."""
    path = folder / "value.json"
    dump_json(value, path)
    return load_json(path)


@in_blocks(campaign(60, 3_000), 50)
def test_no_machine_has_an_optimum_below_the_bound(seeds: range) -> None:
    for seed in seeds:
        instance = with_intervals(seed, OBJECTIVES[seed % len(OBJECTIVES)])
        if len(instance.requests) > 2 and (instance.policy.chunked_prefill or not instance.offline):
            continue  # too many states and times for the oracle
        rng = random.Random(f"between {seed}")
        found = api.bound(instance, time_limit=1) if seed % 20 < 2 else closed_form_bounds(instance)
        bounds = [lower.value for lower in found]
        least = optimum(between(instance, rng))
        assert max(bounds, default=Fraction(0)) <= least, seed


def on_machine(instance: Instance, waiting: Schedule, durations: list[int]) -> Latencies:
    """Latencies where each batch takes so many ticks and waits for its start."""
    replayed = replay_plain(instance, waiting)
    assert replayed.valid
    starts = [batch.start if k == 0 else None for batch in waiting.batches for k in range(batch.repeat)]
    ends, now = [], 0
    for start, took in zip(starts, durations, strict=True):
        now = max(now, int((start or 0) * UNIT)) + took
        ends.append(now)
    firsts, lasts = ([ends[j] for j in of] for of in (replayed.first_batch, replayed.last_batch))
    return Latencies(instance, UNIT, firsts, lasts)


def batch_ticks(instance: Instance, waiting: Schedule) -> list[int]:
    replayed = replay(instance, waiting)
    scale, rest = divmod(UNIT, replayed.ticks_per_second)
    assert not rest
    return [(end - start) * scale for start, end in zip(replayed.starts, replayed.ends, strict=True)]


@in_blocks(campaign(90, 3_000), 50)
def test_no_machine_is_above_the_worst_case(seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(f"slo {seed}")
        instance = with_intervals(seed)
        slo = ServiceLevel(ttft=Fraction(rng.randint(1, 60), 10), tpot=Fraction(rng.randint(1, 40), 10))
        groups = [
            replace(group, slo=slo, class_name=rng.choice([None, "a"]), weight=Fraction(rng.randint(1, 3)))
            for group in instance.groups
        ]
        instance = replace(instance, groups=tuple(groups))
        schedule = api.schedule(instance, rng.choice(["vllm", "sarathi"]))
        assert api.verify(instance, schedule).ok
        worst = worst_case(instance, schedule).metrics
        low, high = (batch_ticks(corner(instance), schedule) for corner in (fastest, slowest))
        for _ in range(3):
            took = [rng.choice([a, b, (a + b) // 2]) for a, b in zip(low, high, strict=True)]
            found = on_machine(instance, schedule, took)
            for metric in Metric:
                limit, value = worst[metric.value], found.metric(metric)
                assert (limit is None) == (value is None), metric
                assert value is None or limit is None or value <= limit, (seed, metric)


@in_blocks(campaign(36, 1_000), 30)
def test_longest_spans_are_those_of_some_machine(seeds: range) -> None:
    """A time between two tokens is convex in the batch times, so it is longest at their ends: try all."""
    for seed in seeds:
        instance = with_intervals(seed)
        waiting = after_arrivals(instance, api.schedule(instance, "vllm"))
        low, high = (batch_ticks(corner(instance), waiting) for corner in (fastest, slowest))
        if len(low) > 9:
            continue
        machines = itertools.product(*zip(low, high, strict=True))
        spans = [on_machine(instance, waiting, list(took)).span for took in machines]
        slow, fast = (replay(corner(instance), waiting) for corner in (slowest, fastest))
        unit = UNIT // lcm(slow.ticks_per_second, fast.ticks_per_second)
        found = [span * unit for span in longest_spans(waiting, slow, fast)]
        assert found == [max(column) for column in zip(*spans, strict=True)], seed


def test_a_result_is_verified_on_both_sides() -> None:
    for seed in campaign(6, 60):
        instance = with_intervals(seed, "mean_e2e")
        result = api.solve(instance, time_limit=2)
        assert result.status in (Status.FEASIBLE, Status.OPTIMAL)
        assert api.verify(instance, result).ok
        assert result.upper is not None
        assert result.lower is not None
        assert result.upper.value == worst_case(instance, result.schedule).metrics["mean_e2e"]
        claim = result.claim()
        on_fastest = api.verify(fastest(instance), result.schedule).objective
        wrong = [
            replace(claim, upper_bound=result.upper.value * Fraction(3, 2)),
            replace(claim, instance_sha256=fastest(instance).sha256),
            replace(claim, lower_bound=optimum(fastest(instance)) * Fraction(1001, 1000)),
        ]
        if on_fastest != result.upper.value:
            wrong.append(replace(claim, upper_bound=on_fastest))
        assert not any(api.verify(instance, some).ok for some in wrong), seed


def test_a_band_is_named_and_applied_again(tmp_path: Path) -> None:
    instance = tiny(3, arrivals=True)
    result = api.solve(instance, band=Band.parsed("0.9:1.2"), time_limit=2)
    assert result.band == "0.9:1.2"
    claim = claim_from_json(through_a_file(result_to_json(result), tmp_path))
    assert claim.band == "0.9:1.2"
    check = api.verify(instance, claim)
    assert check.ok
    assert (
        check.objective == worst_case(instance, result.schedule, Band.parsed("0.9:1.2")).metrics["makespan"]
    )
    other = replace(claim, band="0.9:1.3")
    assert any(fault.kind.value == "instance" for fault in api.verify(instance, other).faults)


def test_a_certificate_is_that_of_the_fastest_machine(tmp_path: Path) -> None:
    instance = replace(with_intervals(5), name="two limits")
    lower = next(some for some in api.bound(instance, time_limit=2) if some.evidence is not None)
    certificate = certificate_to_json(instance, lower, CERTIFICATION)
    assert certificate["instance_sha256"] == fastest(instance).sha256 != instance.sha256
    written = through_a_file(instance_to_json(instance), tmp_path)
    assert checker.check(written, certificate) == lower.value
    assert CERTIFICATION.check(fastest(instance), certificate) == lower.value
    with pytest.raises(InputError, match="instance_sha256"):
        CERTIFICATION.check(slowest(instance), certificate)


def test_files_hold_intervals_and_only_where_there_are_some(tmp_path: Path) -> None:
    for seed in range(20):
        instance = with_intervals(seed)
        written = through_a_file(instance_to_json(instance), tmp_path)
        again = instance_from_json(written)
        assert again == instance
        assert again.sha256 == instance.sha256
        plain = instance_to_json(fastest(instance))["cost"]
        assert not any(isinstance(value, list) for pair in plain["batch"] for value in pair)


def test_one_machine_is_no_interval() -> None:
    instance = tiny(2)
    assert banded(instance, Band.one()) is instance
    assert replace(instance, slowest=instance.cost).sha256 == instance.sha256
    assert banded(instance, Band.parsed("0.5:2")).cost == scaled(instance, Fraction(1, 2)).cost


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        ({"decode": [["0.2", "0.1"], "0"]}, "cost.decode[0]: 0.2 to 0.1 is no interval"),
        ({"decode": [["0.2"], "0"]}, "cost.decode[0]: holds 1 values; an interval has two ends"),
        ({"prefix": ["0.2", "0.3", "1"]}, "cost.prefix: holds 3 values"),
        ({"batch": [[["0.2", None], "0"]]}, "cost.batch[0][0]"),
        ({"batch": [[["0.2", [1, 2]], "0"]]}, "cost.batch[0][0]"),
        ({"mixed": [["-1", "1"], "0"]}, "cost.mixed[0]: -1 is negative"),
        ({"decode": [["0.2", "1e999"], "0"]}, "cost.decode[0]"),
    ],
)
def test_what_is_no_interval(tmp_path: Path, cost: dict[str, Any], message: str) -> None:
    value = through_a_file(instance_to_json(tiny(3)), tmp_path)
    value["cost"] |= cost
    path = tmp_path / "i.json"
    path.write_text(json.dumps(value, default=float))
    done = CliRunner().invoke(cli, ["bound", str(path)])
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert message in line


def test_one_machine_is_asked_for_where_two_make_no_sense(tmp_path: Path) -> None:
    instance = with_intervals(5)
    with pytest.raises(InputError, match="a formulation takes one machine"):
        api.export_formulation(instance, "flow", tmp_path / "m.mps")
    with pytest.raises(InputError, match="a simulator takes one machine"):
        Simulator(instance)
