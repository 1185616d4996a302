"""Moves of the search backwards as a schedule of named requests."""

from __future__ import annotations

from collections.abc import Sequence

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Batch, Schedule, run_length

__all__ = ["written"]


class _Writer:
    """Applies moves, the last batch first.

    Attributes
    ----------
    held : dict
        Requests by tokens made before the batch that comes next; those with none get their prompt or idle.
    heads : dict
        Requests whose head is still to place, by its tokens.
    """

    def __init__(self, instance: Instance):
        kind = instance.types[0]
        self.inputs, self.outputs = kind.input_tokens, kind.output_tokens
        self.names = [request.id for request in instance.requests]
        self.held: dict[int, list[str]] = {}
        self.heads: dict[int, list[str]] = {}
        #: The batch that is not complete yet, as what is evicted in it shows in the one before.
        self.prompts: dict[str, int] = {}
        self.decodes: list[str] = []
        self.idle = False
        self.batches: list[Batch] = []

    def apply(self, move: Sequence[int]) -> None:
        """Complete the batch after, and begin the one that this move is about."""
        cuts = [(made, self.held[made - 1].pop()) for made in _each(move[0:4])]
        # First cut, first placed: who was cut just now has to be away for a batch.
        ends = [(made, self.heads[made].pop(0)) for made in _each(move[4:8])]
        for made, name in cuts:
            self.prompts[name] = self.inputs + made
            self.heads.setdefault(made, []).append(name)
        self.complete([name for _, name in ends])
        for made, name in ends:
            self.held.setdefault(made - 1, []).append(name)
        self.held.setdefault(self.outputs - 1, []).extend(self.names.pop() for _ in range(move[8]))
        waiting = self.held.pop(0, [])
        self.prompts = dict.fromkeys(waiting, self.inputs) if move[9] else {}
        self.idle = bool(waiting) and not move[9]
        self.decodes = [name for some in self.held.values() for name in some]
        self.held = {made - 1: some for made, some in self.held.items()}
        if self.idle:
            self.held[0] = [*waiting, *self.held.get(0, [])]

    def complete(self, evict: Sequence[str]) -> None:
        """Add the batch that is not complete."""
        decodes = [name for name in self.decodes if name not in self.prompts]
        if not decodes and not self.prompts:
            return
        named = dict.fromkeys(decodes, 1) if self.idle else {}
        self.batches.append(
            Batch({**self.prompts, **named}, tuple(evict), None, bool(decodes) and not self.idle)
        )


def _each(pairs: Sequence[int]) -> list[int]:
    """The first of each pair, as often as the second says."""
    return [value for value, times in zip(pairs[::2], pairs[1::2], strict=True) for _ in range(times)]


def written(instance: Instance, moves: Sequence[Sequence[int]]) -> Schedule:
    """The schedule that makes these moves.

    Parameters
    ----------
    instance : Instance
    moves : sequence
        A move for each batch (`infermax_opt.infermax.planners.backward._kernel.MOVE`), the last one first.
    """
    writer = _Writer(instance)
    for move in moves:
        writer.apply(move)
    writer.complete(())
    return Schedule(instance.name, run_length(writer.batches[::-1]))
