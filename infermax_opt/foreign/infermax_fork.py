"""The InferMax fork of Vidur: the same ``request_metrics.csv``.

Source: ValerioL29/infermax.  Its ``schedule.pkl`` and ``csp.pkl`` are pickles, which are refused by their
contents.
"""

from __future__ import annotations

from infermax_opt.foreign.formats import Choices, RunFormat
from infermax_opt.foreign.head import Head
from infermax_opt.foreign.run import Run
from infermax_opt.foreign.vidur import read_metrics

__all__ = ["INFERMAX"]


def _read(path: str, choices: Choices) -> Run:
    return read_metrics(path, "infermax")


def _known(head: Head) -> bool:
    # Nothing in the file tells it from Vidur's, which is read in the same way.
    return False


INFERMAX = RunFormat("infermax", "InferMax's fork of Vidur: request_metrics.csv", _read, _known)
