"""The question of prefill and decode machines apart: one pool makes first tokens, the other the rest.

A prompt is processed on a machine of the prefill pool, which makes the first token and holds the KV no
longer.  Where more tokens are to come, the KV of the prompt is transferred, each token of it in so many
seconds, beside all else: transfers do not wait for each other, and batches do not wait for them.  A machine
of the decode pool makes the other tokens, in batches that only decode.  KV that leaves a decode machine has
to come back by a transfer: these machines compute no prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from infermax_opt.core.errors import InputError
from infermax_opt.files.traces import Trace
from infermax_opt.fleet.checker.split import Apart, holds, split_hash, split_needs
from infermax_opt.fleet.machine import machine_of, machine_with
from infermax_opt.fleet.machine_types import MachineType
from infermax_opt.fleet.question import FleetQuestion, Unfit
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Policy, RequestGroup, System
from infermax_opt.infermax.data.traces import misfit

__all__ = ["ApartQuestion", "check_pools", "held_apart"]


@dataclass(frozen=True)
class ApartQuestion:
    """How many machines of either pool keep the service levels of a share of the requests.

    Parameters
    ----------
    whole : FleetQuestion
        The requests with their service levels, the share, and the machine that prefills.
    system : System
        Of the machine that decodes.
    cost : CostModel
        Of the same.
    transfer : Fraction
        Seconds for each token of KV from one to the other.
    """

    whole: FleetQuestion
    system: System
    cost: CostModel
    transfer: Fraction

    @cached_property
    def machines(self) -> Apart:
        """The machines as a certificate holds them."""
        decode = machine_with(self.system, self.cost, spreads=False, preemption=False)
        return Apart(machine_of(self.whole.workload), decode, self.transfer)

    @cached_property
    def sha256(self) -> str:
        """Hash of machines, transfer, share and requests, which a certificate of the question has, too."""
        return split_hash(self.machines, Fraction(self.whole.share), self.whole.asked)

    @cached_property
    def lost(self) -> frozenset[int]:
        """Places of the requests that never keep their limits, or fit no machine, among all."""
        return frozenset(
            k for k, asked in enumerate(self.whole.asked)
            if split_needs(self.machines, "prefill", asked, 1) is None
        )  # fmt: skip


def held_apart(whole: FleetQuestion, left_out: Sequence[Unfit], decode: System) -> tuple[FleetQuestion, int]:
    """The question of the requests that the pools can hold, and how many of all they can not.

    Some request that the prefill machine holds by itself has to be among them.

    Parameters
    ----------
    whole : FleetQuestion
        Of the requests that a prefill machine can hold until their last token, a group each; nobody is unfit.
    left_out : sequence of Unfit
        All others, with their places among all.
    decode : System
        Of the machine that decodes.
    """
    rows: list[RequestGroup | Unfit] = list(whole.workload.groups)
    for one in sorted(left_out, key=lambda one: one.place):
        rows.insert(one.place, one)
    asked = [one.request if isinstance(one, Unfit) else one for one in rows]
    room = whole.workload.system.kv_capacity, decode.kv_capacity
    fits = [holds(*room, r.input_tokens, r.output_tokens) for r in asked]
    kept = [one for one, fit in zip(rows, fits, strict=True) if fit]
    groups = tuple(one for one in kept if isinstance(one, RequestGroup))
    unfit = tuple(one._replace(place=k) for k, one in enumerate(kept) if isinstance(one, Unfit))
    workload = replace(whole.workload, groups=groups)
    return replace(whole, workload=workload, unfit=unfit), len(rows) - len(kept)


def check_pools(trace: Trace, prefill: MachineType, decode: MachineType) -> None:
    """Check that some request fits a machine of each type in turn, and the first until its last token.

    Parameters
    ----------
    trace : Trace
    prefill, decode : MachineType

    Raises
    ------
    InputError
        If none does.
    """
    room = prefill.system.kv_capacity, decode.system.kv_capacity
    fitting = (r for r in trace.requests if misfit(r, prefill.system, Policy()) is None)
    if not any(holds(*room, r.input_tokens, r.output_tokens) for r in fitting):
        problem = f"no request fits {prefill.name} to prefill and {decode.name} to decode"
        raise InputError(problem, field=f"line {trace.requests[0].line}", source=trace.path)
