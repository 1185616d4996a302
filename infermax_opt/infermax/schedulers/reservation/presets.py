"""Schedulers that reserve KV, by name: those of EcoServe's Table 1 and sections 2 to 4, and two of ours.

Settings follow an ``@``: ``ecoserve@padding=0.15,reserve=0.03,buffer=0.15``; see `with_settings`.
Hyphens may be written as underscores.
"""

from __future__ import annotations

from dataclasses import replace

from infermax_opt.infermax.schedulers.reservation.options import (
    Allocation,
    Order,
    ReservationOptions,
    with_settings,
)

__all__ = ["ABOUT_RESERVATION", "RESERVATION", "is_reservation", "reservation_options"]

#: Requests in a batch of ORCA, SRTF and FastServe.
BATCH = 8

_MAX = ReservationOptions(Allocation.MAX, chunked=False, cap=BATCH)
_BLOCK = ReservationOptions(Allocation.BLOCK)
_D = ReservationOptions(decoupled=True)
_SD = replace(_D, synced=True)
_SDO = replace(_SD, queue=Order.ORDERING)
_ECOSERVE = replace(_SDO, pipelined=True)

RESERVATION: dict[str, ReservationOptions] = {
    "orca": _MAX,
    "srtf": replace(_MAX, queue=Order.SRTF, preemptive=True),
    "fastserve": replace(_MAX, queue=Order.MLFQ, preemptive=True),
    "fastgen": _BLOCK,
    "multires": ReservationOptions(queue=Order.MULTIRES),
    "sync-coupled": ReservationOptions(synced=True),
    "sync-fastgen": replace(_BLOCK, synced=True),
    "ecoserve-d": _D,
    "ecoserve-sd": _SD,
    "ecoserve-sdo": _SDO,
    "ecoserve": _ECOSERVE,
    "ecoserve-oracle": replace(_ECOSERVE, oracle=True),
    "ecoserve-rehost": replace(_ECOSERVE, rehost=True),
    "srtf-block": replace(_BLOCK, queue=Order.SRTF, preemptive=True),
    "spt": replace(_BLOCK, queue=Order.SPT),
}
"""By name."""

ABOUT_RESERVATION: dict[str, str] = {
    "orca": "by arrival, 8 at a time, each reserves the longest sequence",
    "srtf": "fewest predicted tokens left first, else as orca; preempts",
    "fastserve": "five levels by tokens made, else as orca; preempts",
    "fastgen": "by arrival, chunks, KV block by block; the last comer makes room",
    "multires": "who is nearest to the compute and KV that are free; reserves its prediction",
    "sync-coupled": "groups of one predicted length, which reserve it with their prompts",
    "sync-fastgen": "the same with KV block by block",
    "ecoserve-d": "prompts fill the batch, generations the KV, in queues of their own",
    "ecoserve-sd": "the same, generations in groups of one predicted length",
    "ecoserve-sdo": "the same, both queues by deadline, KV held and length",
    "ecoserve": "the same, and guests in KV that is reserved but not used yet",
    "ecoserve-oracle": "the same with true lengths",
    "ecoserve-rehost": "ecoserve, and guests wherever and whenever there is time before the host comes",
    "srtf-block": "fewest predicted tokens left first, chunks, KV block by block",
    "spt": "least priced work left first, chunks, KV block by block",
}
"""What each does."""


def is_reservation(name: str) -> bool:
    """Whether a name, its settings aside, is one of these."""
    return _base(name) in RESERVATION


def _base(name: str) -> str:
    return name.partition("@")[0].replace("_", "-")


def reservation_options(name: str) -> ReservationOptions:
    """Options of the scheduler called `name`, with the settings in it.

    Raises
    ------
    InputError
        If a setting cannot be read.
    KeyError
        If there is no such scheduler; ask `is_reservation` before.
    """
    options = RESERVATION[_base(name)]
    _, at, settings = name.partition("@")
    return with_settings(options, settings, name) if at else options
