"""One run of three requests, as each tool writes it: arrivals 0, 0.1 and 0.15 s."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

#: Arrival s, input and output tokens, time to first token and end-to-end latency in ms.
REQUESTS = ((0.0, 512, 4, 40, 100), (0.1, 2048, 3, 160, 220), (0.15, 300, 5, 200, 320))


def lines(rows: list[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def vidur() -> str:
    text = (
        "Request Id,request_e2e_time,prefill_e2e_time,decode_time_execution_plus_preemption_normalized,"
        "request_inter_arrival_delay,request_num_prefill_tokens,request_num_decode_tokens,request_num_restarts\n"
    )
    delays = ("", 0.1, 0.05)
    for k, (_, i, o, ttft, e2e) in enumerate(REQUESTS):
        text += f"{k},{e2e / 1000},{ttft / 1000},{(e2e - ttft) / 1000 / o},{delays[k]},{i},{o},{k}\n"
    return text


def serving(**more: Any) -> dict[str, Any]:
    return {
        "backend": "x",
        "request_rate": "inf",
        "max_concurrency": None,
        "input_lens": [i for _, i, *_ in REQUESTS],
        "output_lens": [o for _, _, o, *_ in REQUESTS],
        "ttfts": [ttft / 1000 for *_, ttft, _ in REQUESTS],
        "itls": [[0.02] * 3, [0.03] * 2, [0.03] * 4],
        "generated_texts": ['a NaN, "b" \\'] * 3,
        "errors": [""] * 3,
        **more,
    }


def vllm(**more: Any) -> dict[str, Any]:
    head = {"endpoint_type": "vllm", "tokenizer_id": "m", "num_prompts": 3}
    times = {
        "latencies": [e2e / 1000 for *_, e2e in REQUESTS],
        "start_times": [1000 + at for at, *_ in REQUESTS],
        "queue_times": [0.0] * 3,
    }
    return {**head, **serving(), **times, "p99_ttft_ms": float("nan"), **more}


def sglang(**more: Any) -> dict[str, Any]:
    head = {"dataset_name": "random", "sharegpt_output_len": None}
    return {**head, **serving(request_rate=float("inf")), **more}


def otlp_span(k: int, **more: Any) -> dict[str, Any]:
    at, i, o, ttft, e2e = REQUESTS[k]
    values = {
        "gen_ai.request.id": {"stringValue": f"req-{k}"},
        "gen_ai.usage.prompt_tokens": {"intValue": str(i)},
        "gen_ai.usage.completion_tokens": {"intValue": str(o)},
        "gen_ai.latency.time_to_first_token": {"doubleValue": ttft / 1000},
        "gen_ai.latency.e2e": {"doubleValue": e2e / 1000},
    }
    attributes = [{"key": key, "value": value} for key, value in values.items()]
    nanoseconds = 1790000000000000000 + round(at * 10**9)
    return {"name": "llm_request", "startTimeUnixNano": str(nanoseconds), "attributes": attributes, **more}


def otlp(spans: list[Any] | None = None) -> dict[str, Any]:
    found = [otlp_span(k) for k in range(3)] if spans is None else spans
    return {"resourceSpans": [{"scopeSpans": [{"scope": {}, "spans": found}]}]}


def inference_perf() -> list[dict[str, Any]]:
    found = []
    for at, i, o, ttft, e2e in REQUESTS:
        start = 5000 + at
        times = [start + ttft / 1000, start + e2e / 1000]
        response = {
            "output_tokens": o,
            "server_usage": {"prompt_tokens": i, "completion_tokens": o},
            "chunk_times": times,
            "output_token_times": times,
        }
        info = {
            "request_metrics": {"text": {"input_tokens": i}},
            "response_metrics": response,
            "input_tokens": i,
        }
        times_of = {"start_time": start, "end_time": start + e2e / 1000}
        found.append(
            {**times_of, "request": '{"prompt": "p"}', "response": None, "info": info, "error": None}
        )
    return found


def guidellm_request(k: int) -> dict[str, Any]:
    at, i, o, ttft, e2e = REQUESTS[k]
    return {
        "request_id": f"id-{k}",
        "output": "text",
        "info": {"timings": {"targeted_start": 1790000000 + at}},
        "request_start_time": 1790000000 + at,
        "request_latency": e2e / 1000,
        "prompt_tokens": i,
        "output_tokens": o,
        "time_to_first_token_ms": ttft,
        "time_per_output_token_ms": e2e / o,
        "inter_token_latency_ms": (e2e - ttft) / (o - 1),
    }


def guidellm(count: int = 1) -> dict[str, Any]:
    requests = {
        "successful": [guidellm_request(k) for k in range(3)],
        "incomplete": [],
        "errored": [],
        "total": None,
    }
    benchmark = {"type_": "generative_benchmark", "requests": requests}
    return {"metadata": {"version": 2, "guidellm_version": "0.8.1"}, "benchmarks": [benchmark] * count}


def aiperf() -> list[dict[str, Any]]:
    found = []
    for k, (at, i, o, ttft, e2e) in enumerate(REQUESTS):
        start = 1790000000000000000 + round(at * 10**9)
        metadata = {
            "x_request_id": f"req-{k}",
            "request_start_ns": start,
            "request_end_ns": start + e2e * 10**6,
            "benchmark_phase": "profiling",
            "was_cancelled": False,
        }
        metrics = {
            "input_sequence_length": {"value": i, "unit": "tokens"},
            "output_sequence_length": {"value": o, "unit": "tokens"},
            "output_token_count": {"value": o - 1, "unit": "tokens"},
            "time_to_first_token": {"value": ttft, "unit": "ms"},
            "request_latency": {"value": e2e, "unit": "ms"},
        }
        found.append({"metadata": metadata, "metrics": metrics, "error": None})
    return found


def blis() -> dict[str, Any]:
    requests = [
        {
            "arrived_at": at, "requestID": f"request_{k}", "num_prefill_tokens": i, "num_decode_tokens": o,
            "ttft_ms": ttft, "e2e_ms": e2e,
        }
        for k, (at, i, o, ttft, e2e) in enumerate(REQUESTS)
    ]  # fmt: skip
    return {
        "injected_requests": 3,
        "vllm_estimated_duration_s": 1,
        "preemption_count": 2,
        "requests": requests,
    }


def simulated() -> str:
    text = "instance id,request id,model,input,output,arrival,end_time,latency,queuing_delay,TTFT,TPOT,ITL\n"
    for k, (at, i, o, ttft, e2e) in enumerate(REQUESTS):
        start = round(at * 10**9)
        times = f"{start},{start + e2e * 10**6},{e2e * 10**6},0,{ttft * 10**6}"
        text += f'0,{k},m,{i},{o},{times},1,"[{", ".join(["30000000"] * (o - 1))}]"\n'
    return text


def llmservingsim() -> list[dict[str, Any]]:
    return [
        {
            "request_id": f"bench-{k}", "input_toks": i, "output_toks": o, "arrival_time": 1790000000 + 7 * k,
            "queued_ts": 700 + at,
            "first_token_ts": 700 + at + ttft / 1000, "last_token_ts": 700 + at + e2e / 1000,
        }
        for k, (at, i, o, ttft, e2e) in enumerate(REQUESTS)
    ]  # fmt: skip


def aisimulate() -> list[dict[str, Any]]:
    return [
        {
            "arrival_time_ms": at * 1000,
            "first_token_ms": at * 1000 + ttft, "last_token_ms": at * 1000 + e2e,
            "e2e_latency_ms": e2e, "input_length": i, "output_length": o, "requested_output_length": o,
            "readmission_count": k, "reused_input_tokens": 0, "session_id": f"session_{k}",
        }
        for k, (at, i, o, ttft, e2e) in enumerate(REQUESTS)
    ]  # fmt: skip


def texts() -> dict[str, str]:
    """A file of each format with arrivals, and SGLang's, in which all are 0."""
    return {
        "aiperf": lines(aiperf()),
        "aisimulate": lines(aisimulate()),
        "blis": json.dumps(blis()),
        "guidellm": json.dumps(guidellm()),
        "inference-perf": json.dumps(inference_perf()),
        "infermax": vidur(),
        "llmservingsim": lines(llmservingsim()),
        "llmservingsim-sim": simulated(),
        "sglang": lines([sglang()]),
        "vidur": vidur(),
        "vllm": json.dumps(vllm()),
        "vllm-otlp": json.dumps(otlp()),
    }


def put(folder: Path, text: str, name: str = "run") -> Path:
    path = folder / name
    path.write_text(text)
    return path
