"""The simulator: what it accepts the replay accepts, at the same times; what it refuses breaks that rule."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import assume, given
from hypothesis import strategies as st

from infermax_opt import Batch, BrokenRule, InputError, Schedule, Simulator, simulate, solve, verify
from infermax_opt.cli.main import cli
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup
from infermax_opt.infermax.data.schedule import MAX_BATCHES
from infermax_opt.infermax.heuristics import run_scheduler
from infermax_opt.infermax.replay.fast import replay
from infermax_opt.infermax.replay.plain import replay_plain
from infermax_opt.infermax.replay.rules import Rule
from infermax_opt.infermax.simulator import simulator as module
from tests.campaign import examples
from tests.infermax.strategies import aimed, instances
from tests.infermax.test_replay import DECODE, make, step
from tests.support import ROOT

TOY = str(ROOT / "instances" / "toy.json")
DOCUMENT = (ROOT / "docs" / "schedulers.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", DOCUMENT, flags=re.DOTALL | re.MULTILINE)
SOME = examples(45, 3_000)


def documented() -> Any:
    """The scheduler of the document."""
    names: dict[str, Any] = {}
    exec(BLOCKS[0], names)
    return names["fcfs"]


# --- against the replay -------------------------------------------------------------------------


def anything(rng: random.Random, sim: Simulator, instance: Instance) -> Batch:
    """A batch that may or may not be allowed."""
    seen = [*sim.running, *sim.waiting]
    tokens: dict[Any, int] = {}
    for request in rng.sample(seen, rng.randint(0, len(seen))):
        most = request.prefill_left or 1
        tokens[request] = rng.choice([1, most, most, rng.randint(1, most), most + rng.randint(0, 1)])
    if rng.random() < 0.05:
        tokens[rng.choice([request.id for request in instance.requests] + ["nobody"])] = 1
    evict = rng.sample(seen, min(len(seen), rng.choice([0, 0, 0, 0, 1, 2])))
    if rng.random() < 0.8:
        tokens = {request: count for request, count in tokens.items() if request not in evict}
    start = sim.now + Fraction(rng.randint(0, 50), rng.choice([3, 7, 10])) if rng.random() < 0.1 else None
    return Batch(tokens, tuple(evict), start, rng.random() < 0.5, rng.choice([1, 1, 1, 2, 3]))


def by_name(batch: Batch) -> Batch:
    tokens = {getattr(key, "id", key): count for key, count in batch.tokens.items()}
    return replace(batch, tokens=tokens, evict=tuple(request.id for request in batch.evict))  # type: ignore[attr-defined]


def picture(sim: Simulator) -> Any:
    return sim.now, sim.free_kv, sim.decode_growth, repr(sim.waiting), repr(sim.running), sim.schedule()


def check_views(sim: Simulator, instance: Instance) -> None:
    held = instance.system.held
    assert sim.free_kv == instance.system.kv_capacity - sum(held(r.cached_tokens) for r in sim.running)
    assert sim.decode_growth == sum(held(r.cached_tokens + 1) - held(r.cached_tokens) for r in sim.decoding)
    assert set(sim.decoding) | set(sim.prefilling) == set(sim.running)
    assert all(r.generated_tokens and r.prefill_left == 0 for r in sim.decoding)
    for request in (*sim.waiting, *sim.prefilling):
        assert request.prefill_left == request.input_tokens + request.generated_tokens - request.cached_tokens
    assert all(request.cached_tokens == 0 for request in sim.waiting)
    assert all(request.arrival <= sim.now for request in (*sim.waiting, *sim.running))


def check_refusal(sim: Simulator, instance: Instance, batch: Batch, before: int, error: BrokenRule) -> None:
    """The verifier names the same, of the batches so far and the one that was refused."""
    again = sim.batches > before
    # Repetitions come without evictions; where the clock has been put forward, the batch starts then.
    start = sim.now if again or batch.start is None else max(batch.start, sim.now)
    refused = replace(by_name(batch), start=start, repeat=1, evict=() if again else by_name(batch).evict)
    tried = Schedule(instance.name, (*sim.schedule().batches, refused))
    assert error.violation in replay_plain(instance, tried).violations
    assert error.violation.batch == tried.length


@SOME
@given(instance=instances(max_requests=3), seed=st.integers(0, 2**32))
def test_what_it_accepts_the_replay_accepts_and_what_it_refuses_breaks_a_rule(
    instance: Instance, seed: int
) -> None:
    rng = random.Random(seed)
    sim = Simulator(instance)
    ends = []
    for _ in range(60):
        if sim.done:
            break
        if rng.random() < 0.1:
            sim.wait_until(sim.now + Fraction(rng.randint(0, 40), 10))
        batch, before, seen = anything(rng, sim, instance), sim.batches, picture(sim)
        try:
            sim.step(batch)
            ends.append((sim.batches, sim.now))
        except BrokenRule as error:
            check_refusal(sim, instance, batch, before, error)
            assert sim.batches > before or picture(sim) == seen
        check_views(sim, instance)
    schedule = sim.schedule()
    replayed = replay_plain(instance, schedule)
    assert {violation.rule for violation in replayed.violations} <= {Rule.COMPLETION}
    assert sim.done == replayed.valid
    arrivals = {request.arrival for request in instance.requests}
    for position, now in ends:
        # The clock goes on to the next arrival where nobody is left to serve.
        assert now == replayed.seconds(replayed.ends[position - 1]) or now in arrivals


# --- against shipped schedulers -----------------------------------------------------------------


def batch_by_batch(instance: Instance, schedule: Schedule) -> Any:
    """What every batch does, and when; the presets name starts that change nothing, too."""
    replayed = replay(instance, schedule)
    assert replayed.valid, replayed.violations
    plain = [
        (b.tokens, b.evict if k == 0 else (), b.decode_all) for b in schedule.batches for k in range(b.repeat)
    ]
    times = [replayed.seconds(start) for start in replayed.starts]
    return list(zip(plain, times, strict=True))


def roomy(instance: Instance, **policy: bool) -> Instance:
    """The same where batches have room for every decode, and this policy."""
    system = replace(
        instance.system, max_batch_tokens=instance.system.max_batch_tokens + 2 * len(instance.requests)
    )
    return replace(instance, policy=Policy(**policy), system=system)


@SOME
@given(instance=instances())
def test_the_documented_scheduler_is_sarathi(instance: Instance) -> None:
    instance = roomy(instance)
    made = simulate(instance, documented())
    assert batch_by_batch(instance, made) == batch_by_batch(instance, run_scheduler(instance, "sarathi"))


def test_the_documented_scheduler_evicts() -> None:
    instance = make((2, 4), (2, 3), kv_capacity=6)
    schedule = simulate(instance, documented())
    assert schedule == replace(run_scheduler(instance, "sarathi"), instance="tiny")
    assert Batch(evict=("r2",), decode_all=True, repeat=2) in schedule.batches


def shortest_predicted_first(sim: Simulator) -> Batch:
    """All in decode make a token; the prompt with the least left to generate, as predicted, comes first."""
    left = min(1024, sim.system.max_prefill_tokens, sim.system.max_batch_tokens - len(sim.decoding))
    tokens = {}
    for request in sorted(
        chain(sim.prefilling, sim.waiting),
        key=lambda r: ((r.predicted_output_tokens or 0) - r.generated_tokens, r.arrival),
    ):
        if left > 0:
            tokens[request] = min(left, request.prefill_left)
            left -= tokens[request]
    return Batch(tokens, decode_all=True)  # type: ignore[arg-type]


@SOME
@given(instance=aimed())
def test_shortest_predicted_first_is_srpt_where_the_cache_is_large(instance: Instance) -> None:
    instance = roomy(instance)
    # Ties go by place there, and by arrival with one group a request here.
    groups = sorted(
        (replace(g, count=None) for g in instance.groups), key=lambda g: g.predicted_output_tokens or 0
    )
    system = replace(instance.system, kv_capacity=10**6, max_running=None)
    instance = replace(instance, groups=tuple(groups), system=system)
    assume(len({group.arrival for group in groups}) == len(groups) or instance.offline)
    made = simulate(instance, shortest_predicted_first)
    made_there = batch_by_batch(instance, run_scheduler(instance, "srpt"))
    assert [x[1] for x in batch_by_batch(instance, made)] == [x[1] for x in made_there]
    assert batch_by_batch(instance, made) == made_there


class PrefillFirst:
    """Whole prompts before decodes, never both in a batch; the last comer is evicted, and counted."""

    def __init__(self) -> None:
        self.evictions = 0

    def batch(self, sim: Simulator) -> Batch:
        held, most = sim.system.held, sim.system.max_running or len(sim.running) + len(sim.waiting)
        room, running = sim.free_kv, len(sim.running)
        left = sim.system.prefill_budget
        tokens = {}
        for request in sim.waiting:
            tokens_left = request.prefill_left
            if tokens_left > left or room < held(tokens_left) or running == most:
                break
            room, running, left = room - held(tokens_left), running + 1, left - tokens_left
            tokens[request] = tokens_left
        if tokens:
            return Batch(tokens)  # type: ignore[arg-type]
        evict = []
        room -= sim.decode_growth
        for last in reversed(sim.running):
            if room < 0:
                evict.append(last)
                room += held(last.cached_tokens + 1)
        self.evictions += len(evict)
        return Batch({}, evict, decode_all=True)  # type: ignore[arg-type]


@SOME
@given(instance=instances())
def test_prefill_first_with_evictions_is_vllm(instance: Instance) -> None:
    instance = roomy(instance, hybrid_batching=instance.policy.hybrid_batching)
    # So that no prompt and no refill is split.
    longest = max(request.peak_kv for request in instance.requests) + 2 * len(instance.requests)
    system = replace(instance.system, max_batch_tokens=longest, max_prefill_tokens=longest)
    instance = replace(instance, system=system)
    scheduler = PrefillFirst()
    made = simulate(instance, scheduler)
    assert batch_by_batch(instance, made) == batch_by_batch(instance, run_scheduler(instance, "vllm"))
    assert scheduler.evictions == replay(instance, made).evictions


# --- what is shown ------------------------------------------------------------------------------


def test_what_has_not_arrived_is_hidden_and_the_clock_goes_on_to_it() -> None:
    sim = Simulator(make((2, 1, "1.5"), (1, 2, "100")))
    assert sim.now == Fraction(3, 2)
    assert [request.id for request in sim.waiting] == ["r1"]
    with pytest.raises(
        BrokenRule, match=r"batch 1, request 'r2': arrival: processed at 1.5 s, before its arrival"
    ):
        sim.step({"r2": 1})
    sim.step({"r1": 2})
    assert sim.now == 100
    assert [request.id for request in sim.waiting] == ["r2"]
    sim.step({"r2": 1})
    sim.step(Batch(decode_all=True, start=Fraction(1000, 3)))
    assert sim.done
    assert [batch.start for batch in sim.schedule().batches] == [Fraction(3, 2), 100, Fraction(1000, 3)]
    with pytest.raises(InputError, match="nobody is to arrive any more"):
        sim.wait()


def test_waiting() -> None:
    sim = Simulator(make((2, 3), (1, 1, 50)))
    sim.wait_until("20.25")
    sim.wait_until(3)
    assert sim.now == Fraction(81, 4)
    sim.step({"r1": 2})
    assert sim.batches == 1
    sim.wait()
    assert sim.now == 50
    assert [request.id for request in (*sim.running, *sim.waiting)] == ["r1", "r2"]
    with pytest.raises(InputError, match="start: -1 is negative"):
        sim.wait_until(-1)


def test_an_evicted_request_waits_behind_those_that_wait() -> None:
    sim = Simulator(make((2, 3), (2, 3), (1, 1)))
    sim.step({"r1": 2, "r2": 2})
    sim.step(DECODE)
    sim.step(Batch(evict=("r1",), decode_all=True))
    assert [request.id for request in sim.waiting] == ["r3", "r1"]
    refill = sim.waiting[1]
    assert (refill.generated_tokens, refill.cached_tokens, refill.prefill_left) == (2, 0, 4)
    sim.step({refill: 4})
    assert [request.id for request in sim.waiting] == ["r3"]


def test_lengths_are_shown_to_the_clairvoyant_only() -> None:
    instance = Instance(
        "i",
        (RequestGroup("a", 2, 7, 0, None, "rt", 2, {"ttft": 1}, predicted_output_tokens=5, optional=True),),
        make((1, 1)).system,
        make((1, 1)).cost,
    )
    (request,) = Simulator(instance).waiting
    assert (request.predicted_output_tokens, request.class_name, request.weight) == (5, "rt", 2)
    assert (request.slo.ttft, request.optional, request.arrival, request.input_tokens) == (1, True, 0, 2)
    with pytest.raises(InputError, match="output_tokens: are unknown before the last one"):
        _ = request.output_tokens
    assert Simulator(instance, clairvoyant=True).waiting[0].output_tokens == 7


def test_optional_requests_may_be_left() -> None:
    groups = (RequestGroup("a", 2, 2), RequestGroup("b", 2, 2, optional=True))
    instance = replace(make((1, 1)), groups=groups)

    def picky(sim: Simulator) -> Any:
        return {r: r.prefill_left or 1 for r in (*sim.running, *sim.waiting) if not r.optional} or None

    schedule = simulate(instance, picky)
    assert schedule.batches == (step(a=2), DECODE)
    assert verify(instance, schedule).ok


def test_a_batch_that_names_all_in_decode_is_written_short() -> None:
    sim = Simulator(make((1, 4), (1, 4), (2, 1)))
    sim.step({"r1": 1, "r2": 1})
    sim.step({"r1": 1, "r3": 2, "r2": 1})
    sim.step({"r2": 1, "r1": 1})
    sim.step(DECODE)
    assert sim.schedule().batches == (
        step(r1=1, r2=1),
        Batch({"r3": 2}, decode_all=True),
        Batch(decode_all=True, repeat=2),
    )
    assert sim.done


def test_the_most_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BATCHES", 3)
    with pytest.raises(InputError, match="needs more than 3 batches"):
        simulate(make((1, 9)), documented())
    assert MAX_BATCHES == 10**7


# --- on the command line ------------------------------------------------------------------------

SCHEDULERS = """
from dataclasses import dataclass
from infermax_opt import Batch, Schedule, Simulator
import beside_it

