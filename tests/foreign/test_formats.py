"""Each format is read as it is meant: every trap of the files of other tools has a test."""

from __future__ import annotations

import gzip
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from infermax_opt.core.errors import InputError
from infermax_opt.foreign.reading import RUN_FORMATS, guess_format, read_run
from infermax_opt.foreign.run import Run
from tests.foreign import samples
from tests.foreign.samples import lines, put

TEXTS = samples.texts()


def read(folder: Path, value: Any, form: str | None = None, **options: Any) -> Run:
    text = value if isinstance(value, str) else json.dumps(value)
    return read_run(put(folder, text), form, **options)


def fails(folder: Path, value: Any, form: str | None = None, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        read(folder, value, form, **options)
    text = str(caught.value)
    assert "\n" not in text
    return text


def said(run: Run, words: str) -> bool:
    return any(words in remark for remark in run.remarks)


@pytest.mark.parametrize("form", TEXTS)
def test_every_format_holds_the_same_run(tmp_path: Path, form: str) -> None:
    run = read(tmp_path, TEXTS[form], form)
    assert run.format == form
    found = [(r.arrival, r.input_tokens, r.output_tokens, r.ttft, r.e2e) for r in run.requests]
    for values, (at, i, o, ttft, e2e) in zip(found, samples.REQUESTS, strict=True):
        wanted = (0 if form == "sglang" else at, i, o, ttft / 1000, e2e / 1000)
        assert all(isinstance(value, Fraction | int) for value in values)
        assert [float(value or 0) for value in values] == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("form", TEXTS)
def test_contents_show_the_format(tmp_path: Path, form: str) -> None:
    path = put(tmp_path, TEXTS[form])
    # InferMax's fork writes what Vidur writes.
    assert guess_format(path) == {"infermax": "vidur"}.get(form, form)
    packed = tmp_path / "run.gz"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + TEXTS[form].encode()))
    assert read_run(packed).requests == read_run(path).requests


def test_every_format_is_tried_here() -> None:
    assert {*TEXTS, "vidur-chrome-trace"} == set(RUN_FORMATS)


def test_what_no_contents_show_must_be_said(tmp_path: Path) -> None:
    assert guess_format(put(tmp_path, '{"a": 1}')) is None
    assert "say which: aiperf" in fails(tmp_path, '{"a": 1}')
    assert "'vllm2' is none of" in fails(tmp_path, TEXTS["vllm"], "vllm2")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '{"timestamp": 0, "input_length": 5, "output_length": 4, "hash_ids": [0]}\n',
            "import --format mooncake",
        ),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "import --format azure"),
        ("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n", "--format burstgpt"),
        ("arrived_at,num_prefill_tokens,num_decode_tokens\n", "import --format vidur"),
        ('[{"id": "a", "conversations": []}]', "conversations"),
        ("model,isl,osl,ttft,tpot\n", "means, no requests"),
        ('{"load_summary": {}, "successes": {}}', "per_request to true"),
    ],
)
def test_files_without_results_are_named(tmp_path: Path, text: str, words: str) -> None:
    assert words in fails(tmp_path, text)


def test_traces_are_no_format_of_runs(tmp_path: Path) -> None:
    assert "is a format of traces" in fails(tmp_path, TEXTS["vllm"], "mooncake")


# --- Vidur --------------------------------------------------------------------------------------


def test_vidur_restarts_are_evictions_and_unfinished_requests_still_arrive(tmp_path: Path) -> None:
    header, first, second, third = TEXTS["vidur"].splitlines()
    cells = second.split(",")
    cells[1:4] = ["", "", ""]
    run = read(tmp_path, "\n".join([header, first, ",".join(cells), third]))
    assert [r.evictions for r in run.requests] == [0, 2]
    assert [r.arrival for r in run.requests] == [0, Fraction("0.15")]
    assert run.left_out == {"not finished (no request_e2e_time)": 1}
    assert said(run, "divides by all output tokens")


