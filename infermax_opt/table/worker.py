"""The process in which rows are computed: jobs on standard input, answers on standard output.

Both are JSON, one line each.  The process ends when its standard input is closed, also in the
middle of a row, so it never outlives the one that started it.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.table.compute import run_job

__all__ = ["main"]


def _answer(job: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"row": run_job(job)}
    except InputError as error:
        return {"error": str(error)}
    except MemoryError:
        return {"error": "out of memory"}
    except Exception as error:
        # Whatever it is, it costs this row only, and the parent reports it.
        return {"error": f"{type(error).__name__}: {error}"}


def _listen(jobs: queue.SimpleQueue[dict[str, Any]]) -> None:
    for line in sys.stdin:
        jobs.put(json.loads(line))
    os._exit(1)


def main() -> None:
    """Answer jobs until nobody asks any more."""
    # Standard output is for answers: whatever else is printed goes to standard error.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    jobs: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(jobs,), daemon=True).start()
    while True:
        out.write(json.dumps(_answer(jobs.get())) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
