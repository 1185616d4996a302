"""Suites of InferMax instances.

=============  ===================================================================================
``paper-csp``  InferMax section 4.5: four requests, O = 4, I = 1 ... 1024, room for about two
``paper-b32``  32 equal requests; I, O in {1, 8, 32, 128, 512, 1024}; M = 100 ... 100000; two P
``paper-b1024``  the same with 1024 requests
``mixes``      InferMax appendix A.3: short and long prompts and outputs, B = 16 ... 1024
``azure``      the Azure 2023 traces (not shipped: the user names their folder)
``latency``    the cells of ``paper-b1024`` with P = 4096, mean end-to-end latency
``online``     ten minutes of the Azure traces at 1, 2, 4 and 8 times their rate, mean end-to-end latency
``tails``      the conversation trace of ``online``, 99th percentiles of TTFT and end-to-end latency
``attainment``  the conversation trace of ``online`` with limits of TTFT and TPOT, missed limits
``vllm-runs``  three real runs of vLLM (not shipped, as for azure), makespan and mean end-to-end latency
``ecoserve``   EcoServe's three workloads at 0.5, 0.8, 1 and 1.2 of what can be sustained, missed deadlines
``mcsf``       the two synthetic models of MC-SF's study, seeds 0 ... 199 of each, mean end-to-end latency
``bros``       real-time requests beside best-effort ones, 5 minutes at 5, 10 and 15 requests/s, missed limits
=============  ===================================================================================
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import NamedTuple

from infermax_opt.core.errors import InputError
from infermax_opt.core.suite import Case
from infermax_opt.infermax.data.classes import MOMENTS, bros_instance
from infermax_opt.infermax.data.cost import Attention, CostModel
from infermax_opt.infermax.data.ecoserve import LOADS, TRACES, ecoserve_case
from infermax_opt.infermax.data.instance import Instance, Objective, Policy, RequestGroup, System
from infermax_opt.infermax.data.mcsf import MODELS, mcsf_instance

__all__ = ["CSP_INPUTS", "DATA", "RUNS", "SUITES", "VllmRun", "csp_case", "paper_cost", "vllm_run"]

#: Environment variable that names the folder of the traces.
DATA = "INFERMAX_OPT_DATA"
CSP_INPUTS = tuple(2**power for power in range(11))
GRID_LENGTHS = (1, 8, 32, 128, 512, 1024)
GRID_CAPACITIES = (100, 1_000, 10_000, 100_000)
GRID_PREFILLS = (4096, 512)
SHORT, LONG = (8, 16), (512, 1024)
#: Input and output lengths of every mix.
MIXES = {
    "siso": (SHORT, SHORT),
    "silo": (SHORT, LONG),
    "liso": (LONG, SHORT),
    "lilo": (LONG, LONG),
    "all": (SHORT + LONG, SHORT + LONG),
}
MIX_SIZES = tuple(2**power for power in range(4, 11))
MIX_CAPACITIES = (10_000, 100_000)
#: Seed of the lengths drawn for the mixes: part of what the suite is, so no option.
MIX_SEED = 2025
AZURE_PROFILE = "llama-3.1-8b_h100"
#: Ten minutes of the hour, in seconds after the first request.
AZURE_WINDOW = (Fraction(600), Fraction(1200))
#: How much faster requests come in `online`.
RATES = (1, 2, 4, 8)
#: Those at which percentiles are looked at: no more work comes than can be done.
TAIL_RATES = (1, 2)
#: Rate, and limits of TTFT and TPOT in seconds, where not all requests can keep them, or nearly not.
PROMISES = ((4, "0.5", "0.015"), (4, "1", "0.03"), (8, "0.5", "0.015"), (8, "1", "0.03"), (8, "2", "0.05"))


class VllmRun(NamedTuple):
    """A real run: its folder, the profile fitted to its kernels, most sequences at a time."""

    folder: str
    profile: str
    max_running: int


#: Runs of vLLM 0.19 by LLMServingSim 2 (casys-kaist, commit 5daddb2, MIT licence), 300 requests each.
RUNS: Mapping[str, VllmRun] = {
    "vllm-rtx4090-llama-3.1-8b": VllmRun("rtx4090_llama-3.1-8b", "llama-3.1-8b_rtx4090_hinge", 256),
    "vllm-rtxpro6000-llama-3.1-8b": VllmRun("rtxpro6000_llama-3.1-8b", "llama-3.1-8b_rtxpro6000_hinge", 128),
    "vllm-rtxpro6000-qwen3-32b": VllmRun("rtxpro6000_qwen3-32b", "qwen3-32b_rtxpro6000_tp2_hinge", 128),
}
AZURE_ORIGIN = "Azure public dataset"
RUNS_ORIGIN = "runs of vLLM by LLMServingSim 2"
#: Real-time requests a second in `bros`.
BROS_RATES = (5, 10, 15)
#: Instances of each model in `mcsf`.
MCSF_SEEDS = 200


def paper_cost(attention: Attention = Attention.SQUARE) -> CostModel:
    """Coefficients of the magnitude of the paper's, written out so that files need no profile."""
    return CostModel(
        batch=[("0.007", "0.000075")],
        decode=("0.0003", "0.00000026"),
        prefill=("0.0003", "0.0000000015"),
        attention=attention,
    )