def test_vidur_rows_must_be_by_arrival(tmp_path: Path) -> None:
    header, first, second, third = TEXTS["vidur"].splitlines()
    assert "not in the order of arrivals" in fails(tmp_path, "\n".join([header, second, first, third]))


def test_vidur_chrome_trace_is_a_schedule(tmp_path: Path) -> None:
    run = read(tmp_path, chrome([[512, None], [1, 30], [None, 1], [513, None]]))
    assert run.batches is not None
    assert [b.tokens for b in run.batches][:3] == [{"0": 512}, {"0": 1, "1": 30}, {"1": 1}]
    assert run.batches[1].start == Fraction("0.02")
    # 512 and two tokens: a refill has 514.
    assert run.left_out == {"not finished (in the middle of a refill)": 1}
    run = read(tmp_path, chrome([[512, None], [1, 30], [None, 1], [514, None], [1, None]]))
    found = [(r.name, r.arrival, r.input_tokens, r.output_tokens, r.evictions) for r in run.requests]
    assert found == [("0", 0, 512, 4, 1), ("1", Fraction("0.02"), 30, 2, 0)]
    assert {r.ttft for r in run.requests} == {None}
    assert said(run, "no arrivals")


def chrome(rows: list[list[int | None]], **more: Any) -> dict[str, Any]:
    """A batch for each row, 20 ms apart: tokens of requests 0, 1, ..."""
    events = []
    for j, row in enumerate(rows):
        tokens = {k: count for k, count in enumerate(row) if count is not None}
        args = {"batch_id": j, "request_ids": list(tokens), "num_tokens": list(tokens.values())}
        events.append(
            {"ph": "X", "ts": 20000.0 * j, "dur": 20000.0, "pid": 0, "tid": 0, "args": args, **more}
        )
    return {"traceEvents": events}


def test_replicas_are_chosen_and_stages_are_said(tmp_path: Path) -> None:
    one, two = chrome([[5], [1]]), chrome([[7], [1]], pid=1)
    both = {"traceEvents": one["traceEvents"] + two["traceEvents"]}
    assert "2 replicas (0, 1): choose one with --replica" in fails(tmp_path, both)
    assert read(tmp_path, both, replica=1).requests[0].input_tokens == 7
    assert "replica: is 4" in fails(tmp_path, both, replica=4)
    later = chrome([[5], [1]], tid=1, ts=30000.0)
    staged = {"traceEvents": one["traceEvents"] + later["traceEvents"][:1]}
    run = read(tmp_path, staged)
    assert run.batches is not None
    assert run.batches[0].end == Fraction("0.05")
    assert said(run, "2 pipeline stages")


def test_a_machine_runs_one_batch_at_a_time(tmp_path: Path) -> None:
    rows: list[list[int | None]] = [[5], [1], [1]]
    longer = chrome(rows, dur=20000.5)
    assert read(tmp_path, longer).batches is not None  # files round
    early = chrome(rows, dur=25000.0)
    assert "begins 0.005 s before the batch at traceEvents[0] ends" in fails(tmp_path, early)


# --- vLLM and SGLang ----------------------------------------------------------------------------


def test_vllm_queue_times_are_before_start_times(tmp_path: Path) -> None:
    run = read(tmp_path, samples.vllm(queue_times=[0.0, 0.1, 0.05], max_concurrency=1))
    assert [r.arrival for r in run.requests] == [0, 0, Fraction("0.1")]
    assert run.requests[1].ttft == Fraction("0.26")
    assert run.requests[1].e2e == Fraction("0.32")
    assert said(run, "send times")
    values = samples.vllm(max_concurrency=2)
    del values["queue_times"]
    run = read(tmp_path, values)
    assert run.requests[1].arrival == Fraction("0.1")
    assert said(run, "at most 2 requests were under way")


def test_vllm_without_latencies_adds_up_the_gaps(tmp_path: Path) -> None:
    values = samples.vllm()
    del values["latencies"]
    assert [r.e2e for r in read(tmp_path, values).requests] == [Fraction(n, 100) for n in (10, 22, 32)]


