"""What the JSON of each command is called: the one list of its schemas."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["SCHEMAS"]

#: Schema of what a command, or another program, prints with --json.
SCHEMAS: Mapping[str, str] = {
    "bound": "infermax-opt/bound/1",
    "calibrate": "infermax-opt/calibrate/1",
    "configure": "infermax-opt/configure/1",
    "export": "infermax-opt/export/1",
    "front": "infermax-opt/front/1",
    "gap": "infermax-opt/gap/1",
    "import": "infermax-opt/import/1",
    "infermax-opt-check": "infermax-opt/checked/1",
    "instance": "infermax-opt/instance-list/1",
    "plan": "infermax-opt/plan/1",
    "problems": "infermax-opt/problems/1",
    "profiles": "infermax-opt/profiles/1",
    "schedule": "infermax-opt/schedule/1",
    "schedulers": "infermax-opt/schedulers/1",
    "simulate": "infermax-opt/simulation/1",
    "solve": "infermax-opt/result/1",
    "table": "infermax-opt/table/1",
    "verify": "infermax-opt/verify/1",
    "versions": "infermax-opt/versions/1",
    "workers": "infermax-opt/workers/1",
}
