"""Ways to give requests to clients, by the rounds of the busiest one; what so many rounds take at least."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from infermax_opt.makespan.bounds.closed_form import arc_lengths, prefill_cover, prefill_ticks, rounds_needed
from infermax_opt.makespan.data.instance import MakespanInstance

__all__ = ["LeastTicks", "groupings", "subset_sums"]

#: Sets looked at between two questions whether to stop.
OFTEN = 10_000


def subset_sums(values: Sequence[int]) -> list[int]:
    """Sum per subset of the values, subsets as bit sets."""
    sums = [0]
    for value in values:
        sums += [some + value for some in sums]
    return sums


class LeastTicks:
    """A lower bound on schedules in which some client decodes for at least so many rounds.

    The arc bound of `infermax_opt.makespan.bounds.closed_form`, with these rounds as the least in each number
    of bins.

    Attributes
    ----------
    rounds : int
        Rounds that every schedule has.
    prefill : int
        Ticks of prefill that every schedule takes.
    """

    def __init__(self, instance: MakespanInstance):
        lengths = sorted(r.output_tokens for r in instance.requests)
        count, clients = len(lengths), instance.clients
        tokens = sum(r.input_tokens for r in instance.requests)
        self.round_ticks = instance.round_ticks
        self.rounds = rounds_needed(lengths, clients)
        before = [0, *accumulate(lengths)]
        # Least rounding up of the j shortest to so many distinct lengths: segment by segment.
        waste = [lengths[max(j - 1, 0)] * j - before[j] for j in range(count + 1)]
        distinct, cover = 1, prefill_cover(instance)
        #: Ticks and rounds at least, per number of bins.
        self.bins: list[tuple[int, int]] = []
        busy = -(-before[-1] // clients)
        classes = -(-busy // lengths[-1])
        for bins in range(classes, count + 1):
            while distinct < min(count, arc_lengths(bins, classes)):
                waste = [
                    min(
                        (waste[i] + lengths[j - 1] * (j - i) - before[j] + before[i] for i in range(j)),
                        default=0,
                    )
                    for j in range(count + 1)
                ]
                distinct += 1
            if bins * clients >= count and bins * instance.level_ticks[-1][0] >= tokens:
                rounds = max(self.rounds, -(-(before[-1] + waste[-1]) // clients))
                self.bins.append((max(cover, prefill_ticks(instance, bins)), rounds))
        self.prefill = min(ticks for ticks, _ in self.bins)

    def __call__(self, rounds: int) -> int:
        return min(ticks + self.round_ticks * max(rounds, least) for ticks, least in self.bins)


def groupings(
    lengths: Sequence[int],
    kinds: Sequence[int],
    clients: int,
    least: int,
    most: int,
    poll: Callable[[], None],
) -> Iterator[tuple[int, ...]]:
    """Yield the partitions into at most `clients` sets whose largest sum is from `least` to `most`.

    Of partitions that differ only in requests of one kind it yields one: a set takes the first requests
    left of a kind, and of sets that begin with one kind the larger ones, by kinds, come first.

    Parameters
    ----------
    lengths : sequence of int
    kinds : sequence of int
        Kind of each request; it never falls from one to the next.
    clients, least, most : int
    poll : callable
        Called now and then; it may raise something to stop.
    """
    sums = subset_sums(lengths)
    twin = [0, *(1 << i if kinds[i] == kinds[i + 1] else 0 for i in range(len(kinds) - 1))]
    twins = [i for i, before in enumerate(twin) if before]
    # The numbers of requests per kind as the digits of one number.
    names = subset_sums([(len(kinds) + 1) ** kind for kind in kinds]) if twins else []
    # Rounds in which a client has nothing to do: no more than all clients have together.
    floor = sums[-1] - (clients - 1) * most
    starts: list[list[int]] = [[] for _ in lengths]
    for some in range(1, len(sums)):
        if some % OFTEN == 0:
            poll()
        if floor <= sums[some] <= most:
            starts[first_of(some)].append(some)
    steps = 0

    def takes_first(some: int, rest: int) -> bool:
        """Whether a set takes the first requests left of each kind."""
        return all(not some >> i & 1 or not twin[i] & rest & ~some for i in twins)

    def extend(chosen: tuple[int, ...], rest: int, high: int) -> Iterator[tuple[int, ...]]:
        nonlocal steps
        if not rest:
            if high >= least:
                yield chosen
            return
        left = clients - len(chosen)
        if sums[rest] > left * most:
            return
        first = first_of(rest)
        options = starts[first] if left > 1 else [rest]
        after = twins and chosen and kinds[first_of(chosen[-1])] == kinds[first]
        for some in options:
            steps += 1
            if steps % OFTEN == 0:
                poll()
            if some & ~rest or (after and names[some] > names[chosen[-1]]):
                continue
            if takes_first(some, rest):
                yield from extend((*chosen, some), rest & ~some, max(high, sums[some]))

    if floor <= most:
        yield from extend((), len(sums) - 1, 0)


def first_of(some: int) -> int:
    """The first member of a set."""
    return (some & -some).bit_length() - 1
