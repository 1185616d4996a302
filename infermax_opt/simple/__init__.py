"""What a small problem inherits: records, their files, a verifier, a picture, columns."""

from infermax_opt.files.figure import Phase
from infermax_opt.simple.picture import Bar
from infermax_opt.simple.problem import SimpleProblem
from infermax_opt.simple.records import BrokenRule, InstanceRecord, MetricsRecord, Record, ScheduleRecord

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