def test_vllm_times_fit_the_duration_of_the_run(tmp_path: Path) -> None:
    """Where they do not, they are not in seconds."""
    assert len(read(tmp_path, samples.vllm(duration=0.47)).requests) == 3
    values = samples.vllm(duration=0.47)
    values["latencies"] = [1000 * e2e for e2e in values["latencies"]]
    said_so = "duration: is 0.47 s, but the last request ends 320.15 s after the first came"
    assert said_so in fails(tmp_path, values)
    for said in (0.001, 0):
        assert f"duration: is {said:g} s, but the last request ends 0.47 s" in fails(
            tmp_path, samples.vllm(duration=said)
        )


def test_arrivals_of_a_trace_are_of_another_clock_than_the_duration(tmp_path: Path) -> None:
    values = samples.vllm(duration=0.4, request_rate=2.0)
    del values["start_times"], values["queue_times"]
    lines = ["arrived_at,num_prefill_tokens,num_decode_tokens", "0,512,4", "0.9,2048,3", "1.0,300,5"]
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(lines) + "\n")
    assert len(read(tmp_path, values, trace=path, trace_format="vidur").requests) == 3
    values["duration"] = 0.25
    assert "but the last request ends 1.32 s" in fails(tmp_path, values, trace=path, trace_format="vidur")


def test_vllm_bundled_gaps_are_said(tmp_path: Path) -> None:
    run = read(tmp_path, samples.vllm(itls=[[0.06], [0.03] * 2, [0.03] * 4]))
    assert said(run, "Fewer itls than tokens, as an entry can bundle several: 1 request.")


def test_vllm_failures_are_left_out(tmp_path: Path) -> None:
    values = samples.vllm(
        output_lens=[4, 0, 5], errors=["", "Traceback\n...", ""], start_times=[1000, 0.0, 1001]
    )
    run = read(tmp_path, values)
    assert run.left_out == {"failed (an error, or no output tokens)": 1}
    assert [r.name for r in run.requests] == ["1", "3"]


@pytest.mark.parametrize(
    ("make", "option"), [(samples.vllm, "--save-detailed"), (samples.sglang, "--output-details")]
)
def test_summaries_without_sums_are_refused(tmp_path: Path, make: Any, option: str) -> None:
    values = make()
    for key in ("input_lens", "output_lens", "ttfts", "itls", "start_times", "generated_texts", "errors"):
        values.pop(key, None)
    assert f"run the benchmark with {option}" in fails(tmp_path, values)


def test_appended_results_are_chosen(tmp_path: Path) -> None:
    text = lines([samples.vllm(), samples.vllm(input_lens=[1, 2, 3])])
    assert "holds 2 runs, one a line: choose one, from 1 to 2, with --benchmark" in fails(tmp_path, text)
    assert read(tmp_path, text, benchmark=2).requests[0].input_tokens == 1
    assert "benchmark: is 3; the file holds 2" in fails(tmp_path, text, benchmark=3)


def test_sglang_needs_arrivals(tmp_path: Path) -> None:
    assert "request_rate is 4" in fails(tmp_path, samples.sglang(request_rate=4.0))
    replayed = samples.sglang(request_rate="trace")
    assert "unless the trace that was replayed" in fails(tmp_path, replayed)
    rows = [{"timestamp": 250 * k, "input_length": 5, "output_length": 5} for k in range(3)]
    trace = put(tmp_path, lines(rows), "trace.jsonl")
    run = read(tmp_path, replayed, trace=trace, trace_format="mooncake", time_unit="ms")
    assert [r.arrival for r in run.requests] == [0, Fraction(1, 4), Fraction(1, 2)]
    put(tmp_path, lines(rows[:2]), "trace.jsonl")
    options = {"trace": trace, "trace_format": "mooncake", "time_unit": "ms"}
    assert "holds 3 requests" in fails(tmp_path, replayed, **options)


