"""Three real runs of vLLM against replay, plans and bounds: docs/vllm-runs.md and its picture.

Usage: ``python -m scripts.vllm_study FOLDER [--seconds 60] [--into docs]``, where FOLDER holds ``vllm_runs``
with the folders that `RUNS` of `infermax_opt.infermax.data.suites` names.

Each plan and bound has so many seconds; every schedule is replayed, and every bound checked by the verifier.
Profiles know kernels only.  So one number is fitted to each run that is slower than its replay: seconds that
each batch takes besides, such that the replay of vLLM's own policy has the makespan that was measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from os import times
from pathlib import Path
from time import monotonic

from infermax_opt import api, read_instance
from infermax_opt.core.band import Band
from infermax_opt.core.exact import decimal_text
from infermax_opt.core.measured import Measured
from infermax_opt.core.registry import problem_of
from infermax_opt.core.result import AnyResult
from infermax_opt.files.figure import save_picture
from infermax_opt.files.writing import write_text
from infermax_opt.foreign.reading import read_run
from infermax_opt.gaps.bounds import best_bounds
from infermax_opt.gaps.explain import Explained, explained
from infermax_opt.gaps.plot import plot_gaps
from infermax_opt.gaps.score import Group, compare
from infermax_opt.gaps.subjects import Subject
from infermax_opt.infermax.data.instance import Instance, Objective
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.data.suites import RUNS
from scripts.prefix_hits import Alike, Engine, read_table

ROOT = Path(__file__).parents[1]
INSTANCES = ROOT / "instances" / "vllm-runs"
#: vLLM's policy of its time, and those of the paper.
OWN, OTHERS = "vllm_v1", ("sarathi", "vllm")
SHOWN = ("makespan", "mean_ttft", "mean_tpot", "mean_e2e", "p50_e2e", "p99_e2e")
AIMS = ("makespan", "mean_e2e")
#: What a run of a model replayed.
WORKLOAD = "sharegpt-{}-300-sps10"
#: Metrics beside hits.
WITH_HITS = ("makespan", "mean_ttft", "mean_e2e")
#: Seconds a batch are fitted to so many parts of one.
PARTS = 10**5
#: How far machines may be from the fitted model, in the table of bounds for all of them.
BAND = Band(Fraction("0.96"), Fraction("1.04"))

PAGE = """# Three real runs of vLLM

vLLM 0.19 served 300 requests, about ten a second, on three machines. Requests, limits and kernels were
measured by the authors of LLMServingSim 2 (casys-kaist, commit 5daddb2, MIT licence). What does our
replay say of these runs, how far were they from optimal, and how much of that is scheduling? Made by
`python -m scripts.vllm_study FOLDER` with {seconds} s for each plan and each bound on two cores
({versions}). Every schedule was replayed, every bound was checked by the verifier.
All took {clock} s on the clock and {processor} s of the processors: where other work shared these, plans and
bounds had that much less of their time.

## Replay beside measurement

Profiles of kernels; nothing here is fitted to a run. `{own}` is vLLM's policy: who runs goes on, the
last admitted makes room and waits in front, whole prompts reserve their KV.

{replays}

On the RTX 4090 memory is scarce, and the policy matters: the paper's two presets put an evicted request
behind all who wait, so they admit more and evict for longer. The two other machines are slower than
their kernels: their profiles know neither the CPU nor the traffic between GPUs.

## One number for what kernels do not know

Seconds that a batch takes besides, such that the makespan is the measured one; all else is predicted.
The KV of the two runs on RTX PRO 6000 is not in their files; it is an estimate, which never binds there.

{fitted}

## How far from optimal

Measured run, best plan and bound on the fitted machine. A plan knows all lengths from the start: what
lies between run and plan is what scheduling and knowing lengths gain together. What lies between plan
and bound is open.

{gaps}

For all machines whose batches take {band} times as long as those of the fitted one: what no schedule is
below on any of them, what the plan takes at most, and the gap of the run if the machine is the slowest of
them, and if it is the fastest.

{bands}

## Where the time goes

`{own}` on the fitted machine, s. The parts add up to the makespan; `infermax-opt gap --explain` says
what they mean.

{parts}

