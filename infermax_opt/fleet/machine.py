"""The machine of an instance as the checker of certificates takes it."""

from __future__ import annotations

from typing import Any

from infermax_opt.fleet.checker.machine import Machine
from infermax_opt.infermax.bounds.least_work import spreads
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, System

__all__ = ["machine_of", "machine_to_json", "machine_with"]


def machine_of(instance: Instance) -> Machine:
    """Coefficients and limits of the machine, in ticks; terms that only add time are left out."""
    return machine_with(
        instance.system, instance.cost, spreads=spreads(instance), preemption=instance.policy.preemption
    )


def machine_with(system: System, cost: CostModel, *, spreads: bool, preemption: bool) -> Machine:
    """The same of a machine that has no instance.

    Parameters
    ----------
    system : System
    cost : CostModel
    spreads : bool
        Chunks save attention work.
    preemption : bool
        What was cached may be dropped and computed again.
    """
    ticks = cost.ticks
    return Machine(
        ticks_per_second=cost.ticks_per_second,
        alpha=tuple(ticks.alpha), beta=tuple(ticks.beta),
        d0=ticks.d0, d1=ticks.d1, p0=ticks.p0, p1=ticks.p1,
        kv=system.kv_capacity, tokens=system.max_batch_tokens, prefill=system.prefill_budget,
        running=system.max_running or 0,
        spreads=spreads, preemption=preemption,
    )  # fmt: skip


def machine_to_json(machine: Machine) -> dict[str, Any]:
    """The machine as a certificate holds it."""
    pairs = machine._asdict().items()
    return {key: list(value) if isinstance(value, tuple) else value for key, value in pairs}
