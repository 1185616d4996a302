"""The workload of section 6.1: Poisson arrivals, lengths like ShareGPT's, two models on A100s."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from infermax_opt.cluster.data.generate import poisson_stream
from infermax_opt.cluster.data.stream import Stream

__all__ = ["MODES", "Workload"]

#: Both settings of section 6.4.
MODES = {"mixed": "prefill and decode on the same workers", "split": "decode workers of split phase"}


@dataclass(frozen=True)
class Workload:
    """Requests of a number of seconds; ``rate``: arrivals per second."""

    mode: str
    model: str
    rate: int
    seed: int
    seconds: int
    heartbeat: Fraction = Fraction(1)
    error: float = 0.0
    theta: Fraction = Fraction(1)
    gamma: Fraction = Fraction(1, 2)

    def stream(self) -> Stream:
        """Draw it; only predictions depend on ``error``."""
        return poisson_stream(
            self.rate, self.seconds, model=self.model, seed=self.seed, error=self.error, theta=self.theta,
            gamma=self.gamma, heartbeat=self.heartbeat, split_phase=self.mode == "split",
        )  # fmt: skip

    def row(self) -> dict[str, str]:
        """What identifies it in a table."""
        return {
            "mode": self.mode, "model": self.model, "rate": str(self.rate), "seed": str(self.seed),
            "heartbeat_s": f"{float(self.heartbeat):g}", "error": f"{self.error:g}",
            "theta": f"{float(self.theta):g}", "gamma": f"{float(self.gamma):g}",
        }  # fmt: skip
