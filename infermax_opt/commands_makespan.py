"""What the commands do differently for makespan instances."""

from __future__ import annotations

from infermax_opt.console import DONE, FAILED, save
from infermax_opt.io.makespan import bins_to_json
from infermax_opt.makespan.instance import MakespanInstance
from infermax_opt.makespan.methods import run_method
from infermax_opt.report import verification_text
from infermax_opt.verification import verify

__all__ = ["schedule"]


def schedule(instance: MakespanInstance, method: str, output: str | None, as_json: bool) -> int:
    """Run a method and print what its schedule does, and how long its decisions took."""
    run = run_method(instance, method)
    check = verify(instance, run.schedule)
    slowest = max(run.decision_seconds) * 1000
    text = verification_text(instance, check)
    text += f"\n  {len(run.decision_seconds)} decisions, the slowest took {slowest:.2g} ms"
    save(bins_to_json(run.schedule), output, None if as_json else text)
    return DONE if check.ok else FAILED
