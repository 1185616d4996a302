"""The question of prefill and decode machines apart: one pool makes first tokens, the other the rest.

A prompt is processed on a machine of the prefill pool, which makes the first token and holds the KV no
longer.  Where more tokens are to come, the KV of the prompt is transferred, each token of it in so many
seconds, beside all else: transfers do not wait for each other, and batches do not wait for them.  A machine
of the decode pool makes the other tokens, in batches that only decode.  KV that leaves a decode machine has
to come back by a transfer: these machines compute no prompts.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from infermax_opt.fleet.checker.split import Apart, split_hash, split_needs
from infermax_opt.fleet.machine import machine_of, machine_with
from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import System

__all__ = ["ApartQuestion"]


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
