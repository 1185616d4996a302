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
    from infermax_opt.cluster.data.stream import Stream, StreamRequest
    from infermax_opt.cluster.replay.metrics import StreamMetrics
    from infermax_opt.cluster.verify import StreamVerification
    from infermax_opt.core.band import Band
    from infermax_opt.core.certification import CertificateRejected
    from infermax_opt.core.errors import InputError
    from infermax_opt.core.problem import Problem
    from infermax_opt.core.result import Claim, LowerBound, Proof, Result, Status, UpperBound
    from infermax_opt.export.formulation import ExportedFormulation
    from infermax_opt.export.requests import ExportedRequests
    from infermax_opt.files.instances import read_instance, write_instance, write_schedule
    from infermax_opt.files.results import read_schedule_or_claim, write_result
    from infermax_opt.foreign.reading import read_run
    from infermax_opt.foreign.run import Run
    from infermax_opt.foreign.traces import read_trace
    from infermax_opt.gaps.collect import gap
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
    from infermax_opt.placement.data.instance import PlacementGroup, PlacementInstance, Slo, Worker
    from infermax_opt.placement.data.schedule import Placement
    from infermax_opt.placement.data.traces import heartbeat_instance
    from infermax_opt.placement.replay.metrics import PlacementMetrics
    from infermax_opt.placement.verify import PlacementResult, PlacementVerification
    from infermax_opt.table.shipped import load_instance, shipped_names

    __version__: str

__all__ = [
    "Attention",
    "Band",
    "Batch",
    "Bin",
    "BrokenRule",
    "CertificateRejected",
    "Claim",
    "ClientRequestGroup",
    "CostModel",
    "ExportedFormulation",
    "ExportedRequests",
    "InputError",
    "Instance",
    "LowerBound",
    "MakespanInstance",
    "MakespanMetrics",
    "MakespanResult",
    "MakespanSchedule",
    "MakespanVerification",
    "Metric",
    "Metrics",
    "Objective",
    "Placement",
    "PlacementGroup",
    "PlacementInstance",
    "PlacementMetrics",
    "PlacementResult",
    "PlacementVerification",
    "Policy",
    "PrefillLevel",
    "Problem",
    "Proof",
    "Request",
    "RequestClass",
    "RequestGroup",
    "RequestView",
    "Result",
    "Run",
    "Schedule",
    "ServiceLevel",
    "Simulator",
    "Slo",
    "Status",
    "Stream",
    "StreamMetrics",
    "StreamRequest",
    "StreamVerification",
    "System",
    "UpperBound",
    "Verification",
    "Worker",
    "__version__",
    "bound",
    "check_certificate",
    "client_instance",
    "export_formulation",
    "export_requests",
    "gap",
    "gsm8k_like",
    "heartbeat_instance",
    "linear_levels",
    "load_instance",
    "load_profile",
    "profile_names",
    "read_instance",
    "read_run",
    "read_schedule_or_claim",
    "read_trace",
    "schedule",
    "shipped_names",
    "simulate",
    "solve",
    "trace_instance",
    "verify",
    "write_certificate",
    "write_instance",
    "write_result",
    "write_schedule",
]

_HOMES = {
    "api": (
        "bound",
        "check_certificate",
        "export_formulation",
        "export_requests",
        "schedule",
        "solve",
        "verify",
        "write_certificate",
    ),
    "cluster.data.stream": (
        "Stream",
        "StreamRequest",
    ),
    "cluster.replay.metrics": ("StreamMetrics",),
    "cluster.verify": ("StreamVerification",),
    "core.band": ("Band",),
    "core.certification": ("CertificateRejected",),
    "core.errors": ("InputError",),
    "core.problem": ("Problem",),
    "core.result": (
        "Claim",
        "LowerBound",
        "Proof",
        "Result",
        "Status",
        "UpperBound",
    ),
    "export.formulation": ("ExportedFormulation",),
    "export.requests": ("ExportedRequests",),
    "files.instances": (
        "read_instance",
        "write_instance",
        "write_schedule",
    ),
    "files.results": (
        "read_schedule_or_claim",
        "write_result",
    ),
    "foreign.reading": ("read_run",),
    "foreign.run": ("Run",),
    "foreign.traces": ("read_trace",),
    "gaps.collect": ("gap",),
    "infermax.data.cost": (
        "Attention",
        "CostModel",
    ),
    "infermax.data.instance": (
        "Instance",
        "Metric",
        "Objective",
        "Policy",
        "Request",
        "RequestClass",
        "RequestGroup",
        "ServiceLevel",
        "System",
    ),
    "infermax.data.profiles": (
        "load_profile",
        "profile_names",
    ),
    "infermax.data.schedule": (
        "Batch",
        "Schedule",
    ),
    "infermax.data.traces": ("trace_instance",),
    "infermax.replay.metrics": ("Metrics",),
    "infermax.simulator": (
        "BrokenRule",
        "RequestView",
        "Simulator",
        "simulate",
    ),
    "infermax.verify": ("Verification",),
    "makespan.data.generate": ("gsm8k_like",),
    "makespan.data.instance": (
        "ClientRequestGroup",
        "MakespanInstance",
        "PrefillLevel",
        "linear_levels",
    ),
    "makespan.data.schedule": (
        "Bin",
        "MakespanSchedule",
    ),
    "makespan.data.traces": ("client_instance",),
    "makespan.replay.metrics": ("MakespanMetrics",),
    "makespan.verify": ("MakespanResult", "MakespanVerification"),
    "placement.data.instance": (
        "PlacementGroup",
        "PlacementInstance",
        "Slo",
        "Worker",
    ),
    "placement.data.schedule": ("Placement",),
    "placement.data.traces": ("heartbeat_instance",),
    "placement.replay.metrics": ("PlacementMetrics",),
    "placement.verify": ("PlacementResult", "PlacementVerification"),
    "table.shipped": ("load_instance", "shipped_names"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


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
