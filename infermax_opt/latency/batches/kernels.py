"""Kernel tables that LLMServingSim measures for vLLM: a folder of three CSV files.

=============================  =====================================================================
``kernels_dense.csv``          ``layer, tokens, time_us``: a kernel on so many tokens
``kernels_per_sequence.csv``   ``layer, sequences, time_us``: at the end, for each sequence
``kernels_attention.csv``      ``prefill_chunk, kv_prefill, n_decode, kv_decode, time_us``: attention of
                               a chunk behind its cached prefix, beside requests that decode with so
                               many cached tokens each; 0 where there is none
=============================  =====================================================================

Times are of one layer.  A kernel counts once for each layer of the model; `ONCE` count once, `TWICE` twice
a layer.  What is measured at the end of a batch of n tokens is that of n sequences, or of `max_sequences`.
Nothing here knows the CPU or the traffic between GPUs.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Mapping
from fractions import Fraction

from infermax_opt.core.checks import MAX_TOKENS
from infermax_opt.core.errors import InputError
from infermax_opt.files.rows import csv_rows, fault
from infermax_opt.infermax.data.cost import prefill_work
from infermax_opt.latency import cells
from infermax_opt.latency.batches.samples import BatchSamples, Sample

__all__ = ["read_kernels"]

DENSE, ENDS, ATTENTION = "kernels_dense.csv", "kernels_per_sequence.csv", "kernels_attention.csv"
#: Kernels that run once a batch, and those that run twice a layer.
ONCE, TWICE = frozenset({"embedding", "final_layernorm"}), frozenset({"layernorm"})
BATCH = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
MICRO = 10**6

Series = Mapping[int, Fraction]


def read_kernels(folder: str, layers: int, max_sequences: int | None) -> BatchSamples:
    """Read a folder of kernel tables.

    Parameters
    ----------
    folder : str
    layers : int
        Of the model.
    max_sequences : int or None
        Most sequences whose next tokens are sampled in a batch; None: the most in the table.

    Raises
    ------
    InputError
        Naming file, line, column, value and limit.
    """
    (dense, notes), ends = _dense(folder, layers), _total(_series(os.path.join(folder, ENDS), "sequences"))
    most = min(max(ends), max_sequences or MAX_TOKENS)
    attention = _attention(os.path.join(folder, ATTENTION), layers)
    longest = max(dense)

    def ending(sequences: int) -> Fraction:
        return _between(ends, min(sequences, most))

    whole = {tokens: _between(dense, tokens) for tokens in {s.tokens for s in attention} if tokens <= longest}
    known = [sample for sample in attention if sample.tokens in whole]
    batches = tuple(
        s._replace(seconds=s.seconds + whole[s.tokens] + ending(s.decodes + s.prefills)) for s in known
    )
    if len(known) < len(attention):
        problem = f"have more tokens than {DENSE} knows, {longest}: errors leave them out"
        notes.append(f"{len(attention) - len(known)} of {len(attention)} measured batches {problem}")
    parts = {
        "dense": tuple(Sample(n, 0, 0, 0, 0, 0, 0, time + ending(n)) for n, time in dense.items()),
        "attention": attention,
    }
    return BatchSamples(folder, "kernels", parts, batches, tuple(notes), kernel_time_only=True)


def _dense(folder: str, layers: int) -> tuple[Series, list[str]]:
    """Seconds of the kernels of a batch by its tokens, and what the file seems to lack."""
    path = os.path.join(folder, DENSE)
    found = _series(path, "tokens")
    times = {name: 1 if name in ONCE else (1 + (name in TWICE)) * layers for name in found}
    total = _total({name: {n: times[name] * t for n, t in some.items()} for name, some in found.items()})
    if not total:
        raise InputError("no number of tokens is measured for every layer", field="tokens", source=path)
    notes = []
    if ONCE.isdisjoint(found):
        notes.append(f"{DENSE} has neither {' nor '.join(sorted(ONCE))}: is it whole?")
    sizes = set[int]().union(*found.values())
    if len(sizes) > len(total):
        problem = (
            f"{len(sizes) - len(total)} of {len(sizes)} numbers of tokens are not measured for every kernel"
        )
        notes.append(f"{DENSE}: {problem}: they are left out")
    return total, notes


def _total(found: Mapping[str, Series]) -> Series:
    """Sums over all kernels, at the sizes that each of them has."""
    sizes = sorted(set.intersection(*(set(some) for some in found.values())))
    return {size: sum((some[size] for some in found.values()), Fraction(0)) for size in sizes}


def _series(path: str, key: str) -> dict[str, dict[int, Fraction]]:
    """Seconds by layer and size."""
    found: dict[str, dict[int, Fraction]] = {}
    for line, row in csv_rows(
        path,
        (
            "layer",
            key,
            "time_us",
        ),
    ):
        size = cells.count(path, line, key, row[key], MAX_TOKENS)
        some = found.setdefault(row["layer"].strip(), {})
        if size in some:
            fault(path, line, key, f"{size} of layer {row['layer']!r} is there twice")
        some[size] = cells.time(path, line, "time_us", row["time_us"], per_second=MICRO)
    if not found:
        raise InputError("holds no sample", source=path)
    return found


def _attention(path: str, layers: int) -> tuple[Sample, ...]:
    """Attention of all layers."""
    found = []
    for line, row in csv_rows(
        path,
        (
            *BATCH,
            "time_us",
        ),
    ):
        chunk, prefix, count, context = (
            cells.count(path, line, name, row[name], MAX_TOKENS, 0) for name in BATCH
        )
        if (count == 0) != (context == 0):
            fault(path, line, "kv_decode", f"{context} cannot be the context of {count} requests")
        if not chunk and (prefix or not count):
            what = "a prefix without a chunk" if prefix else "nothing in the batch"
            fault(path, line, "prefill_chunk", f"0 means {what}")
        seconds = layers * cells.time(path, line, "time_us", row["time_us"], per_second=MICRO)
        square, exact = (prefill_work(kind, chunk, prefix) for kind in (0, 1))
        behind = prefix if chunk else 0
        found.append(
            Sample(chunk + count, count, count * context, int(chunk > 0), square, exact, behind, seconds)
        )
    if not found:
        raise InputError("holds no sample", source=path)
    return tuple(found)


def _between(table: Series, at: int) -> Fraction:
    """Seconds at a size, on a line between its neighbours; beyond the ends, that of the end."""
    if at in table:
        return table[at]
    sizes = list(table)
    k = bisect_left(sizes, at)
    if k in (0, len(sizes)):
        return table[sizes[min(k, len(sizes) - 1)]]
    low, high = sizes[k - 1], sizes[k]
    return table[low] + (table[high] - table[low]) * Fraction(at - low, high - low)
