"""Prefill workers of split phase (section 5.1): requests packed at each heartbeat by limit c alone.

A prefill worker does the prompts that it is given at a heartbeat in one iteration of k1 (tokens) + c1 seconds
(eq 2), which is to end T_pre after the heartbeat: bin packing.  Then their KV goes on to a decode worker, so
here nothing is held for long and nothing is decoded.

That is a stream of its own: of requests that end with their first token, on workers with KV for all.  What
places, bounds, replays and verifies streams does so with this one.  Only limit c can bind in it, but where an
iteration reaches beyond the next heartbeat: then the worker is in use, may take requests for the time that it
has left, and none beside such as wait already (limit d), so there is no queue.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from infermax_opt.cluster.data.stream import Stream
from infermax_opt.cluster.series import WorkerSeries, worker_series
from infermax_opt.core.checks import checked_kind
from infermax_opt.core.progress import Progress

__all__ = ["prefill_series", "prefill_stream"]


def prefill_stream(stream: Stream) -> Stream:
    """The stream that the prefill workers of a stream see; its TTFT are theirs.

    Parameters
    ----------
    stream : Stream
        With the k1, c1 and GPUs of a prefill worker.
    """
    checked_kind(stream, Stream, "stream")
    none = Fraction(0)
    worker = replace(
        stream.worker, kv_token=none, kv_request=none, decode_context=none, decode_request=none,
        decode_overhead=none,
    )  # fmt: skip
    requests = tuple(replace(r, predicted_output_tokens=1, output_tokens=1) for r in stream.requests)
    return replace(
        stream, name=f"{stream.name} (prefill)", requests=requests, worker=worker, split_phase=False
    )  # fmt: skip


def prefill_series(
    stream: Stream,
    *,
    time_limit: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> WorkerSeries:
    """Fewest prefill workers at each heartbeat; parameters as of `worker_series`.

    Parameters
    ----------
    stream : Stream
    time_limit, seed, progress
        As `worker_series` takes them.

    Raises
    ------
    InputError
        If the prefill of a prompt alone takes longer than T_pre.
    """
    return worker_series(prefill_stream(stream), time_limit=time_limit, seed=seed, progress=progress)
