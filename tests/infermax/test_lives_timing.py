"""Better moments for lives: the same happens in the same order, within all limits, and takes no longer."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.heuristics import run_scheduler
from infermax_opt.infermax.planners.lives import _reorder, _timing
from infermax_opt.infermax.planners.lives._kernel import AWAY, ENTER, IDLE
from infermax_opt.infermax.planners.lives._reorder import reordered
from infermax_opt.infermax.planners.lives._timing import retimed, stretches_of, times_help
from infermax_opt.infermax.planners.lives._write import lives_of, written
from infermax_opt.infermax.planners.lives.planner import _Search
from tests.campaign import examples
from tests.support import case, value

Lives = npt.NDArray[np.int8]
#: What a batch costs is what the program counts: nothing for presence, refills by the token.
PLAIN = CostModel([("1", "0.25")], ("0", "0.001"), ("0", "0"))


def slack(instance: Instance, lives: Lives, draw: st.DataObject) -> Lives:
    """The lives with some batches more in which all who are there idle."""
    for _ in range(draw.draw(st.integers(0, 4))):
        at = draw.draw(st.integers(1, lives.shape[1] - 1)) if lives.shape[1] > 1 else 0
        goes_on = (lives[:, at - 1] != AWAY) & (lives[:, at] != AWAY) & (lives[:, at] != ENTER)
        lives = np.insert(lives, at, np.where(goes_on, IDLE, AWAY), axis=1)
    return lives


@examples(30, 3000)
@given(
    data=st.data(),
    lengths=st.lists(
        st.tuples(st.integers(1, 6), st.integers(1, 9), st.integers(1, 4)), min_size=1, max_size=3
    ),
    more=st.integers(0, 20),
    budget=st.integers(0, 12),
    name=st.sampled_from(["vllm", "rank_output", "sarathi"]),
)
def test_no_limit_is_broken_and_nothing_takes_longer(
    data: st.DataObject, lengths: list[tuple[int, int, int]], more: int, budget: int, name: str
) -> None:
    """Several kinds, evictions, idling and tight limits on prompts."""
    groups = tuple(RequestGroup(f"r{k}", i, o, count=c) for k, (i, o, c) in enumerate(lengths))
    largest = max(i + o - 1 for i, o, _ in lengths)
    requests = sum(count for *_, count in lengths)
    system = System(largest + more, largest + requests + budget, largest + budget)
    instance = Instance("case", groups, system, PLAIN, Policy(chunked_prefill=False))
    lives = lives_of(instance, run_scheduler(instance, name))
    assert lives is not None
    lives = slack(instance, lives, data)
    before = value(instance, written(instance, lives))
    for deadline in (None, time.monotonic() + 5):
        changed = retimed(instance, lives, deadline=deadline)
        if changed is not None:
            assert value(instance, written(instance, changed)) <= before
            assert (changed == ENTER).sum() == (lives == ENTER).sum()
    # In another order: valid, though what is rounded may be no shorter.
    other = reordered(instance, lives, seed=1, deadline=time.monotonic() + 0.05)
    if other is not None:
        value(instance, written(instance, other))


def test_what_the_program_says_is_what_replay_says() -> None:
    """What it counts differs from the makespan by the same amount for all lives."""
    cost = CostModel([("1", "0.25")], ("0", "0.001"), ("0.5", "0"))
    instance = case(9, 3, 14, 40, cost=cost)
    constants = set()
    for name in ("vllm", "rank_output"):
        lives = lives_of(instance, run_scheduler(instance, name))
        assert lives is not None
        for changed in (lives, retimed(instance, lives)):
            assert changed is not None
            stretches = stretches_of(changed)
            assert stretches is not None
            program = _timing.Program(instance, stretches)
            assert program.start is not None
            counted = float(program.cost @ program.start) + program.fixed
            # Presence counts for each refill there, and once for all that enter a batch together here.
            refills = int((changed == ENTER).sum()) - len(changed)
            batches = int((changed == ENTER).any(axis=0).sum())
            replayed = float(value(instance, written(instance, changed))) - 0.5 * batches
            constants.add(round(replayed - counted + 0.5 * refills, 6))
    assert len(constants) == 1


def test_another_order_helps() -> None:
    """Who is evicted for nothing stays, where there is room for all."""
    instance = case(3, 2, 8, 40, cost=PLAIN)
    lives = np.array(
        [
            [ENTER, 1, 1, 0, ENTER, 1, 1, 1, 1, 0],
            [ENTER, 1, 1, 1, 1, 1, 1, 1, 0, 0],
            [0, 0, ENTER, 1, 1, 1, 1, 1, 1, 1],
        ],
        np.int8,
    )
    found = reordered(instance, lives, seed=1, deadline=time.monotonic() + 2)
    assert found is not None
    assert found.shape[1] == 8
    assert int((found == ENTER).sum()) == 3


def test_changes_of_the_order_are_of_all_kinds() -> None:
    instance = case(8, 4, 16, 60)
    lives = lives_of(instance, run_scheduler(instance, "vllm"))
    assert lives is not None
    stretches = stretches_of(lives)
    assert stretches is not None
    here, rng = _reorder._Order(instance, stretches), np.random.default_rng(1)
    entered = set()
    for _ in range(200):
        changed = here.changed(rng)
        if changed is not None:
            other = _reorder._Order(instance, changed)
            entered.add(sum(some.enters for some in changed) - sum(some.enters for some in stretches))
            here = other if other.value <= here.value else here
    assert {-1, 0} <= entered or {0, 1} <= entered


def test_idle_batches_go_and_memory_fills() -> None:
    """Lives in steps of eight leave memory over; other moments do not."""
    instance = case(12, 8, 64, 400)
    search = _Search(instance, 8, None, 1)
    for _ in search.improve(None):
        pass
    lives = search.finer(8)
    before = value(instance, written(instance, lives))
    rounded = retimed(instance, lives)
    assert rounded is not None
    assert value(instance, written(instance, rounded)) < before
    best = retimed(instance, lives, deadline=time.monotonic() + 5)
    assert best is not None
    assert value(instance, written(instance, best)) <= value(instance, written(instance, rounded))


def test_an_optimum_by_hand() -> None:
    """Two requests of three tokens, of which one fits at a time; a batch between them goes."""
    instance = case(2, 1, 3, 4, cost=PLAIN)
    lives = np.array([[ENTER, 1, 1, 0, 0, 0, 0], [0, 0, 0, 0, ENTER, 1, 1]], np.int8)
    found = retimed(instance, lives)
    assert found is not None
    # What begins after somebody left stays after it, so that one batch goes, no more.
    assert found.shape[1] == 6


def test_who_is_helped() -> None:
    instance = case(4, 2, 4, 20)
    assert times_help(instance)
    assert not times_help(replace(instance, system=System(20, 4096, 4096, max_running=3)))
    assert times_help(replace(instance, system=System(20, 4096, 4096, max_running=4)))
    assert not times_help(replace(instance, system=System(20, 4096, 4096, block_size=2)))


def test_what_is_not_whole_or_too_much_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = case(2, 1, 3, 4, cost=PLAIN)
    assert retimed(instance, np.zeros((2, 4), np.int8)) is None
    monkeypatch.setattr(_timing, "MAX_STRETCHES", 1)
    lives = lives_of(instance, run_scheduler(instance, "vllm"))
    assert lives is not None
    assert retimed(instance, lives) is None


def test_a_deadline_that_is_over_changes_nothing() -> None:
    instance = case(6, 4, 12, 60)
    lives = lives_of(instance, run_scheduler(instance, "vllm"))
    assert lives is not None
    changed = retimed(instance, lives, deadline=time.monotonic() - 1)
    assert changed is not None
    assert value(instance, written(instance, changed)) == value(instance, written(instance, lives))
