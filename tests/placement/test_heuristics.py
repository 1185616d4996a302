from __future__ import annotations

import random
import time
from fractions import Fraction

import pytest

from infermax_opt.core.errors import InputError
from infermax_opt.placement.data.generate import FAMILIES, generate, paper_like
from infermax_opt.placement.data.instance import PlacementGroup, PlacementInstance, Slo, Worker
from infermax_opt.placement.data.limits import Limits, unplaceable
from infermax_opt.placement.data.schedule import Placement
from infermax_opt.placement.heuristics import place as heuristics
from infermax_opt.placement.heuristics._columns import Columns
from infermax_opt.placement.heuristics.place import HEURISTICS, place, spread
from infermax_opt.placement.replay.check import check_placement

#: A worker on which nothing takes time, and KV is tokens.
TIMELESS = dict.fromkeys(
    ("prefill_token", "prefill_overhead", "decode_context", "decode_request", "decode_overhead"), Fraction(0)
)
#: Figure 3: long prompts and long outputs in turn, KV capacity of 9.
FIGURE_3 = PlacementInstance.of_requests(
    "figure-3",
    [(4, 1), (1, 4), (4, 1), (1, 4)],
    Worker(Fraction(9), Fraction(1), Fraction(0), **TIMELESS),
    Slo(Fraction(1), Fraction(1)),
)


def tiny_placement(rng: random.Random, new: int = 6) -> PlacementInstance:
    """A random instance in which every new request fits on a worker by itself."""
    worker = Worker(
        kv_capacity=Fraction(rng.randint(14, 30)),
        kv_token=Fraction(rng.randint(0, 2), 2) or Fraction(1),
        kv_request=Fraction(rng.randint(0, 2)),
        prefill_token=Fraction(rng.randint(0, 3), 10),
        prefill_overhead=Fraction(rng.randint(0, 2), 10),
        decode_context=Fraction(rng.randint(0, 3), 100),
        decode_request=Fraction(rng.randint(0, 3), 100),
        decode_overhead=Fraction(rng.randint(0, 2), 10),
    )
    groups = []
    for k in range(rng.randint(1, new) + rng.randint(0, 4)):
        tokens, output = rng.randint(1, 6), rng.randint(1, 6)
        ongoing = rng.random() < 0.3
        generated = rng.randint(0, output + 1) if ongoing else 0
        spent = Fraction(rng.randint(0, 3 * generated), 10)
        groups.append(
            PlacementGroup(
                f"r{k}", tokens, output, None, generated, spent, rng.choice([1, 2, 5]) if ongoing else None
            )
        )
    instance = PlacementInstance(
        "tiny", tuple(groups), worker,
        Slo(Fraction(rng.randint(20, 40), 10), Fraction(rng.randint(5, 15), 10)),
        rng.choice([Fraction(1), Fraction(4, 5)]), Fraction(rng.randint(0, 4), 4), rng.choice([None, 1, 3]),
    )  # fmt: skip
    return tiny_placement(rng, new) if unplaceable(instance) else instance


def fewest(instance: PlacementInstance) -> int:
    """Fewest workers, by trying all partitions."""
    limits = Limits.of(instance)
    used = list(limits.ongoing)
    best = len(used) + len(limits.new)

    def extend(left: tuple[int, ...], groups: list[list[int]]) -> None:
        nonlocal best
        if len(groups) >= best:
            return
        if not left:
            best = len(groups)
            return
        for w in range(len(groups) + 1):
            grown = [list(group) for group in groups] + ([[]] if w == len(groups) else [])
            grown[w].append(left[0])
            if not limits.excesses(grown[w], used[w] if w < len(used) else None):
                extend(left[1:], grown)

    extend(limits.new, [[] for _ in used])
    return best


def workers(instance: PlacementInstance, placement: Placement) -> int:
    check = check_placement(instance, placement)
    assert check.valid, [str(some) for some in check.violations]
    return check.workers


def test_every_heuristic_is_valid_and_no_better_than_the_optimum() -> None:
    for seed in range(60):
        instance = tiny_placement(random.Random(seed))
        least = fewest(instance)
        for name in HEURISTICS:
            assert workers(instance, place(instance, name, seed=seed, starts=5)) >= least, (seed, name)


def test_figure_3() -> None:
    assert fewest(FIGURE_3) == 2
    best = place(FIGURE_3, "best-fit")
    assert workers(FIGURE_3, best) == 2
    assert dict(best.workers) == {"r1": 1, "r2": 1, "r3": 2, "r4": 2}
    queued = spread(FIGURE_3, "jsq", 2)
    assert dict(queued.workers) == {"r1": 1, "r2": 2, "r3": 1, "r4": 2}
    broken = check_placement(FIGURE_3, queued).violations
    assert [(some.worker, some.message) for some in broken] == [
        (1, "limit e: 10 of KV where 9 of KV are allowed"),
        (2, "limit e: 10 of KV where 9 of KV are allowed"),
    ]
    assert workers(FIGURE_3, place(FIGURE_3, "jsq")) == 3


