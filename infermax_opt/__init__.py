"""Optimal schedules, lower bounds and gaps for LLM inference serving.

Everything named in `__all__` loads on first use, so that importing the package stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infermax_opt.api import bound, schedule, solve
    from infermax_opt.cost import Attention, CostModel
    from infermax_opt.errors import InputError
    from infermax_opt.instance import (
        Instance,
        Metric,
        Objective,
        Policy,
        Request,
        RequestGroup,
        System,
    )
    from infermax_opt.io.problems import read_instance, write_instance, write_schedule
    from infermax_opt.io.results import read_schedule_or_claim, write_result
    from infermax_opt.io.trace_clients import client_instance
    from infermax_opt.io.trace_placement import heartbeat_instance
    from infermax_opt.io.traces import read_trace, trace_instance
    from infermax_opt.makespan.generate import gsm8k_like
    from infermax_opt.makespan.instance import (
        ClientRequestGroup,
        MakespanInstance,
        PrefillLevel,
        linear_levels,
    )
    from infermax_opt.makespan.metrics import MakespanMetrics
    from infermax_opt.makespan.schedule import Bin, MakespanSchedule
    from infermax_opt.metrics import Metrics
    from infermax_opt.placement.instance import PlacementGroup, PlacementInstance, Slo, Worker
    from infermax_opt.placement.metrics import PlacementMetrics
    from infermax_opt.placement.placement import Placement
    from infermax_opt.profiles import load_profile, profile_names
    from infermax_opt.result import (
        Claim,
        LowerBound,
        MakespanResult,
        PlacementResult,
        Proof,
        Result,
        Status,
        UpperBound,
    )
    from infermax_opt.schedules import Batch, Schedule
    from infermax_opt.verification import (
        MakespanVerification,
        PlacementVerification,
        Verification,
        verify,
    )

    __version__: str

__all__ = [
    "Attention",
    "Batch",
    "Bin",
    "Claim",
    "ClientRequestGroup",
    "CostModel",
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
    "Proof",
    "Request",
    "RequestGroup",
    "Result",
    "Schedule",
    "Slo",
    "Status",
    "System",
    "UpperBound",
    "Verification",
    "Worker",
    "__version__",
    "bound",
    "client_instance",
    "gsm8k_like",
    "heartbeat_instance",
    "linear_levels",
    "load_profile",
    "profile_names",
    "read_instance",
    "read_schedule_or_claim",
    "read_trace",
    "schedule",
    "solve",
    "trace_instance",
    "verify",
    "write_instance",
    "write_result",
    "write_schedule",
]

_HOMES = {
    "api": ("bound", "schedule", "solve"),
    "cost": ("Attention", "CostModel"),
    "errors": ("InputError",),
    "instance": ("Instance", "Metric", "Objective", "Policy", "Request", "RequestGroup", "System"),
    "io.problems": ("read_instance", "write_instance", "write_schedule"),
    "io.results": ("read_schedule_or_claim", "write_result"),
    "io.trace_clients": ("client_instance",),
    "io.trace_placement": ("heartbeat_instance",),
    "io.traces": ("read_trace", "trace_instance"),
    "makespan.generate": ("gsm8k_like",),
    "makespan.instance": ("ClientRequestGroup", "MakespanInstance", "PrefillLevel", "linear_levels"),
    "makespan.metrics": ("MakespanMetrics",),
    "makespan.schedule": ("Bin", "MakespanSchedule"),
    "metrics": ("Metrics",),
    "placement.instance": ("PlacementGroup", "PlacementInstance", "Slo", "Worker"),
    "placement.metrics": ("PlacementMetrics",),
    "placement.placement": ("Placement",),
    "profiles": ("load_profile", "profile_names"),
    "result": (
        "Claim", "LowerBound", "MakespanResult", "PlacementResult", "Proof", "Result", "Status", "UpperBound",
    ),
    "schedules": ("Batch", "Schedule"),
    "verification": ("MakespanVerification", "PlacementVerification", "Verification", "verify"),
}  # fmt: skip
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
