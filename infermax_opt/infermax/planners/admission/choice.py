"""What the admission planner searches."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ANY", "Choice"]

#: No limit.
ANY = 2**40


@dataclass(frozen=True)
class Choice:
    """What is searched.

    Attributes
    ----------
    work, prompt, output, arrival : float
        A request starts the sooner, the smaller the sum of these times the logarithms of its work, prompt
        and output, and `arrival` times its arrival in units of the mean time between arrivals.
    cap, budget, most, pause, look : int
        As in `_kernel.Knobs`.
    share : int
        Prompt tokens of a request in a batch, where several prompts are processed side by side: see
        `_spread_kernel`.  `most`, `pause` and `splits` do not count then.
    moves : tuple of (int, int)
        Requests, each with the place in the order to which it is moved then, one after the other.
    splits : tuple of (int, int, int)
        Requests that are evicted, each once: after how many tokens, and the place in the order at which each
        waits then, one after the other.
    delays : tuple of (int, float)
        Requests, each with the seconds after its arrival at which it joins those that wait, where prompts
        are side by side.
    """

    work: float = 0.0
    prompt: float = 0.0
    output: float = 0.0
    arrival: float = 0.0
    cap: int = ANY
    budget: int = ANY
    most: int = ANY
    pause: int = 0
    look: int = 1
    share: int = ANY
    moves: tuple[tuple[int, int], ...] = ()
    splits: tuple[tuple[int, int, int], ...] = ()
    delays: tuple[tuple[int, float], ...] = ()

    @property
    def is_spread(self) -> bool:
        """Whether several prompts are processed side by side."""
        return self.share < ANY and not self.splits
