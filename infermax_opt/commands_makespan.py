"""What the commands print for makespan instances."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import click

from infermax_opt.console import DONE, FAILED, not_drawn, save
from infermax_opt.exact import decimal_text
from infermax_opt.io.makespan import bins_to_json, read_bins
from infermax_opt.makespan.bounds import closed_form_makespan_bounds
from infermax_opt.makespan.instance import MakespanInstance
from infermax_opt.makespan.methods import run_method
from infermax_opt.makespan.replay import BinReplay, replay_bins
from infermax_opt.makespan.schedule import MakespanSchedule
from infermax_opt.report import aligned, bound_items, percent, printable, seconds, wrong_lines
from infermax_opt.result import LowerBound

__all__ = ["bound", "plot", "schedule", "verify"]

OBJECTIVE = "makespan: end of the last decode stage, s; minimised"


def bound(instance: MakespanInstance, as_json: bool) -> int:
    """Print all lower bounds."""
    bounds = closed_form_makespan_bounds(instance)
    save(_bounds_json(instance, bounds), None, None if as_json else _bounds_text(instance, bounds))
    return DONE


def schedule(instance: MakespanInstance, method: str, output: str | None, as_json: bool) -> int:
    """Run a method and print what its schedule does."""
    run = run_method(instance, method)
    found = replay_bins(instance, run.schedule)
    text = _replay_text(instance, run.schedule, found)
    slowest = max(run.decision_seconds) * 1000
    text += f"\n  {len(run.decision_seconds)} decisions, the slowest took {slowest:.2g} ms"
    save(bins_to_json(run.schedule), output, None if as_json else text)
    return DONE if found.valid else FAILED


def verify(instance: MakespanInstance, path: str, as_json: bool) -> int:
    """Replay a schedule file and print what it breaks and does."""
    subject = read_bins(path)
    found = replay_bins(instance, subject)
    text = _replay_text(instance, subject, found)
    save(_replay_json(instance, subject, found), None, None if as_json else text)
    return DONE if found.valid and not _faults(instance, subject) else FAILED


def plot(instance: MakespanInstance, path: str, output: str) -> int:
    """Draw a schedule file; a wrong one is named instead."""
    from infermax_opt.plot_bins import plot_bins

    subject = read_bins(path)
    wrong = [*replay_bins(instance, subject).violations, *_faults(instance, subject)]
    if wrong:
        return not_drawn(path, wrong)
    plot_bins(instance, subject, output)
    click.echo(f"wrote {click.format_filename(output)}")
    return DONE


def _faults(instance: MakespanInstance, subject: MakespanSchedule) -> list[str]:
    if subject.instance == instance.name:
        return []
    return [f"the schedule is for {subject.instance!r}, the instance is {instance.name!r}"]


def _metrics(instance: MakespanInstance, subject: MakespanSchedule, found: BinReplay) -> list[Any]:
    """Name, value, its text, and definition."""
    idle = found.idle_seconds
    mean, most = sum(idle, Fraction(0)) / len(idle), max(idle)
    rounds = sum(some.rounds for some in subject.bins)
    rate = f"{float(found.tokens_per_second):.6g} tokens/s"
    return [
        ("makespan", found.makespan, seconds(found.makespan), "end of the last decode stage"),
        ("bins", len(subject.bins), str(len(subject.bins)), "prefill stages, each with its decode stage"),
        ("rounds", rounds, str(rounds), f"decode rounds of {seconds(instance.round_seconds)}"),
        ("utilisation", found.utilisation, percent(found.utilisation), "client time in prefill or decode"),
        ("tokens_per_second", found.tokens_per_second, rate, "generated tokens / makespan"),
        ("mean_idle", mean, seconds(mean), "time in which a client does neither, mean over the clients"),
        ("most_idle", most, seconds(most), "the same, largest"),
    ]


def _replay_text(instance: MakespanInstance, subject: MakespanSchedule, found: BinReplay) -> str:
    faults = _faults(instance, subject)
    verdict = "verified: nothing is wrong" if found.valid and not faults else "NOT verified"
    lines = [f"{printable(instance.name)}: {verdict}"]
    lines += wrong_lines(found.violations, faults)
    if found.valid:
        metrics = _metrics(instance, subject, found)
        lines += aligned([("objective", OBJECTIVE)])
        lines += ["", "metrics of the replayed schedule"]
        lines += aligned([(name, text, meaning) for name, _, text, meaning in metrics])
    return "\n".join(lines)


def _replay_json(instance: MakespanInstance, subject: MakespanSchedule, found: BinReplay) -> dict[str, Any]:
    faults = _faults(instance, subject)
    metrics = None
    if found.valid:
        metrics = {
            name: Fraction(decimal_text(value)) if isinstance(value, Fraction) else value
            for name, value, _, _ in _metrics(instance, subject, found)
        }
    return {
        "instance": instance.name,
        "ok": found.valid and not faults,
        "violations": [
            {"rule": v.rule.value, "bin": v.bin, "request": v.request, "message": v.message}
            for v in found.violations
        ],
        "faults": [{"kind": "instance", "message": fault} for fault in faults],
        "objective": "makespan",
        "metrics": metrics,
    }


def _bounds_text(instance: MakespanInstance, bounds: Sequence[LowerBound]) -> str:
    lines = [printable(instance.name), *aligned([("objective", OBJECTIVE)])]
    lines += ["lower bounds, best first: no schedule does better"]
    lines += aligned([(seconds(b.value), b.source, b.proof.value) for b in bounds])
    return "\n".join(lines)


def _bounds_json(instance: MakespanInstance, bounds: Sequence[LowerBound]) -> dict[str, Any]:
    return {
        "instance": instance.name,
        "instance_sha256": instance.sha256,
        "objective": "makespan",
        "lower_bounds": bound_items(bounds),
    }
