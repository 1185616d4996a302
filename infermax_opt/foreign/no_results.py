"""Files of the field that hold no requests with their latencies: known, so that a line can say what they
are.
"""

from __future__ import annotations

from dataclasses import dataclass

from infermax_opt.foreign.head import Head

__all__ = ["ours", "what_else"]


@dataclass(frozen=True)
class _Other:
    """Columns or keys of a kind of files, and what to say of it."""

    names: tuple[str, ...]
    said: str


def _trace(what: str, form: str) -> str:
    reader = f"'infermax-opt import --format {form}' reads it"
    return f"is a trace ({what}): it holds arrivals and lengths, no results; {reader}"


#: Of a chrome trace, be it an object or a bare list of events.
NO_BATCHES = (
    "is a chrome trace that begins without batches (events with args.request_ids and args.num_tokens); "
    "if there are some later, say --format vidur-chrome-trace"
)

OTHERS = (
    _Other(("timestamp", "input_length", "output_length"), _trace("Mooncake", "mooncake")),
    _Other(("TIMESTAMP", "ContextTokens", "GeneratedTokens"), _trace("Azure", "azure")),
    _Other(("Timestamp", "Request tokens", "Response tokens"), _trace("BurstGPT", "burstgpt")),
    _Other(("arrival_timestamp", "prompt_size", "token_size"), _trace("splitwise-sim", "splitwise")),
    _Other(("arrived_at", "num_prefill_tokens", "num_decode_tokens"), _trace("Vidur", "vidur")),
    _Other(
        ("[].conversations",), "is a file of conversations (ShareGPT): it holds no arrivals and no results"
    ),
    _Other(
        ("isl", "osl", "ttft", "tpot"),
        "is a table of configurations (aiconfigurator): it holds means, no requests",
    ),
    _Other(
        ("load_summary", "successes"),
        "is a summary of inference-perf: set report.request_lifecycle.per_request to true and give "
        "per_request_lifecycle_metrics.json",
    ),
    _Other(
        ("request_latency.avg", "request_latency.unit"),
        "is a summary of aiperf: give profile_export.jsonl, which is written beside it",
    ),
    _Other(("traceEvents",), NO_BATCHES),
    _Other(("[].ph", "[].ts"), NO_BATCHES),
)

#: Files of this package, which hold no requests themselves.
OURS = (
    _Other(("schema", "instance", "batches"), "is a schedule: give its instance before it"),
    _Other(("schema", "instance", "upper_bound"), "is a result: give its instance before it"),
)


def ours(head: Head) -> str | None:
    """What a file of this package is that goes with its instance only."""
    return next((own.said for own in OURS if head.has(*own.names)), None)


def what_else(head: Head) -> str | None:
    """What a file is that holds no results of requests, as far as it is known."""
    return next((other.said for other in OTHERS if head.has(*other.names)), None)
