"""What became of the requests of a stream under a policy, as text, CSV and JSON."""

from __future__ import annotations

from typing import Any

from infermax_opt.cluster.replay.check import StreamCheck
from infermax_opt.cluster.replay.replay import StreamReplay
from infermax_opt.cluster.replay.rows import stream_rows
from infermax_opt.cluster.report import rows_csv
from infermax_opt.files.report import metrics_text
from infermax_opt.files.schemas import SCHEMAS
from infermax_opt.files.text import printable

__all__ = ["requests_csv", "simulation_text", "simulation_to_json"]


def simulation_text(replay: StreamReplay, check: StreamCheck, policy: str) -> str:
    """What became of a stream under a policy.

    Parameters
    ----------
    replay : StreamReplay
    check : StreamCheck
        Of the same placement.
    policy : str
        Its name.
    """
    broken = ", ".join(f"{rule} {count}" for rule, count in check.rules.items())
    lines = [
        printable(replay.stream.name),
        f"  policy {policy}",
        f"  limits exceeded: {broken or 'none, at any heartbeat'}",
    ]
    if check.metrics is not None:
        lines += ["", metrics_text(check.metrics)]
    return "\n".join(lines)


def simulation_to_json(replay: StreamReplay, check: StreamCheck, policy: str) -> dict[str, Any]:
    """The same as a JSON value, with every request and the workers in use at every heartbeat.

    Parameters
    ----------
    replay : StreamReplay
    check : StreamCheck
        Of the same placement.
    policy : str
        Its name.
    """
    stream = replay.stream
    return {
        "schema": SCHEMAS["simulate"],
        "instance": stream.name,
        "instance_sha256": stream.sha256,
        "policy": policy,
        "limits_exceeded": check.rules,
        "metrics": dict(check.metrics.items()) if check.metrics else None,
        "heartbeats": [
            {"seconds": beat.number * stream.heartbeat, "new": beat.new, "workers": beat.workers}
            for beat in replay.beats
        ],
        "requests": stream_rows(replay),
    }


def requests_csv(replay: StreamReplay) -> str:
    """What each request saw, as CSV; times in seconds."""
    return rows_csv(stream_rows(replay))
