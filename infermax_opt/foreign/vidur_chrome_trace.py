"""Vidur's ``chrome_trace.json``: every batch with the tokens of its requests, in microseconds.

Source: microsoft/vidur, ``vidur/entities/batch_stage.py``.  An event is a stage of a batch; its ``pid`` is
the replica, its ``tid`` the stage.  There are no arrivals, and no event where a request is evicted: one that
processes several tokens at once after it had begun to decode was restarted.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from infermax_opt.core.checks import MAX_TOKENS
from infermax_opt.core.errors import InputError
from infermax_opt.files.fields import shown
from infermax_opt.files.json_walk import JsonWalk
from infermax_opt.foreign.formats import Choices, RunFormat
from infermax_opt.foreign.head import Head
from infermax_opt.foreign.requests import ROUNDING, US, Collected, Values
from infermax_opt.foreign.restarts import Processed, refill_of
from infermax_opt.foreign.run import ForeignBatch, ForeignRequest, Run

__all__ = ["VIDUR_CHROME_TRACE"]

IDS, TOKENS = "request_ids", "num_tokens"


@dataclass
class _Batch:
    """A batch, its stages merged."""

    start: Fraction
    end: Fraction
    tokens: dict[str, int]
    where: str


class _Lengths(NamedTuple):
    """What the batches of a request show of it.

    Attributes
    ----------
    prompt, generated, restarts : int
    whole : bool
        Whether it is not in the middle of a refill.
    """

    prompt: int
    generated: int
    restarts: int
    whole: bool


def _lengths(of: Processed) -> _Lengths | None:
    """Lengths of a request by the tokens of its batches; None where they do not add up."""
    counts = of.counts
    # A decode step is a single token, so the prompt ends before the first of these.
    begin = next((k for k in range(1, len(counts)) if counts[k] == 1), len(counts))
    prompt, generated, restarts = sum(counts[:begin]), 1, 0
    k = steps = begin
    while k < len(counts):
        if counts[k] > 1:
            refill = refill_of(of, k, prompt + generated, steps)
            if refill is None:
                return None
            first, chunks = refill
            generated -= k - first
            restarts += 1 + len(chunks.restarts)
            k, steps = chunks.end, chunks.end + 1
            if k == len(counts):
                return _Lengths(prompt, generated, restarts, False)
        generated += 1
        k += 1
    return _Lengths(prompt, generated, restarts, True)


def _tokens(walk: JsonWalk, ids: list[Any], counts: list[Any]) -> dict[str, int]:
    if len(ids) != len(counts):
        walk.fault(f"holds {len(ids)} {IDS} and {len(counts)} {TOKENS}")
    if {*map(type, counts)} - {int} or not 1 <= min(counts, default=1) <= max(
        counts, default=1
    ) <= MAX_TOKENS:
        wrong = next(count for count in counts if type(count) is not int or not 1 <= count <= MAX_TOKENS)
        walk.fault(f"{TOKENS}: {shown(wrong)} is not a whole number between 1 and {MAX_TOKENS}")
    if {*map(type, ids)} - {int, str}:
        wrong = next(name for name in ids if type(name) not in (int, str))
        walk.fault(f"{IDS}: {shown(wrong)} is not a whole number or a text")
    tokens = dict(zip(map(str, ids), counts, strict=True))
    if len(tokens) < len(ids):
        walk.fault(f"{IDS}: a request is there twice")
    return tokens


def _event(walk: JsonWalk) -> dict[str, Any]:
    """What is needed of an event; its lists of requests and tokens as a mapping."""
    kept: dict[str, Any] = {}
    for key in walk.members():
        if key in ("ph", "ts", "dur", "pid", "tid"):
            kept[key] = walk.scalar()
        elif key == "args" and walk.is_object:
            ids: list[Any] | None = None
            counts: list[Any] | None = None
            for name in walk.members():
                if name == IDS:
                    ids = walk.column()
                elif name == TOKENS:
                    counts = walk.column()
                elif name == "batch_id":
                    kept[name] = walk.scalar()
            if ids is not None and counts is not None:
                kept["tokens"] = _tokens(walk, ids, counts)
    return kept


def _listed(walk: JsonWalk) -> Iterator[None]:
    """Each event: of the list under ``traceEvents``, or of a bare list, which Chrome takes, too."""
    for _ in walk.documents():
        if walk.is_list:
            for _ in walk.items():
                yield
            continue
        if not walk.is_object:
            walk.fault("is neither an object with the list 'traceEvents' nor a list of events")
        for key in walk.members():
            if key == "traceEvents":
                for _ in walk.items():
                    yield


def _events(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Events of batches, and where they stand."""
    walk = JsonWalk(path)
    for _ in _listed(walk):
        place = walk.place
        event = _event(walk)
        if event.get("ph") == "X" and "tokens" in event:
            yield place, event


