"""Whole batches, one a row of a CSV file (``.gz`` accepted).

======================  ===========================================================================
``tokens``              tokens processed: one for each decoding request, and those of the chunks
``decode_requests``     requests that decode
``kv_read``             tokens cached by these before the batch, summed; empty or 0 where none decodes
``prefill_chunks``      the chunks, parted by blanks: ``512@0 256@1024`` are 512 tokens of a prompt of
                        which nothing is cached, and 256 tokens behind 1,024 cached ones; empty for none
``seconds``             how long the batch took
======================  ===========================================================================

Other columns are not read.
"""

from __future__ import annotations

import re
from functools import lru_cache

from infermax_opt.core.checks import MAX_TOKENS
from infermax_opt.core.errors import InputError
from infermax_opt.files.fields import shown
from infermax_opt.files.rows import csv_rows, fault
from infermax_opt.infermax.data.cost import prefill_work
from infermax_opt.latency import cells
from infermax_opt.latency.batches.samples import BatchSamples, Sample

__all__ = ["COLUMNS", "read_whole_batches"]

COLUMNS = ("tokens", "decode_requests", "kv_read", "prefill_chunks", "seconds")
#: A chunk behind its cached prefix.
CHUNK = re.compile(r"([0-9]{1,10})@([0-9]{1,10})")


def read_whole_batches(path: str) -> BatchSamples:
    """Read a file of whole batches.

    Raises
    ------
    InputError
        Naming file, line, column, value and limit.
    """
    found = tuple(_sample(path, line, row) for line, row in csv_rows(path, COLUMNS))
    if not found:
        raise InputError("holds no sample", source=path)
    return BatchSamples(path, "batches", {"batch": found}, found, (), kernel_time_only=False)


def _sample(path: str, line: int, row: dict[str, str]) -> Sample:
    tokens = cells.count(path, line, "tokens", row["tokens"], MAX_TOKENS)
    decodes = cells.count(path, line, "decode_requests", row["decode_requests"], MAX_TOKENS, 0)
    read = cells.count(path, line, "kv_read", row["kv_read"].strip() or "0", MAX_TOKENS, 0)
    try:
        chunks, total, square, exact, behind = _chunks(row["prefill_chunks"])
    except ValueError as error:
        fault(path, line, "prefill_chunks", str(error))
    if read < decodes or (read and not decodes):
        problem = f"{read} cannot be what {decodes} decoding requests read: each has 1 cached token or more"
        fault(path, line, "kv_read", problem)
    if tokens != decodes + total:
        problem = f"{tokens} is not the sum of {decodes} decoded and {total} prefilled tokens"
        fault(path, line, "tokens", problem)
    return Sample(
        tokens,
        decodes,
        read,
        chunks,
        square,
        exact,
        behind,
        cells.time(path, line, "seconds", row["seconds"]),
    )


@lru_cache(maxsize=2**14)
def _chunks(text: str) -> tuple[int, int, int, int, int]:
    """Number of chunks, their tokens, their attention work counted either way, and what they come behind."""
    found = []
    for part in text.split():
        match = CHUNK.fullmatch(part)
        if match is None or not 1 <= int(match[1]) <= MAX_TOKENS or int(match[2]) > MAX_TOKENS:
            raise ValueError(
                f"{shown(part)} is not CHUNK@PREFIX, such as 512@0, of 1 to {MAX_TOKENS} tokens "
                f"behind 0 to {MAX_TOKENS}"
            )
        found.append((int(match[1]), int(match[2])))
    square, exact = (sum(prefill_work(kind, chunk, prefix) for chunk, prefix in found) for kind in (0, 1))
    return len(found), sum(chunk for chunk, _ in found), square, exact, sum(prefix for _, prefix in found)
