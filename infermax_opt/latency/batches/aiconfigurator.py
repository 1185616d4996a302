"""Batches as NVIDIA's aiconfigurator-core tells them: sums of operators that were measured on their own.

``aiconfigurator:MODEL@SYSTEM/BACKEND`` names what it knows, such as
``aiconfigurator:meta-llama/Meta-Llama-3.1-8B@h100_sxm/vllm``.  The package (extra ``calibrate``) holds its
tables and needs no network for the models it comes with.  Its times are milliseconds of GPU kernels.

Source: ai-dynamo/aiconfigurator, ``sdk/engine.py`` of 0.12.  A prompt's length counts its cached prefix.  A
mixed batch has one context for all that decode: the prompt's length and half of the output's.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.core.extras import require
from infermax_opt.infermax.data.cost import prefill_work
from infermax_opt.latency.batches.samples import BatchSamples, Sample

__all__ = ["is_aiconfigurator", "name_of", "read_aiconfigurator"]

PREFIX = "aiconfigurator:"
PACKAGE = "aiconfigurator_core"
MILLI = Fraction(1, 1000)
#: Decimals of a second that are kept.
DECIMALS = 12
#: Requests that decode, what each has cached; chunks, what they come behind; prompts of a batch.
DECODES, CACHED = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512), (64, 128, 256, 512, 1024, 2048, 4096)
CHUNKS, BEHIND = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096), (0, 512, 2048)
PROMPTS = (1, 2, 4, 8)
#: Most tokens of a batch; most KV tokens that it reads.
MOST_TOKENS, MOST_READ = 8192, 300_000


def is_aiconfigurator(path: str) -> bool:
    """Whether a path names something of aiconfigurator-core, and no file."""
    return path.startswith(PREFIX)


def name_of(path: str) -> str:
    """The machine in a word, for a profile: ``Meta-Llama-3.1-8B_h100_sxm_vllm``."""
    model, _, where = path.removeprefix(PREFIX).rpartition("@")
    return f"{model.rpartition('/')[2]}_{where.replace('/', '_')}"


def read_aiconfigurator(path: str, gpus: int) -> BatchSamples:
    """Ask the package for batches of a grid.

    Parameters
    ----------
    path : str
        ``aiconfigurator:MODEL@SYSTEM/BACKEND``.
    gpus : int
        Tensor-parallel GPUs.

    Raises
    ------
    InputError
        If the package is not installed, or does not know the model, the system or the backend.
    """
    model, at, where = path.removeprefix(PREFIX).rpartition("@")
    system, slash, backend = where.partition("/")
    if not (model and at and system and slash and backend):
        raise InputError(f"is not {PREFIX}MODEL@SYSTEM/BACKEND", source=path)
    found = tuple(_samples(_engine(path, model, system, backend, gpus), path))
    note = (
        "operators were measured one by one and added up; a mixed batch takes what its parts take, and "
        "some of them are the package's formulas"
    )
    return BatchSamples(path, "aiconfigurator", {"batch": found}, found, (note,), kernel_time_only=True)


def _engine(path: str, model: str, system: str, backend: str, gpus: int) -> Any:
    try:
        require("aiconfigurator_core", "its batches")
    except InputError as error:
        raise error.within(path) from None
    from aiconfigurator_core.sdk.engine import EngineHandle

    # It tells at length which of its tables it reads.
    logging.getLogger(PACKAGE).setLevel(logging.ERROR)
    try:
        return EngineHandle.compile(model, system, backend, tp_size=gpus)
    except Exception as error:  # whatever it raises, it has no such machine
        raise InputError(f"aiconfigurator-core says: {_line(error)}", source=path) from None


def _samples(engine: Any, path: str) -> Iterator[Sample]:
    """Pure decodes, pure prefills, and both."""

    def seconds(name: str, *sizes: int) -> Fraction:
        try:
            time = getattr(engine, name)(*sizes)
        except Exception as error:
            asked = ", ".join(map(str, sizes))
            problem = f"aiconfigurator-core says of {name}({asked}): {_line(error)}"
            raise InputError(problem, source=path) from None
        return Fraction(round(Fraction(time) * MILLI * 10**DECIMALS), 10**DECIMALS)

    for count in DECODES:
        for cached in CACHED:
            if count * cached <= MOST_READ:
                time = seconds("predict_decode_latency", count, cached)
                yield Sample(count, count, count * cached, 0, 0, 0, 0, time)
    for prompts in PROMPTS:
        for chunk in CHUNKS:
            for behind in BEHIND:
                if prompts * chunk <= MOST_TOKENS:
                    time = seconds("predict_prefill_latency", prompts, chunk + behind, behind)
                    yield Sample(prompts * chunk, 0, 0, *_work(prompts, chunk, behind), time)
    for chunk in CHUNKS:
        for count in DECODES:
            # Two tokens of output: the context is the prompt and one more.
            if count * (chunk + 1) <= MOST_READ:
                time = seconds("mixed_step_latency", chunk, count, chunk, 2)
                yield Sample(chunk + count, count, count * (chunk + 1), *_work(1, chunk, 0), time)


def _work(prompts: int, chunk: int, behind: int) -> tuple[int, int, int, int]:
    """Prompts, their attention work counted either way, and what they come behind."""
    square, exact = (prompts * prefill_work(kind, chunk, behind) for kind in (0, 1))
    return prompts, square, exact, prompts * behind


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
