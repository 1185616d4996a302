"""The best-known archive: only verified improvements enter, and nothing else is believed."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from infermax_opt import api
from infermax_opt.api import verify
from infermax_opt.core.errors import InputError
from infermax_opt.core.registry import problem_of
from infermax_opt.core.result import LowerBound, Proof, Result, UpperBound
from infermax_opt.files.results import read_schedule_or_claim, write_result
from infermax_opt.infermax.bounds import closed_form_bounds
from infermax_opt.infermax.data.formats import read_instance
from infermax_opt.infermax.data.instance import Instance, RequestGroup
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.table import archive
from infermax_opt.table.archive import Archive, schedule_sha256
from infermax_opt.table.suites import get_suite, suite_names
from tests.campaign import one_in, size
from tests.support import ROOT, shared_data

TOY = read_instance(ROOT / "instances" / "toy.json")
SHIPPED = ROOT / "instances" / "best-known"
#: Suites that read traces which are not shipped.
TRACED = ("azure", "online", "tails", "attainment", "vllm-runs")
VERSIONS = {"infermax-opt": "0.1.0"}


def result(instance: Instance, scheduler: str | None, lower: LowerBound | None = None) -> Result:
    """What a scheduler and a bound make of the instance."""
    upper = schedule = metrics = None
    if scheduler is not None:
        schedule = api.schedule(instance, scheduler)
        check = verify(instance, schedule)
        assert check.objective is not None
        upper, metrics = UpperBound(check.objective, scheduler), check.metrics
    return Result(instance.name, instance.sha256, str(instance.objective), upper, lower, schedule, metrics)


def offer(best: Archive, subject: Any, instance: Instance = TOY, **more: Any) -> tuple[str, ...]:
    return best.improve(instance, subject, source="test", versions=VERSIONS, **more)


def closed_form(instance: Instance = TOY) -> LowerBound:
    return closed_form_bounds(instance)[0]


def tamper(best: Archive, side: str, **changes: Any) -> None:
    value = json.loads(best.path.read_text())
    value["entries"][0][side].update(changes)
    best.path.write_text(json.dumps(value))


@pytest.fixture
def best(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "best", "mine")


def test_empty(best: Archive) -> None:
    assert best.entries() == {}
    assert best.entry(TOY).upper is None
    assert best.schedule(TOY) is None
    assert not best.directory.exists()
    assert best.beaten_by("toy", None, None)


def test_only_improvements_enter(best: Archive) -> None:
    good, worse = result(TOY, "vllm"), result(TOY, "vllm_ef")
    assert good.upper is not None
    assert worse.upper is not None
    assert good.upper.value < worse.upper.value
    assert offer(best, worse, date="2025-01-01") == ("upper",)
    old = best.entry(TOY).upper
    assert old is not None
    assert old.value == worse.upper.value
    assert old.date == "2025-01-01"
    assert offer(best, worse, date="2025-01-02") == ()
    assert best.entry(TOY).upper == old
    assert offer(best, replace(good, lower=closed_form())) == ("upper", "lower")
    new = best.entry(TOY).upper
    assert new is not None
    assert new.value == good.upper.value
    assert new.schedule_sha256 == schedule_sha256(best.schedule(TOY) or Schedule("", ()))
    assert offer(best, worse) == ()
    lower = best.entry(TOY).lower
    assert lower is not None
    assert (lower.proof, lower.check) == ("closed-form", "recomputed")
    weaker = replace(closed_form(), value=closed_form().value / 2)
    assert offer(best, result(TOY, None, weaker)) == ()
    # The file of the schedule that was beaten is gone, and no lock or half-written file is left.
    kept = sorted(path.name for path in best.directory.rglob("*") if path.is_file())
    assert kept == sorted(["mine.json", Path(str(new.schedule)).name])
    assert not best.beaten_by("toy", good.upper.value, closed_form().value)
    assert best.beaten_by("toy", good.upper.value / 2, None)


def test_results_read_from_files_enter(best: Archive, tmp_path: Path) -> None:
    write_result(result(TOY, "vllm", closed_form()), tmp_path / "r.json")
    assert offer(best, read_schedule_or_claim(tmp_path / "r.json")) == ("upper", "lower")


def test_other_entries_are_kept(best: Archive) -> None:
    instances = [Instance(f"toy{k}", (RequestGroup("a", 4, 2 + k),), TOY.system, TOY.cost) for k in range(5)]
    # Runs side by side may share an archive.
    runs = [threading.Thread(target=offer, args=(best, result(i, "vllm"), i)) for i in instances]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert list(best.entries()) == [i.name for i in instances]
    assert all(best.schedule(i) is not None for i in instances)


def test_wrong_results_are_refused(best: Archive) -> None:
    offer(best, result(TOY, "vllm_ef", closed_form()))
    before = best.path.read_bytes()
    good = result(TOY, "vllm")
    assert good.upper is not None
    claim = good.claim()
    wrong = [
        replace(claim, upper_bound=good.upper.value * Fraction(99, 100)),
        replace(claim, instance_sha256="0" * 64),
        replace(claim, schedule=Schedule("toy", (Batch({"a": 4}),))),
        replace(claim, schedule=Schedule("other", claim.schedule.batches if claim.schedule else ())),
        result(TOY, None, replace(closed_form(), value=closed_form().value * 2)),
        result(TOY, None, LowerBound(Fraction(9), "search", Proof.SOLVER)),
    ]
    for subject in wrong:
        with pytest.raises(InputError, match="wrong") as caught:
            offer(best, subject)
        assert caught.value.source == str(best.path)
        assert caught.value.field == "toy"
    assert best.path.read_bytes() == before


def large(count: int) -> Instance:
    """Beyond what the verifier enumerates."""
    return Instance(
        "toy", (RequestGroup("a", 4, 60, count=count),), replace(TOY.system, kv_capacity=200), TOY.cost
    )


def test_a_solvers_word_is_not_taken(best: Archive) -> None:
    instance = large(20)
    bound = closed_form(instance)
    word = LowerBound(bound.value * Fraction(101, 100), "search", Proof.SOLVER)
    assert offer(best, result(instance, "vllm", word), instance) == ("upper",)
    assert best.entry(instance).lower is None
    # But if it contradicts the archive, one of the two is wrong, and that is said.
    upper = best.entry(instance).upper
    assert upper is not None
    liar = LowerBound(upper.value * 2, "search", Proof.SOLVER)
    with pytest.raises(InputError, match=r"exceeds upper bound .* one of the two is wrong"):
        offer(best, result(instance, None, liar), instance)
    assert offer(best, result(instance, None, bound), instance) == ("lower",)


def test_contradictions_are_errors(best: Archive) -> None:
    offer(best, result(TOY, "vllm_ef", closed_form()))
    tamper(best, "lower", value="1000")
    with pytest.raises(InputError, match=r"lower bound 1000 .* exceeds upper bound"):
        best.entries()
    with pytest.raises(InputError, match="one of the two is wrong"):
        offer(best, result(TOY, "vllm"))
    with pytest.raises(InputError, match="one of the two is wrong"):
        best.prepare()


def test_an_entry_that_claims_too_much_is_refused(best: Archive) -> None:
    good = result(TOY, "vllm")
    assert good.upper is not None
    offer(best, good)
    honest = best.path.read_text()
    tamper(best, "upper", value=str(float(good.upper.value) * 0.99))
    with pytest.raises(InputError, match=r"claims .* but its schedule replays to") as caught:
        best.schedule(TOY)
    assert str(caught.value).startswith(f"{best.path}: toy: ")
    best.path.write_text(honest)
    assert best.schedule(TOY) == good.schedule
    tamper(best, "upper", schedule_sha256="0" * 64)
    with pytest.raises(InputError, match="is not the schedule of the entry"):
        best.schedule(TOY)


def test_a_broken_schedule_is_refused(best: Archive) -> None:
    offer(best, result(TOY, "vllm"))
    broken = Schedule("toy", (Batch({"a": 4}),))
    entry = best.entry(TOY).upper
    assert entry is not None
    path = best.directory / str(entry.schedule)
    archive.write_schedule(broken, path)
    tamper(best, "upper", schedule_sha256=schedule_sha256(broken))
    with pytest.raises(InputError, match="is not a valid schedule"):
        best.schedule(TOY)
    path.unlink()
    with pytest.raises(InputError, match="cannot be read"):
        best.schedule(TOY)


def test_another_instance_of_that_name(best: Archive) -> None:
    offer(best, result(TOY, "vllm"))
    other = replace(TOY, system=replace(TOY.system, kv_capacity=20))
    for call in (lambda: best.schedule(other), lambda: offer(best, result(other, "vllm"), other)):
        with pytest.raises(InputError, match="is for another instance of that name"):
            call()


def test_large_schedules_are_not_kept(best: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_SCHEDULE_BYTES", 10)
    good = result(TOY, "vllm")
    assert offer(best, good) == ("upper",)
    upper = best.entry(TOY).upper
    assert upper is not None
    assert upper.schedule is None
    assert good.schedule is not None
    assert upper.schedule_sha256 == schedule_sha256(good.schedule)
    assert best.schedule(TOY) is None
    assert [path.name for path in best.directory.rglob("*") if path.is_file()] == ["mine.json"]


def test_certificates_are_copied(best: Archive, tmp_path: Path) -> None:
    certificate = tmp_path / "toy.json.gz"
    certificate.write_bytes(b"proof")
    offer(best, result(TOY, None, closed_form()), certificate=certificate)
    lower = best.entry(TOY).lower
    assert lower is not None
    assert str(lower.certificate).endswith(".certificate.json.gz")
    assert (best.directory / str(lower.certificate)).read_bytes() == b"proof"


@pytest.mark.parametrize("name", ["/etc/passwd", "../x.json.gz", "mine/../../x"])
def test_paths_stay_below_the_archive(best: Archive, name: str) -> None:
    offer(best, result(TOY, "vllm"))
    tamper(best, "upper", schedule=name)
    with pytest.raises(InputError, match="is no relative path below the archive"):
        best.entries()


def test_unusable_archives(best: Archive, tmp_path: Path) -> None:
    offer(best, result(TOY, "vllm"))
    text = best.path.read_text()
    for old, new, problem in [
        ('"mine"', '"yours"', "is 'yours', not 'mine'"),
        ("best-known/1", "best-known/2", "schema"),
        ('"source"', '"sauce"', r"entries\[0\].upper.sauce: is not a known key"),
        ("}", "", "is not JSON"),
    ]:
        best.path.write_text(text.replace(old, new, 1))
        with pytest.raises(InputError) as caught:
            best.prepare()
        assert caught.match(problem)
        assert caught.value.source == str(best.path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is not a directory"):
        Archive(tmp_path / "file", "mine")
    with pytest.raises(InputError, match="cannot be written"):
        Archive(tmp_path / "file" / "below", "mine").prepare()


def test_the_hash_is_of_the_decisions() -> None:
    one = Schedule("x", (Batch({"a": 1, "b": 2}), Batch(decode_all=True), Batch(decode_all=True)))
    two = Schedule("x", (Batch({"b": 2, "a": 1}), Batch(decode_all=True, repeat=2)))
    assert schedule_sha256(one) == schedule_sha256(two)
    assert schedule_sha256(one) != schedule_sha256(replace(one, instance="y"))
    started = Schedule("x", (Batch({"a": 1}, start=Fraction(1, 2)),))
    assert len(schedule_sha256(started)) == 64


@pytest.mark.parametrize("suite", suite_names())
def test_what_is_shipped(suite: str) -> None:
    """Shipped entries are for their instances, and their schedules replay to what they say."""
    best = Archive(SHIPPED, suite)
    traces = shared_data("data")
    cases = {case.name: case for case in get_suite(suite, traces).cases}
    entries = best.entries()
    assert entries.keys() <= cases.keys()
    if suite in TRACED and entries and traces is None:
        pytest.skip("the traces are not here: see INFERMAX_OPT_DATA")
    for name, entry in one_in(16, entries.items()):
        instance = cases[name].build()
        best.schedule(instance)
        if entry.lower is not None and entry.lower.proof == "closed-form":
            forms = problem_of(instance).bounds(instance, stop=lambda: True)
            assert entry.lower.value <= max(bound.value for bound in forms)


@pytest.mark.parametrize(
    "suite",
    ["paper-b32", "paper-b1024", "mixes", "latency", "iteration", "pipelining", "bros", "ecoserve", "mcsf"],
)
def test_certificates_of_the_archive_stay_accepted(suite: str) -> None:
    """Whoever changes a proof changes it so that what was proved before is proved still."""
    every = 200 if suite == "mcsf" else 12  # each of those takes seconds
    cases = {case.name: case for case in get_suite(suite).cases}
    for name, entry in one_in(every, sorted(Archive(SHIPPED, suite).entries().items())):
        if entry.lower is not None and entry.lower.certificate is not None:
            path = SHIPPED / entry.lower.certificate
            if path.stat().st_size <= size(20_000, 10**9):
                assert api.check_certificate(cases[name].build(), path) >= entry.lower.value


def test_a_certificate_from_before_returns_paid_stays_accepted() -> None:
    """Its requests turn up in batches alone: there are no potentials for them between batches."""
    (path,) = (SHIPPED / "paper-b32").glob("b32-i1-o32-m100-p4096.*.certificate.json.gz")
    (case,) = (case for case in get_suite("paper-b32").cases if case.name == "b32-i1-o32-m100-p4096")
    assert api.check_certificate(case.build(), path) > 0
