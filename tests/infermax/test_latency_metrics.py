"""Metrics of classes, weights, percentiles and service levels against their definitions, spelled out."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from itertools import pairwise

import pytest

from infermax_opt import api
from infermax_opt.core.errors import InputError
from infermax_opt.files.json import to_json_text
from infermax_opt.files.report import verification_text
from infermax_opt.files.results import claim_from_json, result_to_json
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Objective, RequestGroup, ServiceLevel, System
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.replay.fast import replay
from infermax_opt.infermax.replay.metrics import DEFINITIONS, Metrics, measure
from tests.infermax.served import served
from tests.infermax.tiny import tiny

#: Metrics that are there whatever the requests say.
ALWAYS = (
    "ttft p50 / p90 / p99 / max",
    "tpot p50 / p90 / p99 / max",
    "e2e p50 / p90 / p99 / max",
    "normalised mean / max",
)


def measured(instance: Instance, scheduler: str) -> tuple[Metrics, list[tuple[Fraction, Fraction]]] | None:
    """Metrics of a schedule, and the times of first and last tokens; None if the scheduler makes none."""
    try:
        schedule = api.schedule(instance, scheduler)
    except InputError:
        return None
    found = replay(instance, schedule)
    ends = [found.seconds(end) for end in found.ends]
    times = [(ends[a], ends[b]) for a, b in zip(found.first_batch, found.last_batch, strict=True)]
    return measure(instance, found), times


def expected(instance: Instance, times: list[tuple[Fraction, Fraction]]) -> dict[str, Fraction | None]:
    """Each metric from its definition, nothing shared."""
    rows = list(zip(instance.requests, times, strict=True))
    found: dict[str, Fraction | None] = {}

    def mean(pairs: list[tuple[Fraction, Fraction]]) -> Fraction | None:
        return sum(w * x for w, x in pairs) / sum(w for w, _ in pairs) if pairs else None

    found["weighted_mean_ttft"] = mean([(r.terms.weight, a - r.arrival) for r, (a, _) in rows])
    found["weighted_mean_e2e"] = mean([(r.terms.weight, b - r.arrival) for r, (_, b) in rows])
    several = [(r, (b - a) / (r.output_tokens - 1)) for r, (a, b) in rows if r.output_tokens > 1]
    found["weighted_mean_tpot"] = mean([(r.terms.weight, tpot) for r, tpot in several])
    normal = [(b - r.arrival) / r.output_tokens for r, (_, b) in rows]
    found["mean_normalised_latency"] = sum(normal) / Fraction(len(rows))
    found["max_normalised_latency"] = max(normal)
    for name, values in (
        ("ttft", sorted(a - r.arrival for r, (a, _) in rows)),
        ("tpot", sorted(tpot for _, tpot in several)),
        ("e2e", sorted(b - r.arrival for r, (_, b) in rows)),
    ):
        for q in (50, 90, 99):
            place = math.ceil(Fraction(q, 100) * len(values)) - 1
            found[f"p{q}_{name}"] = values[place] if values else None
        found[f"max_{name}"] = values[-1] if values else None
    by_class: dict[str | None, list[Fraction]] = {}
    for (r, _), value in zip(rows, normal, strict=True):
        by_class.setdefault(r.terms.class_name, []).append(value)
    means = sorted(sum(some) / Fraction(len(some)) for some in by_class.values())
    found["class_spread"] = means[-1] - means[0] if len(means) > 1 else None
    promised = [(r, a, b) for r, (a, b) in rows if r.terms.slo.given()]
    broken = [r for r, a, b in promised if breaks(r, a, b)]
    missed, total = (
        sum((r.terms.weight for r in some), Fraction(0)) for some in (broken, [p[0] for p in promised])
    )
    found["missed"] = missed if promised else None
    found["attainment"] = 1 - missed / total if promised else None
    end = max(b for _, b in times)
    found["goodput"] = (len(rows) - len(broken)) / end if promised and end else None
    return found


def breaks(request: object, first: Fraction, last: Fraction) -> bool:
    limits, arrival = request.terms.slo.given(), request.arrival  # type: ignore[attr-defined]
    tokens = request.output_tokens  # type: ignore[attr-defined]
    if "ttft" in limits and first - arrival > limits["ttft"]:
        return True
    if "tpot" in limits and tokens > 1 and (last - first) / (tokens - 1) > limits["tpot"]:
        return True
    return "e2e" in limits and last - arrival > limits["e2e"]


def test_every_metric_is_what_its_definition_says() -> None:
    seen: dict[str, set[Fraction | None]] = {}
    for seed in range(400):
        instance = served(seed, "makespan", arrivals=seed % 2 == 0)
        found = measured(instance, ("vllm", "sarathi", "vllm@r1")[seed % 3])
        if found is None:
            continue
        metrics, times = found
        for name, value in expected(instance, times).items():
            assert getattr(metrics, name) == value, (seed, name)
            seen.setdefault(name, set()).add(value)
    assert all(len(values) > 10 for values in seen.values())


def test_all_metrics_are_defined_and_in_files() -> None:
    result = api.solve(served(3, "makespan"))
    value = json.loads(to_json_text(result_to_json(result)))
    assert set(value["metrics"]) == set(DEFINITIONS)
    assert dict(claim_from_json(value).metrics).keys() == DEFINITIONS.keys()


def test_texts_show_what_there_is() -> None:
    plain = tiny(1)
    text = verification_text(plain, api.verify(plain, api.schedule(plain, "vllm")))
    assert all(name in text for name in ALWAYS)
    for name in ("weighted_mean", "class_spread", "missed", "attainment", "goodput", "  p99"):
        assert name not in text
    groups = (RequestGroup("a", 2, 2, class_name="x", slo={"e2e": 9}), RequestGroup("b", 2, 3, weight=2))
    rich = Instance("rich", groups, System(99, 99, 99), plain.cost)
    text = verification_text(rich, api.verify(rich, api.schedule(rich, "vllm")))
    for name in ("weighted_mean_ttft", "class_spread", "missed", "attainment", "goodput", *ALWAYS):
        assert name in text


def test_attainment_is_never_rounded_up() -> None:
    groups = (
        RequestGroup("a", 1, 1, slo={"e2e": 10**6}, weight=9999),
        RequestGroup("b", 1, 1, slo={"e2e": 0}),
    )
    case = Instance("almost", groups, System(9, 9, 9), tiny(1).cost)
    check = api.verify(case, api.schedule(case, "vllm"))
    assert "99.9 %" in verification_text(case, check)
    assert "100 %" not in verification_text(case, check)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100, 101])
def test_percentiles_are_the_nearest_rank(count: int) -> None:
    case = Instance("row", (RequestGroup("r", 1, 1, count=count),), System(1, 1, 1), tiny(1).cost)
    metrics = measure(case, replay(case, api.schedule(case, "vllm@r1")))
    latencies = sorted(metrics.latencies.e2e)
    assert all(a < b for a, b in pairwise(latencies))
    for name, q in (("p50", 50), ("p90", 90), ("p99", 99), ("max", 100)):
        value = getattr(metrics, f"{name}_e2e") * metrics.latencies.unit
        assert sum(some <= value for some in latencies) == -(-q * count // 100)


def test_goodput_is_by_the_makespan_even_where_batches_follow_the_last_token() -> None:
    case = Instance("late", (RequestGroup("a", 1, 1, slo={"e2e": 99}),), System(9, 9, 9), tiny(1).cost)
    metrics = measure(case, replay(case, Schedule("late", (Batch({"a": 1}), Batch()))))
    assert metrics.makespan > metrics.max_e2e
    assert metrics.goodput == 1 / metrics.makespan


@pytest.mark.parametrize("alpha", ["0.01", "0.010000000000000000001", f"0.01{'0' * 36}1"])
def test_fine_ticks_make_nobody_late(alpha: str) -> None:
    """An hour has more ticks of such coefficients than a machine word holds."""
    group = RequestGroup("r", 10, 5, arrival=Fraction(3600), slo=ServiceLevel(ttft=Fraction(1)))
    cost = CostModel([(alpha, "0.0001")], ("0", "0"), ("0", "0"))
    of = Instance("fine", (group,), System(100, 50, 50), cost, objective=Objective.of("missed"))
    check = api.verify(of, api.schedule(of, "vllm"))
    assert check.ok
    assert check.metrics is not None
    assert check.metrics.missed == 0
    assert check.metrics.makespan < 3601