def test_best_fit_takes_the_worker_of_most_load_and_ties_go_to_the_first() -> None:
    worker = Worker(
        Fraction(1000), Fraction(1), Fraction(0), Fraction(0), Fraction(0),
        Fraction(1), Fraction(2), Fraction(0),
    )  # fmt: skip
    slo = Slo(Fraction(1), Fraction(20))
    # Iteration time 10, 13, 5: the third fits on both and goes to the fuller, second one.
    instance = PlacementInstance.of_requests("loads", [(8, 1), (11, 1), (3, 1)], worker, slo, gamma=0)
    assert dict(place(instance, "best-fit").workers) == {"r1": 1, "r2": 2, "r3": 2}
    assert dict(place(instance, "first-fit").workers) == {"r1": 1, "r2": 2, "r3": 1}
    equal = PlacementInstance.of_requests("equal", [(9, 1), (9, 1), (3, 1)], worker, slo, gamma=0)
    assert dict(place(equal, "best-fit").workers) == {"r1": 1, "r2": 2, "r3": 1}
    # The norm of (2 batch, 9 context) is that of one request; two of 3 and 3 have (4, 6), which is less.
    norms = PlacementInstance.of_requests("norms", [(9, 1), (16, 1), (3, 1)], worker, slo, gamma=0)
    assert dict(place(norms, "best-fit").workers) == {"r1": 1, "r2": 2, "r3": 1}


def test_workers_without_room_are_left_alone_and_numbers_are_not_taken_twice() -> None:
    groups = (
        PlacementGroup("late", 4, 4, None, 2, Fraction(2), 2),
        PlacementGroup("good", 1, 4, None, 2, Fraction(0), 1),
        PlacementGroup("new", 4, 1, count=3),
    )
    worker = Worker(
        Fraction(12), Fraction(1), Fraction(0), Fraction(1, 10), Fraction(1, 10),
        Fraction(0), Fraction(0), Fraction(0),
    )  # fmt: skip
    instance = PlacementInstance("late", groups, worker, Slo(Fraction(1), Fraction(1)))
    # Worker 2 has saved nothing, so not even the overhead of a prefill fits.
    for name in HEURISTICS:
        found = place(instance, name)
        assert 2 not in found.workers.values(), name
        assert workers(instance, found) >= 3
    assert dict(place(instance, "best-fit").workers) == {"new.1": 1, "new.2": 3, "new.3": 3}


def test_a_request_that_fits_nowhere_is_named_with_its_limit() -> None:
    worker = Worker(
        Fraction(9), Fraction(1), Fraction(0), Fraction(1, 10), Fraction(0),
        Fraction(0), Fraction(0), Fraction(0),
    )  # fmt: skip
    requests = [(5, 4), (20, 1), (8, 2)]
    instance = PlacementInstance.of_requests("big", requests, worker, Slo(Fraction(1), Fraction(1)))
    assert unplaceable(instance) == [
        "request 'r2' fits on no worker: limit c, prefill: 2 s where 1 s are allowed",
        "request 'r2' fits on no worker: limit e, KV: 21 where 9 are allowed",
        "request 'r3' fits on no worker: limit e, KV: 10 where 9 are allowed",
    ]
    for name in HEURISTICS:
        with pytest.raises(
            InputError, match=r"^requests: request 'r2' .*: 2 s where .*\(and 2 more like it\)$"
        ):
            place(instance, name)


def test_what_a_worker_takes_a_fresh_one_takes() -> None:
    for seed in range(200):
        instance = tiny_placement(random.Random(seed))
        limits = Limits.of(instance)
        for k in limits.new:
            for worker in limits.ongoing:
                assert limits.excesses([k], worker) or not limits.excesses([k])


def test_compiled_and_plain_fits_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    for family in FAMILIES:
        instance = generate(family, requests=60, seed=3, ongoing=0.3, error=0.2)
        plain = [place(instance, name) for name in heuristics.FITS]
        monkeypatch.setattr(heuristics, "MANY", 0)
        assert [place(instance, name) for name in heuristics.FITS] == plain
        monkeypatch.undo()


def test_numbers_beyond_64_bits_are_rounded_to_the_safe_side() -> None:
    unit = Fraction(1, 10**30)
    worker = Worker(
        Fraction(30) + unit, 1 - unit, unit, Fraction(1, 10) + unit, unit, Fraction(1, 100) + unit, unit, unit
    )
    requests = [(random.Random(k).randint(1, 6), random.Random(k + 100).randint(1, 6)) for k in range(40)]
    instance = PlacementInstance.of_requests("long", requests, worker, Slo(Fraction(2), Fraction(1)))
    columns = Columns(instance, compiled=True)
    assert columns.limits.most_kv > 2**80 > 2**62 >= columns.requests.own.sum()
    assert columns.requests.context.sum() <= 2**62
    # Its first start is best-fit as it is.
    assert place(instance, "multi-start", starts=1) == place(instance, "best-fit")
    assert workers(instance, place(instance, "multi-start", starts=20)) < 20


