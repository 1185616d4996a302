"""Schedules of other systems, rebuilt from their batches.

A file of batches says which tokens of each request were processed, and when.  It does not say where the KV
of a request was dropped: `infermax_opt.foreign.vidur_restarts` finds that out with the lengths of the
instance by Vidur's own rule, where that does not fit `infermax_opt.foreign.known_lengths` without one, and
where a request is not finished, `infermax_opt.foreign.restarts` from batch to batch.  It is
evicted in the batch after the last one that held it, as early as can be: no other point leaves more KV to the
others.  Where no batch lies between, one is put there that only evicts.

A batch waits for the arrival of its requests, and where the other system idled, as long as it did.  Nothing
else is taken from the clock of the other system: times come from replay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate, chain, pairwise
from typing import NamedTuple

from infermax_opt.core.errors import InputError
from infermax_opt.files.text import counted
from infermax_opt.foreign.known_lengths import Reading, Stretch, reading_of
from infermax_opt.foreign.restarts import Chunks, Processed, chunks_of, refill_of
from infermax_opt.foreign.run import ForeignBatch, Run
from infermax_opt.foreign.vidur_restarts import vidur_reading
from infermax_opt.infermax.data.instance import Instance, Request
from infermax_opt.infermax.data.objective import Metric
from infermax_opt.infermax.data.schedule import MAX_BATCHES, Batch, Schedule, run_length

__all__ = ["own_times", "schedule_of_run"]

#: Seconds between two batches that are no idling: times in files are rounded one by one.
ROUNDING = Fraction(1, 10**6)


@dataclass
class _Rebuilt:
    """What a batch becomes.

    Attributes
    ----------
    prefills : dict of request id to int
        Tokens of requests that are not in decode.
    decodes : list of str
        Requests that process their one token.
    evict : list of str
    cleared : list of str
        Requests that must be evicted before it, where no batch of the other system lies between.
    """

    prefills: dict[str, int] = field(default_factory=dict)
    decodes: list[str] = field(default_factory=list)
    evict: list[str] = field(default_factory=list)
    cleared: list[str] = field(default_factory=list)


class _One(NamedTuple):
    """A request, its name in the run and what it processed there."""

    request: Request
    name: str
    of: Processed


def _matched(run: Run, batches: Sequence[ForeignBatch], instance: Instance) -> dict[str, int]:
    """Positions of the instance's requests by the names of the run, both by arrival."""
    names = list(dict.fromkeys(chain.from_iterable(batch.tokens for batch in batches)))
    if all(name.isascii() and name.isdigit() for name in names):
        # They are numbered as they arrive.
        names.sort(key=int)
    if len(names) != len(instance.requests):
        raise InputError(
            f"holds {len(names)} requests, instance {instance.name!r} {len(instance.requests)}",
            source=run.path,
        )
    requests = instance.requests
    order = sorted(range(len(requests)), key=lambda k: requests[k].arrival)
    return dict(zip(names, order, strict=True))


def _full(batches: Sequence[ForeignBatch]) -> list[bool]:
    """Whether a batch has as many tokens as any with a chunk of several; decodes alone may be more."""
    totals = [sum(batch.tokens.values()) for batch in batches]
    most = max(
        (total for total, batch in zip(totals, batches, strict=True) if total > len(batch.tokens)), default=0
    )
    return [total == most for total in totals]


def own_times(run: Run, instance: Instance) -> dict[Metric, Fraction]:
    """Makespan and mean end-to-end latency of a run by its own clock, s.

    Its clock is set so that the first batch is as early as can be: no request is in a batch before it
    arrives.  On a machine whose batches take as long as those of the run, these batches are a schedule in
    which requests end then.  So where no schedule ends as early, the batches of the run are faster than the
    machine's.

    Parameters
    ----------
    run : Run
        With batches.
    instance : Instance
        Its requests are those of the run, matched as by `schedule_of_run`.

    Returns
    -------
    dict of Metric to Fraction
        Empty where a request is not finished: what it processed since any restart is not what it needs.

    Raises
    ------
    InputError
        If the numbers of requests differ.
    """
    batches = run.batches or ()
    matched = {name: instance.requests[i] for name, i in _matched(run, batches, instance).items()}
    left = {name: one.input_tokens + one.output_tokens - 1 for name, one in matched.items()}
    first, last = dict[str, Fraction](), dict[str, Fraction]()
    for batch in reversed(batches):
        for name, count in batch.tokens.items():
            first[name] = batch.start
            last.setdefault(name, batch.end)
            left[name] -= count if left[name] > 0 else 0
    if not matched or any(left.values()):
        return {}
    shift = max(one.arrival - first[name] for name, one in matched.items())
    total = sum((last[name] - one.arrival for name, one in matched.items()), Fraction(0))
    makespan = shift + max(batch.end for batch in batches)
    return {Metric.MAKESPAN: makespan, Metric.MEAN_E2E: shift + total / len(matched)}


