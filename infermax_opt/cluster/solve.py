"""Solving streams: policies that keep the limits, and the bounds of any such policy."""

from __future__ import annotations

from dataclasses import replace

from infermax_opt.cluster.data.stream import Stream, stream_unplaceable
from infermax_opt.cluster.replay.metrics import StreamMetrics
from infermax_opt.cluster.series import worker_series
from infermax_opt.core.problem import Problem
from infermax_opt.core.result import Result
from infermax_opt.core.run import SolveRun
from infermax_opt.core.solve_options import SolveOptions
from infermax_opt.placement.data.schedule import Placement

__all__ = ["solve_stream"]


def solve_stream(
    problem: Problem[Stream, Placement, StreamMetrics], instance: Stream, options: SolveOptions
) -> Result[Placement, StreamMetrics]:
    """Place the requests of a stream on few workers.

    Parameters
    ----------
    problem : Problem
        That of streams.
    instance : Stream
    options : SolveOptions

    Returns
    -------
    Result
        Verified; infeasible where a request fits on no worker, which the details name.

    Raises
    ------
    InputError
        If an option is unusable.
    """
    options.refuse("streams", "formulation", "memory_limit")
    run = StreamRun(problem, instance, options)
    reasons = stream_unplaceable(instance)
    if reasons:
        run.report = replace(run.report, termination="infeasible", details={"unplaceable": reasons})
        return replace(run.result(), infeasible=True)
    run.run()
    return run.result()


class StreamRun(SolveRun[Stream, Placement, StreamMetrics]):
    """One call of `solve` on a stream."""

    def heuristic(self, name: str) -> Placement:
        """Run a policy; the one that searches has the time that is left."""
        if name == "fewest":
            series = worker_series(
                self.instance,
                time_limit=self.left(),
                seed=self.options.seed,
                progress=lambda event: self.say(event.text),
            )
            return series.placement
        return super().heuristic(name)