def _replica(path: str, seen: set[str], choices: Choices) -> str:
    chosen = None if choices.replica is None else str(choices.replica)
    names = ", ".join([name[:40] for name in sorted(seen)][:8] + ["..."] * (len(seen) > 8))
    if chosen is None and len(seen) > 1:
        raise InputError(
            f"holds the batches of {len(seen)} replicas ({names}): choose one with --replica", source=path
        )
    if chosen is not None and chosen not in seen:
        raise InputError(
            f"is {chosen}; the file holds batches of {names or 'none'}", field="replica", source=path
        )
    return chosen or next(iter(seen), "")


def _batches(path: str, choices: Choices) -> tuple[list[_Batch], int]:
    """Batches of one replica by start, and how many stages each has."""
    found: dict[str, dict[str, _Batch]] = {}
    stages: set[str] = set()
    for place, event in _events(path):
        values = Values(path, place, event)
        start = values.time("ts", US)
        end = start + values.time("dur", US)
        stages.add(values.text("tid", "0"))
        batches = found.setdefault(values.text("pid", "0"), {})
        name = values.text("batch_id", place)
        if name not in batches:
            batches[name] = _Batch(start, end, event["tokens"], place)
            continue
        batch = batches[name]
        if batch.tokens != event["tokens"]:
            values.fault("args", f"batch {name} has other tokens than at {batch.where}")
        batch.start, batch.end = min(batch.start, start), max(batch.end, end)
    chosen = _replica(path, set(found), choices)
    if not found:
        raise InputError(
            "holds no batch (an event 'X' with args.request_ids and args.num_tokens)", source=path
        )
    ordered = sorted(found[chosen].values(), key=lambda batch: batch.start)
    if len(stages) == 1:
        _check_order(path, ordered)
    return ordered, len(stages)


def _check_order(path: str, batches: list[_Batch]) -> None:
    """Check that a machine of one stage runs one batch at a time."""
    for before, batch in itertools.pairwise(batches):
        if batch.start < before.end - ROUNDING:
            early = float(before.end - batch.start)
            problem = f"begins {early:g} s before the batch at {before.where} ends, on a machine of one stage"
            raise InputError(problem, field=batch.where, source=path)


def _requests(path: str, batches: list[_Batch], found: Collected) -> None:
    """Requests as far as batches show them."""
    # Of each, places and counts in turns: files can have millions, and two lists take twice the memory.
    seen: dict[str, list[int]] = {}
    for j, batch in enumerate(batches):
        for name, count in batch.tokens.items():
            if name in seen:
                seen[name] += (j, count)
            else:
                seen[name] = [j, count]
    for position, name in enumerate(list(seen), 1):
        # What was looked at makes room for what is kept.
        turns = seen.pop(name)
        processed = Processed(turns[::2], turns[1::2])
        lengths = _lengths(processed)
        if lengths is None:
            found.leave_out("of unclear length: the tokens after a restart do not add up")
        elif not lengths.whole:
            found.leave_out("not finished (in the middle of a refill)")
        else:
            request = ForeignRequest(
                name,
                position,
                batches[turns[0]].start,
                lengths.prompt,
                lengths.generated,
                evictions=lengths.restarts,
            )
            found.add(Values(path, f"request {name}", {}), request)


def _read(path: str, choices: Choices) -> Run:
    batches, stages = _batches(path, choices)
    found = Collected(path, "vidur-chrome-trace")
    _requests(path, batches, found)
    found.say(
        "The file has no arrivals: each request is taken to arrive when its first batch starts, which "
        "can be later than it did.",
        "Lengths are what the batches show: whether a request had more to generate when the trace ended, "
        "or whether the last part of its prompt was one token, they do not show.",
    )
    if any(request.evictions for request in found.requests):
        found.say("A prompt that was begun anew before its first token looks longer than it is.")
    if stages > 1:
        found.say(
            f"The replica has {stages} pipeline stages: a batch counts from the start of its first to the "
            "end of its last one, and batches overlap."
        )
    origin = batches[0].start
    whole = tuple(ForeignBatch(one.start - origin, one.end - origin, one.tokens) for one in batches)
    return found.run(whole)


def _known(head: Head) -> bool:
    lists = "traceEvents[]", "[]"
    return any(head.has(f"{events}.args.{IDS}", f"{events}.args.{TOKENS}") for events in lists)


VIDUR_CHROME_TRACE = RunFormat(
    "vidur-chrome-trace", "Vidur: chrome_trace.json, a whole schedule", _read, _known, ("replica",)
)
