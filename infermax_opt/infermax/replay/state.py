"""Progress of every request between two batches."""

from __future__ import annotations

from infermax_opt.infermax.data.instance import Instance

__all__ = ["State"]


class State:
    """Progress of every request between two batches.

    Attributes
    ----------
    cached : list of int
        m: KV tokens cached per request.
    generated : list of int
        n: tokens generated per request.
    """

    def __init__(self, instance: Instance):
        self.instance = instance
        self.input = [r.input_tokens for r in instance.requests]
        self.output = [r.output_tokens for r in instance.requests]
        self.cached = [0] * len(self.input)
        self.generated = [0] * len(self.input)
        self.held = 0
        self.running = 0

    def finished(self, i: int) -> bool:
        """Whether request `i` has generated all its tokens."""
        return self.generated[i] == self.output[i]

    def missing(self, i: int) -> int:
        """Tokens that request `i` must process to generate its next token."""
        return self.input[i] + self.generated[i] - self.cached[i]

    def decoding(self, i: int) -> bool:
        """Whether request `i` is in decode: one token short of its next one, and not its first."""
        return self.generated[i] >= 1 and self.missing(i) == 1 and not self.finished(i)

    def set_cached(self, i: int, cached: int) -> None:
        """Change the KV of request `i`, keeping the totals."""
        held = self.instance.system.held
        self.held += held(cached) - held(self.cached[i])
        self.running += (cached > 0) - (self.cached[i] > 0)
        self.cached[i] = cached