def whole(instance):
    tokens = [Batch({r.id: r.input_tokens, }) for r in instance.requests[:1]]
    return Schedule(instance.name, tuple(tokens))

def serially(machine):
    first = (machine.running or machine.waiting)[0]
    return {first: first.prefill_left or 1}

@dataclass
class Counts:
    batches: int = 0
    clairvoyant = True

    def batch(self, sim):
        self.batches += 1
        assert sim.batches == self.batches - 1
        assert all(r.output_tokens for r in sim.waiting)
        return serially(sim)

def divides(sim):
    return beside_it.divide(1)

def greedy(sim):
    return {request: 10**9 for request in sim.waiting}

def steps(sim):
    sim.step({"zz": 1})

def idles(sim):
    return {}

def says(sim):
    return 5

def peeks(sim):
    return sim.waiting[0].output_tokens

def leaves(sim):
    raise SystemExit(3)

def turns(sim):
    if sim.running:
        return Batch(evict=sim.running)
    return {sim.waiting[0]: sim.waiting[0].prefill_left - 1}

async def waits(sim):
    return {}

def many(sim):
    return list(range(10**6))

class Bare:
    pass

number = 7
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(SCHEDULERS)
    (tmp_path / "broken.py").write_text("x = 1\ndef f(:\n")
    (tmp_path / "beside_it.py").write_text("def divide(n):\n    return n / 0\n")
    (tmp_path / "documented.py").write_text(BLOCKS[0])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*args: str, code: int = 0) -> str:
    done = CliRunner().invoke(cli, args)
    assert done.exit_code == code, done.output
    return done.output


