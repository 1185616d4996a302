"""Vidur's ``chrome_trace.json``: every batch with the tokens of its requests.

Source: microsoft/vidur, ``vidur/entities/batch_stage.py``.
"""

from __future__ import annotations

from infermax_opt.foreign.formats import Choices, RunFormat
from infermax_opt.foreign.head import Head
from infermax_opt.foreign.run import Run

__all__ = ["VIDUR_CHROME_TRACE"]


def _read(path: str, choices: Choices) -> Run:
    from infermax_opt.foreign.vidur_batches import read_batches

    return read_batches(path, choices)


def _known(head: Head) -> bool:
    lists = "traceEvents[]", "[]"
    return any(head.has(f"{events}.args.request_ids", f"{events}.args.num_tokens") for events in lists)


VIDUR_CHROME_TRACE = RunFormat(
    "vidur-chrome-trace", "Vidur: chrome_trace.json, a whole schedule", _read, _known, ("replica",)
)
