"""A small Sarathi after Vidur's rules: who restarts takes all that it has processed for its prompt."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Life", "batches_of"]


@dataclass
class Life:
    """A request: the tokens of its prompt as of now, those of prompt and output, and what it has processed.

    Attributes
    ----------
    name, prompt, total, processed, held, restarts : int
    """

    name: int
    prompt: int
    total: int
    processed: int = 0
    held: int = 0
    restarts: int = 0

    @property
    def decoding(self) -> bool:
        return self.processed > self.prompt

    def drop(self) -> None:
        self.prompt, self.processed, self.held = self.processed, 0, 0
        self.restarts += 1


def batches_of(
    sizes: list[tuple[int, int]], capacity: int, budget: int
) -> tuple[list[dict[str, int]], list[int]]:
    """Tokens of each batch by request, and restarts of each request; all are there from the start.

    Parameters
    ----------
    sizes : list of (int, int)
        Prompt and output tokens.
    capacity : int
        KV tokens.
    budget : int
        Tokens that a batch with a chunk has at most.
    """
    waiting = [Life(k, prompt, prompt + outputs) for k, (prompt, outputs) in enumerate(sizes)]
    everybody, running, found = list(waiting), list[Life](), list[dict[str, int]]()
    while waiting or running:
        batch: dict[int, int] = {}
        queue, running = running, []
        chunked: list[Life] = []
        while queue:
            one = queue.pop(0)
            if not one.decoding:
                chunked.append(one)
                continue
            while sum(life.held for life in everybody) + 1 > capacity:
                victim = queue.pop() if queue else one
                victim.drop()
                waiting.insert(0, victim)
                if victim is one:
                    break
            else:
                one.held = max(one.held, one.processed)
                batch[one.name] = 1
                running.append(one)
        for one in chunked:
            step = min(one.prompt - one.processed, budget - sum(batch.values()))
            running.append(one)
            if step > 0:
                batch[one.name] = step
        while waiting and sum(life.held for life in everybody) + waiting[0].prompt <= capacity:
            one = waiting[0]
            step = min(one.prompt, budget - sum(batch.values()))
            if step < 1:
                break
            one.held, batch[one.name] = one.prompt, step
            running.append(waiting.pop(0))
        found.append({str(name): step for name, step in batch.items()})
        for name, step in batch.items():
            one = everybody[name]
            one.processed += step
            one.processed += one.processed == one.prompt
            if one.processed == one.total:
                one.held = 0
                running.remove(one)
        running.sort(key=lambda life: life.name)
    return found, [life.restarts for life in everybody]