def test_sglang_with_few_requests_at_once_has_no_latencies(tmp_path: Path) -> None:
    run = read(tmp_path, samples.sglang(max_concurrency=2))
    assert {(r.arrival, r.ttft, r.e2e) for r in run.requests} == {(0, None, None)}
    assert said(run, "latencies from the arrival on are unknown")


def test_answers_that_were_not_streamed_have_no_first_token(tmp_path: Path) -> None:
    run = read(tmp_path, samples.sglang(ttfts=[0.0, 0.16, 0.2], itls=[[], [0.03] * 2, [0.03] * 4]))
    assert run.requests[0].ttft is None
    assert said(run, "with a time to first token of 0, which is taken as unknown: 1 request.")


# --- OTLP ---------------------------------------------------------------------------------------


def test_spans_of_others_failures_and_several_lines(tmp_path: Path) -> None:
    failed = samples.otlp_span(1, status={"code": 2})
    text = lines(
        [
            samples.otlp([samples.otlp_span(2), {"name": "GET /"}]),
            samples.otlp([samples.otlp_span(0), failed]),
        ]
    )
    run = read(tmp_path, text)
    assert [(r.name, r.arrival) for r in run.requests] == [("req-0", 0), ("req-2", Fraction("0.15"))]
    assert run.left_out == {"failed": 1}
    assert said(run, "1 spans are not of requests")


# --- inference-perf -----------------------------------------------------------------------------


def test_inference_perf_prefers_the_count_of_the_server(tmp_path: Path) -> None:
    value = samples.inference_perf()
    value[0]["info"]["response_metrics"]["output_tokens"] = 9
    value[1]["info"]["response_metrics"]["server_usage"] = None
    del value[2]["info"]["request_metrics"]
    value[2]["info"]["response_metrics"]["server_usage"]["prompt_tokens_details"] = {"cached_tokens": 7}
    run = read(tmp_path, value)
    assert [(r.input_tokens, r.output_tokens) for r in run.requests] == [(512, 4), (2048, 3), (300, 5)]
    assert run.requests[2].cached_tokens == 7
    assert said(run, "other output lengths than the server in 1 request;")
    assert said(run, "Output lengths of 1 request are the client's")


def test_inference_perf_failures(tmp_path: Path) -> None:
    value = samples.inference_perf()
    value[0]["error"] = {"error_type": "E", "error_msg": "m"}
    value[1]["info"]["response_metrics"] = None
    assert read(tmp_path, value).left_out == {"failed": 2}


def test_inference_perf_of_earlier_versions(tmp_path: Path) -> None:
    today = samples.inference_perf()
    wanted = read(tmp_path, today).requests
    for earlier in ("response_info", None):
        value = samples.inference_perf()
        for item in value:
            info = item["info"]
            response = info.pop("response_metrics")
            del info["request_metrics"]
            info.update({earlier: response} if earlier else response)
        assert read(tmp_path, value).requests == wanted


def test_inference_perf_without_prompts_or_without_info(tmp_path: Path) -> None:
    wanted = read(tmp_path, samples.inference_perf()).requests
    value = samples.inference_perf()
    for item in value:
        del item["request"]
    assert read(tmp_path, value).requests == wanted
    for item, request in zip(value, wanted, strict=True):
        del item["info"]
        item["computed_metrics"] = {
            "input_tokens": request.input_tokens, "output_tokens": request.output_tokens,
            "time_to_first_token": float(request.ttft or 0), "inter_token_latencies": [0.1],
        }  # fmt: skip
    assert read(tmp_path, value).requests == wanted
    del value[1]["computed_metrics"]
    assert "[1].info: is missing" in fails(tmp_path, value)


# --- guidellm -----------------------------------------------------------------------------------


def test_guidellm_benchmarks_are_chosen(tmp_path: Path) -> None:
    value = samples.guidellm(3)
    assert "3 benchmarks: choose one, from 1 to 3, with --benchmark" in fails(tmp_path, value)
    assert len(read(tmp_path, value, benchmark=3).requests) == 3
    assert "benchmark: is 4" in fails(tmp_path, value, benchmark=4)
    assert "holds no benchmark" in fails(tmp_path, {**value, "benchmarks": []})


