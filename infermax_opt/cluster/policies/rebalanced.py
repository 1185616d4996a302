r"""Algorithm 2: new requests move where predictions of ongoing ones have proved wrong (section 4.3).

The paper places requests by predicted lengths as they arrive; before they are executed, it corrects that
placement by what has become known of the ongoing requests meanwhile.

*What was believed* at the last heartbeat stands until the next one: a request that has come to its predicted
length is thought to end now, and one that has ended sooner is thought to go on from there.  With this
`PlacementInstance`, best-fit (Algorithm 1) makes the first placement.

*Errors.*  l_e and b_e of a worker, output tokens and requests, begin with 0.  A request that has not ended
with its predicted tokens is predicted anew: l_e grows by the whole new prediction and b_e by 1, as if it were
one more request.  One that has ended sooner changes them by l_real - l_pred and by -1.

*Error line.*  By eqs 3 and 4, errors cost k2 l_e + c2 b_e of the time of an iteration.  So what is as bad as
the errors of worker i lies on the line alpha l + beta b + c_i = 0 with alpha = k2, beta = c2 (the same for
all workers) and c_i = -(k2 l_e + c2 b_e).  Its distance from the origin, |c_i| / sqrt(alpha^2 + beta^2), is 0
if the errors of the worker cancel out.  The sum of the distances is a constant times the sum of |c_i|, which
is exact: here it is the *imbalance*, in seconds.

*Moves.*  A new request that moves takes l_pred and 1 with it.  With w = k2 l_pred + c2, the imbalance falls
only if the worker it leaves has too much (c_i < 0), and the other one too little.  Only the limits b to e of
the one that it goes to are looked at, as things are now.  The move by which the imbalance falls most is made,
until none is left.  Where no move helps, a worker may be left with more than the limits allow: the price of
a placement made too soon.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from infermax_opt.cluster.replay.replay import Beat
from infermax_opt.placement.data.instance import PlacementGroup, PlacementInstance, Worker
from infermax_opt.placement.data.limits import Limits
from infermax_opt.placement.heuristics.place import place

__all__ = ["EstimationError", "Rebalanced", "cost_of", "rebalance"]


@dataclass(frozen=True, slots=True)
class EstimationError:
    """Errors of a worker: l_e in tokens of output, b_e in requests; above 0 where there is more to do."""

    tokens: int = 0
    requests: int = 0

    def __add__(self, other: EstimationError) -> EstimationError:
        return EstimationError(self.tokens + other.tokens, self.requests + other.requests)


def cost_of(error: EstimationError, worker: Worker) -> Fraction:
    """Seconds of an iteration that errors cost: -c_i of the worker's error line."""
    return worker.decode_context * error.tokens + worker.decode_request * error.requests


def _costs(instance: PlacementInstance, names: Iterable[str]) -> dict[str, Fraction]:
    """What requests take with them."""
    tokens = {name: instance.requests[instance.index[name]].predicted_output_tokens for name in names}
    return {name: cost_of(EstimationError(some, 1), instance.worker) for name, some in tokens.items()}


def rebalance(
    instance: PlacementInstance, first: Mapping[str, int], errors: Mapping[int, EstimationError]
) -> dict[str, int]:
    """Move new requests by Algorithm 2, steepest descent.

    Parameters
    ----------
    instance : PlacementInstance
        New requests, and the ongoing ones as they are now.
    first : mapping of str to int
        Worker of each new request in the first placement.
    errors : mapping of int to EstimationError
        Of each worker that has any.

    Returns
    -------
    dict of str to int
        Worker of each new request.  Of equal moves, the first one is made: by request, then by worker.
    """
    limits = Limits.of(instance)
    costs = _costs(instance, first)
    loads = {number: cost_of(error, instance.worker) for number, error in sorted(errors.items())}
    members: dict[int, list[int]] = {}
    chosen = dict(first)
    for name, number in first.items():
        members.setdefault(number, []).append(instance.index[name])

    def moves() -> Iterator[tuple[Fraction, str, int]]:
        for name, cost in costs.items():
            source = loads.get(chosen[name], Fraction(0))
            for number, target in loads.items():
                gain = abs(source) - abs(source - cost) + abs(target) - abs(target + cost)
                if number != chosen[name] and gain > 0:
                    yield gain, name, number

    while True:
        # Sorting is stable: of equals, the first.
        for _, name, target in sorted(moves(), key=lambda move: -move[0]):
            k, source = instance.index[name], chosen[name]
            if limits.excesses([*members.get(target, ()), k], target):
                continue
            members[source].remove(k)
            members.setdefault(target, []).append(k)
            loads[source] -= costs[name]
            loads[target] += costs[name]
            chosen[name] = target
            break
        else:
            return chosen


class Rebalanced:
    """The policy ``aladdin-rebalanced`` of one replay: best-fit by what was believed, then Algorithm 2."""

    def __init__(self) -> None:
        #: Worker and believed output tokens of the requests that were ongoing or new at the last call.
        self._believed: dict[int, tuple[int, int]] = {}

    def __call__(self, beat: Beat) -> Mapping[str, int]:
        """Choose the worker of each new request.

        Raises
        ------
        InputError
            If a request fits on no worker.
        """
        instance, errors = beat.instance, dict[int, EstimationError]()
        groups = list[PlacementGroup]()
        ongoing = set[str]()
        for group in instance.groups:
            if group.worker is None:
                groups.append(group)
                continue
            ongoing.add(group.id)
            number, tokens = self._believed[beat.stream.index[group.id]]
            if tokens < group.predicted_output_tokens:
                more = EstimationError(group.predicted_output_tokens, 1)
                errors[number] = errors.get(number, EstimationError()) + more
            groups.append(replace(group, predicted_output_tokens=tokens))
        for key, (number, tokens) in self._believed.items():
            request, served = beat.stream.requests[key], beat.served[key]
            if request.id in ongoing or request.output_tokens >= tokens:
                continue
            less = EstimationError(request.output_tokens - tokens, -1)
            errors[number] = errors.get(number, EstimationError()) + less
            spent = Fraction((served.last or 0) - (served.first or 0), beat.units.ticks_per_second)
            groups.append(
                PlacementGroup(
                    request.id, request.input_tokens, tokens, request.output_tokens, request.output_tokens,
                    spent, number,
                )
            )  # fmt: skip
        first = place(replace(instance, groups=tuple(groups)), "best-fit").workers
        # A worker that all have left is given up, not filled.
        there = instance.in_use.union(first.values())
        known = {number: error for number, error in errors.items() if number in there}
        chosen = rebalance(instance, first, known)
        self._believed = {
            beat.stream.index[r.id]: (r.worker or chosen[r.id], r.predicted_output_tokens)
            for r in instance.requests
        }
        return chosen
