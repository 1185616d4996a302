"""Optimal schedules, lower bounds and gaps for LLM inference serving.

Everything named in `__all__` loads on first use, so that importing the package stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infermax_opt.api import (
        bound,
        check_certificate,
        export_formulation,
        export_requests,
        schedule,
        solve,
        verify,
        write_certificate,
    )
    from infermax_opt.api.aims import asked, with_aim, with_band, with_cost
    from infermax_opt.api.background import SolveHandle, start_solve
    from infermax_opt.api.imports import import_trace
    from infermax_opt.api.listings import ProblemEntry, formats, problems, schedulers, versions
    from infermax_opt.api.pictures import (
        plot_convergence,
        plot_latencies,
        plot_requests,
        plot_schedule,
        save_plot,
    )
    from infermax_opt.api.warming import Warmed, warm, warm_parts
    from infermax_opt.cluster.data.stream import Stream, StreamRequest
    from infermax_opt.cluster.plot import plot_workers
    from infermax_opt.cluster.prefill import prefill_stream
    from infermax_opt.cluster.replay.metrics import StreamMetrics
    from infermax_opt.cluster.series import WorkerSeries, worker_series
    from infermax_opt.cluster.simulation import Simulation, policies, simulate_stream
    from infermax_opt.cluster.verify import StreamVerification
    from infermax_opt.core.band import Band
    from infermax_opt.core.certification import CertificateRejected
    from infermax_opt.core.errors import InputError
    from infermax_opt.core.importing import Made
    from infermax_opt.core.problem import Problem
    from infermax_opt.core.progress import ProgressEvent
    from infermax_opt.core.result import Claim, LowerBound, Proof, Result, Status, UpperBound
    from infermax_opt.files.figure import alt_text
    from infermax_opt.files.format_schemas import json_schema, json_schema_names
    from infermax_opt.files.instances import read_instance, write_instance, write_schedule
    from infermax_opt.files.pages import write_page
    from infermax_opt.files.results import read_schedule_or_claim, write_result
    from infermax_opt.fleet.machine_types import MachineType, Variant
    from infermax_opt.fleet.mix import Mix
    from infermax_opt.fleet.plan import plan
    from infermax_opt.fleet.plan_files import write_plan
    from infermax_opt.fleet.plan_row import PlanOptions, PlanRow, Split
    from infermax_opt.fleet.scaling import Scaling
    from infermax_opt.fleet.sustains import Sustained
    from infermax_opt.fleet.sweep import Plan, Sweep, sweep
    from infermax_opt.foreign.export.formulation import ExportedFormulation
    from infermax_opt.foreign.export.requests import ExportedRequests
    from infermax_opt.foreign.reading import read_run
    from infermax_opt.foreign.run import Run
    from infermax_opt.foreign.traces import read_trace
    from infermax_opt.gaps.collect import compare_schedulers, gap, gaps_on_machine
    from infermax_opt.gaps.explain import explained
    from infermax_opt.gaps.fronts.plot import plot_front
    from infermax_opt.gaps.fronts.trace import Front, trace_front
    from infermax_opt.gaps.plot import plot_comparison, plot_gap, plot_gaps
    from infermax_opt.gaps.score import Group
    from infermax_opt.infermax.data.cost import Attention, CostModel
    from infermax_opt.infermax.data.instance import (
        Instance,
        Metric,
        Objective,
        Policy,
        Request,
        RequestClass,
        RequestGroup,
        ServiceLevel,
        System,
    )
    from infermax_opt.infermax.data.profiles import load_profile, profile_names
    from infermax_opt.infermax.data.schedule import Batch, Schedule
    from infermax_opt.infermax.data.traces import trace_instance
    from infermax_opt.infermax.replay.metrics import Metrics
    from infermax_opt.infermax.simulator import BrokenRule, RequestView, Simulator, simulate
    from infermax_opt.infermax.verify import Verification
    from infermax_opt.latency.batches.fit import BatchFit, fit_batches
    from infermax_opt.latency.batches.plot import plot_residuals
    from infermax_opt.latency.batches.read import read_batches
    from infermax_opt.latency.batches.report import write_profile
    from infermax_opt.latency.calibration import Calibration, calibrate
    from infermax_opt.latency.choosing import configure_worker
    from infermax_opt.latency.configuration import Configuration, demand_of
    from infermax_opt.latency.profiles import ProfileFit, fit_profile
    from infermax_opt.latency.samples import read_samples
    from infermax_opt.makespan.data.generate import gsm8k_like
    from infermax_opt.makespan.data.instance import (
        ClientRequestGroup,
        MakespanInstance,
        PrefillLevel,
        linear_levels,
    )
    from infermax_opt.makespan.data.schedule import Bin, MakespanSchedule
    from infermax_opt.makespan.data.traces import client_instance
    from infermax_opt.makespan.replay.metrics import MakespanMetrics
    from infermax_opt.makespan.verify import MakespanResult, MakespanVerification
    from infermax_opt.placement.data.formats import write_worker
    from infermax_opt.placement.data.instance import PlacementGroup, PlacementInstance, Slo, Worker
    from infermax_opt.placement.data.schedule import Placement
    from infermax_opt.placement.data.traces import heartbeat_instance
    from infermax_opt.placement.replay.metrics import PlacementMetrics
    from infermax_opt.placement.verify import PlacementResult, PlacementVerification
    from infermax_opt.table.archive import Archive
    from infermax_opt.table.output import Table
    from infermax_opt.table.run import run_table
    from infermax_opt.table.shipped import load_instance, shipped_names
    from infermax_opt.table.suites import Suite, get_suite, suite_names

    __version__: str

__all__ = [
    "Archive",
    "Attention",
    "Band",
    "Batch",
    "BatchFit",
    "Bin",
    "BrokenRule",
    "Calibration",
    "CertificateRejected",
    "Claim",
    "ClientRequestGroup",
    "Configuration",
    "CostModel",
    "ExportedFormulation",
    "ExportedRequests",
    "Front",
    "Group",
    "InputError",
    "Instance",
    "LowerBound",
    "MachineType",
    "Made",
    "MakespanInstance",
    "MakespanMetrics",
    "MakespanResult",
    "MakespanSchedule",
    "MakespanVerification",
    "Metric",
    "Metrics",
    "Mix",
    "Objective",
    "Placement",
    "PlacementGroup",
    "PlacementInstance",
    "PlacementMetrics",
    "PlacementResult",
    "PlacementVerification",
    "Plan",
    "PlanOptions",
    "PlanRow",
    "Policy",
    "PrefillLevel",
    "Problem",
    "ProblemEntry",
    "ProfileFit",
    "ProgressEvent",
    "Proof",
    "Request",
    "RequestClass",
    "RequestGroup",
    "RequestView",
    "Result",
    "Run",
    "Scaling",
    "Schedule",
    "ServiceLevel",
    "Simulation",
    "Simulator",
    "Slo",
    "SolveHandle",
    "Split",
    "Status",
    "Stream",
    "StreamMetrics",
    "StreamRequest",
    "StreamVerification",
    "Suite",
    "Sustained",
    "Sweep",
    "System",
    "Table",
    "UpperBound",
    "Variant",
    "Verification",
    "Warmed",
    "Worker",
    "WorkerSeries",
    "__version__",
    "alt_text",
    "asked",
    "bound",
    "calibrate",
    "check_certificate",
    "client_instance",
    "compare_schedulers",
    "configure_worker",
    "demand_of",
    "explained",
    "export_formulation",
    "export_requests",
    "fit_batches",
    "fit_profile",
    "formats",
    "gap",
    "gaps_on_machine",
    "get_suite",
    "gsm8k_like",
    "heartbeat_instance",
    "import_trace",
    "json_schema",
    "json_schema_names",
    "linear_levels",
    "load_instance",
    "load_profile",
    "plan",
    "plot_comparison",
    "plot_convergence",
    "plot_front",
    "plot_gap",
    "plot_gaps",
    "plot_latencies",
    "plot_requests",
    "plot_residuals",
    "plot_schedule",
    "plot_workers",
    "policies",
    "prefill_stream",
    "problems",
    "profile_names",
    "read_batches",
    "read_instance",
    "read_run",
    "read_samples",
    "read_schedule_or_claim",
    "read_trace",
    "run_table",
    "save_plot",
    "schedule",
    "schedulers",
    "shipped_names",
    "simulate",
    "simulate_stream",
    "solve",
    "start_solve",
    "suite_names",
    "sweep",
    "trace_front",
    "trace_instance",
    "verify",
    "versions",
    "warm",
    "warm_parts",
    "with_aim",
    "with_band",
    "with_cost",
    "worker_series",
    "write_certificate",
    "write_instance",
    "write_page",
    "write_plan",
    "write_profile",
    "write_result",
    "write_schedule",
    "write_worker",
]  # fmt: skip

#: Names by the module that has them, which is loaded when one of them is asked for.
_HOMES = {
    "api": (
        "bound check_certificate export_formulation export_requests schedule solve verify write_certificate"
    ),
    "api.aims": "asked with_aim with_band with_cost",
    "api.background": "SolveHandle start_solve",
    "api.imports": "import_trace",
    "api.listings": "ProblemEntry formats problems schedulers versions",
    "api.pictures": "plot_convergence plot_latencies plot_requests plot_schedule save_plot",
    "api.warming": "Warmed warm warm_parts",
    "cluster.data.stream": "Stream StreamRequest",
    "cluster.plot": "plot_workers",
    "cluster.prefill": "prefill_stream",
    "cluster.replay.metrics": "StreamMetrics",
    "cluster.series": "WorkerSeries worker_series",
    "cluster.simulation": "Simulation policies simulate_stream",
    "cluster.verify": "StreamVerification",
    "core.band": "Band",
    "core.certification": "CertificateRejected",
    "core.errors": "InputError",
    "core.importing": "Made",
    "core.problem": "Problem",
    "core.progress": "ProgressEvent",
    "core.result": "Claim LowerBound Proof Result Status UpperBound",
    "files.figure": "alt_text",
    "files.format_schemas": "json_schema json_schema_names",
    "files.instances": "read_instance write_instance write_schedule",
    "files.pages": "write_page",
    "files.results": "read_schedule_or_claim write_result",
    "fleet.machine_types": "MachineType Variant",
    "fleet.mix": "Mix",
    "fleet.plan": "plan",
    "fleet.plan_files": "write_plan",
    "fleet.plan_row": "PlanOptions PlanRow Split",
    "fleet.scaling": "Scaling",
    "fleet.sustains": "Sustained",
    "fleet.sweep": "Plan Sweep sweep",
    "foreign.export.formulation": "ExportedFormulation",
    "foreign.export.requests": "ExportedRequests",
    "foreign.reading": "read_run",
    "foreign.run": "Run",
    "foreign.traces": "read_trace",
    "gaps.collect": "compare_schedulers gap gaps_on_machine",
    "gaps.explain": "explained",
    "gaps.fronts.plot": "plot_front",
    "gaps.fronts.trace": "Front trace_front",
    "gaps.plot": "plot_comparison plot_gap plot_gaps",
    "gaps.score": "Group",
    "infermax.data.cost": "Attention CostModel",
    "infermax.data.instance": (
        "Instance Metric Objective Policy Request RequestClass RequestGroup ServiceLevel System"
    ),
    "infermax.data.profiles": "load_profile profile_names",
    "infermax.data.schedule": "Batch Schedule",
    "infermax.data.traces": "trace_instance",
    "infermax.replay.metrics": "Metrics",
    "infermax.simulator": "BrokenRule RequestView Simulator simulate",
    "infermax.verify": "Verification",
    "latency.batches.fit": "BatchFit fit_batches",
    "latency.batches.plot": "plot_residuals",
    "latency.batches.read": "read_batches",
    "latency.batches.report": "write_profile",
    "latency.calibration": "Calibration calibrate",
    "latency.choosing": "configure_worker",
    "latency.configuration": "Configuration demand_of",
    "latency.profiles": "ProfileFit fit_profile",
    "latency.samples": "read_samples",
    "makespan.data.generate": "gsm8k_like",
    "makespan.data.instance": "ClientRequestGroup MakespanInstance PrefillLevel linear_levels",
    "makespan.data.schedule": "Bin MakespanSchedule",
    "makespan.data.traces": "client_instance",
    "makespan.replay.metrics": "MakespanMetrics",
    "makespan.verify": "MakespanResult MakespanVerification",
    "placement.data.formats": "write_worker",
    "placement.data.instance": "PlacementGroup PlacementInstance Slo Worker",
    "placement.data.schedule": "Placement",
    "placement.data.traces": "heartbeat_instance",
    "placement.replay.metrics": "PlacementMetrics",
    "placement.verify": "PlacementResult PlacementVerification",
    "table.archive": "Archive",
    "table.output": "Table",
    "table.run": "run_table",
    "table.shipped": "load_instance shipped_names",
    "table.suites": "Suite get_suite suite_names",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("infermax-opt")
    elif name in _HOME:
        value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
