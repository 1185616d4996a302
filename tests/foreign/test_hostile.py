"""Whatever is in a file, there is one clear line, and nothing in it is run."""

from __future__ import annotations

import contextlib
import gzip
import json
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from infermax_opt.core.errors import InputError
from infermax_opt.files.json import limit_bytes
from infermax_opt.foreign.reading import RUN_FORMATS, guess_format, read_run
from tests.campaign import one_in
from tests.foreign import samples

TEXTS = samples.texts()
VLLM, SGLANG, BLIS = TEXTS["vllm"], TEXTS["sglang"], TEXTS["blis"]


def fails(path: Path, form: str | None = None) -> str:
    with pytest.raises(InputError) as caught:
        read_run(path, form)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 600
    assert text.startswith(str(path))
    return text


def changed(form: str, old: str, new: str) -> str:
    text = TEXTS[form]
    assert old in text
    return text.replace(old, new, 1)


@pytest.mark.parametrize("form", RUN_FORMATS)
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" \n",
        b"\xff\xfe\x00",
        b"{",
        b"[",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"a": 1, "a": 2}',
        b"[1e999999, 1e99999999999999999999]",
        b"[" + b"9" * 5000 + b"]",
        b"[]",
        b"{}",
        b"7\n",
        b"null",
        b'"\\ud800"',
        b"\x00" * 100,
        b"a,b\n1,2\n",
        b'{"requests": 3, "benchmarks": 4, "traceEvents": 5, "resourceSpans": 6, "input_lens": 7}',
        b'{"metadata": 1, "metrics": [], "queued_ts": {}, "arrival_time_ms": "x", "input_length": null}',
    ],
)
def test_no_format_breaks(tmp_path: Path, form: str, data: bytes) -> None:
    path = tmp_path / "run"
    path.write_bytes(data)
    fails(path, form)


@pytest.mark.parametrize("form", TEXTS)
def test_truncated_files(tmp_path: Path, form: str) -> None:
    text = TEXTS[form].rstrip("\n")
    for share in (0.3, 0.6, 0.95):
        path = samples.put(tmp_path, text[: int(len(text) * share)])
        if form in ("vidur", "infermax", "llmservingsim-sim"):
            # Of CSV, nothing shows that rows or the end of a last cell are missing.
            with contextlib.suppress(InputError):
                assert len(read_run(path, form).requests) <= 3
        else:
            fails(path, form)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_are_known_by_contents(tmp_path: Path, protocol: int) -> None:
    for value in ({"batches": [1]}, [1, 2], Path("x"), (1, 2, 3, 4)):
        path = tmp_path / "schedule.json"
        path.write_bytes(pickle.dumps(value, protocol))
        assert "is a pickle" in fails(path, "infermax")
        with pytest.raises(InputError, match="is a pickle"):
            guess_format(path)


def test_pickles_are_known_by_name(tmp_path: Path) -> None:
    assert "is a pickle" in fails(samples.put(tmp_path, "x", "schedule.pkl"), "vidur")


