"""A plan as the requests of another serving system, in the order in which the plan takes them up.

Neither format holds batches: the other system forms its own, and evicts whom it likes.

``vllm-requests``
    JSON lines in the layout of Mooncake's traces, times in ms.
    ``vllm bench serve --dataset-name timed_trace`` replays them (vLLM 0.23), without priorities.  NVIDIA's
    AIPerf (``--custom-dataset-type mooncake_trace``) also sends ``extra`` with each request: there stands its
    ``priority``.  A vLLM server with ``--scheduling-policy priority`` serves lower values first.
``llmservingsim``
    JSON lines of LLMServingSim 2 (its page "JSONL format", flat format), times in ns.  It admits requests by
    arrival, those of one moment in the order of the file.  So a request that the plan takes up after one that
    arrives later arrives with that one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from infermax_opt.core.admissions import Admission
from infermax_opt.core.errors import InputError
from infermax_opt.core.shown import Shown
from infermax_opt.core.values import AnyInstance
from infermax_opt.files.json import to_json_line
from infermax_opt.files.writing import write_text

__all__ = ["REQUEST_FORMATS", "ExportedRequests", "write_requests"]

#: Tokens that a hash of Mooncake's traces stands for.
BLOCK = 512
MILLISECOND, NANOSECOND = Fraction(1, 10**3), Fraction(1, 10**9)

Line = dict[str, Any]


@dataclass(frozen=True)
class ExportedRequests(Shown):
    """What was written.

    Attributes
    ----------
    instance, format, file : str
    requests : int
    delayed : int
        Requests whose arrival is later than in the instance, so that they come in the order of the plan.
    left_out : int
        Requests of the instance that the plan does not serve.
    """

    instance: str
    format: str
    file: str
    requests: int
    delayed: int
    left_out: int

    def facts(self) -> Mapping[str, Any]:
        """All of it."""
        return asdict(self)


def _vllm(admissions: Sequence[Admission]) -> Iterator[tuple[Line, bool]]:
    """Requests by arrival, those of one moment by priority; each has blocks of its own."""
    first = 0
    for priority, request in sorted(enumerate(admissions), key=lambda pair: (pair[1].arrival, pair[0])):
        blocks = -(-request.input_tokens // BLOCK)
        line = {
            "timestamp": request.arrival / MILLISECOND,
            "input_length": request.input_tokens,
            "output_length": request.output_tokens,
            "hash_ids": list(range(first, first + blocks)),
            "extra": {"priority": priority},
        }
        yield line, False
        first += blocks


def _llmservingsim(admissions: Sequence[Admission]) -> Iterator[tuple[Line, bool]]:
    """Requests in the order of the plan; none arrives before the one ahead of it."""
    latest = 0
    for request in admissions:
        arrival = math.ceil(request.arrival / NANOSECOND)
        latest = max(latest, arrival)
        line = {
            "input_toks": request.input_tokens,
            "output_toks": request.output_tokens,
            "arrival_time_ns": latest,
        }
        yield line, latest > arrival


#: Writers by the name of their format: lines, and whether the request comes later than in the instance.
REQUEST_FORMATS: Mapping[str, Callable[[Sequence[Admission]], Iterator[tuple[Line, bool]]]] = {
    "vllm-requests": _vllm,
    "llmservingsim": _llmservingsim,
}


def write_requests(
    instance: AnyInstance, admissions: Sequence[Admission], path: str | os.PathLike[str], format: str
) -> ExportedRequests:
    """Write requests in the order of a plan, whole or not at all.

    Parameters
    ----------
    instance : instance
        That the plan is of.
    admissions : sequence of Admission
        See `infermax_opt.core.problem.Problem.admissions`.
    path : path
        ``-`` is standard output.
    format : str
        A key of `REQUEST_FORMATS`.

    Raises
    ------
    InputError
        If there is no such format, or the file cannot be written.
    """
    if format not in REQUEST_FORMATS:
        raise InputError(f"{format!r} is none of {', '.join(REQUEST_FORMATS)}", field="as")
    lines = list(REQUEST_FORMATS[format](admissions))
    write_text("".join(f"{to_json_line(line)}\n" for line, _ in lines), path)
    return ExportedRequests(
        instance.name,
        format,
        os.fspath(path),
        len(lines),
        sum(late for _, late in lines),
        len(instance.requests) - len(lines),
    )
