"""Streams of requests on workers over time, as the rest of the house sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from infermax_opt.cluster.data.stream import Stream
from infermax_opt.cluster.replay.metrics import StreamMetrics
from infermax_opt.core.problem import Heuristic, Problem
from infermax_opt.core.result import Claim, LowerBound, Result
from infermax_opt.placement.data.schedule import Placement

if TYPE_CHECKING:
    from infermax_opt.cluster.verify import StreamVerification
    from infermax_opt.core.importing import Importer
    from infermax_opt.core.solve_options import SolveOptions

__all__ = ["StreamProblem"]


class StreamProblem(Problem[Stream, Placement, StreamMetrics]):
    """Requests over time, placed at heartbeats; see `infermax_opt.core.problem.Problem`.

    A schedule gives every request its worker.  It is valid if the limits a to e are kept at every heartbeat;
    the objective is the mean number of workers in use.
    """

    name = "stream"
    about = "requests over time on the fewest workers, placed at heartbeats"
    instance = Stream
    schedule = Placement
    metrics = StreamMetrics
    decisions = "workers"
    heuristic = "policy"
    heuristics_title = "policies"

    def instance_from_json(self, value: object) -> Stream:
        """Build a stream from parsed JSON."""
        from infermax_opt.cluster.data.formats import stream_from_json

        return stream_from_json(value)

    def instance_to_json(self, instance: Stream) -> dict[str, Any]:
        """Return the JSON value of a stream."""
        from infermax_opt.cluster.data.formats import stream_to_json

        return stream_to_json(instance)

    def schedule_from_json(self, value: object, path: str) -> Placement:
        """Build the placement of all requests from parsed JSON."""
        from infermax_opt.placement.data.formats import placement_from_json

        return placement_from_json(value, path)

    def schedule_to_json(self, schedule: Placement) -> dict[str, Any]:
        """Return the JSON value of a placement."""
        from infermax_opt.placement.data.formats import placement_to_json

        return placement_to_json(schedule)

    def verify(
        self, instance: Stream, schedule: Placement | None, subject: Placement | Claim
    ) -> StreamVerification:
        """Replay a placement over all heartbeats, and check what a claim says of it.

        Parameters
        ----------
        instance : Stream
        schedule : Placement or None
            The one to replay; None where a claim has none.
        subject : Placement or Claim
            What is to be vouched for: the placement itself, or a claim about it.
        """
        from infermax_opt.cluster.verify import verify_stream

        return verify_stream(instance, schedule, subject)

    def bounds(self, instance: Stream, *, stop: Callable[[], bool] | None = None) -> Iterator[LowerBound]:
        """On the mean, for every policy that keeps the limits a to e."""
        from infermax_opt.cluster.bounds.mean_workers import mean_bounds

        yield from mean_bounds(instance)

    def heuristics(self) -> Sequence[str]:
        """Policies that keep the limits a to e and need no number of workers."""
        from infermax_opt.cluster.policies.by_name import keeping_policies

        return keeping_policies()

    def heuristics_text(self) -> str:
        """One policy a line, with what it does."""
        from infermax_opt.cluster.policies.by_name import policies_text

        return policies_text()

    def run_heuristic(self, instance: Stream, name: str) -> Heuristic[Placement]:
        """Run a policy over all heartbeats."""
        from infermax_opt.cluster.policies.by_name import make_policy
        from infermax_opt.cluster.replay.replay import replay_stream

        return Heuristic(replay_stream(instance, make_policy(name)).placement)

    def solve(self, instance: Stream, options: SolveOptions) -> Result[Placement, StreamMetrics]:
        """The best policy, and the bounds of any policy that keeps the limits."""
        from infermax_opt.cluster.solve import solve_stream

        return solve_stream(self, instance, options)

    def request_rows(self, instance: Stream, schedule: Placement) -> list[dict[str, Any]]:
        """Worker, TTFT and ATGT of each request.

        Parameters
        ----------
        instance : instance
        schedule : schedule
        """
        from infermax_opt.cluster.replay.rows import placement_rows

        return placement_rows(instance, schedule)

    def importers(self) -> Mapping[str, Importer]:
        """Traces as streams, and one heartbeat of a trace as a placement instance."""
        from infermax_opt.cluster import importing
        from infermax_opt.core.importing import Importer
        from infermax_opt.files.arrivals import instance_name

        return {
            "placement": Importer(
                "a heartbeat on the fewest workers",
                importing.heartbeat_options,
                importing.import_heartbeat,
                instance_name,
            ),
            self.name: Importer(
                "requests over time on the fewest workers",
                importing.stream_options,
                importing.import_stream,
                instance_name,
            ),
        }
