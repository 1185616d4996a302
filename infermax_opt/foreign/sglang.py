"""SGLang's ``bench_serving --output-details``: one object a line, without moments of sending.

Source: sgl-project/sglang, ``python/sglang/benchmark/metrics.py``.  Lists are in seconds, aggregates in
milliseconds.
"""

from __future__ import annotations

from infermax_opt.foreign.formats import Choices, RunFormat
from infermax_opt.foreign.head import Head
from infermax_opt.foreign.run import Run

__all__ = ["SGLANG"]


def _read(path: str, choices: Choices) -> Run:
    from infermax_opt.foreign.serving import read_serving

    return read_serving(path, "sglang", choices, "--output-details")


def _known(head: Head) -> bool:
    return head.has("backend", "dataset_name", "request_rate", "sharegpt_output_len") and not head.has(
        "tokenizer_id"
    )


SGLANG = RunFormat("sglang", "SGLang: bench_serving --output-details", _read, _known, ("benchmark", "trace"))
