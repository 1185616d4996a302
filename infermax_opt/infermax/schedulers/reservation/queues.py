"""Queues of waiting requests, and of generations that wait with their KV."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Protocol

from infermax_opt.infermax.schedulers.reservation.job import Job

__all__ = ["DeadlineQueue", "KeyQueue", "Lengths", "Queue"]

Rank = tuple[int | float, ...]
Entry = tuple[Rank, Job]
Key = Callable[[Job], Rank]

#: Seconds to a deadline that part its classes (section 3.3).
CLASSES = (0.5, 2.0)
#: Tokens of a class of KV held.
RANGE = 128


class Queue(Protocol):
    """Who waits, in some order."""

    def add(self, job: Job) -> None:
        """Let a job wait."""

    def discard(self, job: Job) -> None:
        """Take a job out."""

    def pick(self, limit: int) -> Job | None:
        """The next one to take, if its size is at most `limit`."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Job]: ...


class KeyQueue:
    """In the order of a key, that jobs keep while they wait; the first one blocks those behind.

    Parameters
    ----------
    key : callable
        Ends with what no two jobs share.
    size : callable
        What `pick` compares with its limit.
    """

    def __init__(self, key: Key, size: Callable[[Job], int]):
        self._key, self._size = key, size
        self._entries: list[Entry] = []
        self._last = 0  # entries before are gone

    def add(self, job: Job) -> None:
        """Let a job wait."""
        job.key = self._key(job)
        insort(self._entries, (job.key, job), lo=self._last, key=_key)

    def discard(self, job: Job) -> None:
        """Take a job out."""
        at = bisect_left(self._entries, job.key, lo=self._last, key=_key)
        if at == self._last:  # as mostly: no entry is moved
            self._last += 1
            if 2 * self._last > len(self._entries):
                del self._entries[: self._last]
                self._last = 0
        else:
            del self._entries[at]

    def pick(self, limit: int) -> Job | None:
        """The first one, if its size is at most `limit`."""
        job = next(iter(self), None)
        return job if job is not None and self._size(job) <= limit else None

    def __len__(self) -> int:
        return len(self._entries) - self._last

    def __iter__(self) -> Iterator[Job]:
        return (self._entries[k][1] for k in range(self._last, len(self._entries)))


class DeadlineQueue:
    """By class of deadline, then class of KV held, largest first; in these the largest that fits.

    Parameters
    ----------
    now : callable
        Ticks.
    second : int
        Ticks in a second.
    held : callable
        KV that a job holds.
    size : callable
        By which jobs of a class are sorted, and which `pick` compares with its limit.
    """

    def __init__(
        self, now: Callable[[], int], second: int, held: Callable[[Job], int], size: Callable[[Job], int]
    ):
        self._now, self._held, self._size = now, held, size
        self._margins = [int(seconds * second) for seconds in CLASSES]
        self._entries: list[list[Entry]] = [[] for _ in range(len(CLASSES) + 1)]
        self._class: dict[Job, int] = {}
        self._moves: list[tuple[int, int, int, Job]] = []  # when a job may change its class

    def add(self, job: Job) -> None:
        """Let a job wait."""
        job.key = (-(self._held(job) // RANGE), -self._size(job), *job.order)
        self._place(job)

    def _place(self, job: Job) -> None:
        number = len(CLASSES)
        if job.deadline is not None:
            left = job.deadline - self._now()
            number = sum(left > margin for margin in self._margins)
            if number:
                when = job.deadline - self._margins[number - 1]
                heappush(self._moves, (when, job.place, job.stamp, job))
        self._class[job] = number
        insort(self._entries[number], (job.key, job), key=_key)

    def discard(self, job: Job) -> None:
        """Take a job out."""
        entries = self._entries[self._class.pop(job)]
        del entries[bisect_left(entries, job.key, key=_key)]

    def _update(self) -> None:
        now = self._now()
        while self._moves and self._moves[0][0] <= now:
            _, _, stamp, job = heappop(self._moves)
            if job in self._class and job.stamp == stamp:
                self.discard(job)
                self._place(job)

    def pick(self, limit: int) -> Job | None:
        """In the first class that has one: the largest with a size of at most `limit`."""
        self._update()
        for entries in self._entries:
            at = 0
            while at < len(entries):
                kv = entries[at][0][0]
                wanted: Rank = (kv, -limit)
                fit = bisect_left(entries, wanted, lo=at, key=_key)
                if fit < len(entries) and entries[fit][0][0] == kv:
                    return entries[fit][1]
                at = fit
        return None

    def __len__(self) -> int:
        return len(self._class)

    def __iter__(self) -> Iterator[Job]:
        return (job for entries in self._entries for _, job in entries)


class Lengths:
    """Generations that wait, by the tokens that they are expected to make yet."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, tuple[int, int], Job]] = []

    def add(self, job: Job) -> None:
        """Let a job wait."""
        insort(self._entries, (job.left, job.order, job), key=_length)

    def discard(self, job: Job) -> None:
        """Take a job out."""
        del self._entries[bisect_left(self._entries, (job.left, job.order), key=_length)]

    def same(self, left: int) -> Iterator[Job]:
        """Those that are expected to make so many, by arrival."""
        at = bisect_left(self._entries, (left, (-1, -1)), key=_length)
        while at < len(self._entries) and self._entries[at][0] == left:
            yield self._entries[at][2]
            at += 1

    def longest_first(self, most: int) -> Iterator[Job]:
        """Those that are expected to make at most so many; one for each number."""
        at = bisect_left(self._entries, (most + 1, (-1, -1)), key=_length)
        while at > 0:
            left = self._entries[at - 1][0]
            at = bisect_left(self._entries, (left, (-1, -1)), key=_length)
            yield self._entries[at][2]

    @property
    def shortest(self) -> Job | None:
        """Who is expected to make the fewest."""
        return self._entries[0][2] if self._entries else None


def _key(entry: Entry) -> Rank:
    return entry[0]


def _length(entry: tuple[int, tuple[int, int], Job]) -> tuple[int, tuple[int, int]]:
    return entry[:2]
