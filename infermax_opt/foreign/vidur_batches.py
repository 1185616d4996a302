"""Batches of Vidur's ``chrome_trace.json``, and what they show of requests; times in microseconds.

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

import numpy as np
from numpy.typing import NDArray

from infermax_opt.core.checks import MAX_TOKENS
from infermax_opt.core.errors import InputError
from infermax_opt.files.fields import shown
from infermax_opt.files.json_walk import JsonWalk
from infermax_opt.foreign.batch_tokens import BatchTokens
from infermax_opt.foreign.columns import Times
from infermax_opt.foreign.formats import Choices
from infermax_opt.foreign.names import codes_of, joined_names, listed, names_of
from infermax_opt.foreign.requests import ROUNDING, US, Collected, Values
from infermax_opt.foreign.restarts import Processed, refill_of
from infermax_opt.foreign.run import ForeignBatch, Run
from infermax_opt.foreign.run_columns import RequestColumns

__all__ = ["read_batches"]

IDS, TOKENS = "request_ids", "num_tokens"


@dataclass
class _Batch:
    """A batch, its stages merged."""

    start: Fraction
    end: Fraction
    tokens: BatchTokens
    where: str


class _Lengths(NamedTuple):
    """What the batches of a request show of it beside its prompt.

    Attributes
    ----------
    generated, restarts : int
    whole : bool
        Whether it is not in the middle of a refill.
    """

    generated: int
    restarts: int
    whole: bool


def _lengths(of: Processed, begin: int, prompt: int) -> _Lengths | None:
    """Lengths of a request that was restarted; None where the tokens of its batches do not add up.

    Parameters
    ----------
    of : Processed
    begin : int
        Position of its first decode step.
    prompt : int
        Its tokens before.
    """
    counts = of.counts
    generated, restarts = 1, 0
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
                return _Lengths(generated, restarts, False)
        generated += 1
        k += 1
    return _Lengths(generated, restarts, True)


def _tokens(walk: JsonWalk, ids: list[Any], counts: list[Any]) -> BatchTokens:
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
    names = names_of(ids)
    if len({*names.tolist()}) < len(ids):
        walk.fault(f"{IDS}: a request is there twice")
    return BatchTokens(names, np.array(counts, dtype=np.int32))


def _event(walk: JsonWalk) -> dict[str, Any]:
    """What is needed of an event; its lists of requests and tokens as one."""
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
    names = listed(seen)
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


@dataclass
class _Shown:
    """What batches show of their requests, in the order of these; of each, its batches are in a row.

    Attributes
    ----------
    names : array of int or of str
    starts, ends : array of int
        Where its batches begin and end in `places` and `counts`.
    places, counts : array of int
        Batches, and tokens in each.
    """

    names: NDArray[Any]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    places: NDArray[np.int32]
    counts: NDArray[np.int32]


def _shown(batches: list[_Batch]) -> _Shown:
    """Batches by request, in the order in which these are seen first."""
    names = joined_names([batch.tokens.names for batch in batches])
    codes = codes_of(names)
    order = np.argsort(codes, kind="stable")
    codes = codes[order]
    starts = np.flatnonzero(np.diff(codes, prepend=codes[:1] - 1))
    ends = np.append(starts, len(codes))[1:]
    seen = np.argsort(order[starts])
    sizes = [len(batch.tokens) for batch in batches]
    places = np.repeat(np.arange(len(batches), dtype=np.int32), sizes)[order]
    counts = np.concatenate([batch.tokens.counts for batch in batches])[order]
    return _Shown(names[order[starts[seen]]], starts[seen], ends[seen], places, counts)


def _requests(batches: list[_Batch], found: Collected) -> RequestColumns:
    """Requests as far as batches show them."""
    shown = _shown(batches)
    starts, ends, counts = shown.starts, shown.ends, shown.counts
    # A decode step is a single token, so the prompt ends before the first of these.
    single = counts == 1
    single[starts] = False
    steps = np.append(np.flatnonzero(single), len(counts))
    begins = np.minimum(steps[np.searchsorted(steps, starts)], ends)
    totals = np.append(0, np.cumsum(counts, dtype=np.int64))
    prompts, generated = totals[begins] - totals[starts], ends - begins + 1
    evictions, kept = np.zeros(len(starts), dtype=np.int64), np.ones(len(starts), dtype=bool)
    # One that processes more than single tokens afterwards was restarted.
    for k in np.flatnonzero(totals[ends] - totals[begins] > ends - begins).tolist():
        own = slice(starts[k], ends[k])
        processed = Processed(shown.places[own].tolist(), counts[own].tolist())
        lengths = _lengths(processed, int(begins[k] - starts[k]), int(prompts[k]))
        if lengths is None:
            found.leave_out("of unclear length: the tokens after a restart do not add up")
        elif not lengths.whole:
            found.leave_out("not finished (in the middle of a refill)")
        else:
            generated[k], evictions[k] = lengths.generated, lengths.restarts
        kept[k] = lengths is not None and lengths.whole
    unknown = np.zeros(len(starts), dtype=bool)
    columns = RequestColumns(
        names=shown.names,
        lines=np.arange(1, len(starts) + 1),
        # Counted from the first one here, where there are fewer batches than requests.
        arrivals=Times.of([batch.start - batches[0].start for batch in batches]).take(shown.places[starts]),
        inputs=prompts,
        outputs=generated,
        ttft=Times.zero(len(starts)),
        streamed=unknown,
        e2e=Times.zero(len(starts)),
        ended=unknown,
        evictions=evictions,
        cached=np.full(len(starts), -1),
    )
    return found.ordered(columns.of(kept))


def read_batches(path: str, choices: Choices) -> Run:
    """Read a run.

    Raises
    ------
    InputError
        Naming the place.
    """
    batches, stages = _batches(path, choices)
    found = Collected(path, "vidur-chrome-trace")
    requests = _requests(batches, found)
    found.say(
        "The file has no arrivals: each request is taken to arrive when its first batch starts, which "
        "can be later than it did.",
        "Lengths are what the batches show: whether a request had more to generate when the trace ended, "
        "or whether the last part of its prompt was one token, they do not show.",
    )
    if requests.evictions.any():
        found.say("A prompt that was begun anew before its first token looks longer than it is.")
    if stages > 1:
        found.say(
            f"The replica has {stages} pipeline stages: a batch counts from the start of its first to the "
            "end of its last one, and batches overlap."
        )
    origin = batches[0].start
    whole = tuple(ForeignBatch(one.start - origin, one.end - origin, one.tokens) for one in batches)
    return found.made(requests, whole)
