"""vLLM's ``vllm bench serve --save-result --save-detailed``: one object, or one a line by
``--append-result``.

Source: vllm-project/vllm, ``vllm/benchmarks/serve.py``.  Lists are in seconds, aggregates in milliseconds.
"""

from __future__ import annotations

from infermax_opt.foreign.formats import Choices, RunFormat
from infermax_opt.foreign.head import Head
from infermax_opt.foreign.run import Run

__all__ = ["VLLM"]


def _read(path: str, choices: Choices) -> Run:
    from infermax_opt.foreign.serving import read_serving

    return read_serving(path, "vllm", choices, "--save-detailed")


def _known(head: Head) -> bool:
    return head.has("tokenizer_id", "num_prompts", "request_rate") and not head.has("sharegpt_output_len")


VLLM = RunFormat(
    "vllm", "vLLM: vllm bench serve --save-result --save-detailed", _read, _known, ("benchmark", "trace")
)