def test_a_scheduler_in_a_file(folder: Path) -> None:
    run("schedule", TOY, "--scheduler", "documented.py:fcfs", "-o", "made.json")
    run("schedule", TOY, "--scheduler", "sarathi", "-o", "theirs.json")
    assert Path("made.json").read_text() == Path("theirs.json").read_text()
    assert "verified" in run("verify", TOY, "made.json")
    assert "verified" in run("schedule", TOY, "--scheduler", str(folder / "mine.py") + ":serially")
    assert "completion" in run("schedule", TOY, "--scheduler", "mine.py:whole", code=1)
    (folder / "beside_it.py").write_text("def divide(n):\n    return {'nobody': n}\n")
    assert "request 'nobody'" in run("schedule", TOY, "--scheduler", "mine.py:divides", code=2)
    assert not (folder / "__pycache__").exists()
    assert "FILE.py:NAME" in run("schedulers")


def test_what_a_scheduler_prints_is_no_part_of_the_result(folder: Path) -> None:
    talks = (folder / "mine.py").read_text().replace("\nnumber = 7", "\nprint('loaded')\nnumber = 7")
    (folder / "talks.py").write_text(talks)
    done = CliRunner().invoke(cli, ["schedule", TOY, "--scheduler", "talks.py:serially", "--json"])
    assert json.loads(done.stdout)["schema"]
    assert done.stderr.startswith("loaded\n")