def test_seeds_decide() -> None:
    instance = generate("kv-tight", requests=80, seed=2)
    for name in ("multi-start", "power-of-two"):
        assert place(instance, name, seed=4) == place(instance, name, seed=4)
    assert place(instance, "power-of-two", seed=4) != place(instance, "power-of-two", seed=5)


def test_multi_start_ends_at_the_target_at_the_deadline_and_when_told() -> None:
    instance = generate("long-prompts", requests=100, seed=0)
    some = workers(instance, place(instance, "best-fit"))
    place(instance, "multi-start", starts=1)
    for stops in ({"target": some}, {"deadline": time.monotonic() + 0.2}, {"stop": lambda: True}):
        began = time.monotonic()
        assert workers(instance, place(instance, "multi-start", starts=10**6, **stops)) <= some
        assert time.monotonic() - began < 1.5


def test_spreaders_take_what_they_are_given() -> None:
    instance = generate("mixed", requests=50, seed=1, ongoing=0.4)
    used = {request.worker for request in instance.requests if request.ongoing}
    for name in ("jsq", "power-of-two"):
        found = spread(instance, name, len(used) + 3)
        assert max(found.workers.values()) <= len(used) + 3
        with pytest.raises(InputError, match=r"^workers: 1 is not between"):
            spread(instance, name, 1)
    with pytest.raises(InputError, match=r"^heuristic: 'best-fit' is none of jsq, power-of-two"):
        spread(instance, "best-fit", 9)
    with pytest.raises(InputError, match=r"^heuristic: 'worst-fit' is none of best-fit, "):
        place(instance, "worst-fit")


def test_requests_under_way_alone() -> None:
    groups = (PlacementGroup("r", 5, 5, None, 2, Fraction(0), 7),)
    instance = PlacementInstance("alone", groups, FIGURE_3.worker, FIGURE_3.slo)
    for name in HEURISTICS:
        assert dict(place(instance, name).workers) == {}


def test_a_decision_takes_less_than_a_millisecond_at_100_workers() -> None:
    instance = generate("strict", requests=800, seed=1)
    times = []
    for _ in range(3):
        began = time.perf_counter()
        found = place(instance, "best-fit")
        times.append(time.perf_counter() - began)
    assert workers(instance, found) >= 95
    assert min(times) / 800 < 1e-3


@pytest.mark.parametrize("family", FAMILIES)
def test_families(family: str) -> None:
    instance = generate(family, requests=120, seed=5, ongoing=0.3, error=0.5)
    assert generate(family, requests=120, seed=5, ongoing=0.3, error=0.5).sha256 == instance.sha256
    assert generate(family, requests=120, seed=6, ongoing=0.3, error=0.5).sha256 != instance.sha256
    assert sum(request.ongoing for request in instance.requests) >= 30
    limits = Limits.of(instance)
    for worker, members in limits.ongoing.items():
        assert sum(limits.context[k] for k in members) <= limits.most_context, worker
        assert limits.kv_peak(members) <= limits.most_kv
        for request in (instance.requests[k] for k in members):
            assert 0 < request.generated_tokens < request.output_tokens
            assert request.decode_seconds <= request.generated_tokens * instance.slo.atgt
    assert unplaceable(instance) == []
    exact = generate(family, requests=120, seed=5)
    assert all(r.output_tokens == r.predicted_output_tokens and not r.ongoing for r in exact.requests)


def test_paper_like() -> None:
    for model, ttft, atgt in (("13b", "0.6", "0.03"), ("70b", "1.6", "0.075")):
        instance = paper_like(1, 2000, model=model)
        assert (instance.slo.ttft, instance.slo.atgt) == (Fraction(ttft), Fraction(atgt))
        inputs, outputs = (
            [getattr(r, n) for r in instance.requests] for n in ("input_tokens", "output_tokens")
        )
        assert 200 < sum(inputs) / 2000 < 300
        assert max(inputs) <= 4096
        assert 200 < sum(outputs) / 2000 < 300
        assert max(outputs) <= 2048
    for call, problem in (
        (lambda: paper_like(model="7b"), "model: '7b' is none of 13b, 70b"),
        (lambda: generate("odd"), "family: 'odd' is none of paper, "),
        (lambda: generate("paper", requests=0), "requests: 0 is not 1 or more"),
        (lambda: generate("paper", ongoing=2), "ongoing: 2 is not between 0 and 1"),
        (lambda: generate("paper", error=-1), "error: -1 is not between 0 and 10"),
    ):
        with pytest.raises(InputError, match=f"^{problem}"):
            call()
