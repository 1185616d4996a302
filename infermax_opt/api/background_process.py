"""The process of `infermax_opt.api.background`: a job comes in, events and a result go out.

Both are JSON, one line each.  SIGINT ends the search, as Ctrl-C does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import asdict
from fractions import Fraction
from typing import Any

from infermax_opt import api
from infermax_opt.core.errors import InputError
from infermax_opt.core.interrupts import heed_signals
from infermax_opt.core.result import AnyResult, LowerBound
from infermax_opt.core.result_items import result_items
from infermax_opt.core.shown import written_schedule
from infermax_opt.engines.child import end_with_parent
from infermax_opt.files.instances import any_schedule_from_json, instance_from_json
from infermax_opt.files.json import parse_json, to_json_text

__all__ = ["main"]


def main() -> None:
    """Solve the instance of the job."""
    # A shell that starts this in the background has it ignore SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    heed_signals()
    # Standard output is for events: whatever else is printed goes to standard error.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def send(value: dict[str, Any]) -> None:
        out.write(json.dumps(value) + "\n")
        out.flush()

    try:
        send({"heeds": "SIGINT"})
        job = json.loads(sys.stdin.readline())
        end_with_parent()
        result = _solved(job, lambda event: send({"event": asdict(event)}))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        send({"result": to_json_text(_value(result))})
    except InputError as error:
        send({"failure": error.problem, "where": {"field": error.field, "source": error.source}})
    except MemoryError:
        send({"failure": "out of memory", "where": {"source": "solve"}})
    except Exception as error:
        # An option of a wrong kind, or a defect: nobody sees standard error.
        send({"failure": f"{type(error).__name__}: {error}", "where": {"source": "solve"}})
    except KeyboardInterrupt:
        send({"failure": "was stopped before there was a result", "where": {"source": "solve"}})
    out.close()
    # Threads of libraries must not keep the process.
    os._exit(0)


def _solved(job: dict[str, Any], progress: Any) -> AnyResult:
    instance = instance_from_json(parse_json(job["instance"]))
    options = job["options"]
    start = options.get("warm_start")
    if isinstance(start, dict):
        options["warm_start"] = any_schedule_from_json(parse_json(start["schedule"]))
    if options.get("target") is not None:
        options["target"] = Fraction(options["target"])
    return api.solve(instance, progress=progress, **options)


def _value(result: AnyResult) -> dict[str, Any]:
    items = result_items(result, written_schedule(result.schedule))
    return {
        "source": result.upper.source if result.upper else None,
        "lower": _bound(result.lower),
        "certified": _bound(result.certified),
        "schedule": items["schedule"],
        "solver": items["solver"],
        "infeasible": result.infeasible,
        "target": None if result.target is None else str(result.target),
        "undecided": result.undecided,
    }


def _bound(lower: LowerBound | None) -> dict[str, Any] | None:
    if lower is None:
        return None
    return {
        "value": str(lower.value),
        "source": lower.source,
        "proof": lower.proof.value,
        "reason": lower.reason,
        "evidence": lower.evidence,
    }


if __name__ == "__main__":
    main()