def test_a_clairvoyant_one_is_called_so(folder: Path) -> None:
    assert "clairvoyant: the scheduler was shown" in run("schedule", TOY, "--scheduler", "mine.py:Counts")
    assert "clairvoyant" not in run("schedule", TOY, "--scheduler", "mine.py:serially")
    text = run("solve", TOY, "--warm-start", "./mine.py:Counts", "--solver", "search", "--time-limit", "5")
    assert "warm start    scheduler:./mine.py:Counts (clairvoyant)" in text


NEVER = "never ends: at"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("divides", "mine.py: divides: beside_it.py, line 2: ZeroDivisionError: division by zero"),
        ("greedy", "greedy: batch 1, request 'a': tokens: processes 1000000000 tokens of 4 missing"),
        ("steps", "line 32: batch 1, request 'zz': unknown_request: is processed but not in the instance"),
        (
            "idles",
            f"idles: {NEVER} 0 s, after 0 batches, it waits, but nobody is to arrive any more; request 'a'",
        ),
        ("turns", "no token was generated in the last 1010 batches; request 'b' and 1 more are unfinished"),
        ("says", "says: 5 is no batch: neither a Batch nor a mapping of requests to tokens"),
        ("peeks", "line 41: output_tokens: are unknown before the last one"),
        ("leaves", "line 44: SystemExit: 3"),
        ("waits", "waits: an async function gives no batch: nobody awaits it"),
        ("many", "many: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16... is no batch"),
        ("Bare", "Bare: class Bare has no method `batch`"),
        ("number", "number: is 7: neither a function nor something with a method `batch`"),
        ("nothing", "nothing: there is none of that name; there are whole, serially, Counts, divides"),
    ],
)
def test_what_fails_is_one_line(folder: Path, name: str, text: str) -> None:
    said = run("schedule", TOY, "--scheduler", f"mine.py:{name}", "-o", "made.json", code=2)
    assert len(said.splitlines()) == 1
    assert text in said
    assert not Path("made.json").exists()


