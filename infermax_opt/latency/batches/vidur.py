"""Vidur's profiles of the operators beside attention (``mlp.csv``).

A row is a number of tokens on a number of tensor-parallel workers; times are in ms, of one layer.  The
median of each operator counts once a layer, that of the embedding once a batch.  The head of the model,
attention, traffic between GPUs and the CPU are not in it.
"""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from statistics import median

from infermax_opt.core.checks import MAX_TOKENS
from infermax_opt.core.errors import InputError
from infermax_opt.files.json import read_text
from infermax_opt.files.rows import csv_rows
from infermax_opt.latency import cells
from infermax_opt.latency.batches.samples import BatchSamples, Sample
from infermax_opt.placement.data.instance import MAX_GPUS

__all__ = ["is_vidur", "read_vidur"]

WORKERS, TOKENS = "num_tensor_parallel_workers", "num_tokens"
LAYER = (
    "input_layernorm", "attn_pre_proj", "attn_rope", "attn_post_proj", "post_attention_layernorm",
    "mlp_up_proj", "mlp_act", "mlp_down_proj", "add",
)  # fmt: skip
ONCE = "emb"
MILLI = 1000


def is_vidur(path: str) -> bool:
    """Whether the header of a file is that of such a profile."""
    header = read_text(path).partition("\n")[0]
    return "time_stats." in header and TOKENS in header


def read_vidur(path: str, layers: int, gpus: int) -> BatchSamples:
    """Read a profile; several rows of one number of tokens become their median.

    Parameters
    ----------
    path : str
    layers : int
        Of the model.
    gpus : int
        Number of tensor-parallel workers whose rows count.

    Raises
    ------
    InputError
        Naming file, line, column, value and limit.
    """
    times = {_column(name): layers for name in LAYER} | {_column(ONCE): 1}
    found: dict[int, list[Fraction]] = defaultdict(list)
    seen: set[int] = set()
    for line, row in csv_rows(
        path,
        (
            WORKERS,
            TOKENS,
            *times,
        ),
    ):
        workers = cells.count(path, line, WORKERS, row[WORKERS], MAX_GPUS)
        seen.add(workers)
        if workers == gpus:
            tokens = cells.count(path, line, TOKENS, row[TOKENS], MAX_TOKENS)
            found[tokens].append(
                sum(
                    (
                        n * cells.time(path, line, name, row[name], per_second=MILLI)
                        for name, n in times.items()
                    ),
                    Fraction(0),
                )
            )
    if not found:
        there = ", ".join(map(str, sorted(seen))) or "none"
        raise InputError(
            f"holds no row of {gpus}; there are {there}", field=f"column {WORKERS!r}", source=path
        )
    dense = tuple(Sample(n, 0, 0, 0, 0, 0, 0, median(some)) for n, some in sorted(found.items()))
    note = "attention, the head of the model and traffic between GPUs are not measured: they count as 0"
    return BatchSamples(path, "vidur", {"dense": dense}, (), (note,), kernel_time_only=True)


def _column(name: str) -> str:
    return f"time_stats.{name}.median"
