"""The process in which a solver runs: a job on standard input, events on standard output.

Both are JSON, one line each.  The process ends when its standard input is closed, so it never
outlives the one that started it.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from infermax_opt.engines.child import end_with_parent
from infermax_opt.engines.lowering import LoweredModel
from infermax_opt.engines.outcome import Termination

__all__ = ["ENGINES", "main"]

ENGINES = {"highs": "infermax_opt.engines.highs", "cpsat": "infermax_opt.engines.cpsat"}
"""Module of every engine; only the one that is asked for gets imported."""


def limit_memory(size: int) -> None:
    """Let allocations beyond `size` bytes fail, where the system offers that."""
    try:
        import resource
    except ImportError:
        return
    # Data counts what is allocated; the address space also holds libraries and reserved stacks.
    kind = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (size if hard < 0 else min(size, hard), hard))


def _private_output() -> Callable[[dict[str, Any]], None]:
    """Keep standard output for events: whatever else is printed goes to standard error."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    lock = threading.Lock()

    def emit(event: dict[str, Any]) -> None:
        # Solver callbacks come from several threads.
        with lock:
            out.write(json.dumps(event) + "\n")
            out.flush()

    return emit


def main() -> None:
    """Run one job."""
    emit = _private_output()
    job = json.loads(sys.stdin.readline())
    end_with_parent()
    try:
        if job["memory"] is not None:
            limit_memory(job["memory"])
        model = LoweredModel(**job["model"])
        engine = importlib.import_module(ENGINES[job["engine"]])
        seconds = job["seconds"]
        if seconds is not None:
            # Starting up is part of the time limit; the clock is the same in both processes.
            seconds = max(0.05, seconds - max(0.0, time.monotonic() - job["began"]))
        ended = engine.solve(model, seconds=seconds, threads=job["threads"], seed=job["seed"], emit=emit)
    except MemoryError:
        ended = Termination.MEMORY_LIMIT
    emit({"event": "end", "termination": ended})


if __name__ == "__main__":
    main()
    # The thread that waits for the parent must not hold up the exit.
    sys.stdout.flush()
    os._exit(0)
