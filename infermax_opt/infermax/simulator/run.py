"""Running a scheduler that is asked before each batch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from infermax_opt.core.errors import InputError
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.simulator.simulator import Simulator, Tokens

__all__ = ["Answer", "BatchScheduler", "asked_for_batches", "is_clairvoyant", "simulate"]

#: What a scheduler says: a batch, or None to wait for the next arrival.
Answer = Batch | Tokens | None

#: Batches in a row without a token, beyond as many as can fill the KV cache, before a run is given up.
PATIENCE = 1000


class BatchScheduler(Protocol):
    """A scheduler with a state of its own."""

    def batch(self, sim: Simulator) -> Answer:
        """The next batch; None waits for the next arrival."""


def asked_for_batches(scheduler: object, otherwise: bool) -> bool:
    """Whether a scheduler is asked before each batch; else it makes a whole schedule of an instance.

    One with a method `batch` is.  So is a function whose first parameter is called ``sim`` or annotated with
    `Simulator`; with ``instance`` or `Instance` it is not.

    Parameters
    ----------
    scheduler : object
    otherwise : bool
        What to say where neither holds.
    """
    if callable(getattr(scheduler, "batch", None)):
        return True
    if not callable(scheduler):
        raise InputError(f"is {scheduler!r}: neither a function nor something with a method `batch`")
    try:
        parameter = next(iter(inspect.signature(scheduler).parameters.values()), None)
    except (TypeError, ValueError):
        parameter = None
    if parameter is None:
        return otherwise
    kind = getattr(parameter.annotation, "__name__", str(parameter.annotation)).rpartition(".")[2]
    if parameter.name == "sim" or kind == Simulator.__name__:
        return True
    return otherwise and parameter.name != "instance" and kind != Instance.__name__


def is_clairvoyant(scheduler: object) -> bool:
    """Whether a scheduler asks to be shown output lengths: by its attribute `clairvoyant`."""
    return bool(getattr(scheduler, "clairvoyant", False))


def simulate(
    instance: Instance, scheduler: Callable[[Simulator], Answer] | BatchScheduler | type[BatchScheduler]
) -> Schedule:
    """Let a scheduler say one batch after the other until every request is served.

    Parameters
    ----------
    instance : Instance
    scheduler : callable, object or class
        A function of the `Simulator`; or what has such a method, called `batch`.  A class is instantiated for
        this run.  With an attribute ``clairvoyant = True`` it is shown output lengths.

    Returns
    -------
    Schedule

    Raises
    ------
    BrokenRule
        If a batch breaks a rule.
    InputError
        If it says something else than a batch, or never ends.
    """
    sim = Simulator(instance, clairvoyant=is_clairvoyant(scheduler))
    made: Any = scheduler() if inspect.isclass(scheduler) else scheduler
    ask = getattr(made, "batch", made)
    if not callable(ask):
        raise InputError(f"class {type(made).__name__} has no method `batch`")
    most = instance.system.kv_capacity + PATIENCE
    while not sim.done:
        batch = ask(sim)
        if not _is_nothing(sim, batch):
            sim.step(batch)
        elif not _waited(sim):
            break
        if sim.fruitless > most:
            raise _stuck(sim, f"no token was generated in the last {sim.fruitless} batches")
    return sim.schedule()


def _waited(sim: Simulator) -> bool:
    """Let a simulator wait for the next arrival; False where there is none and nobody has to be served."""
    try:
        sim.wait()
    except InputError as error:
        if all(request.optional for request in (*sim.waiting, *sim.running)):
            return False
        raise _stuck(sim, f"it waits, but {error}") from None
    return True


def _is_nothing(sim: Simulator, batch: object) -> bool:
    """Whether a scheduler wants to wait: its batch processes nothing and evicts nobody."""
    if isinstance(batch, Batch):
        return not (batch.tokens or batch.evict or (batch.decode_all and sim.decoding))
    return batch is None or (isinstance(batch, Mapping) and not batch)


def _stuck(sim: Simulator, why: str) -> InputError:
    left = [request for request in (*sim.running, *sim.waiting) if not request.optional]
    more = f" and {len(left) - 1} more are" if len(left) > 1 else " is"
    where = f"at {float(sim.now):g} s, after {sim.batches} batches"
    return InputError(f"never ends: {where}, {why}; request {left[0].id!r}{more} unfinished")