def test_files_that_cannot_be_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "broken.py: f: line 2: SyntaxError" in run("schedule", TOY, "--scheduler", "broken.py:f", code=2)
    assert "none.py: f: cannot be read: No such" in run("schedule", TOY, "--scheduler", "none.py:f", code=2)
    assert "input of this command" in run(
        "schedule", TOY, "--scheduler", "mine.py:says", "-o", "mine.py", code=2
    )
    makespan = str(ROOT / "instances" / "makespan-100x20.json")
    assert "is none of" in run("schedule", makespan, "--scheduler", "mine.py:serially", code=2)
    monkeypatch.setenv("INFERMAX_OPT_DEBUG", "1")
    assert "return n / 0" in run("schedule", TOY, "--scheduler", "mine.py:divides", code=2)


# --- the document -------------------------------------------------------------------------------


def test_the_document_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    exec("".join(BLOCKS), {})
    assert capsys.readouterr().out.startswith("True\n0.")


def test_the_document_names_what_is_shown() -> None:
    tables = DOCUMENT.split("## What it is shown")[1].split("Requests that have not arrived")[0]
    cells = [line.split("|")[1] for line in tables.splitlines() if line.startswith("|")]
    named = {word for cell in cells for word in re.findall(r"`(\w+)`", cell)}
    shown = {"system", "policy", "cost", "id", "input_tokens"}
    for kind in (Simulator, module.RequestView):
        shown |= {name for name, part in vars(kind).items() if isinstance(part, property)}
    assert named == shown - {"fruitless"}


def test_solve_takes_what_simulate_made() -> None:
    instance = make((2, 4), (2, 3), kv_capacity=6)
    assert solve(instance, warm_start=simulate(instance, documented()), time_limit=5).schedule is not None
