"""Columns of requests and machines that are dispatched, as the kernel of this room takes them."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = [
    "ARRIVED", "BATCHES", "BEGUN", "COUNTERS", "DECODES", "ENTRIES", "NOTES", "PASSED", "PROMPTS", "READ",
    "TO_COME", "USED", "WAITING", "Fleet", "Jobs", "Limits", "Log",
]  # fmt: skip

# Columns of `Fleet.count`: requests that decode; that have a prompt; KV reserved; KV that decodes read;
# prompt tokens to come; tokens of all prompts that have not ended; 1 for who was asked already.
DECODES, PROMPTS, USED, READ, TO_COME, BEGUN, PASSED = range(7)
COUNTERS = 7
# Columns of `Log.count`: batches, and prompts in them; requests in the queue, and those that have arrived.
BATCHES, ENTRIES, WAITING, ARRIVED = range(4)
NOTES = 4


class Limits(NamedTuple):
    """The machine, and how it is run.

    `capacity`, `tokens`, `prefill`, `running`, `block`: limits of a batch and of the KV; `exact`: how
    attention work counts; `chunk`: most tokens of one prompt in a batch; `hold`: whether first tokens wait
    until others come with them; `shed`: share of their time in which machines run prompts, as a guess by
    which the longest requests are refused while there are too many; 0: none are; `promise`: whether machines
    take requests as they arrive, rather than from a queue; `joined`: share of alpha that a batch more is
    taken to cost where a request is placed, as others will join it; `until`: moment before which machines
    that take requests as they arrive begin batches after the last of these, infinite to serve all.
    """

    capacity: Any
    tokens: Any
    prefill: Any
    running: Any
    block: Any
    exact: Any
    chunk: Any
    hold: Any
    shed: Any
    promise: Any
    joined: Any
    until: Any


class Jobs(NamedTuple):
    """Columns of requests; `order`: by arrival; `among`: of how many machines, the first ones, one takes it.

    `first_due`, `last_due`: float seconds of the trace; `tpot`: float seconds; `done`: prompt tokens
    processed; `made`: output tokens; `route`: its machine or -1; `first` and `last`: when these tokens came.
    """

    inputs: Any
    outputs: Any
    arrival: Any
    order: Any
    among: Any
    first_due: Any
    last_due: Any
    tpot: Any
    done: Any
    made: Any
    route: Any
    first: Any
    last: Any


class Fleet(NamedTuple):
    """Rows of machines: who decodes, who has a prompt, counters, clocks; the queue; parts of a batch.

    The first three have a row more, for a machine that rehearses.
    """

    decoding: Any
    prompts: Any
    count: Any
    clock: Any
    waiting: Any
    part: Any
    chunk: Any


class Log(NamedTuple):
    """Batches as they come: machine, who has just arrived or -1, end of its prompts; prompts and tokens.

    Without rows batches are only counted.
    """

    count: Any
    machine: Any
    start: Any
    end: Any
    named: Any
    tokens: Any
