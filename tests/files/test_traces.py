"""Traces of other tools become exact instances."""

from __future__ import annotations

import gzip
import json
from fractions import Fraction
from pathlib import Path

import pytest

from infermax_opt.core.errors import InputError
from infermax_opt.files.traces import FORMATS, Trace, read_trace
from infermax_opt.infermax.data.formats import read_instance, write_instance
from infermax_opt.infermax.data.instance import Instance, Policy, System
from infermax_opt.infermax.data.profiles import load_profile
from infermax_opt.infermax.data.traces import trace_instance, without_unfit
from tests.support import shared_data

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
2023-11-16 18:17:13.9799600,110,27
"""
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,100,7\n0.1,20,1\n"
BURSTGPT = """Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
5,1,2.5,ChatGPT,472,18,490,Conversation log
45,2,1.5,ChatGPT,1087,0,1087,Conversation log
118,3,2.5,GPT-4,417,276,693,API log
"""
MOONCAKE = (
    '{"timestamp": 1000, "input_length": 6755, "output_length": 500, "hash_ids": [0, 1, 2]}\n'
    '{"timestamp": 4500, "input_length": 7319, "output_length": 490, "hash_ids": [0, 14]}\n'
)
SPLITWISE = """request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size
0,2,0,0.25,1,374,44
1,2,0,4.5647,1,396,109
"""
TEXTS = {
    "azure": AZURE,
    "vidur": VIDUR,
    "burstgpt": BURSTGPT,
    "mooncake": MOONCAKE,
    "splitwise": SPLITWISE,
}
UNIT = {"mooncake": "ms"}
SYSTEM = System(100_000, 4096, 4096)


def put(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def triples(trace: Trace) -> list[tuple[Fraction, int, int]]:
    return [(r.arrival, r.input_tokens, r.output_tokens) for r in trace.requests]


def fails(path: Path, form: str, **options: object) -> str:
    with pytest.raises(InputError) as caught:
        read_trace(path, form, **options)  # type: ignore[arg-type]
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_azure_timestamps_with_seven_decimals_are_exact(tmp_path: Path) -> None:
    trace = read_trace(put(tmp_path, AZURE), "azure")
    assert triples(trace) == [(0, 4808, 10), (Fraction("0.052"), 3180, 8), (Fraction(10), 110, 27)]
    assert [r.line for r in trace.requests] == [2, 3, 4]


def test_azure_time_zones(tmp_path: Path) -> None:
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10T02:00:01Z,1,1\n"
        "2024-05-10 03:00:00+03:00,7,7\n"
    )
    trace = read_trace(put(tmp_path, text), "azure")
    assert triples(trace) == [(0, 7, 7), (Fraction("0.00993"), 2162, 5), (Fraction(7201), 1, 1)]


def test_vidur_is_sorted_and_its_decodes_count_the_first_token(tmp_path: Path) -> None:
    trace = read_trace(put(tmp_path, VIDUR), "vidur")
    assert triples(trace) == [(0, 20, 1), (Fraction("0.4"), 100, 7)]


def test_burstgpt_failures_are_left_out_and_counted(tmp_path: Path) -> None:
    trace = read_trace(put(tmp_path, BURSTGPT), "burstgpt")
    assert triples(trace) == [(0, 472, 18), (Fraction(113), 417, 276)]
    assert trace.dropped == {"failed (no response tokens)": 1}
    short = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,M,4,1,5,x\n"
    assert triples(read_trace(put(tmp_path, short), "burstgpt")) == [(0, 4, 1)]


def test_mooncake_needs_its_unit(tmp_path: Path) -> None:
    path = put(tmp_path, MOONCAKE)
    assert "--time-unit" in fails(path, "mooncake")
    assert triples(read_trace(path, "mooncake", time_unit="ms"))[1][0] == Fraction("3.5")
    assert triples(read_trace(path, "mooncake", time_unit="s"))[1][0] == 3500


def test_splitwise(tmp_path: Path) -> None:
    trace = read_trace(put(tmp_path, SPLITWISE), "splitwise")
    assert triples(trace) == [(0, 374, 44), (Fraction("4.3147"), 396, 109)]
    text = fails(put(tmp_path, SPLITWISE.replace("0.25,1,", "0.25,2,")), "splitwise")
    assert "line 2, column 'batch_size': '2' is not 1" in text


def test_dates_take_no_unit(tmp_path: Path) -> None:
    assert "dates" in fails(put(tmp_path, AZURE), "azure", time_unit="s")


@pytest.mark.parametrize("form", FORMATS)
def test_gzip_and_windows_line_ends_change_nothing(tmp_path: Path, form: str) -> None:
    plain = triples(read_trace(put(tmp_path, TEXTS[form]), form, time_unit=UNIT.get(form)))
    packed = tmp_path / "trace.csv.gz"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + TEXTS[form].replace("\n", "\r\n").encode()))
    assert triples(read_trace(packed, form, time_unit=UNIT.get(form))) == plain


def test_first_window_and_offline(tmp_path: Path) -> None:
    rows = "".join(f"{second},10,{second + 1}\n" for second in range(10))
    path = put(tmp_path, "arrived_at,num_prefill_tokens,num_decode_tokens\n" + rows)
    trace = read_trace(path, "vidur", window=(Fraction(2), Fraction(5)))
    assert triples(trace) == [(0, 10, 3), (1, 10, 4), (2, 10, 5)]
    trace = read_trace(path, "vidur", window=(Fraction("2.5"), Fraction(5)), first=1)
    assert triples(trace) == [(Fraction("0.5"), 10, 4)]
    trace = read_trace(path, "vidur", window=(Fraction(2), Fraction(5)), offline=True)
    assert {r.arrival for r in trace.requests} == {0}
    assert "no request arrives in the window" in fails(path, "vidur", window=(Fraction(50), Fraction(60)))


def test_instances_name_requests_by_arrival_and_survive_a_file(tmp_path: Path) -> None:
    cost = load_profile("llama-3.1-8b_h100").cost
    instance = trace_instance(read_trace(put(tmp_path, AZURE), "azure"), "t", SYSTEM, cost)
    assert [r.id for r in instance.requests] == ["r1", "r2", "r3"]
    assert instance.requests[1].arrival == Fraction("0.052")
    path = tmp_path / "instance.json.gz"
    write_instance(instance, path)
    assert read_instance(path) == instance
    with gzip.open(path, "rt") as stream:
        assert json.load(stream)["cost"] == {"profile": "llama-3.1-8b_h100"}


@pytest.mark.parametrize(
    ("system", "policy"),
    [
        (System(4816, 4096, 4096), Policy()),
        (System(4819, 4096, 4096, block_size=16), Policy()),
        (System(100_000, 4096, 4096), Policy(chunked_prefill=False)),
        (System(100_000, 4096, 3180), Policy(chunked_prefill=False)),
    ],
)
def test_requests_that_never_fit(tmp_path: Path, system: System, policy: Policy) -> None:
    cost = load_profile("llama-3.1-8b_h100").cost
    trace = read_trace(put(tmp_path, AZURE), "azure")
    with pytest.raises(InputError, match="line 2: the request can never fit"):
        trace_instance(trace, "t", system, cost, policy)
    kept = without_unfit(trace, system, policy)
    assert kept.dropped == {"can never fit": 1}
    assert isinstance(trace_instance(kept, "t", system, cost, policy), Instance)


BAD = [
    ("azure", AZURE, "GeneratedTokens", "Generated", "column 'GeneratedTokens': is missing"),
    ("azure", AZURE, "ContextTokens", "GeneratedTokens", "column 'ContextTokens': is missing"),
    ("azure", AZURE, "ContextTokens,", "ContextTokens,ContextTokens,", "is there twice"),
    ("azure", AZURE, "4808,10", "4808", "line 2: has 2 columns; the header has 3"),
    ("azure", AZURE, "4808,10", "4808,10,1", "line 2: has 4 columns"),
    ("azure", AZURE, ",4808", ",-4808", "line 2, column 'ContextTokens': '-4808' is negative"),
    ("azure", AZURE, ",4808", ",4808.5", "'4808.5' is not a whole number"),
    ("azure", AZURE, ",4808", ",1e12", "most is"),
    ("azure", AZURE, ",4808", ",1e999999", "digits"),
    ("azure", AZURE, ",4808", ",nan", "'nan' is not finite"),
    ("azure", AZURE, ",4808", ",inf", "'inf' is not finite"),
    ("azure", AZURE, ",4808", ",", "'' is not a decimal number"),
    ("azure", AZURE, ",4808", ",4_8", "is not a decimal number"),
    ("azure", AZURE, ",4808", ",٤٨", "is not a decimal number"),
    ("azure", AZURE, "11-16 18:17:03", "13-16 18:17:03", "line 2, column 'TIMESTAMP'"),
    ("azure", AZURE, "11-16 18:17:03", "11-16 25:17:03", "line 2, column 'TIMESTAMP'"),
    ("azure", AZURE, "11-16 18:17:04", "11-16 18:17", "line 3, column 'TIMESTAMP'"),
    ("azure", AZURE, "2023-11-16 18:17:03.9799600", "12.5", "line 2, column 'TIMESTAMP'"),
    ("azure", AZURE, "2023-11-16 18:17:03", "0000-11-16 18:17:03", "line 2, column 'TIMESTAMP'"),
    ("azure", AZURE, "18:17:03.9799600,", '18:17:03.9799600,"', "is not CSV"),
    ("vidur", VIDUR, "0.5,", "-0.5,", "'-0.5' is negative"),
    ("vidur", VIDUR, "0.5,", "2023-01-01,", "line 2, column 'arrived_at'"),
    ("mooncake", MOONCAKE, '"timestamp": 1000, ', "", "line 1, column 'timestamp': is missing"),
    ("mooncake", MOONCAKE, "1000", "NaN", "line 1: NaN is not a finite number"),
    ("mooncake", MOONCAKE, "1000", "null", "None is not a number"),
    ("mooncake", MOONCAKE, "1000", "true", "True is not a number"),
    ("mooncake", MOONCAKE, "6755", "[]", "line 1, column 'input_length'"),
    ("mooncake", MOONCAKE, "6755", "9" * 5000, "line 1"),
    ("mooncake", MOONCAKE, "6755", "1e99999999999999999999", "line 1"),
    ("mooncake", MOONCAKE, '"output_length": 500', '"input_length": 500', "given twice"),
    ("mooncake", MOONCAKE, '{"timestamp": 4500', '["timestamp", 4500', "line 2: is not JSON"),
    ("mooncake", "7\n", "7", "7", "line 1: 7 is not an object"),
    ("azure", "\n", "\n", "\n", "header"),
    ("azure", AZURE.splitlines()[0], ",C", ",C", "no usable request"),
    ("burstgpt", BURSTGPT, "Request tokens", "request tokens", "'Request tokens': is missing"),
]


@pytest.mark.parametrize(("form", "text", "old", "new", "expected"), BAD)
def test_errors_name_line_column_and_value(
    tmp_path: Path, form: str, text: str, old: str, new: str, expected: str
) -> None:
    assert old in text
    path = put(tmp_path, text.replace(old, new, 1))
    message = fails(path, form, time_unit=UNIT.get(form))
    assert expected in message
    assert message.startswith(str(path))


def test_zero_tokens_are_counted(tmp_path: Path) -> None:
    text = VIDUR + "3,0,5\n4,5,0\n5,0,0\n"
    trace = read_trace(put(tmp_path, text), "vidur")
    assert len(trace.requests) == 2
    assert trace.dropped == {"no input tokens": 1, "no output tokens": 2}


@pytest.mark.parametrize(("name", "count"), [("conv", 19366), ("code", 8819)])
def test_azure_2023(name: str, count: int) -> None:
    path = shared_data(f"data/AzureLLMInferenceTrace_{name}.csv")
    if path is None:
        pytest.skip("the shared trace is not on this machine")
    trace = read_trace(path, "azure")
    assert len(trace.requests) == count
    assert trace.requests[0].arrival == 0
    assert 3000 < trace.requests[-1].arrival < 3700
    assert not trace.dropped
