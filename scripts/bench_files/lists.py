"""Files with a list for each value: vLLM and SGLang."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from scripts.bench_files.drawn import CLOCK, TINY, TINY_CROWD, Drawn, Load, drawn


def _lists(
    size: int,
    head: Mapping[str, object],
    some: Iterator[Drawn],
    moments: bool,
    texts: bool,
    word: str = "word ",
) -> Iterator[str]:
    """One object with a list for each value, about so many bytes long; texts of so many words."""
    names = ["input_lens", "output_lens", "ttfts", "itls"]
    names += ["latencies", "start_times", "queue_times"] if moments else []
    names += ["generated_texts", "errors"] if texts else []
    columns: list[list[str]] = [[] for _ in names]
    count = last = 0
    while count < size:
        one = next(some)
        values: list[object] = [one.inputs, one.outputs, one.ttft, one.gaps]
        values += [round(one.e2e, 15), CLOCK + one.at, 0.0] if moments else []
        values += [word * one.outputs, ""] if texts else []
        for column, value in zip(columns, values, strict=True):
            text = json.dumps(value)
            column.append(text)
            count += len(text) + 2
        last = one.k + 1
    head = {**head, "num_prompts": last, "completed": last, "duration": one.at + 60}
    yield json.dumps(head)[:-1]
    for name, column in zip(names, columns, strict=True):
        yield f', "{name}": [{", ".join(column)}]'
    yield "}\n"


VLLM = {
    "endpoint_type": "vllm",
    "backend": "vllm",
    "tokenizer_id": "m",
    "request_rate": "inf",
    "max_concurrency": None,
}
SGLANG = {
    "backend": "sglang", "dataset_name": "random", "request_rate": float("inf"), "max_concurrency": None,
    "sharegpt_output_len": None,
}  # fmt: skip


def vllm(size: int) -> Iterator[str]:
    """As ``vllm bench serve`` writes it."""
    return _lists(size, VLLM, drawn(), True, True)


def vllm_texts(size: int) -> Iterator[str]:
    """The same where answers are long: two tokens between which nobody looked, and their text."""
    long = (one._replace(outputs=400) for one in drawn(TINY))
    return _lists(size, VLLM, long, True, True)


def vllm_tiny(size: int) -> Iterator[str]:
    """Answers of two tokens, times of microseconds."""
    return _lists(size, VLLM, drawn(Load(tiny=True, digits=6)), True, True, "")


def vllm_tiny_crowd(size: int) -> Iterator[str]:
    """The same, far more than can be served."""
    return _lists(size, VLLM, drawn(TINY_CROWD), True, True, "")


def vllm_tiny_floats(size: int) -> Iterator[str]:
    """All digits."""
    return _lists(size, VLLM, drawn(TINY), True, False)


def sglang(size: int) -> Iterator[str]:
    """As ``bench_serving`` writes it."""
    return _lists(size, SGLANG, drawn(), False, True)


def sglang_tiny(size: int) -> Iterator[str]:
    """Answers of two tokens."""
    return _lists(size, SGLANG, drawn(TINY), False, True)