![The run on the RTX 4090 beside its replay](vllm-runs.svg)

## Prefix caching

It was on in these runs. Their files hold no prompts, but their hash names the workload that they replayed,
which is published with every token: 32 of its 300 prompts begin as an earlier one does, with {alike} tokens
in whole blocks. `python -m scripts.prefix_hits` lists them, and replays vLLM's policy with vLLM's cache: a
full block of 16 tokens is found by all who begin with the same tokens, until it is given to somebody else;
blocks that nobody holds are given away in the order in which they were freed. Without hits it is `{own}` to
the last digit. Assumed is that requests generate different tokens, and that a batch takes what the model
says of what it still processes. On the fitted machines, s, and beside the replay without hits:

{hits}

On the RTX 4090 most blocks of prompts are given away before they are asked for again, but those who were
evicted find a third of their KV, which nobody needed meanwhile. The authors' own simulator finds as many
tokens of prompts in each of the three runs. With hits the replay there is {hit_error} from the measured
makespan, {plain} without: so something else took as long as hits saved, and {besides} for each batch
would.

With prompts shortened by all that they share, the bounds of the makespan, in brackets as above, would be
{shortened}, in the order of the runs.
That is an estimate of what hits can change, no proof: the bounds of this page are for machines without
such a cache, and a run with hits could be below them.
"""


@dataclass(frozen=True)
class Studied:
    """One run and what was computed for it.

    Attributes
    ----------
    name : str
    kernels, fitted : Instance
        With times of kernels alone, and with what a batch takes besides.
    overhead : Fraction
        That, s.
    run : Measured
    prefixes : list of Alike
        Prompts that begin as an earlier one does.
    """

    name: str
    kernels: Instance
    fitted: Instance
    overhead: Fraction
    run: Measured
    prefixes: list[Alike]

    @property
    def title(self) -> str:
        """In a table."""
        return self.name.removeprefix("vllm-")


def replayed(instance: Instance, scheduler: str) -> Measured:
    """Metrics of a scheduler."""
    return measured_of(instance, api.schedule(instance, scheduler))


def measured_of(instance: Instance, schedule: Schedule) -> Measured:
    """Metrics of a schedule."""
    metrics = api.verify(instance, schedule).metrics
    assert metrics is not None, "the schedule breaks a rule"
    return Measured(dict(metrics.items()), problem_of(instance).scoring.latencies(metrics))


def slower(instance: Instance, overhead: Fraction) -> Instance:
    """The instance with batches that take so many seconds more."""
    pieces = [(Fraction(alpha) + overhead, beta) for alpha, beta in instance.cost.batch]
    return replace(instance, cost=replace(instance.cost, batch=pieces, profile=None))


def fit(instance: Instance, makespan: Fraction, replay: Callable[[Instance], Measured]) -> Fraction:
    """Seconds that each batch takes besides, for that makespan of a replay; 0 where it is slower."""
    low, high = 0, PARTS
    while high - low > 1:
        middle = (low + high) // 2
        found = replay(slower(instance, Fraction(middle, PARTS))).metrics["makespan"]
        low, high = (middle, high) if Fraction(found or 0) <= makespan else (low, middle)
    return Fraction(low, PARTS)


def study(name: str, folder: Path) -> Studied:
    """One run: measured, replayed, fitted."""
    instance = read_instance(INSTANCES / f"{name}.json")
    run = read_run(folder / "vllm_runs" / RUNS[name].folder / "requests.jsonl", "llmservingsim")
    measured = problem_of(instance).scoring.measured(instance, run)
    overhead = fit(instance, Fraction(measured.metrics["makespan"] or 0), lambda some: replayed(some, OWN))
    prefixes = read_table(WORKLOAD.format(RUNS[name].folder.split("_")[1]))
    return Studied(name, instance, slower(instance, overhead), overhead, measured, prefixes)


# --- tables -------------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(value: Fraction | int | None) -> str:
    """Four figures."""
    return "-" if value is None else f"{float(value):.4g}"


def share(value: Fraction | int | None, of: Fraction | int | None) -> str:
    """How far a value is from another, in percent with its sign."""
    if value is None or not of:
        return "-"
    return f"{100 * (float(value) / float(of) - 1):+.1f} %"


def replay_rows(some: Studied) -> Iterable[list[str]]:
    """Measured metrics, and those of each policy with how far they are off."""
    measured = some.run.metrics
    yield [some.title, "measured", *(number(measured[name]) for name in SHOWN)]
    for scheduler in (OWN, *OTHERS):
        found = replayed(some.kernels, scheduler).metrics
        cells = [f"{number(found[name])} ({share(found[name], measured[name])})" for name in SHOWN]
        yield ["", f"`{scheduler}`", *cells]


def fitted_row(some: Studied) -> list[str]:
    """What a batch takes besides, and how far the metrics are off then."""
    found, measured = replayed(some.fitted, OWN).metrics, some.run.metrics
    besides = f"{1000 * float(some.overhead):.2f} ms"
    return [some.title, besides, *(share(found[name], measured[name]) for name in SHOWN)]


def solved(instance: Instance, aim: str, seconds: float) -> AnyResult:
    """The best plan and bound for one metric."""
    result = api.solve(replace(instance, objective=Objective.of(aim)), time_limit=seconds)
    assert result.upper is not None, "no schedule"
    return result


def gap_rows(some: Studied, results: dict[str, AnyResult], group: Group) -> Iterable[list[str]]:
    """Run, plan and bound for each metric."""
    for bound in group.bounds:
        aim, result = bound.metric, results[bound.metric]
        value = Fraction(some.run.metrics[aim] or 0)
        plan = result.upper.value if result.upper else Fraction(0)
        lower = bound.lower.value if bound.lower else Fraction(0)
        yield [
            some.title, aim, number(value), number(plan), number(lower), percent(1 - plan / value),
            percent(1 - lower / plan), percent(1 - lower / value),
        ]  # fmt: skip


def percent(value: Fraction) -> str:
    """A share."""
    return f"{100 * float(value):.1f} %"


def band_rows(some: Studied, results: dict[str, AnyResult], seconds: float) -> Iterable[list[str]]:
    """Bounds of the fastest and the slowest machine, worst cases of the plans."""
    scoring = problem_of(some.fitted).scoring
    fast, slow = (
        best_bounds(scoring.scaled(some.fitted, factor), AIMS, time_limit=seconds * len(AIMS))
        for factor in (BAND.low, BAND.high)
    )
    for low, high in zip(fast, slow, strict=True):
        aim = low.metric
        worst = scoring.worst_case(some.fitted, results[aim].schedule, BAND)
        value = Fraction(some.run.metrics[aim] or 0)
        least, most = (bound.lower.value if bound.lower else Fraction(0) for bound in (low, high))
        gaps = f"{percent(1 - most / value)} to {percent(1 - least / value)}"
        yield [some.title, aim, number(least), number(worst.metrics[aim]), gaps]


def group_of(some: Studied, results: dict[str, AnyResult], seconds: float) -> Group:
    """The run on the fitted machine beside vLLM's policy, set against bounds as `gap` finds them."""
    instance = some.fitted
    schedule = api.schedule(instance, OWN)
    subjects = [
        Subject("measured", "run", instance, some.run),
        Subject(OWN, "schedule", instance, measured_of(instance, schedule), schedule=schedule),
    ]
    known = [result.lower for result in results.values() if result.lower is not None]
    return compare(
        instance, best_bounds(instance, AIMS, time_limit=seconds * len(AIMS), known=known), subjects
    )


