"""What all pictures share: colours, style, the file, the words of a title.  Matplotlib loads on use."""

from __future__ import annotations

import enum
import os
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.core.extras import require
from infermax_opt.core.result import Claim
from infermax_opt.core.values import AnyInstance
from infermax_opt.files.json import STANDARD, replacing
from infermax_opt.files.report import value_text
from infermax_opt.files.text import percent

__all__ = ["COLOURS", "STYLE", "Phase", "bound_words", "picture_format", "save_figure"]


class Phase(enum.Enum):
    """What a request does during a batch."""

    PREFILL = "prefill"
    DECODE = "decode"
    REFILL = "refill after eviction"
    HOLDING = "idle, holds KV"
    EVICTED = "evicted, waiting"
    WAITING = "waiting"


#: A fixed salt (and no date): equal schedules give equal files.
STYLE = {"svg.hashsalt": "infermax-opt", "font.size": 10, "hatch.linewidth": 0.6}
#: Okabe and Ito's palette, which colour-blind readers can tell apart; what waits is pale or hatched.
COLOURS = {
    Phase.PREFILL: "#E69F00",
    Phase.DECODE: "#0072B2",
    Phase.REFILL: "#D55E00",
    Phase.HOLDING: "#B7DDF2",
    Phase.EVICTED: "#F3D3E4",
    Phase.WAITING: "#E8E8E8",
}


def picture_format(path: str | os.PathLike[str]) -> str:
    """Format of a picture by the ending of its name; png on standard output.

    Raises
    ------
    InputError
        If it is neither png nor svg, or nothing is installed that draws.
    """
    require("matplotlib", "pictures")
    if os.fspath(path) == STANDARD:
        return "png"
    suffix = os.path.splitext(os.fspath(path))[1].lower()
    if suffix not in (".png", ".svg"):
        raise InputError("the name of a picture ends in .png or .svg", source=os.fspath(path))
    return suffix[1:]


def save_figure(figure: Any, path: str | os.PathLike[str]) -> None:
    """Write a figure, made under `STYLE`, whole or not at all.

    Raises
    ------
    InputError
        If the file cannot be written, or its name is no picture's.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    kind = picture_format(path)
    FigureCanvasAgg(figure)
    metadata = {"Date": None} if kind == "svg" else {}
    with replacing(path) as temporary:
        figure.savefig(temporary, format=kind, dpi=130, metadata=metadata)


def bound_words(instance: AnyInstance, claim: Claim) -> list[str]:
    """Bound and gap of a result, for a title."""
    proof = f" ({claim.proof.value})" if claim.proof else ""
    return [
        f"lower bound {value_text(instance, claim.lower_bound)}{proof}",
        f"gap {percent(claim.gap, 'ceiling')}",
    ]
