"""LLMServingSim's ``sim.csv``: what its simulator writes, in nanoseconds.

Source: casys-kaist/LLMServingSim, ``docs/docs/simulator/reading-output.md``.  It holds finished requests
only.
"""

from __future__ import annotations

from infermax_opt.files.rows import csv_rows
from infermax_opt.foreign.formats import Choices, RunFormat
from infermax_opt.foreign.head import Head
from infermax_opt.foreign.requests import NS, Collected, Values
from infermax_opt.foreign.run import ForeignRequest, Run

__all__ = ["LLMSERVINGSIM_SIM"]

INSTANCE, REQUEST = "instance id", "request id"
COLUMNS = (INSTANCE, REQUEST, "input", "output", "arrival", "end_time", "latency", "TTFT")


def _read(path: str, choices: Choices) -> Run:
    found = Collected(path, "llmservingsim-sim")
    rows: dict[str, list[ForeignRequest]] = {}
    lines: dict[str, dict[str, int]] = {}
    for line, row in csv_rows(path, COLUMNS):
        values = Values(path, f"line {line}", row)
        e2e, arrival = values.time("latency", NS), values.time("arrival", NS)
        if values.time("end_time", NS) != arrival + e2e:
            values.span("arrival", "end_time", NS)
            values.fault("latency", f"{row['latency']!r} is not 'end_time' less 'arrival'")
        request = ForeignRequest(
            name=values.text(REQUEST, str(line)),
            line=line,
            arrival=arrival,
            input_tokens=values.tokens("input"),
            output_tokens=values.tokens("output"),
            ttft=values.time("TTFT", NS),
            e2e=e2e,
        )
        machine = values.text(INSTANCE, "")
        before = lines.setdefault(machine, {}).setdefault(request.name, line)
        if before != line:
            values.fault(REQUEST, f"{request.name!r} is there twice: in line {before}, too")
        rows.setdefault(machine, []).append(request)
    chosen = list(rows) if choices.replica is None else [str(choices.replica)]
    for name in chosen:
        if name not in rows:
            first = next(iter(rows.values()))[0].line
            Values(path, f"line {first}", {}).fault(
                INSTANCE, f"no row is of machine {name}; there are {', '.join(sorted(rows))}"
            )
        for request in rows.pop(name):
            found.add(Values(path, f"line {request.line}", {}), request)
    if len(chosen) > 1:
        found.say(
            f"The requests were served by {len(chosen)} machines (column 'instance id'); their limits are "
            "not those of one."
        )
    found.say(
        "Prompt lengths count tokens found in a prefix cache, too; the file does not say how many these are."
    )
    return found.run()


def _known(head: Head) -> bool:
    return head.has(INSTANCE, REQUEST, "queuing_delay", "TTFT", "ITL")


LLMSERVINGSIM_SIM = RunFormat("llmservingsim-sim", "LLMServingSim: sim.csv", _read, _known, ("replica",))
