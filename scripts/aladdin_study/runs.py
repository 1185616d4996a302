"""Replays of policies, each of them verified, and the least fleets that spreaders need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from infermax_opt.cluster.data.stream import Stream
from infermax_opt.cluster.policies.by_name import make_policy
from infermax_opt.cluster.replay.check import check_stream
from infermax_opt.cluster.replay.metrics import StreamMetrics, measure_stream
from infermax_opt.cluster.replay.replay import StreamReplay, replay_stream
from infermax_opt.core.exact import fixed_text
from infermax_opt.placement.data.schedule import Placement

__all__ = ["KEEPERS", "SPREAD", "Fleets", "Run", "StudyError", "replay", "run", "verified"]

#: Policies whose placements keep the limits a to e; and those that need a number of workers.
KEEPERS, SPREAD = ("aladdin", "fewest"), ("jsq", "power-of-two")
#: Most workers that are tried.
MOST_WORKERS = 4096


class StudyError(Exception):
    """A placement does not pass the verifier."""


@dataclass(frozen=True)
class Run:
    """A verified replay: metrics, and how many limits a to e its placement breaks."""

    metrics: StreamMetrics
    broken: int

    def row(self) -> dict[str, str]:
        """Columns of a table."""
        m = self.metrics
        return {
            "mean_workers": f"{float(m.mean_workers):.3f}",
            "attainment_percent": fixed_text(100 * m.attainment, 3, "floor"),
            "late_ttft": str(m.late_ttft), "late_atgt": str(m.late_atgt),
            "p99_ttft_s": f"{float(m.p99_ttft):.5f}",
            "p99_atgt_s": "" if m.p99_atgt is None else f"{float(m.p99_atgt):.5f}",
            "preemptions": str(m.preemptions), "limits_broken": str(self.broken), "verified": "true",
        }  # fmt: skip


def replay(stream: Stream, policy: str, workers: int | None = None) -> StreamReplay:
    """Replay a policy."""
    return replay_stream(stream, make_policy(policy, workers=workers, seed=0))


def verified(stream: Stream, policy: str, workers: Sequence[int], metrics: StreamMetrics) -> Run:
    """Let the verifier replay a placement: the worker of each request.

    Raises
    ------
    StudyError
        If it sees other metrics, an unplaced request, or a limit broken that the policy keeps.
    """
    placed = {r.id: worker for r, worker in zip(stream.requests, workers, strict=True)}
    check = check_stream(stream, Placement(stream.name, placed))
    if check.metrics != metrics:
        raise StudyError(f"{stream.name}, {policy}: the verifier measures something else")
    if policy in KEEPERS and not check.ok:
        raise StudyError(f"{stream.name}, {policy}: {check.violations[0]}")
    return Run(metrics, len(check.violations))


def run(stream: Stream, policy: str, workers: int | None = None) -> Run:
    """Replay and verify."""
    found = replay(stream, policy, workers)
    return verified(stream, policy, found.worker, measure_stream(found))


class Fleets:
    """Fewest workers found on which a spreader meets the limits of a share of the requests.

    Doubled, then halved, from a start: on one worker less it misses the share, but where more workers are
    not always better, still fewer might do by chance.
    """

    def __init__(self, stream: Stream, policy: str, start: int):
        self.stream, self.policy, self.start = stream, policy, start
        self.known: dict[int, tuple[Sequence[int], StreamMetrics]] = {}

    def least(self, share: Fraction) -> tuple[int, Run] | None:
        """Workers, and the run on them; None: not even `MOST_WORKERS` do."""
        low = high = self.start
        while low > 0 and self._meets(low, share):
            low, high = low // 2, low
        while high == low or not self._meets(high, share):
            low, high = high, 2 * high
            if high > MOST_WORKERS:
                return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._meets(middle, share) else (middle, high)
        return high, verified(self.stream, self.policy, *self.known[high])

    def _meets(self, workers: int, share: Fraction) -> bool:
        if workers not in self.known:
            found = replay(self.stream, self.policy, workers)
            self.known[workers] = found.worker, measure_stream(found)
        return self.known[workers][1].attainment >= share
