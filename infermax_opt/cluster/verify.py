"""The verifier of streams: replays a placement, checks all limits at every heartbeat, and every claim.

It imports no policy, so that none of them can vouch for itself.  Bounds of a formula are recomputed; others
are decided by looking at every placement, unless these are too many.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from infermax_opt.cluster import exhaustive
from infermax_opt.cluster.bounds.mean_workers import mean_bounds
from infermax_opt.cluster.data.stream import Stream
from infermax_opt.cluster.replay.check import BeatViolation, check_stream
from infermax_opt.cluster.replay.metrics import StreamMetrics
from infermax_opt.core.result import Claim
from infermax_opt.core.truth import Finding, Trust, Truth, Unchecked, best_of
from infermax_opt.core.verification import BaseVerification
from infermax_opt.placement.data.limits import unplaceable
from infermax_opt.placement.data.schedule import Placement

__all__ = ["StreamVerification", "verify_stream"]


@dataclass(frozen=True)
class StreamVerification(BaseVerification[BeatViolation, StreamMetrics]):
    """Outcome of the verification of a placement or result of a stream."""


def verify_stream(
    stream: Stream, placement: Placement | None, subject: Placement | Claim
) -> StreamVerification:
    """Verify the placement of a stream, and what a result claims.

    Parameters
    ----------
    stream : Stream
    placement : Placement or None
        Of the subject; None where that is a bound alone.
    subject : Placement or Claim
        The placement itself, or all that is claimed with it.

    Returns
    -------
    StreamVerification
        Violations and faults as data; nothing is raised for a wrong placement.
    """
    check = None if placement is None else check_stream(stream, placement)
    metrics = check.metrics if check else None

    def confirm(lower: Fraction) -> Finding:
        requests = len(stream.requests)
        if requests > exhaustive.MAX_REQUESTS:
            why = f"{requests} requests; up to {exhaustive.MAX_REQUESTS} are enumerated"
            return Finding(Trust.UNCHECKED, why)
        least = exhaustive.least_mean_workers(stream)
        return Finding(Trust.ENUMERATED if least is None or lower <= least else Trust.REFUTED)

    def trivial() -> Fraction | None:
        """Each request on a worker of its own keeps all limits if any placement does."""
        return None if infeasible() else Fraction(len(stream.requests))

    @cache
    def infeasible() -> bool:
        return bool(unplaceable(stream.at_once))

    unchecked: tuple[Unchecked, ...] = ()
    if check is not None and check.metrics is None:
        homeless = sum(request.id not in placement.workers for request in stream.requests) if placement else 0
        reason = f"{homeless} of {len(stream.requests)} requests have no worker, so nothing can be replayed"
        unchecked = (Unchecked("limits at every heartbeat", reason),)
    truth = Truth(
        instance=stream,
        violations=check.violations if check else (),
        metrics=metrics,
        objective=metrics.mean_workers if metrics and check and check.ok else None,
        closed_form=lambda source: best_of(mean_bounds(stream), source),
        confirm=confirm,
        trivial=trivial,
        infeasible=infeasible,
        unchecked=unchecked,
    )
    return StreamVerification.of(subject, truth)