@pytest.mark.parametrize(
    ("form", "old", "new", "words"),
    [
        ("vllm", "0.16", "NaN", "request 2.ttfts: 'NaN' is not finite"),
        ("vllm", "0.22", "Infinity", "request 2.latencies: 'Infinity' is not finite"),
        ("vllm", "0.22", "-0.22", "request 2.latencies: -0.22 is negative"),
        ("vllm", "0.22", '"0.22s"', "request 2.latencies"),
        ("vllm", "0.22", "1e999999", "digits"),
        ("vllm", "0.22", "0.15", "the first token took 0.16 s, which is more than the 0.15 s"),
        ("vllm", "[0.02, ", "[NaN, ", "itls[0]: holds a number that is not finite"),
        ("vllm", "[0.02, ", "[-0.02, ", "itls[0]: -0.02 is negative"),
        ("vllm", "[0.02, ", "[1e999999, ", "itls[0]: holds a number"),
        ("vllm", "[0.02, ", '["0.02", ', "itls[0]: holds what is no number"),
        ("vllm", "[0.02, ", "[[0.02], ", "itls[0][0]: a list is not a single value"),
        ("vllm", "[512, ", "[512, 512, ", "holds 3 values, 'input_lens' 4"),
        ("vllm", "[512, ", "[512.5, ", "request 1.input_lens: 512.5 is not a whole number"),
        ("vllm", "[512, ", "[true, ", "request 1.input_lens: True is not a number"),
        ("vllm", '"ttfts": [', '"ttfts": 4, "x": [', "ttfts: 4 is not a list"),
        ("vllm", '"ttfts": [', '"input_lens": [', "input_lens: is given twice"),
        ("blis", '"ttft_ms": 160', '"ttft_ms": -1', "requests[1].ttft_ms: -1 is negative"),
        ("blis", '"ttft_ms": 160', '"ttft_ms": NaN', "requests[1].ttft_ms: 'NaN' is not finite"),
        ("blis", '"ttft_ms": 160', '"ttft": 160', "requests[1].ttft_ms: is missing"),
        ("blis", '"num_decode_tokens": 3', '"num_decode_tokens": 1e12', "the most is"),
        ("guidellm", '"request_latency": 0.22', '"request_latency": null', "[1].request_latency: is"),
        ("guidellm", '"prompt_tokens": 2048', '"prompt_tokens": []', "successful[1].prompt_tokens"),
        ("inference-perf", '"end_time": 5000.32', '"end_time": 4000, "x": 0.32', "[1].end_time: is 1000"),
        ("inference-perf", '"end_time": 5000.32', '"end_time": "x", "y": 0.3', "[1].end_time: 'x' is not"),
        ("aiperf", '"value": 160', '"value": NaN', "line 2, column 'metrics.time_to_first_token.value'"),
        ("aiperf", '"was_cancelled": false', '"was_cancelled": "no"', "neither true nor false"),
        ("aisimulate", '"first_token_ms": 260.0', '"first_token_ms": 50', "'first_token_ms': is 0.05"),
        ("llmservingsim", '"last_token_ts": 700.32', '"last_token_ts": 600', "column 'last_token_ts'"),
        ("llmservingsim-sim", ",320000000,220000000", ",320000000,210000000", "is not 'end_time' less"),
        ("vidur", "1,0.22,0.16", "1,0.22,0.3", "line 3: the first token took 0.3 s"),
        ("vidur", "1,0.22,0.16", "1,inf,0.16", "line 3, column 'request_e2e_time': 'inf' is not finite"),
        ("vidur", "request_e2e_time", "e2e", "column 'request_e2e_time': is missing"),
        ("vllm-otlp", '"doubleValue": 0.22', '"doubleValue": "NaN"', "spans[1].e2e: 'NaN' is not finite"),
    ],
)  # fmt: skip
def test_values_are_named(tmp_path: Path, form: str, old: str, new: str, words: str) -> None:
    assert words in fails(samples.put(tmp_path, changed(form, old, new)), form)


def test_constants_where_nobody_reads_them(tmp_path: Path) -> None:
    for form, old, new in (
        ("vllm", '"max_concurrency": null', '"max_concurrency": null, "p99": [NaN, {"x": -Infinity}]'),
        ("aiperf", '"error": null', '"error": null, "x": NaN'),
        ("blis", '"arrived_at": 0.0', '"itl_ms": NaN, "arrived_at": 0.0'),
    ):
        assert len(read_run(samples.put(tmp_path, changed(form, old, new)), form).requests) == 3


def test_requests_without_tokens_are_counted(tmp_path: Path) -> None:
    value = samples.blis()
    value["requests"][0]["num_prefill_tokens"] = 0
    value["requests"][1]["num_decode_tokens"] = 0
    run = read_run(samples.put(tmp_path, json.dumps(value)))
    assert run.left_out == {"no input tokens": 1, "no output tokens": 1}
    del value["requests"][2]
    line = fails(samples.put(tmp_path, json.dumps(value)))
    assert "holds no finished request (left out: 1 no input tokens, 1 no output tokens)" in line


