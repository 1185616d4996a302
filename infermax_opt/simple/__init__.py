"""What a small problem inherits: records, their files, a verifier, a picture, columns.

Names are imported on demand, so that a verifier can have records without the class of problems.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infermax_opt.files.figure import Phase
    from infermax_opt.simple.picture import Bar
    from infermax_opt.simple.problem import SimpleProblem
    from infermax_opt.simple.records import (
        BrokenRule,
        InstanceRecord,
        MetricsRecord,
        Record,
        ScheduleRecord,
    )

__all__ = [
    "Bar",
    "BrokenRule",
    "InstanceRecord",
    "MetricsRecord",
    "Phase",
    "Record",
    "ScheduleRecord",
    "SimpleProblem",
]

#: Module of each name that is not among the records.
_HOMES = {
    "Bar": "infermax_opt.simple.picture",
    "Phase": "infermax_opt.files.figure",
    "SimpleProblem": "infermax_opt.simple.problem",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "infermax_opt.simple.records")), name)
