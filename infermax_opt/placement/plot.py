"""Picture of a placement: what every worker uses of each of its limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from infermax_opt.core.errors import InputError
from infermax_opt.core.result import Claim
from infermax_opt.core.values import AnySchedule, amount
from infermax_opt.files.figure import COLOURS, Phase, bound_words, entitle, panels, styled
from infermax_opt.files.text import printable
from infermax_opt.placement.data.instance import PlacementInstance
from infermax_opt.placement.data.limits import Limits
from infermax_opt.placement.data.schedule import Placement
from infermax_opt.placement.replay.metrics import WorkerUse, worker_members, worker_uses

__all__ = ["plot_workers"]

#: Most workers of which each request is set off from the next.
INDIVIDUAL = 60
ONGOING, NEW = "#9A9A9A", COLOURS[Phase.DECODE]
PANELS = {
    "iteration": "iteration time (b)\nof what ATGT allows",
    "prefill": "prefill (c, d)\nof what TTFT and\nongoing requests allow",
    "kv": "most KV (e)\nof the capacity",
}

#: By number of a worker: what its ongoing requests use, and each new one.
Parts = dict[int, tuple[WorkerUse, list[WorkerUse]]]


def plot_workers(instance: PlacementInstance, subject: AnySchedule | Claim, ax: Any | None = None) -> Any:
    """Draw a valid placement, or the placement of a result with its bound and gap.

    Parameters
    ----------
    instance : PlacementInstance
    subject : schedule or Claim
    ax : matplotlib.axes.Axes, optional
        What to draw into; default: a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The given ones, or the first of the new figure.

    Raises
    ------
    InputError
        If there is no placement.
    """
    placement = subject.schedule if isinstance(subject, Claim) else subject
    if not isinstance(placement, Placement):
        raise InputError("holds no schedule to draw", field="schedule")
    parts = _parts(instance, placement)
    with styled():
        from matplotlib.patches import Patch
        from matplotlib.ticker import MaxNLocator

        drawn = panels(ax, (11, 7.5), [1.0] * len(PANELS))
        for axes, (limit, title) in zip(drawn, PANELS.items(), strict=True):
            _draw(axes, list(parts.values()), limit)
            axes.set_ylabel(f"{title}, %")
        numbers = list(parts)
        drawn[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
        drawn[-1].xaxis.set_major_formatter(
            lambda x, _: str(numbers[round(x) - 1]) if 1 <= round(x) <= len(numbers) else ""
        )
        drawn[-1].set_xlabel("worker")
        handles = [Patch(facecolor=NEW, label="new requests")]
        if any(request.ongoing for request in instance.requests):
            handles.insert(0, Patch(facecolor=ONGOING, label="ongoing requests"))
        drawn[0].legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)
        words = [amount(instance, len(parts)), f"{len(parts) * instance.worker.gpus} GPUs"]
        if isinstance(subject, Claim):
            words += bound_words(instance, subject)
        alt = (
            f"Bars for each of {len(parts)} workers: what its requests use of its iteration time, its "
            "prefill time and its KV cache, in percent of each limit."
        )
        return entitle(ax, drawn, [printable(instance.name), ", ".join(words)], alt)


def _parts(instance: PlacementInstance, placement: Placement) -> Parts:
    """Uses, of KV at the iteration at which a worker holds most."""
    limits = Limits.of(instance)
    found: Parts = {}
    for worker, (ongoing, new) in worker_members(instance, limits, placement).items():
        members = [*ongoing, *new]

        def held(k: int, iteration: int) -> int:
            return limits.held[k] + limits.grows * iteration if limits.lasts[k] >= iteration else 0

        def together(iteration: int, members: list[int] = members) -> int:
            return sum(held(k, iteration) for k in members)

        peak = max({limits.lasts[k] for k in members}, key=together, default=0)

        def use(some: list[int], worker: int = worker, peak: int = peak) -> WorkerUse:
            context, prompt = sum(limits.context[k] for k in some), sum(limits.prompt[k] for k in some)
            return worker_uses(limits, worker, context, prompt, sum(held(k, peak) for k in some))

        found[worker] = use(ongoing), [use([k]) for k in new]
    return found


def _draw(axes: Any, parts: Sequence[tuple[WorkerUse, list[WorkerUse]]], limit: str) -> None:
    """Stacked bars of one limit, the largest request below; what is no share of it is left out."""
    places = np.arange(1, len(parts) + 1)
    depth = max((len(new) for _, new in parts), default=0)
    shares = np.zeros((depth + 1, len(parts)))
    for at, (ongoing, new) in enumerate(parts):
        column = [getattr(ongoing, limit), *sorted((getattr(use, limit) or 0 for use in new), reverse=True)]
        shares[: len(column), at] = [100 * float(share or 0) for share in column]
    edge = 0.4 if len(parts) <= INDIVIDUAL else 0
    bottom = np.zeros(len(parts))
    for level, heights in enumerate(shares):
        axes.bar(
            places, heights, bottom=bottom, width=0.8 if edge else 1.0,
            color=NEW if level else ONGOING, edgecolor="white", linewidth=edge,
        )  # fmt: skip
        bottom += heights
    axes.axhline(100, color="black", linewidth=1.2, linestyle="--")
    axes.set_xlim(0.4, len(parts) + 0.6)
    axes.set_ylim(0, max(108.0, float(bottom.max(initial=0)) * 1.05))
