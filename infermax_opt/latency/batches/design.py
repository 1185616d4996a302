"""The cost model as a sum of columns, and samples reduced to a few rows that fits need.

All but the larger of several lines is a sum of coefficient times feature.  The larger of lines that meet at
`knees` is the first line and, behind each knee, what the next one is steeper by.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.infermax.data.cost import Attention
from infermax_opt.latency._least_squares import TINY
from infermax_opt.latency.batches.samples import BatchSamples

__all__ = ["COEFFICIENTS", "Design", "condensed", "lines"]

#: Coefficients but those of the steps at knees; the order is that in which they are told apart.
COEFFICIENTS = ("alpha", "beta", "d1", "p1", "d0", "p0", "p2", "e1", "e0")
#: What must vary for a coefficient to be told from those before it.
VARIES = {
    "beta": "the number of tokens",
    "d1": "what decoding requests read (kv_read)",
    "p1": "the work of prefill chunks",
}


@dataclass(frozen=True)
class Design:
    """Samples as rows of a linear model.

    Attributes
    ----------
    attention : Attention
        How prefill work is counted.
    names : tuple of str
        Those of `COEFFICIENTS` that the samples tell apart; the others are 0.
    columns : ndarray of float, shape (samples, names)
    tokens : ndarray of float
        Tokens of each sample whose dense part is measured; below 0 for the others, which no knee changes.
    attends : ndarray of bool
        Whether attention is measured.
    measured, scale : ndarray of float
        Seconds, and what a residual of 1 is.
    """

    attention: Attention
    names: tuple[str, ...]
    columns: Any
    tokens: Any
    attends: Any
    measured: Any
    scale: Any

    @classmethod
    def of(
        cls,
        samples: BatchSamples,
        attention: Attention,
        weights: str,
        cover: str,
        extra: Collection[str] = (),
    ) -> Design:
        """Rows of all samples.

        Parameters
        ----------
        samples : BatchSamples
        attention : Attention
        weights : {"relative", "absolute"}
            Whether a residual counts as a share of its sample.
        cover : {"mean", "above"}
            Attention of mixed batches that was measured alone, or a batch that was composed of it, is what
            the model must lie above, but nothing that its terms, each of one kind, are fitted to.
        extra : collection of {"mixed", "prefix"}
            Terms of `CostModel` that may be left out, and are not.

        Raises
        ------
        InputError
            If something does not vary, so that its coefficient is unknown.
        """
        import numpy as np

        rows = [
            (part != "attention", part != "dense", s.tokens, s.decodes > 0, s.decode_kv, s.prefills > 0,
             s.features(attention).prefill_work, s.prefill_kv, float(s.seconds))
            for part, s in samples.rows()
            if samples.form != "kernels" or cover == "above" or not (s.decodes and s.prefills)
        ]  # fmt: skip
        dense, alone, tokens, decode, read, prefill, work, behind, measured = np.array(rows, dtype=float).T
        every = {
            "alpha": dense, "beta": dense * tokens, "d1": alone * read, "p1": alone * work,
            "d0": alone * decode, "p0": alone * prefill,
        }  # fmt: skip
        if "prefix" in extra:
            every["p2"] = alone * behind
        if "mixed" in extra:
            every |= {"e1": alone * prefill * read, "e0": alone * prefill * decode}
        names = _told_apart(every, samples.path)
        columns = np.stack([every[name] for name in names], axis=1)
        scale = measured if weights == "relative" else np.ones_like(measured)
        tokens = np.where(dense > 0, tokens, -1.0)
        return cls(attention, names, columns, tokens, alone > 0, measured, scale)

    def with_knees(self, knees: Sequence[float]) -> Any:
        """The columns, and those of the steps at these knees."""
        import numpy as np

        steps = [np.maximum(0.0, self.tokens - knee) for knee in knees]
        return np.column_stack([self.columns, *steps])

    def weighted(self, knees: Sequence[float], rows: Any = slice(None)) -> Any:
        """Rows by their weights: the columns, steps at all of these knees, what is measured."""
        import numpy as np

        whole = np.column_stack([self.with_knees(knees), self.measured])[rows]
        return whole / self.scale[rows][:, None]

    def knees(self, most: int, near: Sequence[float] = ()) -> list[float]:
        """Numbers of tokens at which lines may meet: those of samples between the least and the largest.

        Of more than `most`, evenly chosen ones, or the closest to those that are given.
        """
        import numpy as np

        found = np.unique(self.tokens[self.tokens >= 0])[1:-1]
        if len(found) > most and near:
            far = np.abs(found[:, None] - np.array(near)).min(axis=1)
            found = np.sort(found[np.argsort(far, kind="stable")[:most]])
        elif len(found) > most:
            found = found[np.linspace(0, len(found) - 1, most).round().astype(int)]
        return [float(x) for x in found]


def condensed(rows: Any) -> Any:
    """As many rows as columns, with the same products of columns but for rounding.

    Least squares over some of the columns, and their residuals, are those of all rows.  Half of the digits
    are lost: enough to compare forms of a model.  The chosen one is then fitted to the rows themselves.
    """
    import numpy as np

    lengths = np.linalg.norm(rows, axis=0)
    scaled = rows / np.where(lengths > 0, lengths, 1)
    values, vectors = np.linalg.eigh(scaled.T @ scaled)
    return np.sqrt(np.maximum(values, 0))[:, None] * vectors.T * lengths


def lines(found: Any, knees: Sequence[float]) -> list[tuple[float, float]]:
    """The lines (alpha, beta) whose larger is the first line with steps behind the knees.

    Parameters
    ----------
    found : sequence of float
        alpha, beta, and what each line is steeper by than the one before.
    knees : sequence of float
        Ascending.
    """
    alpha, beta, *steps = found
    made = [(alpha, beta)]
    for knee, step in zip(knees, steps, strict=True):
        alpha, beta = alpha - step * knee, beta + step
        made.append((alpha, beta))
    return made


def _told_apart(every: dict[str, Any], path: str) -> tuple[str, ...]:
    """Coefficients whose columns are no combination of those before.

    A batch that decodes or prefills takes its overhead in any case: where no batch does both, those of
    attention are not told from that of the batch, and are in it.
    """
    import numpy as np

    basis: list[Any] = []
    names = []
    for name in COEFFICIENTS:
        if name not in every:
            continue
        column = every[name]
        length = float(np.linalg.norm(column))
        if not length:  # no sample decodes, or none prefills
            continue
        rest = column / length
        for _ in range(2):  # once more, as rounding leaves something after the first time
            for other in basis:
                rest = rest - (other @ rest) * other
        left = float(np.linalg.norm(rest))
        if left > TINY:
            basis.append(rest / left)
            names.append(name)
        elif name in VARIES:
            problem = (
                f"the {len(column)} samples do not determine {name}: {VARIES[name]} must vary on its own"
            )
            raise InputError(problem, source=path)
    return tuple(names)
