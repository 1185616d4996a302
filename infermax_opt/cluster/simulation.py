"""A stream under a placement policy: what its requests saw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infermax_opt.cluster.data.stream import Stream
from infermax_opt.cluster.policies.by_name import POLICIES, make_policy, policy_names
from infermax_opt.cluster.replay.check import StreamCheck, check_stream
from infermax_opt.cluster.replay.replay import Decide, StreamReplay, replay_stream
from infermax_opt.cluster.replay.rows import stream_rows
from infermax_opt.core.checks import checked_kind
from infermax_opt.core.frames import frame
from infermax_opt.core.shown import ShownRows

if TYPE_CHECKING:
    import pandas

__all__ = ["Simulation", "policies", "simulate_stream"]


@dataclass(frozen=True)
class Simulation(ShownRows):
    """What became of a stream.

    Attributes
    ----------
    policy : str
        Name of the policy.
    replay : StreamReplay
    check : StreamCheck
        How often limits were exceeded, and the metrics.
    """

    policy: str
    replay: StreamReplay
    check: StreamCheck

    def facts(self) -> Mapping[str, Any]:
        """The stream, the policy, its metrics."""
        metrics = self.check.metrics
        own = {} if metrics is None else dict(metrics.items())
        return {"stream": self.replay.stream.name, "policy": self.policy, **own}

    def rows_shown(self) -> Iterable[Mapping[str, Any]]:
        """A row for each request; times in s."""
        return stream_rows(self.replay)

    def workers_frame(self) -> pandas.DataFrame:
        """Workers in use at each heartbeat; raises `InputError` without pandas."""
        heartbeat = self.replay.stream.heartbeat
        return frame(
            {"seconds": beat.number * heartbeat, "new": beat.new, "workers": beat.workers}
            for beat in self.replay.beats
        )


def policies() -> dict[str, str]:
    """Placement policies by name, and what each does, as far as it says."""
    return {name: POLICIES.get(name, "") for name in policy_names()}


def simulate_stream(
    stream: Stream,
    policy: str | Decide = "aladdin",
    *,
    workers: int | None = None,
    groups: int | None = None,
    seed: int = 0,
) -> Simulation:
    """Replay a stream through a placement policy.

    Requests are placed at heartbeats by their predicted lengths, and every worker runs with their true ones.

    Parameters
    ----------
    stream : Stream
    policy : str or callable
        A name of `policies`; or what gives the worker of each new request of a heartbeat.
    workers : int, optional
        For ``jsq`` and ``power-of-two``.
    groups : int, optional
        Schedulers, for ``grouped``.
    seed : int
        Of policies that draw.

    Raises
    ------
    InputError
        If there is no such policy, or it gives no worker.
    """
    checked_kind(stream, Stream, "stream")
    decide = (
        make_policy(policy, workers=workers, groups=groups, seed=seed) if isinstance(policy, str) else policy
    )
    replay = replay_stream(stream, decide)
    name = policy if isinstance(policy, str) else getattr(policy, "__name__", type(policy).__name__)
    return Simulation(name, replay, check_stream(stream, replay.placement))
