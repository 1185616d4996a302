"""Labels of the search, and which of them can be dropped.

*What a schedule costs.*  The objective is, up to a constant, the time spent in every state times the rate
of that state (`objective_rates.Rates`).  Take the batches of a schedule as given, batch j running for d_j
in a state of rate r_j, and let x_j >= 0 be the wait before it.  The cost is the sum of r_j (d_j + x_j).
Batch j needs x_1 + ... + x_j >= w_j, its members' latest arrival less the time of the batches before it.

*Waits.*  Let W_j be the maximum of w_1, ..., w_j and 0.  In any feasible x, the seconds of waiting from
W_(j-1) to W_j lie before some batch i <= j and cost r_i each, so at least min(r_1, ..., r_j).  Placing
all of them where that minimum is attained is feasible: later batches only move to later times.  So the
least cost charges every wait, when a batch demands it, at the *least rate so far*, the present state
included.  Without TPOT in the objective rates never rise, and that place is just before the batch.

*Labels.*  Hence a label is a state with its time t, cost c and least rate so far m; the next batch starts
at the maximum of t and its members' arrivals.  Let T be the latest arrival among the unfinished requests
of the state: from T on nothing waits, and m may be taken as 0.  Of two labels A and B of one state, A
*dominates* B if ::

    c_A + m_A * max(0, s - t_A) <= c_B      with s = T where m_A > m_B, and s = min(t_B, T) elsewhere.

*Proof.*  Let A wait until s, at its least rate so far; what that costs is on the left.  Now run the
batches of any continuation of B.  If m_A > m_B the time is T or later, so A waits no more and pays for
batches what B pays.  Otherwise A is no earlier than B, or both are at T or later.  Before every further
batch the same holds by induction, as both then run the same batches: A waits no more seconds than B, and
pays for a second no more, as its least rate was no higher and the states from here on are the same.
So the continuation costs A no more, and A leads to a schedule that is no dearer.  What is dropped for A
stays covered when A itself is dropped: the better label covers all that A does.

Offline T is 0, and costs alone decide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from infermax_opt.infermax.exact.moves import Load, State

__all__ = ["Cheapest", "Front", "Label", "Labels", "dominates"]


@dataclass(slots=True)
class Label:
    """A way to reach a state.

    Attributes
    ----------
    state : State
    cost : int
        Scaled.
    time : int
        End of its last batch, in the search's unit.
    least : int
        Least rate so far, that of `state` included; 0 once nothing needs to wait.
    parent : Label or None
    wait : int
        Time waited for the last batch, in the search's unit.
    load : Load or None
        What the last batch did.
    dead : bool
        Whether another label has made this one needless.
    """

    state: State
    cost: int
    time: int
    least: int
    parent: Label | None = None
    wait: int = 0
    load: Load | None = None
    dead: bool = False


class Labels(Protocol):
    """The labels of all states that still matter."""

    def admit(self, label: Label) -> bool:
        """Take a label in unless a known one dominates it; mark those that it dominates as dead."""


class Cheapest:
    """Labels offline: the cheapest one of each state."""

    def __init__(self) -> None:
        self.best: dict[State, Label] = {}

    def admit(self, label: Label) -> bool:
        """See `Labels`."""
        rival = self.best.get(label.state)
        if rival is not None:
            if rival.cost <= label.cost:
                return False
            rival.dead = True
        self.best[label.state] = label
        return True


class Front:
    """Labels with arrivals: those of each state that no other dominates.

    Parameters
    ----------
    latest : callable
        Latest arrival among the requests of a state.
    """

    def __init__(self, latest: Callable[[State], int]):
        self.latest = latest
        self.fronts: dict[State, tuple[int, list[Label]]] = {}

    def admit(self, label: Label) -> bool:
        """See `Labels`."""
        known = self.fronts.get(label.state)
        if known is None:
            self.fronts[label.state] = self.latest(label.state), [label]
            return True
        latest, rivals = known
        for rival in rivals:
            if dominates(rival, label, latest):
                return False
        kept = [label]
        for rival in rivals:
            if dominates(label, rival, latest):
                rival.dead = True
            else:
                kept.append(rival)
        self.fronts[label.state] = latest, kept
        return True


def dominates(one: Label, other: Label, latest: int) -> bool:
    """Whether every continuation of `other` costs `one` no more, both being of the same state.

    Parameters
    ----------
    one, other : Label
    latest : int
        Latest arrival among the requests of the state.
    """
    if one.cost > other.cost:
        return False
    until = latest if one.least > other.least else min(other.time, latest)
    return until <= one.time or one.cost + one.least * (until - one.time) <= other.cost
