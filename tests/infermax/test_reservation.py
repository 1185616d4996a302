"""Schedulers that reserve KV: valid on any instance, and what each does by hand."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from infermax_opt.api import verify
from infermax_opt.core.errors import InputError
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.heuristics import get_scheduler, run_scheduler
from infermax_opt.infermax.replay.fast import replay
from infermax_opt.infermax.schedulers.reservation.job import Job
from infermax_opt.infermax.schedulers.reservation.options import Allocation, Order, ReservationOptions
from infermax_opt.infermax.schedulers.reservation.presets import RESERVATION, reservation_options
from infermax_opt.infermax.schedulers.reservation.region import Member, Region
from infermax_opt.infermax.schedulers.reservation.run import ReservationRun, reservation_run
from tests.campaign import campaign, in_blocks
from tests.infermax.test_replay import make
from tests.infermax.tiny import cost_model, tiny

#: Settings that are drawn, each with some probability.
SETTINGS = {
    "padding": ("0", "0.1", "0.5"),
    "reserve": ("0", "0.1", "0.5"),
    "buffer": ("0", "0.1", "0.5"),
    "gt_queue_kv": ("0", "0.25", "0.9"),
    "max_length": ("1", "20", "100"),
    "quantum": ("1", "2", "5"),
    "cap": ("1", "2", "5"),
    "max_running": ("1", "2", "5"),
}


def drawn(seed: int) -> Instance:
    """Requests with predictions, some wrong or missing, some with deadlines, under any policy."""
    rng = random.Random(seed)
    base = tiny(seed, arrivals=rng.random() < 0.7) if seed % 4 == 0 else _larger(seed, rng)
    kind, error = rng.random(), rng.choice([0, 0.1, 0.3, 0.5])

    def informed(group: RequestGroup) -> RequestGroup:
        predicted: int | None = max(1, round(group.output_tokens * (1 + rng.uniform(-error, error))))
        if kind < 0.2 or (kind < 0.4 and rng.random() < 0.5):
            predicted = None
        elif kind > 0.95:
            predicted = rng.choice([1, 1000])
        slo = {"e2e": rng.choice([0, 1, 5, 100])} if rng.random() < 0.5 else None
        return replace(group, predicted_output_tokens=predicted, slo=slo)

    return replace(base, groups=tuple(map(informed, base.groups)))


def _larger(seed: int, rng: random.Random) -> Instance:
    longest = rng.choice([4, 10, 40])
    policy = Policy(rng.random() < 0.7, rng.random() < 0.7, rng.random() < 0.75)
    block = rng.choice([1, 1, 2, 4])
    groups = [
        RequestGroup(
            f"q{k}", rng.randint(1, longest), rng.randint(1, longest),
            Fraction(rng.randint(0, 300), 10) if rng.random() < 0.6 else 0,
        )
        for k in range(rng.randint(2, 14))
    ]  # fmt: skip
    if rng.random() < 0.4:  # groups of the same length
        groups = [replace(group, output_tokens=rng.choice([2, longest])) for group in groups]
    peak = max(-(-(g.input_tokens + g.output_tokens - 1) // block) * block for g in groups)
    prompt = 1 if policy.chunked_prefill else max(g.input_tokens for g in groups)
    roomy = rng.random() < 0.4
    system = System(
        kv_capacity=peak + rng.choice([0, 1, peak // 2, peak, 3 * peak]),
        max_batch_tokens=50 if roomy else prompt + rng.randint(0, 8),
        max_prefill_tokens=50 if roomy else prompt + rng.randint(0, 8),
        max_running=rng.choice([None, None, 1, 2, 3]),
        block_size=block,
    )
    return Instance(f"drawn-{seed}", tuple(groups), system, cost_model(rng), policy)


def with_drawn_settings(name: str, rng: random.Random) -> str:
    chosen = [f"{key}={rng.choice(values)}" for key, values in SETTINGS.items() if rng.random() < 0.3]
    return f"{name}@{','.join(chosen)}" if chosen else name


@in_blocks(campaign(60, 5_000), 100)
def test_every_schedule_is_valid(seeds: range) -> None:
    for seed in seeds:
        of, rng = drawn(seed), random.Random(seed)
        for preset in RESERVATION:
            name = with_drawn_settings(preset, rng)
            run = reservation_run(of, reservation_options(name))
            found = replay(of, run.schedule)
            assert found.valid, (seed, name, found.violations[0])
            assert run.reserved_share <= 1, (seed, name)
            # Nobody holds more than is reserved.
            busy = [end - start for start, end in zip(found.starts, found.ends, strict=True)]
            used = sum(kv * time for kv, time in zip(found.kv_used, busy, strict=True))
            all_of_it = sum(busy) * of.system.kv_capacity
            assert not all_of_it or run.reserved_share >= Fraction(used, all_of_it), (seed, name)


def predicted(of: Instance, *outputs: int | None, **slo: int) -> Instance:
    groups = zip(of.groups, outputs, strict=True)
    made = (replace(g, predicted_output_tokens=o, slo=slo or None) for g, o in groups)
    return replace(of, groups=tuple(made))


def run(of: Instance, name: str) -> ReservationRun:
    found = reservation_run(of, reservation_options(name))
    assert verify(of, found.schedule).ok
    return found


def first_batches(of: Instance, made: ReservationRun) -> list[int]:
    return replay(of, made.schedule).first_batch


def last_batches(of: Instance, made: ReservationRun) -> list[int]:
    return replay(of, made.schedule).last_batch


# --- names ---


def test_hyphens_may_be_underscores_and_settings_follow() -> None:
    assert reservation_options("ecoserve_sdo") == reservation_options("ecoserve-sdo")
    found = reservation_options("ecoserve@padding=0.2,reserve=0.05,buffer=0.1,gt_queue_kv=0.25,r64")
    assert (found.padding, found.reserve, found.buffer) == (
        Fraction(1, 5),
        Fraction(1, 20),
        Fraction(1, 10),
    )
    assert (found.gt_queue_kv, found.max_running, found.pipelined) == (Fraction(1, 4), 64, True)
    assert reservation_options("orca@cap=16,max_length=1024").cap == 16
    assert not reservation_options("ecoserve@synced=no").synced
    of = make((2, 2), (2, 2))
    assert run_scheduler(of, "ecoserve_sd") == run_scheduler(of, "ecoserve-sd")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ecoserve@speed=3", "is no setting"),
        ("ecoserve@padding=x", "padding"),
        ("ecoserve@padding=-1", "is not from 0 to 10"),
        ("ecoserve@reserve=1", "below 1"),
        ("ecoserve@padding=0.1,padding=0.2", "is there twice"),
        ("ecoserve@synced=maybe", "is not yes or no"),
        ("orca@cap=0", "is not from 1 to"),
        ("orca@cap=2.5", "is not a whole number"),
        ("orca@queue=best", "is none of"),
        ("orca@pipelined=yes", "goes with decoupled only"),
        ("ecoserve@", "is no setting"),
        ("multires@synced=yes", "goes neither"),
        ("sync-coupled@preemptive=yes", "does not go with synced"),
        ("ecoserve@allocation=max", "exact allocation only"),
    ],
)
def test_a_wrong_setting_is_named(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        get_scheduler(name)
    assert "\n" not in str(caught.value)


# --- allocation ---


def test_orca_reserves_the_longest_sequence() -> None:
    of = make((2, 2), (2, 2), (2, 2), kv_capacity=10)
    # Two of length 5 fit; the third waits for both, who are done after two batches.
    assert first_batches(of, run(of, "orca@max_length=5")) == [0, 0, 2]
    assert first_batches(of, run(of, "orca@max_length=3")) == [0, 0, 0]
    assert first_batches(of, run(of, "orca@max_length=3,cap=1")) == [0, 2, 4]


def test_exact_reserves_the_padded_prediction() -> None:
    of = predicted(make((2, 3), (2, 3), kv_capacity=8), 3, 3)
    # Each takes 2 + 3 - 1; with 50 % more 2 + 5 - 1.
    assert first_batches(of, run(of, "multires@padding=0")) == [0, 0]
    assert first_batches(of, run(of, "multires@padding=0.5")) == [0, 3]


def test_blocks_are_taken_one_by_one_and_the_last_comer_makes_room() -> None:
    of = make((2, 3), (2, 3), kv_capacity=6)
    made = run(of, "fastgen")
    assert (made.counts.evicted, made.failed_share) == (1, Fraction(1, 2))
    assert first_batches(of, made) == [0, 0]
    assert last_batches(of, made)[0] < last_batches(of, made)[1]


# --- predictions that were too short ---


def test_who_outlives_its_prediction_uses_the_reserve() -> None:
    of = predicted(make((2, 5), kv_capacity=20, block_size=2), 2)
    made = run(of, "ecoserve-d@padding=0,reserve=0.3")
    assert made.counts.extended > 0
    assert (made.counts.stopped, made.counts.evicted, made.failed_share) == (0, 0, 0)


def test_grants_double() -> None:
    policy_of = predicted(make((1, 40), kv_capacity=100), 1)
    made = run(policy_of, "ecoserve-d@padding=0")
    # 1 token, then 1, 2, 4, 8, 16, 32 more.
    assert made.counts.extended == 6


def test_without_reserve_it_stops_with_its_kv() -> None:
    # They reserve 4 and 6 of 10; the first one needs more while the second one runs, for two batches.
    of = predicted(make((2, 5), (2, 5), kv_capacity=10), 3, 5)
    made = run(of, "ecoserve-d@padding=0,reserve=0")
    assert (made.counts.stopped, made.counts.evicted) == (1, 0)
    assert made.failed_share == Fraction(1, 2)
    assert last_batches(of, made) == [6, 4]
    assert last_batches(of, run(of, "ecoserve-oracle@reserve=0")) == [4, 8]


# --- prompts and generations apart ---


def test_prompts_do_not_fill_the_kv_to_a_standstill() -> None:
    # Four prompts of 4 would fill all 16, and no generation could start.
    of = predicted(make(*[(4, 4)] * 4, kv_capacity=16, max_batch_tokens=30, max_prefill_tokens=30), *[4] * 4)
    made = run(of, "ecoserve-d@padding=0,reserve=0")
    assert made.counts.forced == 0
    assert made.counts.evicted == 0


def test_where_nobody_can_go_on_one_is_made_to() -> None:
    # Both stop at 8 of 16 tokens, and none has room to go on.
    of = predicted(make((4, 9), (4, 9), kv_capacity=16), 5, 5)
    made = run(of, "ecoserve-d@padding=0,reserve=0")
    assert (made.counts.forced, made.counts.evicted) == (1, 1)


def test_a_prompt_above_the_batch_is_split() -> None:
    of = predicted(make((9, 2), kv_capacity=20, max_batch_tokens=4, max_prefill_tokens=4), 2)
    for name in RESERVATION:
        assert first_batches(of, run(of, name)) == [2]


def test_equal_lengths_start_and_end_together() -> None:
    # Generations may reserve 14: the first group, then the second one.
    outputs = [4, 7, 4, 7]
    of = predicted(make(*[(1, o) for o in outputs], kv_capacity=20), *outputs)
    made = run(of, "ecoserve-sd@padding=0,reserve=0.3")
    ends = last_batches(of, made)
    assert (made.counts.groups, made.counts.members) == (2, 4)
    assert ends[0] == ends[2]
    assert ends[1] == ends[3]
    assert ends[0] < ends[1]


def test_the_last_group_is_split() -> None:
    outputs = [5, 5, 5]
    of = predicted(make(*[(1, o) for o in outputs], kv_capacity=11), *outputs)
    made = run(of, "ecoserve-sd@padding=0,reserve=0")
    ends = last_batches(of, made)
    assert ends[0] == ends[1] < ends[2]


# --- order ---


def test_deadlines_come_first_then_what_fits_best() -> None:
    of = predicted(make((1, 2), (1, 5), (1, 3), max_running=1, kv_capacity=5), 2, 5, 3)
    urgent = replace(of, groups=(*of.groups[:2], replace(of.groups[2], slo={"e2e": "0.1"})))
    first = first_batches(urgent, run(urgent, "ecoserve-sdo@padding=0,reserve=0"))
    assert first[2] < min(first[:2])


def test_the_least_left_comes_first_and_takes_the_place_of_others() -> None:
    of = predicted(make((1, 8), (1, 2, Fraction(1, 2))), 8, 2)
    ends = last_batches(of, run(of, "srtf@cap=1,max_length=4"))
    assert ends[1] < ends[0]


def test_levels_fall_by_quantum() -> None:
    of = make((1, 6), (1, 6))
    ends = last_batches(of, run(of, "fastserve@cap=1,quantum=2,max_length=4"))
    # The first one makes two tokens, then so does the second one, and the first goes on.
    assert ends[0] > 6


# --- guests ---


def host(length: int, block: int = 1, slack: int = 0) -> Region:
    return Region(Member(job(), 0, length, 0, slack), block)


def job() -> Job:
    of = make((1, 1))
    return Job(0, of.requests[0], 0, None, 1, 1, False)


def test_places_for_guests_double_at_each_level() -> None:
    widths = [width for width, _ in host(32).vacant]
    assert [widths.count(width) for width in (16, 8, 4, 2, 1)] == [1, 2, 4, 8, 16]
    offsets = {width: [o for w, o in host(32).vacant if w == width] for width in (16, 8)}
    assert offsets == {16: [16], 8: [8, 24]}
    assert len({offset for _, offset in host(32).vacant}) == 31


def test_an_exact_half_fits() -> None:
    assert host(32).slot(16, 0) == (16, 16)
    assert host(32).slot(17, 0) is None
    assert host(32).slot(8, 0) == (24, 8)


def test_a_guest_that_comes_later_has_less_time() -> None:
    region = host(32)
    assert region.slot(16, 1) is None
    assert region.slot(8, 0) is not None
    # The cells at 24 are still far away when those at 8 are not.
    assert region.slot(8, 5) == (24, 8)
    assert region.room(16, 5) == 11


def test_two_guests_never_meet() -> None:
    region, guest = host(32), job()
    region.members[guest] = Member(guest, 16, 16, 0, 0)
    assert region.room(24, 0) == 8
    assert region.room(8, 0) == 8
    assert region.room(16, 4) == 0
    assert region.occupied() == 32


def test_where_a_guest_has_been_is_room_again() -> None:
    region = host(32)
    assert region.gap(8, 0) == (8, 8)
    assert region.gap(8, 9) == (17, 8)
    assert region.gap(8, 20) is None


@pytest.mark.parametrize("block", [1, 2, 3])
def test_cells_are_never_used_twice(block: int) -> None:
    """Lemma 1, cell by cell: guests join at random moments wherever the region lets them."""
    for seed in campaign(90, 3_000):
        rng = random.Random(seed)
        length = block * rng.randint(2, 24)
        region = host(length, block, rng.randrange(block))
        for step in range(length + block):
            if rng.random() < 0.5:
                wanted = block * rng.randint(1, 8)
                place = (region.gap if rng.random() < 0.5 else region.slot)(wanted, step)
                if place is not None:
                    guest = job()
                    region.members[guest] = Member(guest, *place, step, rng.randrange(block))
            for member in list(region.members.values()):
                if step - member.since >= member.length and member.offset:
                    del region.members[member.job]
            cells = [
                cell
                for member in region.members.values()
                for cell in range(member.offset, member.frontier(step, block))
            ]
            assert len(cells) == len(set(cells)), (seed, step)
            if rng.random() < 0.02 and region.members:
                del region.members[next(iter(region.members))]  # a host, or who came next, ends early


def test_guests_run_in_what_a_host_has_reserved() -> None:
    # The host takes 1 + 17 - 1; beside it is room for prompts alone.
    outputs = [17, 8, 8]
    of = predicted(make(*[(1, o) for o in outputs], kv_capacity=20), *outputs)
    names = (f"{name}@padding=0,buffer=0,gt_queue_kv=0.15" for name in ("ecoserve-sdo", "ecoserve"))
    alone, shared = (run(of, name) for name in names)
    assert (shared.counts.guests, shared.counts.late, shared.counts.evicted) == (1, 0, 0)
    assert min(last_batches(of, shared)[1:]) == 7
    assert min(last_batches(of, alone)[1:]) > 16


def test_the_prompt_of_a_guest_counts_in_full() -> None:
    # The host takes 17, the guest 3 beside that; of 19 there are 2.
    for capacity, guests in ((21, 1), (19, 0)):
        of = predicted(make((1, 17), (3, 8), kv_capacity=capacity), 17, 8)
        made = run(of, f"ecoserve@padding=0,buffer=0,gt_queue_kv={1 - 17 / capacity:.3f}")
        assert made.counts.guests == guests


def test_a_guest_leaves_room_for_its_buffer() -> None:
    outputs = [17, 8]
    of = predicted(make((1, 17), (1, 8), kv_capacity=18), *outputs)
    assert run(of, "ecoserve@padding=0,reserve=0,buffer=0.2").counts.guests == 0


def test_a_late_guest_loses_its_kv_or_gets_some_of_its_own() -> None:
    of = predicted(make((1, 17), (1, 14), kv_capacity=18), 17, 8)
    made = run(of, "ecoserve@padding=0,reserve=0,buffer=0")
    assert (made.counts.guests, made.counts.late) == (1, 1)
    assert made.failed_share == Fraction(1, 2)


# --- without evictions ---


def test_where_evictions_are_forbidden_peaks_are_reserved() -> None:
    of = predicted(make((2, 3), (2, 3), kv_capacity=6, preemption=False), 1, 1)
    for name in RESERVATION:
        made = run(of, name)
        assert made.counts.evicted == 0
        assert sorted(first_batches(of, made)) == [0, 3]


def test_options_check_themselves() -> None:
    with pytest.raises(InputError):
        ReservationOptions(Allocation.EXACT, padding=Fraction(11))
    assert ReservationOptions("block", "spt").queue is Order.SPT  # type: ignore[arg-type]