def test_guidellm_groups_and_remarks(tmp_path: Path) -> None:
    value = samples.guidellm()
    requests = value["benchmarks"][0]["requests"]
    requests["incomplete"] = [requests["successful"].pop()]
    requests["errored"] = [{"request_latency": None}] * 2
    requests["successful"][1]["info"]["timings"]["targeted_start"] -= 0.5
    run = read(tmp_path, value)
    assert run.left_out == {"incomplete": 1, "failed": 2}
    assert said(run, "includes the first token")
    assert said(run, "up to 0.5 s after the moment planned")


@pytest.mark.parametrize(
    "place", [("info", "timings", "request_start"), ("scheduler_info", "request_timings", "request_start"),
              ("start_time",)]
)  # fmt: skip
def test_guidellm_of_earlier_versions(tmp_path: Path, place: tuple[str, ...]) -> None:
    wanted = read(tmp_path, samples.guidellm()).requests
    value = samples.guidellm()
    for request in value["benchmarks"][0]["requests"]["successful"]:
        here, start = request, request.pop("request_start_time")
        for key in place[:-1]:
            here = here.setdefault(key, {})
        here[place[-1]] = start
    assert read(tmp_path, value).requests == wanted


def test_guidellm_samples_are_said(tmp_path: Path) -> None:
    totals = {"successful": 5, "incomplete": 0, "errored": 0, "total": 5}
    for more in ({"request_totals": totals}, {"metrics": {"x": [1], "request_totals": totals}}):
        value = samples.guidellm()
        value["benchmarks"][0].update(more)
        assert read(tmp_path, value).left_out == {"not in the file, which holds a sample": 2}
        totals["successful"] = 3
        assert not read(tmp_path, value).left_out
        totals["successful"] = 5
    value["benchmarks"][0]["metrics"]["request_totals"]["successful"] = "many"
    assert "request_totals.successful: 'many'" in fails(tmp_path, value)


# --- aiperf -------------------------------------------------------------------------------------


def test_aiperf_units_stand_beside_values(tmp_path: Path) -> None:
    rows = samples.aiperf()
    rows[0]["metrics"]["time_to_first_token"] = {"value": 40000, "unit": "us"}
    assert read(tmp_path, lines(rows)).requests[0].ttft == Fraction("0.04")
    rows[0]["metrics"]["time_to_first_token"]["unit"] = "fortnights"
    assert "'fortnights' is none of ns, us, ms, s, sec" in fails(tmp_path, lines(rows))


def test_aiperf_leaves_out_warm_up_cancelled_and_failed(tmp_path: Path) -> None:
    rows = samples.aiperf() + samples.aiperf()
    rows[0]["metadata"]["benchmark_phase"] = "warmup"
    rows[1]["metadata"]["was_cancelled"] = True
    rows[2]["error"] = {"code": 500}
    run = read(tmp_path, lines(rows))
    assert run.left_out == {"of the phase 'warmup', not 'profiling'": 1, "cancelled": 1, "failed": 1}
    assert [r.output_tokens for r in run.requests] == [4, 3, 5]
    assert said(run, "counts reasoning tokens")


def test_aiperf_phases_are_chosen(tmp_path: Path) -> None:
    """One load after the other in a file: together they would be a run that nobody made."""
    rows = samples.aiperf() + samples.aiperf()[:2] + samples.aiperf()[:1]
    for k, row in enumerate(rows):
        row["metadata"]["profiling_index"] = int(k >= 3)
    rows[5]["metadata"] |= {"benchmark_phase": "warmup", "profiling_index": None}
    text = lines(rows)
    assert "holds 2 profiling phases: choose one, from 1 to 2, with --benchmark" in fails(tmp_path, text)
    assert [len(read(tmp_path, text, benchmark=k).requests) for k in (1, 2)] == [3, 2]
    assert "benchmark: is 3; the file holds 2 profiling phases" in fails(tmp_path, text, benchmark=3)
    assert len(read(tmp_path, TEXTS["aiperf"], benchmark=1).requests) == 3


