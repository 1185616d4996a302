"""Rows of LLMServingSim's ``sim.csv``, read by column; times in nanoseconds.

Source: casys-kaist/LLMServingSim, ``docs/docs/simulator/reading-output.md``.  It holds finished requests
only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from infermax_opt.files.rows import Block, csv_blocks, fault
from infermax_opt.foreign.columns import Column, read_times, read_tokens
from infermax_opt.foreign.formats import Choices
from infermax_opt.foreign.names import codes_of, first_twice, joined_names, listed, names_of
from infermax_opt.foreign.requests import Collected, Values
from infermax_opt.foreign.run import Run
from infermax_opt.foreign.run_columns import RequestColumns

__all__ = ["read_rows"]

INSTANCE, REQUEST = "instance id", "request id"
ARRIVAL, END, LATENCY = "arrival", "end_time", "latency"
TOKENS = ("input", "output")
TIMES = (LATENCY, ARRIVAL, END, "TTFT")
COLUMNS = (INSTANCE, REQUEST, *TOKENS, *TIMES)
#: Times are in units of ``10**-PLACES`` s.
PLACES = 9


def _columns(path: str, block: Block) -> tuple[NDArray[Any], RequestColumns]:
    """Machines and requests of some rows."""
    lines, cells = block
    times = {name: read_times(name, cells[name], PLACES) for name in TIMES}
    tokens = {name: read_tokens(name, cells[name]) for name in TOKENS}
    columns: tuple[Column[Any], ...] = (*times.values(), *tokens.values())
    faults = [(*column.first_fault, column.name) for column in columns if column.first_fault]
    if faults:
        place, problem, name = min(faults, key=lambda found: found[0])
        fault(path, lines[place], name, problem)
    arrivals, ends, e2e = times[ARRIVAL].values, times[END].values, times[LATENCY].values
    wrong = np.flatnonzero((arrivals + e2e - ends).ticks)
    if len(wrong):
        k = int(wrong[0])
        values = Values(path, f"line {lines[k]}", {})
        values.between(ARRIVAL, arrivals[k], END, ends[k])
        values.fault(LATENCY, f"{cells[LATENCY][k]!r} is not 'end_time' less 'arrival'")
    names = [name or str(line) for name, line in zip(cells[REQUEST], lines, strict=True)]
    known = np.ones(len(lines), dtype=bool)
    found = RequestColumns(
        names=names_of(names),
        lines=np.array(lines),
        arrivals=arrivals,
        inputs=tokens["input"].values,
        outputs=tokens["output"].values,
        ttft=times["TTFT"].values,
        streamed=known,
        e2e=e2e,
        ended=known,
        evictions=np.full(len(lines), -1),
        cached=np.full(len(lines), -1),
    )
    return names_of(cells[INSTANCE]), found


def _check_names(path: str, machines: NDArray[Any], columns: RequestColumns) -> None:
    """Check that no machine has two requests of a name."""
    twice = first_twice(codes_of(columns.names), codes_of(machines))
    if twice is not None:
        line, before = (int(columns.lines[k]) for k in twice)
        name = str(columns.names[twice[0]])
        fault(path, line, REQUEST, f"{name!r} is there twice: in line {before}, too")


def read_rows(path: str, choices: Choices) -> Run:
    """Read a run.

    Raises
    ------
    InputError
        Naming line and column.
    """
    found = Collected(path, "llmservingsim-sim")
    machines: list[NDArray[Any]] = []
    parts: list[RequestColumns] = []
    count = 0
    for block in csv_blocks(path, COLUMNS):
        some, columns = _columns(path, block)
        machines.append(some)
        parts.append(columns)
        count += len(columns)
        found.check_rows(count)
    if not parts:
        return found.run()
    whole, served = RequestColumns.joined(parts), joined_names(machines)
    _check_names(path, served, whole)
    there = {*map(str, np.unique(served).tolist())}
    if choices.replica is not None:
        name = str(choices.replica)
        if name not in there:
            problem = f"no row is of machine {name}; there are {listed(there)}"
            fault(path, int(whole.lines[0]), INSTANCE, problem)
        whole = whole.take(np.flatnonzero(served.astype(str) == name))
    elif len(there) > 1:
        found.say(
            f"The requests were served by {len(there)} machines (column 'instance id'); their limits are "
            "not those of one."
        )
    found.say(
        "Prompt lengths count tokens found in a prefix cache, too; the file does not say how many these are."
    )
    return found.made(found.ordered(whole, "line"))