def part_rows(found: dict[str, Explained]) -> Iterable[list[str]]:
    """The parts of the makespan of each run."""
    names = dict.fromkeys(part.name for some in found.values() for part in some.parts.parts if part.value)
    for name in names:
        values = ({part.name: part.value for part in some.parts.parts}[name] for some in found.values())
        yield [name, *(f"{float(value):.1f}" for value in values)]
    yield ["makespan", *(f"{float(some.parts.value):.1f}" for some in found.values())]
    yield [
        "of these above the bound",
        *(f"{float(some.parts.value - (some.bound or 0)):.1f}" for some in found.values()),
    ]


# --- hits in the prefix cache -------------------------------------------------------------------


def with_hits(instance: Instance, prefixes: list[Alike]) -> Measured:
    """Metrics of vLLM's policy with its prefix cache."""
    return Engine(instance, prefixes).run()[0]


def hit_row(some: Studied) -> list[str]:
    """What the cache finds, and the metrics with it beside those without."""
    plain = replayed(some.fitted, OWN).metrics
    found, hits = Engine(some.fitted, some.prefixes).run()
    return [
        some.title,
        f"{hits.prompts:,}",
        f"{hits.refills:,} of {hits.refills + hits.refilled:,}",
        *(f"{number(found.metrics[name])} ({share(found.metrics[name], plain[name])})" for name in WITH_HITS),
    ]


