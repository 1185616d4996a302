"""Files with a row for each request."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator

from scripts.bench_files.drawn import CLOCK, EPOCH, USUAL, Drawn, Load, drawn


def _rows(
    size: int, load: Load, row: Callable[[Drawn], str], first: str = "", last: str = "", by: str = ""
) -> Iterator[str]:
    """Rows with `by` between them, about so many bytes."""
    yield first
    count = len(first)
    for one in drawn(load):
        text = (by if one.k else "") + row(one)
        count += len(text)
        yield text
        if count >= size:
            break
    yield last


VIDUR = (
    "Request Id,request_e2e_time,request_e2e_time_normalized,request_execution_time,"
    "request_execution_time_normalized,request_model_execution_time,request_model_execution_time_normalized,request_preemption_time,"
    "request_scheduling_delay,request_execution_plus_preemption_time,"
    "request_execution_plus_preemption_time_normalized,prefill_e2e_time,prefill_time_execution_plus_preemption,prefill_time_execution_plus_preemption_normalized,"
    "decode_time_execution_plus_preemption_normalized,request_inter_arrival_delay,request_num_tokens,"
    "request_num_prefill_tokens,request_num_decode_tokens,request_pd_ratio,request_num_restarts\n"
)


def vidur(size: int, load: Load = USUAL) -> Iterator[str]:
    """``request_metrics.csv``; that of InferMax's fork is the same."""
    draw = random.Random(1)

    def row(one: Drawn) -> str:
        i, o, e2e, ttft = one.inputs, one.outputs, one.e2e, one.ttft
        delay = draw.expovariate(load.rate) if one.k else 0
        own = e2e - 0.01
        times = [e2e, e2e / o, own, own / o, own, own / o, 0.0, 0.01, own, own / o]
        times += [ttft, ttft - 0.01, ttft / i, (e2e - ttft) / o]
        cells = [one.k, *map(load.shown, times), load.shown(delay) if one.k else ""]
        return ",".join(map(str, [*cells, i + o, i, o, load.shown(i / o), 0])) + "\n"

    return _rows(size, load, row, VIDUR)


def vidur_chrome_trace(size: int, load: Load = USUAL) -> Iterator[str]:
    """``chrome_trace.json``: 64 requests of 200 output tokens at a time, or of two, one after the other."""
    outputs = 2 if load.tiny else 200
    yield '{"traceEvents": ['
    count = number = 0
    now, draw = 0.0, random.Random(0)
    while count < size:
        ids = [64 * (number // outputs) + k for k in range(64)]
        tokens = [draw.randint(20, 64) if number % outputs == 0 else 1 for _ in ids]
        took = draw.uniform(10000, 30000)
        args = {"batch_id": number, "batch_size": 64, "request_ids": ids, "num_tokens": tokens}
        event = {"name": str(ids), "ph": "X", "ts": now, "dur": took, "pid": 0, "tid": 0, "args": args}
        text = (", " if number else "") + json.dumps(event)
        count += len(text)
        yield text
        number, now = number + 1, now + took
    yield "]}\n"


def vllm_otlp(size: int, load: Load = USUAL) -> Iterator[str]:
    """Spans, one request a line, as a collector writes them."""

    def row(one: Drawn) -> str:
        values = {
            "gen_ai.request.id": {"stringValue": f"cmpl-{one.k}"},
            "gen_ai.request.max_tokens": {"intValue": "400"},
            "gen_ai.request.temperature": {"doubleValue": 1.0},
            "gen_ai.usage.prompt_tokens": {"intValue": str(one.inputs)},
            "gen_ai.usage.completion_tokens": {"intValue": str(one.outputs)},
            "gen_ai.latency.time_in_queue": {"doubleValue": 0.01},
            "gen_ai.latency.time_to_first_token": {"doubleValue": one.ttft},
            "gen_ai.latency.e2e": {"doubleValue": one.e2e},
        }
        start = EPOCH * 10**9 + round(one.at * 10**9)
        span = {
            "traceId": f"{one.k:032x}", "spanId": f"{one.k:016x}", "name": "llm_request",
            "startTimeUnixNano": str(start), "endTimeUnixNano": str(start + round(one.e2e * 10**9)),
            "attributes": [{"key": key, "value": value} for key, value in values.items()],
        }  # fmt: skip
        return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}) + "\n"

    return _rows(size, load, row)


def inference_perf(size: int, load: Load = USUAL) -> Iterator[str]:
    """A list of requests."""

    def row(one: Drawn) -> str:
        start, times = CLOCK + one.at, [CLOCK + one.at + one.ttft]
        for gap in one.gaps:
            times.append(times[-1] + gap)
        response = {
            "output_tokens": one.outputs,
            "server_usage": {"prompt_tokens": one.inputs, "completion_tokens": one.outputs},
            "response_chunks": [], "chunk_times": times, "output_token_times": times,
        }  # fmt: skip
        info = {
            "request_metrics": {"text": {"input_tokens": one.inputs}}, "response_metrics": response,
            "extra_info": {}, "lora_adapter": None, "labels": {}, "input_tokens": one.inputs,
        }  # fmt: skip
        request = json.dumps({"prompt": "word " * 40, "max_tokens": one.outputs})
        found = {
            "start_time": start,
            "end_time": times[-1],
            "request": request,
            "response": None,
            "info": info,
        }
        return json.dumps({**found, "error": None}, indent=1)

    return _rows(size, load, row, "[\n", "\n]\n", ",\n")