def _readings(everybody: Sequence[_One], full: Sequence[bool]) -> dict[str, Reading | None]:
    """What each request did, by name; by Vidur's rule if it fits all whose batches can be read at all."""
    found: dict[str, Reading | None] = {}
    for one in everybody:
        lengths = one.request.input_tokens, one.request.output_tokens
        found[one.name] = vidur_reading(one.of, [full[j] for j in one.of.places], *lengths)
        if found[one.name] is None and reading_of(one.of, *lengths) is not None:
            return {
                each.name: reading_of(each.of, each.request.input_tokens, each.request.output_tokens)
                for each in everybody
            }
    return found


class _Rebuilding:
    """Follows each request of an instance through batches of another system.

    Parameters
    ----------
    run : Run
    instance : Instance
    """

    def __init__(self, run: Run, instance: Instance):
        batches = run.batches
        if not batches:
            raise InputError("holds no batches: a schedule cannot be rebuilt of it", source=run.path)
        if len(batches) > MAX_BATCHES:
            raise InputError(f"holds more than {MAX_BATCHES} batches", source=run.path)
        self.run, self.instance, self.given = run, instance, batches
        self.position = _matched(run, batches, instance)
        self.rebuilt = [_Rebuilt() for _ in batches]
        self.readings: dict[str, Reading | None] = {}
        # By how much the number of requests in decode changes before each batch.
        self.changes = [0] * (len(batches) + 1)
        # Requests whose batches can be read in several ways.
        self.doubtful = 0

    def fault(self, one: _One, k: int, problem: str) -> InputError:
        """The error that a request cannot do in its batch `k` what the file says."""
        return InputError(
            f"request {one.name} (that is {one.request.id!r}) {problem}",
            field=f"batch {one.of.places[k] + 1}",
            source=self.run.path,
        )

    def evict(self, request: Request, last: int, j: int, decoding: bool) -> None:
        """Evict a request after batch `last`, its latest, and before batch `j`, its next."""
        if last + 1 < j:
            self.rebuilt[last + 1].evict.append(request.id)
        else:
            self.rebuilt[j].cleared.append(request.id)
        self.changes[last + 1] -= decoding

    def write(self, one: _One, k: int, n: int, found: Chunks) -> None:
        """Write the prompt or the refill of a request that begins with its batch `k` after `n` tokens.

        Parameters
        ----------
        one : _One
        k, n : int
        found : Chunks
        """
        again = set(found.restarts)
        needed = missing = one.request.input_tokens + n
        for at in range(k, min(found.end + 1, len(one.of.counts))):
            j = one.of.places[at]
            if at in again:
                self.evict(one.request, one.of.places[at - 1], j, n > 0 and missing == 1)
                missing = needed
            if n and missing == 1:
                self.rebuilt[j].decodes.append(one.request.id)
                self.changes[j + 1] -= 1
            else:
                self.rebuilt[j].prefills[one.request.id] = one.of.counts[at]
            missing -= one.of.counts[at]
            # One token short of its next one, it is in decode.
            self.changes[j + 1] += n > 0 and missing == 1

    def unclear(self, one: _One, k: int, needed: int) -> InputError:
        """The error that chunks do not add up."""
        problem = f"needs {needed} tokens from here, and its chunks do not add up to that"
        return self.fault(one, k, problem)

    def follow(self, one: _One) -> None:
        """Write all that a request does."""
        reading = self.readings[one.name]
        self.doubtful += reading is not None and not reading.alone
        k = n = 0
        for begin, chunks in self.seen(one) if reading is None else reading.stretches:
            n += self.decode(one, k, begin, n)
            if n:
                self.evict(one.request, one.of.places[begin - 1], one.of.places[begin], True)
            self.write(one, begin, n, chunks)
            k = chunks.end + 1
            if k > len(one.of.counts):
                return
            n += 1
            self.changes[one.of.places[chunks.end] + 1] += n < one.request.output_tokens
        self.decode(one, k, len(one.of.counts), n)

    def decode(self, one: _One, k: int, until: int, n: int) -> int:
        """Write the decode steps from position `k` on, after `n` tokens; return how many.

        Parameters
        ----------
        one : _One
        k, until, n : int
        """
        for at in range(k, until):
            self.rebuilt[one.of.places[at]].decodes.append(one.request.id)
        if until > k and n + until - k == one.request.output_tokens:
            self.changes[one.of.places[until - 1] + 1] -= 1
        return until - k

    def seen(self, one: _One) -> Iterator[Stretch]:
        """Prompt and refills of a request that is not finished, as its batches show them one by one.

        Raises
        ------
        InputError
            If it does what it cannot do.
        """
        prompt, counts = one.request.input_tokens, one.of.counts
        found = chunks_of(one.of, 0, prompt)
        if found is None:
            raise self.unclear(one, 0, prompt)
        yield Stretch(0, found)
        k, n, earliest = found.end + 1, 1, found.end + 1
        while k < len(counts):
            if n == one.request.output_tokens:
                raise self.fault(one, k, f"processes {counts[k]} tokens after its last one")
            if counts[k] > 1:
                again = refill_of(one.of, k, prompt + n, earliest)
                if again is None:
                    raise self.unclear(one, k, prompt + n)
                yield Stretch(*again)
                n -= k - again[0]
                k = earliest = again[1].end
                earliest += 1
            n += 1
            k += 1

    def starts(self) -> list[Fraction | None]:
        """Earliest start of each batch, where it must be said."""
        newest = [Fraction(0)] * len(self.given)
        seen: set[str] = set()
        for j, batch in enumerate(self.given):
            for name in batch.tokens.keys() - seen:
                newest[j] = max(newest[j], Fraction(self.instance.requests[self.position[name]].arrival))
                seen.add(name)
        found: list[Fraction | None] = [newest[0] or None]
        for j, (before, batch) in enumerate(pairwise(self.given), 1):
            idle = batch.start > before.end + ROUNDING
            found.append((max(newest[j], newest[0] + batch.start) if idle else newest[j]) or None)
        return found

    def remarks(self) -> Iterator[str]:
        """What must be said beside the batches."""
        if self.doubtful:
            yield (
                f"the batches of {self.doubtful} of {len(self.position)} requests can be read in more than "
                "one way; taken is that with the least KV"
            )
        added = sum(bool(one.cleared) for one in self.rebuilt)
        if added:
            yield (
                f"{counted(added, 'batches')} put in to evict only: requests are restarted from one batch to "
                "the next"
            )

    def batches(self) -> list[Batch]:
        """All batches."""
        seen = {name: Processed([], []) for name in self.position}
        for j, batch in enumerate(self.given):
            for name, count in batch.tokens.items():
                seen[name].places.append(j)
                seen[name].counts.append(count)
        requests = [_One(self.instance.requests[i], name, seen[name]) for name, i in self.position.items()]
        self.readings = _readings(requests, _full(self.given))
        for request in requests:
            self.follow(request)
        found: list[Batch] = []
        for one, able, start in zip(self.rebuilt, accumulate(self.changes), self.starts(), strict=False):
            if one.cleared:
                found.append(Batch(evict=tuple(one.cleared)))
            everybody = bool(one.decodes) and len(one.decodes) == able
            tokens = one.prefills if everybody else one.prefills | dict.fromkeys(one.decodes, 1)
            found.append(Batch(tokens, tuple(one.evict), start, everybody))
        return found


def schedule_of_run(run: Run, instance: Instance) -> tuple[Schedule, tuple[str, ...]]:
    """Rebuild the schedule of a run that holds all its batches; with what must be said beside it.

    Requests of the run are matched with those of the instance by arrival: where names are numbers in their
    order, else in the order in which batches first hold them.  Whether the schedule keeps the limits is the
    verifier's question.

    Parameters
    ----------
    run : Run
        With batches.
    instance : Instance
        Its requests are those of the run.

    Raises
    ------
    InputError
        If there are no batches, the numbers of requests differ, or a request processes more tokens than its
        lengths allow: naming the batch and the request.
    """
    made = _Rebuilding(run, instance)
    return Schedule(instance.name, run_length(made.batches())), tuple(made.remarks())
