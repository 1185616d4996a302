"""guidellm's ``benchmarks.json``: several benchmarks, requests by how they ended, seconds and milliseconds.

Source: vllm-project/guidellm, ``src/guidellm/schemas/request_stats.py`` and ``schemas/info.py``; up to 0.4
``src/guidellm/benchmark/benchmark.py`` and ``objects.py``.  Versions differ in where they say when a request
was sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from infermax_opt.core.errors import InputError
from infermax_opt.files.json_walk import JsonWalk
from infermax_opt.files.text import counted
from infermax_opt.foreign.formats import Choices, RunFormat
from infermax_opt.foreign.head import Head
from infermax_opt.foreign.requests import MS, Collected, Values
from infermax_opt.foreign.run import ForeignRequest, Run

__all__ = ["GUIDELLM"]

#: What there is of requests that did not finish, by the key of their list.
UNFINISHED = {"incomplete": "incomplete", "errored": "failed"}
#: Long, and not needed.
UNREAD = ("output", "prompt", "request_args", "reasoning_output", "tool_calls")
START, PLANNED = "request_start_time", "info.timings.targeted_start"
#: Where earlier versions say it: 0.4, those between, and up to 0.3.
EARLIER = ("info.timings.request_start", "scheduler_info.request_timings.request_start", "start_time")
TOTALS = "request_totals"
SAMPLED = "not in the file, which holds a sample"


def _request(values: Values, number: int) -> ForeignRequest:
    start = next((key for key in (START, *EARLIER) if values.get(key) is not None), START)
    return ForeignRequest(
        name=values.text("request_id", str(number)),
        line=number,
        arrival=values.time(start),
        input_tokens=values.tokens("prompt_tokens"),
        output_tokens=values.tokens("output_tokens"),
        ttft=values.maybe_time("time_to_first_token_ms", MS),
        e2e=values.time("request_latency"),
        cached_tokens=values.maybe_tokens("cached_tokens"),
    )


@dataclass
class _Benchmark:
    """Requests of a benchmark, and what is to be said of them.

    Attributes
    ----------
    found : Collected
    late : Fraction
        Seconds from the moment planned to that of sending, at most.
    hits, untimed : int
        Requests with tokens from a prefix cache, and without a time to first token.
    listed : int or None
        How many finished requests are in the list of them; None where there is no list.
    finished : int
        How many there were, as the file says; it can hold a sample of them.
    """

    found: Collected
    late: Fraction = Fraction(0)
    hits: int = 0
    untimed: int = 0
    listed: int | None = None
    finished: int = 0

    def read(self, walk: JsonWalk) -> None:
        """Take in the object ``requests`` that begins here."""
        for ending in walk.members():
            if ending in UNFINISHED and walk.is_list:
                for _ in walk.items():
                    self.found.leave_out(UNFINISHED[ending])
            elif ending == "successful":
                self.listed = 0
                for position in walk.items():
                    self.listed = position + 1
                    self._add(Values(walk.path, walk.place, walk.value(UNREAD)), position + 1)

    def count(self, walk: JsonWalk) -> None:
        """Take in the numbers of requests that there were."""
        place, totals = walk.place, walk.value()
        if isinstance(totals, dict):
            self.finished = Values(walk.path, place, totals).maybe_tokens("successful") or 0

    def _add(self, values: Values, number: int) -> None:
        request = _request(values, number)
        planned = values.maybe_time(PLANNED)
        if planned is not None:
            self.late = max(self.late, request.arrival - planned)
        self.hits += bool(request.cached_tokens)
        self.untimed += request.ttft is None
        self.found.add(values, request)

    def say(self) -> None:
        """Say what its numbers do not."""
        self.found.say(
            "Arrivals are the moments of sending (request_start_time), seen by the client.",
            "time_per_output_token_ms of guidellm includes the first token; inter_token_latency_ms is "
            "what is called TPOT here.",
        )
        self.found.leave_out(SAMPLED, self.finished - (self.listed or 0))
        if self.late:
            self.found.say(
                f"Requests were sent up to {float(self.late):g} s after the moment planned (targeted_start)."
            )
        if self.hits:
            self.found.say(f"{counted(self.hits, 'requests')} found a part of the prompt in a prefix cache.")
        if self.untimed:
            self.found.say(
                f"Not streamed, without time_to_first_token_ms: {counted(self.untimed, 'requests')}."
            )


def _benchmark(walk: JsonWalk) -> Collected:
    """Requests of the benchmark that begins here."""
    benchmark = _Benchmark(Collected(walk.path, "guidellm"))
    for key in walk.members():
        if key == "requests":
            benchmark.read(walk)
        elif key == TOTALS:
            benchmark.count(walk)
        elif key == "metrics" and walk.is_object:
            for inner in walk.members():
                if inner == TOTALS:
                    benchmark.count(walk)
    if benchmark.listed is None:
        walk.fault("holds no 'requests' with a list 'successful'")
    benchmark.say()
    return benchmark.found


def _read(path: str, choices: Choices) -> Run:
    walk = JsonWalk(path)
    chosen, count, found = choices.benchmark, 0, None
    for _ in walk.documents():
        for key in walk.members():
            if key == "benchmarks":
                for position in walk.items():
                    count += 1
                    if position + 1 == (chosen or 1):
                        found = _benchmark(walk)
    if chosen is None and count > 1:
        raise InputError(
            f"holds {count} benchmarks: choose one, from 1 to {count}, with --benchmark", source=path
        )
    if not count:
        raise InputError("holds no benchmark", source=path)
    if found is None:
        raise InputError(f"is {chosen}; the file holds {count} benchmarks", field="benchmark", source=path)
    return found.run()


def _known(head: Head) -> bool:
    return head.has("metadata.guidellm_version") or head.has("benchmarks[].type_", "benchmarks[].requests")


GUIDELLM = RunFormat("guidellm", "guidellm: benchmarks.json", _read, _known, ("benchmark",))
