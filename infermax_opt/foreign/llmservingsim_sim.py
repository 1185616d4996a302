"""LLMServingSim's ``sim.csv``: what its simulator writes.

Source: casys-kaist/LLMServingSim, ``docs/docs/simulator/reading-output.md``.
"""

from __future__ import annotations

from infermax_opt.foreign.formats import Choices, RunFormat
from infermax_opt.foreign.head import Head
from infermax_opt.foreign.run import Run

__all__ = ["LLMSERVINGSIM_SIM"]


def _read(path: str, choices: Choices) -> Run:
    from infermax_opt.foreign.llmservingsim_rows import read_rows

    return read_rows(path, choices)


def _known(head: Head) -> bool:
    return head.has("instance id", "request id", "queuing_delay", "TTFT", "ITL")


LLMSERVINGSIM_SIM = RunFormat("llmservingsim-sim", "LLMServingSim: sim.csv", _read, _known, ("replica",))
