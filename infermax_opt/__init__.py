"""Optimal schedules, lower bounds and gaps for LLM inference serving.

Everything named in `__all__` loads on first use, so that importing the package stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infermax_opt.api import bound, schedule, solve
    from infermax_opt.core.errors import InputError
    from infermax_opt.core.result import (
        Claim,
        LowerBound,
        MakespanResult,
        PlacementResult,
        Proof,
        Result,
        Status,
        UpperBound,
    )
    from infermax_opt.files.instances import read_instance, write_instance, write_schedule
    from infermax_opt.files.results import read_schedule_or_claim, write_result
    from infermax_opt.files.traces import read_trace, trace_instance
    from infermax_opt.infermax.data.cost import Attention, CostModel
    from infermax_opt.infermax.data.instance import (
        Instance,
        Metric,
        Objective,
        Policy,
        Request,
        RequestGroup,
        System,
    )
    from infermax_opt.infermax.data.profiles import load_profile, profile_names
    from infermax_opt.infermax.data.schedule import Batch, Schedule
    from infermax_opt.infermax.replay.metrics import Metrics
    from infermax_opt.infermax.verify import (
        MakespanVerification,
        PlacementVerification,
        Verification,
        verify,
    )
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
    from infermax_opt.placement.data.instance import PlacementGroup, PlacementInstance, Slo, Worker
    from infermax_opt.placement.data.schedule import Placement
    from infermax_opt.placement.data.traces import heartbeat_instance
    from infermax_opt.placement.metrics import PlacementMetrics

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
    "infermax.data.cost": ("Attention", "CostModel"),
    "core.errors": ("InputError",),
    "infermax.data.instance": (
        "Instance", "Metric", "Objective", "Policy", "Request", "RequestGroup", "System",
    ),
    "files.instances": ("read_instance", "write_instance", "write_schedule"),
    "files.results": ("read_schedule_or_claim", "write_result"),
    "makespan.data.traces": ("client_instance",),
    "placement.data.traces": ("heartbeat_instance",),
    "files.traces": ("read_trace", "trace_instance"),
    "makespan.data.generate": ("gsm8k_like",),
    "makespan.data.instance": ("ClientRequestGroup", "MakespanInstance", "PrefillLevel", "linear_levels"),
    "makespan.replay.metrics": ("MakespanMetrics",),
    "makespan.data.schedule": ("Bin", "MakespanSchedule"),
    "infermax.replay.metrics": ("Metrics",),
    "placement.data.instance": ("PlacementGroup", "PlacementInstance", "Slo", "Worker"),
    "placement.metrics": ("PlacementMetrics",),
    "placement.data.schedule": ("Placement",),
    "infermax.data.profiles": ("load_profile", "profile_names"),
    "core.result": (
        "Claim", "LowerBound", "MakespanResult", "PlacementResult", "Proof", "Result", "Status", "UpperBound",
    ),
    "infermax.data.schedule": ("Batch", "Schedule"),
    "infermax.verify": ("MakespanVerification", "PlacementVerification", "Verification", "verify"),
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
