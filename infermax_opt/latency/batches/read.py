"""Measured batches of a file or a folder, which itself tells its layout."""

from __future__ import annotations

import os

from infermax_opt.core.errors import InputError
from infermax_opt.latency.batches.aiconfigurator import is_aiconfigurator, read_aiconfigurator
from infermax_opt.latency.batches.kernels import read_kernels
from infermax_opt.latency.batches.rows import read_whole_batches
from infermax_opt.latency.batches.samples import BatchSamples
from infermax_opt.latency.batches.vidur import is_vidur, read_vidur

__all__ = ["read_batches"]


def read_batches(
    path: str | os.PathLike[str],
    *,
    layers: int | None = None,
    max_sequences: int | None = None,
    gpus: int | None = None,
) -> BatchSamples:
    """Read measured batches; the file itself tells which layout it has.

    Parameters
    ----------
    path : str
        A CSV file, a folder of kernel tables, or what aiconfigurator-core knows (see
        `infermax_opt.latency.batches.aiconfigurator`).
    layers : int, optional
        Of the model; kernel tables and Vidur's profiles need it, and nothing else takes it.
    max_sequences : int, optional
        Kernel tables: most sequences whose next tokens are sampled in a batch.
    gpus : int, optional
        Vidur's profiles and aiconfigurator-core: the number of tensor-parallel workers; 1, if not given.

    Raises
    ------
    InputError
        Naming file, line, column, value and limit.
    """
    name = os.fspath(path)
    if is_aiconfigurator(name):
        _refuse("a machine of aiconfigurator-core", name, layers=layers, max_sequences=max_sequences)
        return read_aiconfigurator(name, gpus or 1)
    if os.path.isdir(name):
        _refuse("a folder of kernel tables", name, gpus=gpus)
        return read_kernels(name, _needed(layers, name), max_sequences)
    if is_vidur(name):
        _refuse("a profile of Vidur", name, max_sequences=max_sequences)
        return read_vidur(name, _needed(layers, name), gpus or 1)
    _refuse("a file of whole batches", name, layers=layers, max_sequences=max_sequences, gpus=gpus)
    return read_whole_batches(name)


def _needed(layers: int | None, path: str) -> int:
    if layers is None:
        problem = "the times are of one layer: --layers N says how many the model has"
        raise InputError(problem, field="layers", source=path)
    return layers


def _refuse(what: str, path: str, **given: int | None) -> None:
    for name, value in given.items():
        if value is not None:
            raise InputError(f"{what} takes no --{name.replace('_', '-')}", field=name, source=path)
