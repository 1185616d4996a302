"""Metrics of a selection, exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import ClassVar

from infermax_opt.core.shown import ShownMetrics
from infermax_opt.core.values import SHARE
from infermax_opt.iteration.data.instance import BE_TOKENS, VALUES, IterationInstance
from infermax_opt.iteration.data.ticks import Ticks

__all__ = ["ITERATION_DEFINITIONS", "IterationMetrics", "measure_batch"]

ITERATION_DEFINITIONS = {
    "iteration_time": "time of the batch, (2) to (5)",
    BE_TOKENS: "iteration time / best-effort tokens, which is one for each best-effort request selected",
    "be_tokens_per_second": "(1): best-effort tokens / iteration time",
    VALUES: "iteration time / value, the sum of the weights and values of selected requests",
    "value_per_second": "value / iteration time",
    "requests": "requests selected",
    "rt_served": "real-time requests selected",
    "be_served": "best-effort requests selected",
    "rt_savable": "real-time requests whose limit a batch of them alone meets",
    "rt_kept": "savable real-time requests for which (6) holds",
    "rt_late": "savable real-time requests for which (6) does not hold",
    "new_blocks": "KV blocks taken",
    "host_blocks": "KV blocks copied from the host",
    "block_use": "new blocks / empty blocks",
}
"""Definition of every metric, as printed beside it."""

UNITS = {
    "iteration_time": "s",
    BE_TOKENS: "s",
    "be_tokens_per_second": "tokens/s",
    VALUES: "s",
    "block_use": SHARE,
    **{name: "requests" for name in ITERATION_DEFINITIONS if name.startswith(("rt_", "be_s", "requests"))},
    "new_blocks": "blocks",
    "host_blocks": "blocks",
}
"""Units of the metrics that have one."""


@dataclass(frozen=True)
class IterationMetrics(ShownMetrics):
    """Metrics of one selection; `ITERATION_DEFINITIONS` says what each one means.

    A quotient is None where it is divided by nothing.
    """

    definitions: ClassVar[Mapping[str, str]] = ITERATION_DEFINITIONS
    units: ClassVar[Mapping[str, str]] = UNITS

    iteration_time: Fraction
    seconds_per_be_token: Fraction | None
    be_tokens_per_second: Fraction | None
    seconds_per_value: Fraction | None
    value_per_second: Fraction | None
    requests: int
    rt_served: int
    be_served: int
    rt_savable: int
    rt_kept: int
    rt_late: int
    new_blocks: int
    host_blocks: int
    block_use: Fraction | None

    def items(self) -> list[tuple[str, Fraction | int | None]]:
        """Name and value of every metric."""
        return [(f.name, getattr(self, f.name)) for f in fields(self)]


def measure_batch(instance: IterationInstance, batch: Sequence[int]) -> IterationMetrics:
    """Compute the metrics of the requests at these positions."""
    ticks, some = Ticks.of(instance), [instance.requests[k] for k in batch]
    time = Fraction(ticks.time(batch), ticks.scale)
    best_effort = sum(not r.real_time for r in some)
    value = sum((r.value for r in some), Fraction(0))
    blocks, kept = sum(r.new_blocks for r in some), len(ticks.kept(batch))
    empty = instance.machine.blocks
    return IterationMetrics(
        iteration_time=time,
        seconds_per_be_token=time / best_effort if best_effort else None,
        be_tokens_per_second=best_effort / time if time else None,
        seconds_per_value=time / value if value else None,
        value_per_second=value / time if time else None,
        requests=len(some),
        rt_served=len(some) - best_effort,
        be_served=best_effort,
        rt_savable=len(ticks.savable),
        rt_kept=kept,
        rt_late=len(ticks.savable) - kept,
        new_blocks=blocks,
        host_blocks=sum(r.host_blocks for r in some),
        block_use=Fraction(blocks, empty) if empty else None,
    )