def csp_case(input_tokens: int, chunked: bool) -> Instance:
    """Four identical requests that generate four tokens; the KV cache fits about two of them."""
    capacity = max(2 * input_tokens, input_tokens + 3)
    return Instance(
        name=f"csp-i{input_tokens}-o4-b4" + ("-chunked" if chunked else ""),
        groups=(RequestGroup("r", input_tokens, 4, count=4),),
        system=System(kv_capacity=capacity, max_batch_tokens=4096, max_prefill_tokens=4096),
        policy=Policy(chunked_prefill=chunked),
        cost=paper_cost(),
    )


def _paper_csp(data: Path | None) -> list[Case]:
    return [
        Case(f"csp-i{size}-o4-b4" + ("-chunked" if chunked else ""), partial(csp_case, size, chunked))
        for chunked in (False, True)
        for size in CSP_INPUTS
    ]


def _cell(name: str, count: int, lengths: tuple[int, int], capacity: int, prefill: int) -> Instance:
    return Instance(
        name=name,
        groups=(RequestGroup("r", *lengths, count=count),),
        system=System(kv_capacity=capacity, max_batch_tokens=4096, max_prefill_tokens=prefill),
        cost=paper_cost(Attention.EXACT),
    )


def _grid(count: int, data: Path | None) -> list[Case]:
    cases = []
    for prefill in GRID_PREFILLS:
        for capacity in GRID_CAPACITIES:
            for inputs in GRID_LENGTHS:
                for outputs in GRID_LENGTHS:
                    if inputs + outputs - 1 > capacity:
                        continue
                    name = f"b{count}-i{inputs}-o{outputs}-m{capacity}-p{prefill}"
                    build = partial(_cell, name, count, (inputs, outputs), capacity, prefill)
                    cases.append(Case(name, build))
    return cases


def _mix(name: str, kind: str, count: int, capacity: int) -> Instance:
    """Lengths drawn uniformly; a smaller mix is the beginning of a larger one."""
    inputs, outputs = MIXES[kind]
    draw = random.Random(MIX_SEED)
    lengths = [(draw.choice(inputs), draw.choice(outputs)) for _ in range(count)]
    system = System(kv_capacity=capacity, max_batch_tokens=4096, max_prefill_tokens=4096)
    return Instance.of_requests(name, lengths, system, paper_cost(Attention.EXACT))


def _mixes(data: Path | None) -> list[Case]:
    cases = []
    for kind in MIXES:
        for capacity in MIX_CAPACITIES:
            for count in MIX_SIZES:
                name = f"mix-{kind}-b{count}-m{capacity}"
                cases.append(Case(name, partial(_mix, name, kind, count, capacity)))
    return cases


def _trace_file(name: str, data: Path | None, suite: str, origin: str = AZURE_ORIGIN) -> Path:
    folder = data or (Path(os.environ[DATA]) if os.environ.get(DATA) else None)
    if folder is None:
        raise InputError(
            f"the suite {suite!r} reads {name} ({origin}, not shipped): name its folder with "
            f"--data or in {DATA}",
            field="data",
        )
    if not (folder / name).is_file():
        raise InputError(
            f"holds no {name} ({origin}, not shipped), which the suite {suite!r} reads",
            source=str(folder),
        )
    return folder / name


def _azure_case(
    name: str,
    trace: str,
    window: tuple[Fraction, Fraction] | None,
    data: Path | None,
    suite: str = "azure",
    rate: int | None = None,
) -> Instance:
    from infermax_opt.files.arrivals import compressed
    from infermax_opt.files.traces import read_trace
    from infermax_opt.infermax.data.profiles import load_profile
    from infermax_opt.infermax.data.traces import trace_instance

    path = _trace_file(f"AzureLLMInferenceTrace_{trace}.csv", data, suite)
    profile = load_profile(AZURE_PROFILE)
    system = System(profile.capacity, max_batch_tokens=4096, max_prefill_tokens=4096)
    requests = read_trace(path, "azure", window=window, offline=window is None)
    if rate is not None:
        requests = compressed(requests, Fraction(rate))
    return trace_instance(requests, name, system, profile.cost)


def _azure(data: Path | None) -> list[Case]:
    cases = []
    for ending, window in (("offline", None), ("10min", AZURE_WINDOW)):
        for trace in ("code", "conv"):
            name = f"azure-{trace}-{ending}"
            cases.append(Case(name, partial(_azure_case, name, trace, window, data)))
    return cases