def guidellm(size: int, load: Load = USUAL) -> Iterator[str]:
    """One benchmark."""

    def row(one: Drawn) -> str:
        start = EPOCH + one.at
        first, last = start + one.ttft, start + one.e2e
        timings = {
            "targeted_start": start, "request_start": start, "first_token_iteration": first,
            "last_token_iteration": last, "token_iterations": one.outputs,
            "request_end": last, "resolve_end": last,
        }  # fmt: skip
        info = {
            "request_id": f"{one.k:032x}",
            "status": "completed",
            "scheduler_start_time": EPOCH,
            "timings": timings,
        }
        found = {
            "type_": "generative_request_stats", "request_id": f"{one.k:032x}", "info": info,
            "input_metrics": {"text_tokens": one.inputs}, "output_metrics": {"text_tokens": one.outputs},
            "output": "word " * one.outputs, "request_start_time": start, "request_end_time": last,
            "request_latency": one.e2e, "prompt_tokens": one.inputs, "output_tokens": one.outputs,
            "total_tokens": one.inputs + one.outputs, "time_to_first_token_ms": one.ttft * 1000,
            "time_per_output_token_ms": one.e2e / one.outputs * 1000, "inter_token_latency_ms": 30.0,
        }  # fmt: skip
        return json.dumps(found, indent=1)

    head = '{"metadata": {"version": 2, "guidellm_version": "0.8.1"}, "config": {}, "benchmarks": [{"type_": '
    head += '"generative_benchmark", "requests": {"successful": ['
    return _rows(size, load, row, head, '], "incomplete": [], "errored": []}}]}\n', ",\n")


def aiperf(size: int, load: Load = USUAL) -> Iterator[str]:
    """Records."""

    def row(one: Drawn) -> str:
        start = EPOCH * 10**9 + round(one.at * 10**9)
        metadata = {
            "session_num": one.k, "x_request_id": f"{one.k:032x}", "turn_index": 0,
            "conversation_id": f"c{one.k}", "request_start_ns": start, "request_ack_ns": None,
            "request_end_ns": start + round(one.e2e * 10**9), "worker_id": "w", "record_processor_id": "p",
            "benchmark_phase": "profiling", "was_cancelled": False, "cancellation_time_ns": None,
        }  # fmt: skip
        metrics = {
            "input_sequence_length": {"value": one.inputs, "unit": "tokens"},
            "output_sequence_length": {"value": one.outputs, "unit": "tokens"},
            "time_to_first_token": {"value": one.ttft * 1000, "unit": "ms"},
            "inter_token_latency": {"value": 30.0, "unit": "ms"},
            "request_latency": {"value": one.e2e * 1000, "unit": "ms"},
        }
        return json.dumps({"metadata": metadata, "metrics": metrics, "error": None}) + "\n"

    return _rows(size, load, row)


def blis(size: int, load: Load = USUAL) -> Iterator[str]:
    """File of ``--metrics-path``."""

    def row(one: Drawn) -> str:
        found = {
            "arrived_at": one.at, "requestID": f"request_{one.k}", "num_prefill_tokens": one.inputs,
            "num_decode_tokens": one.outputs, "ttft_ms": load.shown(one.ttft * 1000), "itl_ms": 30.0,
            "e2e_ms": load.shown(one.e2e * 1000), "scheduling_delay_ms": 10.0, "round_index": 0,
        }  # fmt: skip
        return json.dumps(found, indent=2)

    head = '{"instance_id": "cluster", "injected_requests": 1, "vllm_estimated_duration_s": 1, "requests": ['
    return _rows(size, load, row, head, "]}\n", ",\n")


def llmservingsim_sim(size: int, load: Load = USUAL) -> Iterator[str]:
    """``sim.csv``."""

    def row(one: Drawn) -> str:
        at, first = round(one.at * 10**9), round(one.ttft * 10**9)
        gaps = [round(gap * 10**9) for gap in one.gaps]
        total = first + sum(gaps)
        return (
            f"0,{one.k},m,{one.inputs},{one.outputs},{at},{at + total},{total},10000000,{first},30000000,"
            f'"{gaps}"\n'
        )

    head = "instance id,request id,model,input,output,arrival,end_time,latency,queuing_delay,TTFT,TPOT,ITL\n"
    return _rows(size, load, row, head)


def llmservingsim(size: int, load: Load = USUAL) -> Iterator[str]:
    """``requests.jsonl`` of runs of vLLM."""

    def row(one: Drawn) -> str:
        queued = CLOCK + one.at
        times = {
            "arrival_time": EPOCH + one.at, "queued_ts": queued, "scheduled_ts": queued + 0.01,
            "first_token_ts": queued + one.ttft, "last_token_ts": queued + one.e2e,
        }  # fmt: skip
        found = {"request_id": f"bench-{one.k}", "input_toks": one.inputs, "output_toks": one.outputs}
        return json.dumps({**found, **{key: load.shown(time) for key, time in times.items()}}) + "\n"

    return _rows(size, load, row)


def aisimulate(size: int, load: Load = USUAL) -> Iterator[str]:
    """``requests.jsonl``."""

    def row(one: Drawn) -> str:
        at = load.shown(one.at * 1000)
        last = load.shown(at + one.e2e * 1000)
        found = {
            "admission_count": 1, "arrival_time_ms": at, "first_admit_ms": load.shown(at + 10),
            "first_token_ms": load.shown(at + one.ttft * 1000), "last_token_ms": last,
            "e2e_latency_ms": load.shown(last - at), "itl_ms": 30.0, "input_length": one.inputs,
            "output_length": one.outputs, "requested_output_length": one.outputs, "readmission_count": 0,
            "reused_input_tokens": 0, "session_id": f"session_{one.k}",
        }  # fmt: skip
        return json.dumps(found) + "\n"

    return _rows(size, load, row)
