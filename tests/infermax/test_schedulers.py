"""Algorithm 1: hand-computed schedules, and validity on random instances."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from infermax_opt.api import verify
from infermax_opt.core.errors import InputError
from infermax_opt.infermax.data.cost import Attention, CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.data.schedule import MAX_BATCHES, Batch
from infermax_opt.infermax.heuristics import aimed_names, get_scheduler, run_scheduler, scheduler_names
from infermax_opt.infermax.replay.fast import replay
from infermax_opt.infermax.schedulers import Options, Order, algorithm1
from infermax_opt.infermax.schedulers import _algorithm1_loop as _loop
from infermax_opt.infermax.schedulers import schedule as schedule_by
from tests.campaign import examples
from tests.infermax.strategies import aimed, instances
from tests.infermax.test_replay import DECODE, make, step

NAMES = st.sampled_from(scheduler_names())
MANY = examples(120, 1_000)
SOME = examples(36, 300)
#: Those that refuse an instance without predictions or service levels.
AIMED_ORDERS = (Order.REMAINING, Order.LATEST)
OPTIONS = st.builds(
    Options,
    resume=st.booleans(),
    order=st.sampled_from([order for order in Order if order not in AIMED_ORDERS]),
    hybrid=st.booleans(),
    chunked=st.booleans(),
    prefill_tokens=st.integers(1, 9),
    eviction_free=st.booleans(),
    max_running=st.none() | st.integers(1, 4),
)


def batches(instance: Instance, name: str) -> list[Batch]:
    return list(run_scheduler(instance, name).batches)


# --- what each scheduler does, by hand ---


def test_vllm_prefills_all_it_can_then_evicts_the_last_admitted() -> None:
    # Both prompts fit (4 of 5); the second decode step does not, and nobody else can go.
    assert batches(make((2, 2), (2, 2), kv_capacity=5), "vllm") == [
        step(r1=2, r2=2),
        Batch(evict=("r2",), decode_all=True),
        step(r2=3),
    ]


def test_vllm_holds_decodes_back_while_it_can_prefill() -> None:
    # P = 3 takes one prompt at a time; no hybrid batching, so r1 decodes only after r2's prefill.
    assert batches(make((2, 2), (2, 2), max_prefill_tokens=3), "vllm") == [step(r1=2), step(r2=2), DECODE]
    assert batches(make((2, 2), (2, 2), max_prefill_tokens=3), "vllm_hy") == [
        step(r1=2),
        Batch({"r2": 2}, decode_all=True),
        DECODE,
    ]


def test_sarathi_decodes_first_and_fills_up_with_chunks() -> None:
    instance = make((2, 3), (4, 1), max_batch_tokens=4, max_prefill_tokens=3)
    assert batches(instance, "sarathi") == [
        step(r1=2, r2=1),
        Batch({"r2": 3}, decode_all=True),
        DECODE,
    ]


def test_sarathi_evicts_the_last_admitted_for_a_decode() -> None:
    # After two batches M = 6 is full; r1's next step evicts r2, which comes back for three tokens + 1.
    assert batches(make((2, 4), (2, 3), kv_capacity=6), "sarathi") == [
        step(r1=2, r2=2),
        DECODE,
        Batch(evict=("r2",), decode_all=True, repeat=2),
        step(r2=4),
    ]


def test_vllm_v1_lets_the_evicted_go_on_before_anybody_new() -> None:
    # r3 waits since the start, and would fit as soon as r2 is evicted for r1.
    instance = make((2, 4), (2, 3), (1, 1), kv_capacity=6, max_running=2)
    evicting = Batch(evict=("r2",), decode_all=True, repeat=2)
    assert batches(instance, "vllm_v1")[2:] == [evicting, step(r2=4, r3=1)]
    taking = Batch({"r3": 1}, evict=("r2",), decode_all=True)
    assert batches(instance, "sarathi")[2:] == [taking, DECODE, step(r2=4)]


def test_vllm_v1_goes_by_admission_not_by_phase() -> None:
    # r1 still prefills when r2 decodes: with room for four tokens, r1 has them all.
    instance = make((9, 1), (1, 3), max_batch_tokens=5, max_prefill_tokens=5)
    assert batches(instance, "vllm_v1")[:2] == [step(r1=5), step(r1=4, r2=1)]
    instance = make((2, 3), (7, 1), max_batch_tokens=3, max_prefill_tokens=3)
    assert batches(instance, "vllm_v1")[1] == Batch({"r2": 2}, decode_all=True)


def test_sarathi_without_hybrid_batching_drains_the_decodes_first() -> None:
    assert batches(make((2, 3), (2, 1), max_prefill_tokens=3), "sarathi_nohy") == [
        step(r1=2),
        Batch(decode_all=True, repeat=2),
        step(r2=2),
    ]


def test_eviction_free_reserves_the_peak() -> None:
    assert batches(make((2, 2), (2, 2), kv_capacity=5), "vllm_ef") == [
        step(r1=2), DECODE, step(r2=2), DECODE,
    ]  # fmt: skip
    # Peaks of 3 are held in blocks of 2: two of them need 8.
    assert len(batches(make((2, 2), (2, 2), kv_capacity=7, block_size=2), "vllm_ef")) == 4
    assert len(batches(make((2, 2), (2, 2), kv_capacity=8, block_size=2), "vllm_ef")) == 2


def test_ranks_order_all_requests() -> None:
    instance = make((1, 3), (2, 1), max_running=1)
    by_output = [step(r2=2), step(r1=1), Batch(decode_all=True, repeat=2)]
    by_input = [step(r1=1), Batch(decode_all=True, repeat=2), step(r2=2)]
    assert batches(instance, "rank_output") == by_output
    assert batches(instance, "rank_input") == by_input
    assert batches(instance, "rank_org") == by_input


def test_a_higher_rank_evicts_a_lower_one() -> None:
    # r2 arrives while r1 holds 4 of 5 tokens and takes its place.
    instance = make((4, 2), (2, 1, 1), kv_capacity=5)
    assert batches(instance, "rank_input") == [step(r1=4), step(evict=("r1",), r2=2), step(r1=5)]
    assert batches(instance, "rank_input_ef") == [step(r1=4), DECODE, step(r2=2)]


def test_a_limit_on_running_requests_by_name() -> None:
    instance = make((1, 1), (1, 1), (1, 1))
    assert batches(instance, "vllm") == [step(r1=1, r2=1, r3=1)]
    assert batches(instance, "vllm@r2") == [step(r1=1, r2=1), step(r3=1)]
    assert batches(make((1, 1), (1, 1), max_running=1), "vllm@r2") == [step(r1=1), step(r2=1)]


def test_a_batch_short_of_tokens_names_its_decodes() -> None:
    assert batches(make((1, 3), (1, 3), max_batch_tokens=1), "sarathi") == [
        step(r1=1),
        Batch(decode_all=True, repeat=2),
        step(r2=1),
        Batch(decode_all=True, repeat=2),
    ]
    instance = make(*[(1, 2)] * 3, max_batch_tokens=2)
    assert batches(instance, "vllm")[2:] == [step(r1=1, r2=1), DECODE]


def test_waits_for_arrivals() -> None:
    assert batches(make((1, 1), (1, 1, "10.1"), (1, 1, "10.1")), "sarathi") == [
        step(r1=1),
        step(start=Fraction("10.1"), r2=1, r3=1),
    ]


def test_prompts_longer_than_a_batch_are_split_by_every_scheduler() -> None:
    instance = make((7, 1), max_prefill_tokens=3)
    for name in scheduler_names():
        assert batches(instance, name) == [step(r1=3, repeat=2), step(r1=1)], name


def test_indivisible_prompts_may_exceed_the_schedulers_own_limit() -> None:
    instance = make((7, 1), (1, 1), chunked_prefill=False)
    options = Options(Order.DECODE, hybrid=True, chunked=True, prefill_tokens=3)
    assert list(schedule_by(instance, options).batches) == [step(r1=7), step(r2=1)]


def test_a_request_that_could_not_be_refilled_is_never_evicted() -> None:
    # A refill of r1 or r2 would take 3 tokens at once, one more than P.
    instance = make((2, 2), (2, 2), kv_capacity=5, max_prefill_tokens=2, chunked_prefill=False)
    assert batches(instance, "vllm") == [step(r1=2), DECODE, step(r2=2), DECODE]


def aiming(instance: Instance, *terms: dict[str, object]) -> Instance:
    """The instance with terms and predictions of its requests."""
    pairs = zip(instance.groups, terms, strict=True)
    return replace(instance, groups=tuple(replace(group, **term) for group, term in pairs))  # type: ignore[arg-type]


def test_sorted_f_takes_the_batch_of_the_best_quality() -> None:
    # Two of the three fit, with outputs 5, 2 and 1: (1 + 2) / 4 is least; r1 follows when r3 is done.
    instance = make((1, 5), (4, 2), (5, 1), kv_capacity=10)
    assert batches(instance, "sorted_f") == [
        step(r3=5, r2=4),
        Batch({"r1": 1}, decode_all=True),
        Batch(decode_all=True, repeat=4),
    ]
    # Peaks of 9, 3, 3: the first alone has 1 / 1, the others together have 6 / 4.
    instance = make((9, 1), (1, 3), (1, 3), kv_capacity=9)
    assert batches(instance, "sorted_f")[0] == step(r1=9)
    # With four outputs it has 4 / 1.
    instance = make((6, 4), (1, 3), (1, 3), kv_capacity=9)
    assert batches(instance, "sorted_f")[0] == step(r2=1, r3=1)


@SOME
@given(outputs=st.lists(st.integers(1, 9), min_size=1, max_size=6), capacity=st.integers(10, 25))
def test_sorted_f_is_exact_for_equal_prompts(outputs: list[int], capacity: int) -> None:
    instance = make(
        *[(2, n) for n in outputs], kv_capacity=capacity, max_batch_tokens=99, max_prefill_tokens=99
    )
    qualities = [
        Fraction(sum(chosen), size**2)
        for size in range(1, len(outputs) + 1)
        for chosen in combinations(outputs, size)
        if sum(n + 1 for n in chosen) <= capacity
    ]
    found = [outputs[int(name[1:]) - 1] for name in batches(instance, "sorted_f")[0].tokens]
    best = min(qualities)
    # The next batch may follow at once where both fit.
    assert any(Fraction(sum(found[:k]), k**2) == best for k in range(1, len(found) + 1))


@pytest.mark.parametrize(("first", "second", "evicted"), [(6, 4, True), (6, 5, False), (1, 1, False)])
def test_srpt_goes_by_predictions_and_counts_down(first: int, second: int, evicted: bool) -> None:
    # When r2 comes, whose prompt does not fit beside r1, one predicted token of r1 is done.
    instance = aiming(
        make((4, 6), (6, 2, "0.1"), kv_capacity=9),
        {"predicted_output_tokens": first},
        {"predicted_output_tokens": second},
    )
    stays = Batch(decode_all=True, repeat=5)
    assert batches(instance, "srpt")[1] == (step(evict=("r1",), r2=6) if evicted else stays)


def test_deadline_lets_those_first_who_can_be_saved() -> None:
    # One prompt a batch: r1 is lost from the start, r3 is due before r2, r4 was promised nothing.
    instance = aiming(
        make((3, 1), (3, 1), (3, 1), (3, 1), max_batch_tokens=3),
        {"slo": {"ttft": "0.001"}},
        {"slo": {"ttft": 100}},
        {"slo": {"e2e": 50}},
        {},
    )
    assert [list(b.tokens) for b in batches(instance, "deadline")] == [["r3"], ["r2"], ["r1"], ["r4"]]


def test_what_is_not_known_is_one_line() -> None:
    with pytest.raises(
        InputError, match=r"^scheduler: goes by predicted_output_tokens; request 'r1' has none$"
    ):
        run_scheduler(make((1, 1)), "srpt")
    with pytest.raises(InputError, match=r"^scheduler: goes by service levels \(slo\); no request has one$"):
        run_scheduler(make((1, 1)), "deadline@r2")


# --- names ---


@pytest.mark.parametrize("name", ["orcas", "vllm@", "vllm@r0", "vllm@64", "vllm@r1_0", ""])
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="scheduler"):
        get_scheduler(name)


def test_names() -> None:
    assert "sorted_f" in scheduler_names()
    assert aimed_names() == ("srpt", "deadline")
    with pytest.raises(InputError, match="sarathi_nocp_ef"):
        get_scheduler("orcas")


# --- properties ---


@MANY
@given(instance=instances(), name=NAMES)
def test_schedules_are_valid(instance: Instance, name: str) -> None:
    check = verify(instance, run_scheduler(instance, name))
    assert check.ok, check.violations
    assert check.metrics is not None
    if name.endswith("_ef") or name == "sorted_f":
        assert check.metrics.evictions == 0


@MANY
@given(instance=aimed(), order=st.sampled_from(AIMED_ORDERS), options=OPTIONS)
def test_schedules_by_changing_keys_are_valid(instance: Instance, order: Order, options: Options) -> None:
    check = verify(instance, schedule_by(instance, replace(options, order=order)))
    assert check.ok, check.violations


@SOME
@given(instance=aimed(), order=st.sampled_from(AIMED_ORDERS), options=OPTIONS)
def test_compiled_keys_change_the_same(instance: Instance, order: Order, options: Options) -> None:
    options = replace(options, order=order)
    plain = schedule_by(instance, options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(algorithm1, "PLAIN_WORK", 0)
        patch.setattr(algorithm1, "PLAIN_WORK_LOADED", 0)
        assert schedule_by(instance, options) == plain


@SOME
@given(instance=aimed(max_tokens=12), order=st.sampled_from(AIMED_ORDERS), options=OPTIONS)
def test_leaping_changes_nothing_for_changing_keys(
    instance: Instance, order: Order, options: Options
) -> None:
    options = replace(options, order=order)
    leaping = schedule_by(instance, options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_loop, "leap", lambda *_: 0)
        patch.setattr(algorithm1, "PLAIN_WORK_LOADED", algorithm1.PLAIN_WORK)
        assert schedule_by(instance, options) == leaping


def test_who_decodes_may_pass_who_waits() -> None:
    # r0 waits; r2 passes it as it decodes, and then r0, which does not fit beside r2, keeps out r3.
    requests = (("r1", 1, 1, 0, 1), ("r2", 1, 6, 0, 5), ("r3", 1, 5, 0, 5), ("r0", 2, 1, "0.07", 1))
    groups = tuple(
        RequestGroup(name, inputs, outputs, Fraction(arrival), predicted_output_tokens=predicted)
        for name, inputs, outputs, arrival, predicted in requests
    )
    zero = Fraction(0)
    cost = CostModel(((zero, zero),), (zero, zero), (zero, Fraction(3, 100)), Attention.SQUARE)
    policy = Policy(hybrid_batching=True, chunked_prefill=False, preemption=False)
    instance = Instance("passes", groups, System(11, 2, 2), cost, policy)
    options = Options(Order.REMAINING, hybrid=True, chunked=False, prefill_tokens=1)
    batches = schedule_by(instance, options).batches
    assert [(dict(batch.tokens), batch.decode_all, batch.repeat) for batch in batches[3:]] == [
        ({}, True, 2), ({"r2": 1}, False, 2), ({"r0": 2}, False, 1), ({}, True, 2),
    ]  # fmt: skip


def alone(instance: Instance) -> Instance:
    """The instance with one request for each group, and room for three more output tokens of each."""
    system = replace(instance.system, kv_capacity=instance.system.kv_capacity + 4)
    groups = tuple(replace(group, count=None) for group in instance.groups)
    return replace(instance, groups=groups, system=system, policy=Policy())


@SOME
@given(instance=aimed().map(alone), name=st.sampled_from(["srpt", "deadline"]), data=st.data())
def test_who_goes_by_predictions_knows_no_lengths(instance: Instance, name: str, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, len(instance.groups) - 1))
    groups = list(instance.groups)
    groups[k] = replace(groups[k], output_tokens=groups[k].output_tokens + data.draw(st.integers(1, 3)))
    longer = replace(instance, groups=tuple(groups))
    first, second = (replay(made, run_scheduler(made, name)) for made in (instance, longer))
    # Up to the batch in which one of them turns out to be longer.
    known = first.last_batch[k] + 1
    assert first.features[:known] == second.features[:known]


@SOME
@given(instance=aimed(arrivals=True).map(alone), name=st.sampled_from(["sorted_f", "srpt", "deadline"]))
def test_nobody_knows_who_will_arrive(instance: Instance, name: str) -> None:
    last = max(instance.groups, key=lambda group: group.arrival)
    rest = tuple(group for group in instance.groups if group is not last)
    assume(any(group.slo for group in rest))
    fewer = replace(instance, groups=rest)
    first, second = (replay(made, run_scheduler(made, name)) for made in (instance, fewer))
    known = sum(Fraction(start, first.ticks_per_second) < last.arrival for start in first.starts)
    assert first.features[:known] == second.features[:known]


@MANY
@given(instance=instances(), options=OPTIONS)
def test_any_options_give_valid_schedules(instance: Instance, options: Options) -> None:
    check = verify(instance, schedule_by(instance, options))
    assert check.ok, check.violations


@SOME
@given(instance=instances())
def test_phases_mix_only_where_allowed(instance: Instance) -> None:
    for name in ("sarathi_nohy", "vllm", "vllm_ef"):
        features = replay(instance, run_scheduler(instance, name)).features
        assert not any(f.decodes and f.prefills for f in features)


@SOME
@given(instance=instances(), options=OPTIONS)
def test_compiled_loop_decides_the_same(instance: Instance, options: Options) -> None:
    plain = schedule_by(instance, options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(algorithm1, "PLAIN_WORK", 0)
        patch.setattr(algorithm1, "PLAIN_WORK_LOADED", 0)
        assert schedule_by(instance, options) == plain


@SOME
@given(instance=instances(max_tokens=12), options=OPTIONS)
def test_leaping_over_equal_batches_changes_nothing(instance: Instance, options: Options) -> None:
    leaping = schedule_by(instance, options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_loop, "leap", lambda *_: 0)
        patch.setattr(algorithm1, "PLAIN_WORK_LOADED", algorithm1.PLAIN_WORK)
        assert schedule_by(instance, options) == leaping


@pytest.mark.parametrize("name", scheduler_names())
def test_mid_size_workload(name: str) -> None:
    instance = make(
        *[(1 + 37 * k % 400, 1 + 61 * k % 300) for k in range(800)],
        kv_capacity=8000, max_batch_tokens=2048, max_prefill_tokens=1024, block_size=16,
    )  # fmt: skip
    check = verify(instance, run_scheduler(instance, name))
    assert check.ok, check.violations[:3]


def test_schedules_beyond_the_limit_of_batches_are_refused() -> None:
    instance = make((1, MAX_BATCHES + 1), kv_capacity=10**8)
    with pytest.raises(InputError, match="batches"):
        run_scheduler(instance, "vllm")


def test_options_follow_the_policy() -> None:
    instance = make((4, 2), (4, 2), kv_capacity=9, hybrid_batching=False)
    mixed = make((4, 2), (4, 2), kv_capacity=9)
    options = Options(Order.DECODE, hybrid=True, chunked=True, prefill_tokens=6)
    assert schedule_by(instance, options) == schedule_by(mixed, replace(options, hybrid=False))


def test_small_instances_load_no_compiler() -> None:
    code = (
        "import sys\n"
        "from infermax_opt.infermax.data.cost import CostModel\n"
        "from infermax_opt.infermax.data.instance import Instance, System\n"
        "from infermax_opt.infermax.heuristics import run_scheduler\n"
        "from infermax_opt.api import verify\n"
        "cost = CostModel([(1, 1)], (1, 1), (1, 1))\n"
        "instance = Instance.of_requests('tiny', [(3, 4)] * 5, System(20, 9, 9), cost)\n"
        "assert verify(instance, run_scheduler(instance, 'sarathi')).ok\n"
        "assert 'numba' not in sys.modules and 'numpy' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
