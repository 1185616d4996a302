"""What a schedule does for each class of requests, in figures that need every token's time."""

from __future__ import annotations

from dataclasses import dataclass, fields
from fractions import Fraction

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.latencies import Latencies
from infermax_opt.infermax.data.objective import Latency
from infermax_opt.infermax.data.requests import Request
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.replay.fast import valid_replay
from infermax_opt.infermax.replay.machine import Machine
from infermax_opt.infermax.replay.plain import Replay

__all__ = ["CLASS_DEFINITIONS", "ClassFigures", "class_figures"]

CLASS_DEFINITIONS = {
    "name": "class; none for requests without one",
    "requests": "requests of the class",
    "done": "requests that end, by the horizon where there is one",
    "attainment": "share of the requests with a service level that keep all of it and are done",
    "ttft_attainment": "share of those with a limit of the TTFT that keep it, by the horizon",
    "tpot_attainment": "share of those with a limit of the TPOT, a mean, that keep it and are done",
    "e2e_attainment": "share of those with a limit of the end-to-end latency that keep it and are done",
    "token_attainment": "share of the gaps between tokens of a request that are within its limit of the TPOT",
    "mean_normalised_latency": "mean of (last token - arrival) / output tokens of those done, s/token",
    "queueing_share": "mean, of those done, of the part of (last token - arrival) in no batch of theirs, "
    "to 12 places",
    "tokens_per_second": "tokens made by the horizon / horizon; without one, by the makespan",
    "requests_per_second": "requests done / horizon; without one, by the makespan",
}
"""Definition of every figure.  Shares count requests, not weights; of nothing they are None."""

#: Units of a queueing share in 1.
PLACES = 10**12


@dataclass(frozen=True)
class ClassFigures:
    """Figures of one class; `CLASS_DEFINITIONS` says what each one means."""

    name: str | None
    requests: int
    done: int
    attainment: Fraction | None
    ttft_attainment: Fraction | None
    tpot_attainment: Fraction | None
    e2e_attainment: Fraction | None
    token_attainment: Fraction | None
    mean_normalised_latency: Fraction | None
    queueing_share: Fraction | None
    tokens_per_second: Fraction | None
    requests_per_second: Fraction | None

    def items(self) -> list[tuple[str, str | int | Fraction | None]]:
        """Name and value of every figure."""
        return [(some.name, getattr(self, some.name)) for some in fields(self)]


@dataclass
class _Tokens:
    """Of a request: when its latest token was made, and until now what its batches took; ticks."""

    last: int = -1
    served: int = 0
    made: int = 0
    gaps: int = 0
    kept: int = 0


def class_figures(instance: Instance, schedule: Schedule) -> list[ClassFigures]:
    """Figures of each class, in the order in which classes first appear.

    Parameters
    ----------
    instance : Instance
    schedule : Schedule

    Raises
    ------
    ValueError
        If the schedule breaks a rule.
    """
    replayed = valid_replay(instance, schedule)
    ends, latencies = replayed.ends, replayed.latencies(instance)
    tokens = _walk(instance, schedule, replayed, latencies)
    members: dict[str | None, list[int]] = {}
    for i, request in enumerate(instance.requests):
        members.setdefault(request.terms.class_name, []).append(i)
    over = Fraction(ends[-1] if ends else 0, replayed.ticks_per_second)
    if instance.horizon is not None:
        over = Fraction(instance.horizon)
    return [_figures(name, found, latencies, tokens, over) for name, found in members.items()]


def _walk(instance: Instance, schedule: Schedule, replayed: Replay, latencies: Latencies) -> list[_Tokens]:
    """Follow the tokens of every request."""
    machine, tokens, unit = Machine(instance), [_Tokens() for _ in instance.requests], latencies.unit
    pace = [None if r.terms.slo.tpot is None else r.terms.slo.tpot * unit for r in instance.requests]
    last, j = latencies.last_tick, 0
    for batch in schedule.batches:
        for k in range(batch.repeat):
            step = machine.examine(batch, k == 0)
            start, end = replayed.starts[j], replayed.ends[j]
            made = [*step.rest, *(i for i, n in step.chosen.items() if n == machine.state.missing(i))]
            for i in (*step.rest, *step.chosen):
                tokens[i].served += end - start
            for i in made:
                found, limit = tokens[i], pace[i]
                if limit is not None and found.last >= 0:
                    found.gaps += 1
                    found.kept += end - found.last <= limit
                found.last = end
                found.made += end <= last
            machine.run(step)
            j += 1
    return tokens


def _figures(
    name: str | None, members: list[int], latencies: Latencies, tokens: list[_Tokens], over: Fraction
) -> ClassFigures:
    requests = latencies.instance.requests
    done = [i for i in members if not latencies.late(i)]

    def kept(latency: Latency) -> Fraction | None:
        limits = [(i, limit) for i in members if (limit := _limit(requests[i], latency)) is not None]
        ends = latencies.firsts if latency is Latency.TTFT else latencies.lasts
        inside = [(i, limit) for i, limit in limits if ends[i] <= latencies.last_tick]
        return _share(sum(latencies.within(i, latency, limit) for i, limit in inside), len(limits))

    promised = [i for i in members if requests[i].terms.slo]
    broken = latencies.broken
    normalised = sum((Fraction(latencies.e2e[i], requests[i].output_tokens) for i in done), Fraction(0))
    # Rounded one by one, as exact sums of such fractions grow without end.
    waited = ((latencies.e2e[i] - tokens[i].served, latencies.e2e[i]) for i in done)
    queued = Fraction(sum(PLACES * wait // time for wait, time in waited if time), PLACES)
    return ClassFigures(
        name=name,
        requests=len(members),
        done=len(done),
        attainment=_share(sum(not broken[i] for i in promised) if broken else 0, len(promised)),
        ttft_attainment=kept(Latency.TTFT),
        tpot_attainment=kept(Latency.TPOT),
        e2e_attainment=kept(Latency.E2E),
        token_attainment=_share(sum(tokens[i].kept for i in members), sum(tokens[i].gaps for i in members)),
        mean_normalised_latency=_share(normalised / latencies.unit, len(done)),
        queueing_share=_share(queued, len(done)),
        tokens_per_second=_share(sum(tokens[i].made for i in members), over),
        requests_per_second=_share(len(done), over),
    )


def _limit(request: Request, latency: Latency) -> Fraction | None:
    limit: Fraction | None = getattr(request.terms.slo, latency.value)
    return limit


def _share(part: Fraction | int, of: Fraction | int) -> Fraction | None:
    return Fraction(part) / of if of else None
