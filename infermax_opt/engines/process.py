"""Runs an engine in a process of its own and keeps what it reported, whatever ends it."""

from __future__ import annotations

import json
import queue
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, Literal

from infermax_opt.core.extras import require
from infermax_opt.engines.child import end_child, read_lines, start_child
from infermax_opt.engines.lowering import LoweredModel
from infermax_opt.engines.outcome import EngineLimits, Termination

__all__ = ["Engine", "EngineRun", "run_engine"]

Engine = Literal["highs", "cpsat"]

#: Seconds that an engine may take to end by itself after its time limit.
GRACE = 1.0
#: What the last words of a process hold that had too little memory; a library that cannot be mapped is one,
#: and so is what Python says where there was no room for the exception.
SHORT = (
    "memory", "bad_alloc", "allocat", "blas_thread", "can't start new thread", "failed to map", "cannot map",
    "without exception set", "without setting an exception",
)  # fmt: skip


@dataclass
class EngineRun:
    """What an engine reported, in ticks and columns of the lowered model.

    Attributes
    ----------
    values : list of int or None
        Best point found.
    objective : int or None
        Its objective.
    bound : int or None
        Best lower bound.
    bound_source : str or None
        Part of the engine that proved it.
    termination : str
        One of `Termination`.
    start_accepted : bool or None
        Whether the engine confirmed the warm start.
    details : mapping
        Counts, and the last words of an engine that crashed.
    """

    values: list[int] | None = None
    objective: int | None = None
    bound: int | None = None
    bound_source: str | None = None
    termination: str = Termination.CRASHED
    start_accepted: bool | None = None
    details: dict[str, Any] = field(default_factory=dict)


def run_engine(
    engine: Engine,
    model: LoweredModel,
    limits: EngineLimits,
    listen: Callable[[str, int], None] | None = None,
    started: Callable[[int], None] | None = None,
) -> EngineRun:
    """Minimise `model` with an engine in its own process.

    A crash, a kill, the memory limit, the time limit or Ctrl-C (which is not raised again) ends
    the run with the best point and bound reported so far.

    Parameters
    ----------
    listen : callable, optional
        Receives ``"incumbent"`` or ``"bound"`` and its value in ticks, on every improvement.
    started : callable, optional
        Receives the process id.

    Raises
    ------
    InputError
        If the engine is not installed.
    """
    if engine == "cpsat":
        require("ortools", "the solver 'cpsat'")
    run = EngineRun()
    began = time.monotonic()
    job = {
        "engine": engine,
        "model": model.to_json(),
        "seconds": limits.seconds,
        "began": began,
        "threads": limits.threads,
        "seed": limits.seed,
        "memory": limits.memory,
    }
    with tempfile.TemporaryFile() as errors:
        worker = start_child("infermax_opt.engines.worker", errors)
        try:
            if started is not None:
                started(worker.pid)
            _talk(worker, job, run, model, limits, began, listen)
        except KeyboardInterrupt:
            run.termination = Termination.INTERRUPTED
        finally:
            code = end_child(worker)
        if run.termination == Termination.CRASHED:
            _autopsy(run, code, errors, limits)
    return run


def _talk(
    worker: subprocess.Popen[bytes],
    job: Mapping[str, Any],
    run: EngineRun,
    model: LoweredModel,
    limits: EngineLimits,
    began: float,
    listen: Callable[[str, int], None] | None,
) -> None:
    """Send the job and collect events until the worker ends or its time is up."""
    lines = read_lines(worker)
    try:
        worker.stdin.write(json.dumps(job).encode() + b"\n")  # type: ignore[union-attr]
        worker.stdin.flush()  # type: ignore[union-attr]
    except BrokenPipeError:
        return
    while True:
        timeout = None
        if limits.seconds is not None:
            timeout = max(0.0, began + limits.seconds + GRACE - time.monotonic())
        try:
            line = lines.get(timeout=timeout)
        except queue.Empty:
            run.termination = Termination.TIME_LIMIT
            return
        if line is None or _note(run, json.loads(line), model, listen):
            return


def _note(
    run: EngineRun,
    event: dict[str, Any],
    model: LoweredModel,
    listen: Callable[[str, int], None] | None,
) -> bool:
    """Take one event into `run`; return whether it was the last."""
    kind = event.pop("event")
    if kind == "incumbent":
        objective = model.objective(event["values"])
        if run.objective is None or objective < run.objective:
            run.values, run.objective = event["values"], objective
            if listen is not None:
                listen("incumbent", objective)
    elif kind == "bound":
        if run.bound is None or event["value"] > run.bound:
            run.bound, run.bound_source = event["value"], event["source"]
            if listen is not None:
                listen("bound", event["value"])
    elif kind == "start":
        run.start_accepted = event["accepted"]
    elif kind == "details":
        run.details.update(event)
    else:
        run.termination = event["termination"]
    return bool(kind == "end")


def _autopsy(run: EngineRun, code: int, errors: IO[bytes], limits: EngineLimits) -> None:
    """Tell a crash from the memory limit, and keep the worker's last words."""
    errors.seek(0)
    words = errors.read().decode(errors="replace").strip()
    lines = words.splitlines()
    run.details["exit_code"] = code
    if lines:
        run.details["message"] = lines[-1][:300]
    if limits.memory is not None and any(word in words.lower() for word in SHORT):
        run.termination = Termination.MEMORY_LIMIT
