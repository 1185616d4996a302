"""The contract of a formulation, and how formulations are found.

A formulation turns an instance into a Pyomo model whose objective is that of the instance, the
makespan or another one, in integer ticks.  Formulations are found through the entry points of group
``infermax_opt.models`` and never imported by name, so that a package of one's own can add one.

Two promises make a model usable by every engine: all coefficients are integers, and fixing the
integer variables leaves the continuous ones integral at an optimum (an engine may treat every
column as an integer).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from infermax_opt.core.result import Scope
from infermax_opt.engines.formulations import load_formulation
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.replay.state import State

if TYPE_CHECKING:
    from pyomo.core import ConcreteModel

__all__ = [
    "EXTRA",
    "Formulation",
    "Move",
    "get_formulation",
    "refusal",
    "trajectory",
]

GROUP = "infermax_opt.models"


#: Why every exact engine refuses an instance that pays for mixing.
EXTRA = "batches take longer than the terms say that it knows (cost.mixed, cost.prefix)"


class Formulation(Protocol):
    """A mathematical model of the scheduling problem.

    Every verified schedule of at most `horizon` batches can be set into the model with
    `warm_start`, if it waits no longer than it has to (`with_best_waits`); it then satisfies every
    constraint, the objective equals the replayed one in ticks, and `extract` gives the schedule back
    (up to the names of identical requests).  One may also have ``meaning``
    (`infermax_opt.engines.formulations.ScheduleModel`).
    """

    @property
    def name(self) -> str:
        """Name under which it is found."""
        ...

    def unsupported(self, instance: Instance) -> str | None:
        """Why `instance` cannot be modelled; None if it can."""
        ...

    def columns(self, instance: Instance, horizon: int) -> int:
        """Estimate the number of columns, without building the model."""
        ...

    def build(self, instance: Instance, horizon: int) -> ConcreteModel:
        """Model of all schedules with at most `horizon` batches.

        The model carries ``ticks_per_second``: so many units of its objective are one of the
        instance's, a second of the makespan or of a mean latency.
        """
        ...

    def warm_start(self, model: ConcreteModel, schedule: Schedule) -> None:
        """Set every variable to what `schedule` does.

        Raises
        ------
        ValueError
            If the schedule has too many batches, or takes a decision that the model left out.
        """
        ...

    def extract(self, model: ConcreteModel) -> Schedule:
        """Read the schedule from the variables; batches in which nothing happens are left out."""
        ...

    def scope(self, instance: Instance, horizon: int, proved: int | None) -> Scope:
        """What the numbers are good for.

        Parameters
        ----------
        instance : Instance
        horizon : int
            Batches of the model.
        proved : int or None
            `infermax_opt.infermax.bounds.most_batches.proved_batches`.
        """
        ...


def get_formulation(name: str) -> Formulation:
    """Load a formulation of InferMax instances by name; see `load_formulation`."""
    formulation: Formulation = load_formulation(name, GROUP)
    return formulation


def refusal(formulation: Formulation, instance: Instance) -> str | None:
    """Why a formulation cannot model `instance`; None if it can.

    No formulation, also of another package, has a variable for what bounds leave out of a batch's time.
    """
    if instance.release is not None:
        return "has no closed loop"
    return EXTRA if instance.pays_extra else formulation.unsupported(instance)


class Move(NamedTuple):
    """What one request does in one batch.

    Attributes
    ----------
    cached, generated : int
        m and n before the batch (before its evictions); a finished request caches nothing.
    tokens : int
        c; 0 where it is idle.
    evicted, decodes, generates : bool
    held : int
        m after the processing of the batch, a finishing request's included.
    """

    cached: int
    generated: int
    tokens: int
    evicted: bool
    decodes: bool
    generates: bool
    held: int


def trajectory(instance: Instance, schedule: Schedule) -> list[list[Move]]:
    """What every request does in every batch of a valid schedule, shorthands resolved."""
    state = State(instance)
    count = len(instance.requests)
    batches: list[list[Move]] = []
    for batch in schedule.batches:
        for opening in (True, *(False for _ in range(batch.repeat - 1))):
            evicted = {instance.index[name] for name in batch.evict} if opening else set()
            chosen = {instance.index[name]: tokens for name, tokens in batch.tokens.items()}
            if batch.decode_all:
                for i in range(count):
                    if state.decoding(i) and i not in evicted:
                        chosen.setdefault(i, 1)
            batches.append([_move(state, i, chosen.get(i, 0), i in evicted) for i in range(count)])
    return batches


def _move(state: State, i: int, tokens: int, evicted: bool) -> Move:
    cached, generated = state.cached[i], state.generated[i]
    decodes = tokens > 0 and state.decoding(i)
    generates = tokens > 0 and tokens == state.missing(i)
    held = 0 if evicted else cached + tokens
    state.generated[i] += generates
    state.set_cached(i, 0 if state.finished(i) else held)
    return Move(cached, generated, tokens, evicted, decodes, generates, held)