def _latency_case(case: Case) -> Instance:
    """The instance of a case by its mean end-to-end latency."""
    instance = case.build()
    assert isinstance(instance, Instance)
    return replace(instance, name=f"e2e-{instance.name}", objective=Objective.of("mean_e2e"))


def _latency(data: Path | None) -> list[Case]:
    cells = [case for case in _grid(1024, data) if case.name.endswith("-p4096")]
    return [Case(f"e2e-{case.name}", partial(_latency_case, case)) for case in cells]


def _faster(name: str, trace: str, rate: int, data: Path | None) -> Instance:
    """Ten minutes of a trace, which come in a part of the time."""
    instance = _azure_case(name, trace, AZURE_WINDOW, data, "online", rate)
    return replace(instance, objective=Objective.of("mean_e2e"))


def _online(data: Path | None) -> list[Case]:
    cases = []
    for trace in ("code", "conv"):
        for rate in RATES:
            name = f"azure-{trace}-10min-x{rate}"
            cases.append(Case(name, partial(_faster, name, trace, rate, data)))
    return cases


def _tail(name: str, rate: int, metric: str, data: Path | None) -> Instance:
    """Ten minutes of the conversation trace in a part of the time, by a percentile."""
    return replace(_faster(name, "conv", rate, data), objective=Objective.of(metric))


def _tails(data: Path | None) -> list[Case]:
    cases = []
    for latency in ("ttft", "e2e"):
        for rate in TAIL_RATES:
            name = f"azure-conv-10min-x{rate}-p99-{latency}"
            cases.append(Case(name, partial(_tail, name, rate, f"p99_{latency}", data)))
    return cases


def _promised(name: str, rate: int, slo: Mapping[str, str], data: Path | None) -> Instance:
    """Ten minutes of the conversation trace in a part of the time, all with the same limits."""
    instance = _faster(name, "conv", rate, data)
    groups = tuple(replace(group, slo=slo) for group in instance.groups)
    return replace(instance, groups=groups, objective=Objective.of("missed"))


def _attainment(data: Path | None) -> list[Case]:
    cases = []
    for rate, ttft, tpot in PROMISES:
        name = f"azure-conv-10min-x{rate}-ttft{ttft}-tpot{tpot}"
        cases.append(Case(name, partial(_promised, name, rate, {"ttft": ttft, "tpot": tpot}, data)))
    return cases


def vllm_run(name: str, run: VllmRun, data: Path | None) -> Instance:
    """The requests of a real run and the limits of its engine; batch times are those of its kernels.

    Parameters
    ----------
    name : str
        Of the instance.
    run : VllmRun
    data : path, optional
        The folder that holds `vllm_runs`.
    """
    from infermax_opt.foreign.traces import read_trace
    from infermax_opt.infermax.data.profiles import load_profile
    from infermax_opt.infermax.data.traces import trace_instance

    path = _trace_file(f"vllm_runs/{run.folder}/requests.jsonl", data, "vllm-runs", RUNS_ORIGIN)
    profile = load_profile(run.profile)
    system = System(profile.capacity, 2048, 2048, max_running=run.max_running, block_size=16)
    return trace_instance(read_trace(path, "llmservingsim"), name, system, profile.cost)


def _vllm_e2e(name: str, run: VllmRun, data: Path | None) -> Instance:
    return replace(vllm_run(name, run, data), objective=Objective.of("mean_e2e"))


def _vllm_runs(data: Path | None) -> list[Case]:
    makespan = [Case(name, partial(vllm_run, name, run, data)) for name, run in RUNS.items()]
    return makespan + [
        Case(f"e2e-{name}", partial(_vllm_e2e, f"e2e-{name}", run, data)) for name, run in RUNS.items()
    ]


def _mcsf(data: Path | None) -> list[Case]:
    return [
        Case(f"mcsf-{model}-{seed}", partial(mcsf_instance, model, seed))
        for model in MODELS
        for seed in range(MCSF_SEEDS)
    ]


def _ecoserve(data: Path | None) -> list[Case]:
    return [
        Case(f"ecoserve-{trace}-x{float(load):g}", partial(ecoserve_case, trace, load))
        for trace in TRACES
        for load in LOADS
    ]


def _bros(data: Path | None) -> list[Case]:
    return [
        Case(f"bros-{workload}-{rate}", partial(bros_instance, workload, rate))
        for workload in MOMENTS
        for rate in BROS_RATES
    ]


SUITES: Mapping[str, Callable[[Path | None], Sequence[Case]]] = {
    "paper-csp": _paper_csp,
    "paper-b32": partial(_grid, 32),
    "paper-b1024": partial(_grid, 1024),
    "mixes": _mixes,
    "azure": _azure,
    "latency": _latency,
    "online": _online,
    "tails": _tails,
    "attainment": _attainment,
    "vllm-runs": _vllm_runs,
    "mcsf": _mcsf,
    "bros": _bros,
    "ecoserve": _ecoserve,
}
"""By name."""