@pytest.mark.parametrize("form", ["vllm", "aiperf", "vidur"])
def test_the_limit_on_sizes_holds(tmp_path: Path, form: str) -> None:
    path = samples.put(tmp_path, TEXTS[form])
    limit_bytes(100)
    try:
        assert "is larger than 100 bytes; --max-size allows more" in fails(path, form)
    finally:
        limit_bytes(None)


def test_rounding_is_no_contradiction(tmp_path: Path) -> None:
    text = changed("guidellm", '"request_latency": 0.22', '"request_latency": 0.1599999').replace(
        '"output_tokens": 3', '"output_tokens": 1'
    )
    run = read_run(samples.put(tmp_path, text))
    assert run.requests[1].ttft == run.requests[1].e2e


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (gzip.compress(b"{}", mtime=0), "it is gzip, whose names end in .gz"),
        ("{}".encode("utf-16"), "it is UTF-16; save it as UTF-8"),
        (b"PK\x03\x04\xff", "it is a ZIP archive"),
        (b"(\xb5/\xfd\x04", "it is zstd"),
        (b"PAR1\x15\x84", "it is Parquet"),
    ],
)
@pytest.mark.parametrize("form", ["vllm", "aiperf", "vidur"])
def test_what_is_no_text_is_named(tmp_path: Path, form: str, first: bytes, words: str) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(first)
    assert words in fails(path, form)


#: What may stand for a number and is none, or none that can be.
ODD = (
    "NaN",
    "-1",
    "1e400",
    "1e-400",
    '"\u0663"',
    '"0x10"',
    '"1_000"',
    "true",
    "[]",
    "{}",
    '"5 ms"',
    "9" * 31,
)


def mutants(text: str) -> Iterator[bytes]:
    """Files with one number changed, one key renamed, other line ends, or something before or behind."""
    for odd in ODD:
        for found in re.finditer(r'(?<![\w"\-.])-?\d+(?:\.\d+)?(?![\w".])', text):
            yield (text[: found.start()] + odd + text[found.end() :]).encode()
    for found in re.finditer(r'"([A-Za-z_.]+)":', text):
        yield (text[: found.start(1)] + "x" + text[found.start(1) :]).encode()
    header, _, rest = text.partition("\n")
    columns = header.split(",")
    for k in range(len(columns)):
        for other in ([], columns[:1], [columns[k].upper()]):
            yield (",".join([*columns[:k], *other, *columns[k + 1 :]]) + "\n" + rest).encode()
    data = text.encode()
    yield from (
        b"\xef\xbb\xbf" + data,
        data.replace(b"\n", b"\r\n"),
        data.replace(b"\n", b"\r"),
        data + b"\0",
    )
    yield from (data + data, data + b"}", text.encode("utf-16"), data.replace(b",", b"\t"), data + b'"' * 3)


@pytest.mark.parametrize("form", TEXTS)
def test_mutants_are_read_or_named(tmp_path: Path, form: str) -> None:
    path = tmp_path / "run"
    read = 0
    for mutant in one_in(7, mutants(TEXTS[form])):
        path.write_bytes(mutant)
        try:
            read += len(read_run(path, form).requests) > 0
        except InputError as error:
            text = str(error)
            assert text.startswith(str(path))
            assert text.isprintable()
            assert len(text) < 600
    assert read or form in ("vidur-chrome-trace",)


@pytest.mark.parametrize("key", [[], {}, 5, None])
def test_attributes_without_a_name_are_passed_over(tmp_path: Path, key: object) -> None:
    spans = json.loads(TEXTS["vllm-otlp"])
    attributes = spans["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"]
    attributes.append({"key": key, "value": {"intValue": "5"}})
    path = tmp_path / "spans.json"
    path.write_text(json.dumps(spans))
    assert len(read_run(path, "vllm-otlp").requests) == 3


def test_many_replicas_with_long_names_are_a_short_line(tmp_path: Path) -> None:
    event = {"ph": "X", "ts": 0, "dur": 1, "args": {"request_ids": [0], "num_tokens": [5]}}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps([{**event, "pid": 10**400 + k} for k in range(1000)]))
    with pytest.raises(InputError, match="holds the batches of 1000 replicas") as caught:
        read_run(path, "vidur-chrome-trace")
    assert len(str(caught.value)) < 600