def test_aiperf_keys_given_twice_are_refused(tmp_path: Path) -> None:
    text = TEXTS["aiperf"].replace('"request_latency"', '"time_to_first_token"', 1)
    assert "line 1: key 'time_to_first_token' is given twice" in fails(tmp_path, text)


# --- simulators ---------------------------------------------------------------------------------


def test_blis_requests_without_an_end(tmp_path: Path) -> None:
    value = samples.blis()
    value["requests"][0]["e2e_ms"] = 0
    value["requests"][1]["length_capped"] = True
    run = read(tmp_path, value)
    assert list(run.left_out.values()) == [1, 1]
    assert said(run, "2 preemptions")
    del value["requests"]
    assert "--metrics-path" in fails(tmp_path, value)


def test_simulated_gaps_may_be_a_long_cell(tmp_path: Path) -> None:
    text = TEXTS["llmservingsim-sim"].replace("[30000000", "[" + "30000000, " * 20_000 + "1", 1)
    assert len(read(tmp_path, text).requests) == 3


def test_simulated_machines(tmp_path: Path) -> None:
    text = TEXTS["llmservingsim-sim"].replace("\n0,2,", "\n1,2,")
    assert said(read(tmp_path, text), "2 machines")
    assert [r.name for r in read(tmp_path, text, replica=1).requests] == ["2"]
    assert "no row is of machine 5" in fails(tmp_path, text, replica=5)
    twice = TEXTS["llmservingsim-sim"].replace("\n0,2,", "\n0,1,")
    assert "column 'request id': '1' is there twice: in line" in fails(tmp_path, twice)