def shortened(some: Studied, seconds: float) -> str:
    """The bound of the makespan where prompts lack what they share with earlier ones."""
    shared = {index: tokens for index, _, tokens in some.prefixes}
    groups = tuple(
        replace(group, input_tokens=group.input_tokens - shared.get(index, 0))
        for index, group in enumerate(some.fitted.groups)
    )
    (bound,) = best_bounds(replace(some.fitted, groups=groups), ("makespan",), time_limit=seconds)
    return number(bound.lower.value if bound.lower else None)


def hit_words(runs: Sequence[Studied], bounds: dict[str, Fraction], seconds: float) -> dict[str, str]:
    """What the page says of hits."""
    first = runs[0]
    measured = first.run.metrics["makespan"]
    besides = fit(first.kernels, Fraction(measured or 0), lambda some: with_hits(some, first.prefixes))
    tokens = dict.fromkeys(f"{sum(row[2] for row in some.prefixes):,}" for some in runs)
    return {
        "alike": " or ".join(tokens),
        "hits": table(["run", "prompts, tokens", "refills, tokens", *WITH_HITS], map(hit_row, runs)),
        "hit_error": share(with_hits(first.kernels, first.prefixes).metrics["makespan"], measured),
        "plain": share(replayed(first.kernels, OWN).metrics["makespan"], measured),
        "besides": f"{1000 * float(besides):.2f} ms",
        "shortened": ", ".join(
            f"{shortened(some, seconds)} s ({number(bounds[some.name])})" for some in runs
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--into", type=Path, default=ROOT / "docs")
    options = parser.parse_args()
    began = monotonic()
    runs = [study(name, options.folder) for name in RUNS]
    results = {some.name: {aim: solved(some.fitted, aim, options.seconds) for aim in AIMS} for some in runs}
    groups = {some.name: group_of(some, results[some.name], options.seconds) for some in runs}
    bounds = {
        name: found.lower.value for name, group in groups.items() for found in group.bounds[:1] if found.lower
    }
    explanations = {some.name: explained(groups[some.name]) for some in runs}
    parts = {some.title: explanations[some.name][0] for some in runs}
    first = runs[0]
    report = results[first.name]["makespan"].solver
    versions = ", ".join(f"{name} {version}" for name, version in (report.versions if report else {}).items())
    page = PAGE.format(
        seconds=f"{options.seconds:g}",
        versions=versions,
        own=OWN,
        replays=table(["run", "", *SHOWN], (row for some in runs for row in replay_rows(some))),
        fitted=table(["run", "besides", *SHOWN], map(fitted_row, runs)),
        gaps=table(
            ["run", "metric", "measured, s", "plan, s", "bound, s", "plan gains", "open", "gap of the run"],
            (row for some in runs for row in gap_rows(some, results[some.name], groups[some.name])),
        ),
        band=f"{decimal_text(BAND.low)} to {decimal_text(BAND.high)}",
        bands=table(
            ["run", "metric", "bound, s", "plan at most, s", "gap of the run, slowest to fastest machine"],
            (row for some in runs for row in band_rows(some, results[some.name], options.seconds)),
        ),
        parts=table(["part", *parts], part_rows(parts)),
        **hit_words(runs, bounds, options.seconds),
        # At the end: what is above takes time.
        clock=f"{monotonic() - began:.0f}",
        processor=f"{sum(times()[:4]):.0f}",
    )
    write_text(page, options.into / "vllm-runs.md")
    save_picture(plot_gaps(groups[first.name], explanations[first.name]), options.into / "vllm-runs.svg")


if __name__ == "__main__":
    main()
