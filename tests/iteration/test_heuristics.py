"""Algorithm 1 by the letter and guarded, greedy prefixes, and the growth of the batch size."""

from __future__ import annotations

from fractions import Fraction

from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.iteration.bounds.kept import most_kept
from infermax_opt.iteration.data.generate import generate_snapshot
from infermax_opt.iteration.data.instance import BE_TOKENS, IterationGroup, IterationInstance, Machine
from infermax_opt.iteration.data.ticks import Ticks
from infermax_opt.iteration.heuristics.algorithm1 import adapted_batch, algorithm1
from infermax_opt.iteration.heuristics.greedy import skip_greedy
from tests.campaign import campaign
from tests.iteration.oracle import tiny

#: 1 s for a batch, and 1 s for each token.
COST = CostModel([(1, 1)], (0, 0), (0, 0), "exact")  # type: ignore[arg-type]


def snapshot(*requests: IterationGroup, batch: int = 4, blocks: int = 9) -> IterationInstance:
    machine = Machine(batch, blocks, Fraction(2), Fraction(10), Fraction(6), COST)
    return IterationInstance("s", requests, machine, BE_TOKENS)


def rt(name: str, waited: int, blocks: int = 0) -> IterationGroup:
    return IterationGroup(name, "rt", "decode", 5, waited=Fraction(waited), new_blocks=blocks)


def be(name: str, *, host: int = 0, blocks: int = 0, prefill: bool = False) -> IterationGroup:
    phase = "prefill" if prefill else "decode"
    return IterationGroup(name, "be", phase, 2, host_blocks=host, new_blocks=blocks)


def names(instance: IterationInstance, guarded: bool) -> list[str]:
    batch = algorithm1(instance, guarded=guarded).batch
    return [instance.requests[k].id for k in batch]


def test_a_late_request_keeps_everybody_out_by_the_letter_only() -> None:
    instance = snapshot(rt("late", 9), rt("a", 0), be("b"))
    assert names(instance, guarded=False) == []
    assert names(instance, guarded=True) == ["a", "late", "b"]
    assert Ticks.of(instance).savable == [1]


def test_who_is_thrown_out_must_be_able_to_wait() -> None:
    # Slacks 6 and 6; a batch of two and two has 5 s.  Who waits allows 4 s.
    instance = snapshot(rt("a", 0), rt("b", 0), be("x"), be("y"), be("z"))
    assert names(instance, guarded=False) == ["x", "y", "z"] or "a" in names(instance, guarded=False)
    guarded = algorithm1(instance, guarded=True).batch
    ticks = Ticks.of(instance)
    assert ticks.kept(guarded) == ticks.savable
    literal = algorithm1(instance, guarded=False).batch
    assert len(ticks.kept(literal)) < len(ticks.savable)


def test_best_effort_requests_come_by_host_blocks_then_decodes_then_arrival() -> None:
    order = [be("p", prefill=True), be("d"), be("h", host=1), be("e")]
    assert names(snapshot(*order, batch=4), guarded=True) == ["d", "e", "p", "h"]
    # It stops at the first that finds no block; the greedy rule goes on.
    instance = snapshot(be("wide", blocks=10), be("b", blocks=1))
    assert names(instance, guarded=True) == []
    assert [instance.requests[k].id for k in skip_greedy(instance)] == ["b"]


def test_the_batch_size_doubles_up_to_a_limit() -> None:
    assert [adapted_batch(size, time_failed=False) for size in (128, 256, 512, 1024)] == [
        256,
        512,
        1024,
        1024,
    ]
    assert adapted_batch(1024, time_failed=True) == 128


def test_guarded_keeps_who_can_be_kept_on_generated_snapshots() -> None:
    for seed in range(3):
        for late in (0.0, 0.1):
            instance = generate_snapshot(60, 128, seed=seed, late=late)
            ticks, packed = Ticks.of(instance), algorithm1(instance, guarded=True)
            assert ticks.fits(packed.batch)
            assert len(packed.batch) > 0
            assert len(ticks.kept(skip_greedy(instance))) == len(ticks.savable)


def test_greedy_batches_are_valid() -> None:
    for seed in campaign(90, 2_000):
        instance = tiny(seed)
        ticks, batch = Ticks.of(instance), skip_greedy(instance)
        assert ticks.fits(batch)
        assert len(ticks.kept(batch)) == most_kept(ticks).least
        for guarded in (True, False):
            assert ticks.fits(algorithm1(instance, guarded=guarded).batch)