def test_simulated_rows_are_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of two rows: lines, names and what is there twice are those of the whole file."""
    monkeypatch.setattr("infermax_opt.files.rows.BLOCK", 2)
    header, *rows = TEXTS["llmservingsim-sim"].splitlines()
    # A cell of two lines moves the lines of all rows behind it.
    rows[0] = rows[0].replace(",m,", ',"m\nm",')
    rows.append(rows[2].replace("0,2,", "0,chat-9,", 1))
    text = "\n".join([header, *rows, ""])
    run = read(tmp_path, text)
    assert [(r.name, r.line) for r in run.requests] == [("0", 3), ("1", 4), ("2", 5), ("chat-9", 6)]
    assert [r.evictions for r in run.requests] == [None] * 4
    twice = text.replace("chat-9", "1")
    assert "line 6, column 'request id': '1' is there twice: in line 4, too" in fails(tmp_path, twice)
    unnamed = read(tmp_path, text.replace("chat-9", ""))
    assert unnamed.requests[3].name == "6"
    cells = rows[3].split(",")
    for column, cell, said_ in (
        ("input", "x", "'x' is not a decimal number"),
        ("input", "1.5", "is not a whole number of tokens"),
        ("arrival", "", "is missing"),
        ("TTFT", "-1", "is negative"),
        ("end_time", "1", "before 'arrival'"),
        ("latency", "1", "'1' is not 'end_time' less 'arrival'"),
    ):
        wrong = list(cells)
        wrong[header.split(",").index(column)] = cell
        problem = fails(tmp_path, "\n".join([header, *rows[:3], ",".join(wrong), ""]))
        assert f"line 6, column {column!r}" in problem
        assert said_ in problem


def test_simulated_requests_without_tokens_and_late_first_tokens(tmp_path: Path) -> None:
    header, *rows = TEXTS["llmservingsim-sim"].splitlines()
    cells = [row.split(",") for row in rows]
    for k, column in ((0, "input"), (1, "output")):
        cells[k][header.split(",").index(column)] = "0"
    run = read(tmp_path, "\n".join([header, *map(",".join, cells), ""]))
    assert run.left_out == {"no input tokens": 1, "no output tokens": 1}
    assert len(run.requests) == 1
    at = header.split(",").index("TTFT")
    cells[2][at] = cells[2][header.split(",").index("latency")] + "0"
    problem = fails(tmp_path, "\n".join([header, *map(",".join, cells), ""]))
    assert "line 4: the first token took" in problem


def test_requests_of_batches_may_be_numbers_and_texts(tmp_path: Path) -> None:
    """A number and its text name the same request."""
    batches: list[tuple[list[Any], list[int]]] = [
        ([7, 5], [3, 4]), ([], []), (["5", "x", 7], [1, 9, 1]), ([2**70, 5], [6, 1]),
    ]  # fmt: skip
    events = [
        {"ph": "X", "ts": k, "dur": 1, "pid": 0, "tid": 0,
         "args": {"batch_id": k, "request_ids": ids, "num_tokens": counts}}
        for k, (ids, counts) in enumerate(batches)
    ]  # fmt: skip
    run = read(tmp_path, {"traceEvents": events}, "vidur-chrome-trace")
    assert [(r.name, r.line, r.input_tokens, r.output_tokens) for r in run.requests] == [
        ("7", 1, 3, 2), ("5", 2, 4, 3), ("x", 3, 9, 1), (str(2**70), 4, 6, 1),
    ]  # fmt: skip
    assert [r.arrival * 10**6 for r in run.requests] == [0, 0, 2, 3]
    assert run.batches is not None
    assert dict(run.batches[2].tokens) == {"5": 1, "x": 9, "7": 1}
    assert run.batches[2].tokens["x"] == 9
    assert list(run.batches[3].tokens) == [str(2**70), "5"]
    assert len(run.batches[1].tokens) == 0
    twice = {"traceEvents": [{**events[0], "args": {"request_ids": [5, "5"], "num_tokens": [1, 1]}}]}
    assert "a request is there twice" in fails(tmp_path, twice, "vidur-chrome-trace")
    empty = {"traceEvents": [{**events[0], "args": {"request_ids": [], "num_tokens": []}}]}
    assert "holds no finished request" in fails(tmp_path, empty, "vidur-chrome-trace")


def test_llmservingsim_takes_one_of_two_clocks(tmp_path: Path) -> None:
    run = read(tmp_path, TEXTS["llmservingsim"])
    assert run.requests[1].arrival == Fraction("0.1")
    assert said(run, "of another clock")


@pytest.mark.parametrize("never", [0.0, None])
def test_llmservingsim_requests_that_never_ended(tmp_path: Path, never: float | None) -> None:
    rows = samples.llmservingsim()
    rows[0].update(queued_ts=0.0, first_token_ts=never, last_token_ts=never)
    rows[1]["last_token_ts"] = never
    run = read(tmp_path, lines(rows))
    assert run.left_out == {"not finished (no last_token_ts)": 2}
    assert [(r.arrival, r.output_tokens) for r in run.requests] == [(0, 5)]


def test_aisimulate_evictions_and_prefix_hits(tmp_path: Path) -> None:
    rows = samples.aisimulate()
    rows[0]["reused_input_tokens"] = 256
    rows[1]["requested_output_length"] = 10
    run = read(tmp_path, lines(rows))
    assert [r.evictions for r in run.requests] == [0, 1, 2]
    assert run.requests[0].cached_tokens == 256
    assert said(run, "1 request found a part of the prompt")
    assert said(run, "1 request generated fewer tokens")
    rows[2]["e2e_latency_ms"] = 7
    assert "e2e_latency_ms" in fails(tmp_path, lines(rows))


def test_options_that_a_format_does_not_take(tmp_path: Path) -> None:
    assert "benchmark: blis files take none" in fails(tmp_path, TEXTS["blis"], benchmark=1)
    assert "time unit" in fails(tmp_path, TEXTS["blis"], time_unit="ms")
    assert "trace format: is needed" in fails(tmp_path, TEXTS["sglang"], trace="t.csv")
