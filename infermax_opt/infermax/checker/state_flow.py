"""Proof: state flow, by potentials on the sets of requests in memory."""

from __future__ import annotations

from itertools import accumulate, groupby
from typing import Any, NamedTuple

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.checking.work import Work
from infermax_opt.infermax.checker.instance import Instance, Kinds
from infermax_opt.infermax.checker.payments import Payments, payments
from infermax_opt.infermax.checker.pieces import FAR, Piece


class Element(NamedTuple):
    """A request in memory: its kind, with n tokens, `size` of KV with the next; `last`: with all."""

    kind: int
    n: int
    size: int
    last: bool


#: Numbers of the elements in memory, in order.
State = tuple[int, ...]


def state_flow(instance: Instance, evidence: Field, piece: Piece) -> Payments:
    """No step among the states of requests in memory earns more than it costs, by the potentials.

    So a schedule costs at least what first tokens earn by the prices
    (`infermax_opt.infermax.bounds.state_flow`).

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    groups = groupby(sorted(instance.since()), lambda kind: kind[:2])
    kinds = [(i, o, sum(c for *_, c in same)) for (i, o), same in groups]
    given, prices = evidence["potential"].integers(nulls=True), evidence["prices"]
    most = min(sum(c for *_, c in kinds), instance.capacity // kinds[0][0], instance.running or 10**18)
    require(most >= 1, "potential: there is no state, as no request fits")
    require(sum(o for _, o, _ in kinds) < len(given) <= 10**7 // most, "potential: too many states")
    require(given[0] is not None, "potential: the empty state has none")
    first = prices["first"].integers(len(kinds))
    rows = zip(kinds, prices["out"].items(len(kinds)), strict=True)
    out = [row.integers(o - 1) for (_, o, _), row in rows]
    elements = [Element(k, n, i + n, n == o) for k, (i, o, _) in enumerate(kinds) for n in range(o + 1)]
    states = list_states(instance, kinds, elements, most, len(given))
    require(len(states) == len(given), "potential: wrong number of states")
    between = {state: FAR if v is None else v for state, v in zip(states, given, strict=True)}
    costs = Costs(instance, piece, elements, first, out)
    check_states(elements, between, costs, instance.work)
    return payments(instance, kinds, first, piece)


def list_states(
    instance: Instance, kinds: Kinds, elements: list[Element], most: int, expected: int
) -> list[State]:
    """All sets of requests that memory holds until their next tokens, smallest first, then in order.

    Parameters
    ----------
    instance : Instance
    kinds : Kinds
        Kinds of requests.
    elements : list[Element]
        Of the states.
    most : int
        Requests in memory at most.
    expected : int
        States that the certificate has.
    """
    starts = [0, *accumulate(o + 1 for _, o, _ in kinds)]
    states: list[State] = [()]
    for state in states:
        largest = elements[state[-1]].kind if state else 0
        instance.work.spend(10 + 2 * len(state) + 5 * (len(kinds) - largest))
        free = instance.capacity - sum(elements[x].size - 1 for x in state)
        for k in range(largest, len(kinds) if len(state) < most else 0):
            i, o, count = kinds[k]
            if len(state) >= count and elements[state[-count]].kind == k:
                continue  # all of them are in memory
            begin = max(state[-1] if state else 0, starts[k])
            fitting = starts[k] + min(o, free + 1 - i)
            states += [(*state, x) for x in range(begin, fitting + 1)]
        require(len(states) <= expected, "potential: too few states")
    return states


class Costs:
    """Units of the steps, by element: to leave, to enter a batch with decodes, and to enter one without.

    FAR is what cannot be: only requests that have all their tokens leave, unless there are evictions.
    """

    def __init__(
        self,
        instance: Instance,
        piece: Piece,
        elements: list[Element],
        first: list[int],
        out: list[list[int]],
    ):
        self.plain, self.mixed, self.pure, rho = instance.presence(piece)
        self.leave: list[Any] = [0 if some.last else FAR for some in elements]
        self.admit: list[Any] = [FAR if some.n else -first[some.kind] for some in elements]
        self.enter: list[Any] = [-first[some.kind] if some.n == 1 else FAR for some in elements]
        for x, some in enumerate(elements):
            if instance.preemption and some.n > 0 and not some.last:
                self.leave[x] = out[some.kind][some.n - 1]
                self._come_back(x, rho * (some.size - 1) - self.leave[x], instance.chunked)

    def _come_back(self, x: int, pay: int, chunked: bool) -> None:
        """Let an element come into a batch in which it makes a token; with chunks also one token short."""
        self.admit[x], self.enter[x + 1] = min(self.admit[x], pay), min(self.enter[x + 1], pay)
        if chunked:
            self.admit[x - 1], self.enter[x] = min(self.admit[x - 1], pay), min(self.enter[x], pay)


def check_states(elements: list[Element], between: dict[State, Any], costs: Costs, work: Work) -> None:
    """No finish, eviction, idling or batch earns, from any state.

    Parameters
    ----------
    elements : list[Element]
        Of the states.
    between : dict[State, Any]
    costs : Costs
    work : Work
        Counts the steps.
    """
    admitted, alone = dict.fromkeys(between, FAR), dict.fromkeys(between, FAR)
    for state, here in between.items():
        distinct = set(state)
        work.spend(10 + len(state) + len(distinct) * (20 + len(state) // 4))
        for x in distinct:
            some, at = elements[x], state.index(x)
            rest = state[:at] + state[at + 1 :]
            for layer, enter in ((admitted, costs.admit), (alone, costs.enter)):
                layer[state] = min(layer[state], min(between[rest], layer[rest]) + enter[x])
            require(between[rest] <= here + costs.leave[x], "potential: finishing or an eviction earns")
            if some.n and not some.last:
                idle = (*state[:at], x - 1, *state[at + 1 :])
                require(between[idle] <= here, "potential: idling earns")
        require(here <= alone[state] + costs.pure, "potential: a prefill batch earns")
        after = tuple([x + 1 for x in state if not elements[x].last])  # no state if there is no room
        if len(after) == len(state):
            least = min(here + costs.plain, admitted[state] + costs.mixed)
            require(between.get(after, -FAR) <= least, "potential: a batch earns")
