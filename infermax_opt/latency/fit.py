"""Fits of the performance models of section 3 (eqs 1, 2, 3, 5) to samples, each with its errors.

Coefficients are never negative and are short decimals: rounding moves no prediction by more than a
millionth of it for each coefficient.  Residuals count by default as shares of what was measured, the
field's habit: a model that is 5 % off is as bad at 10 ms as at 1 s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.latency import _least_squares
from infermax_opt.latency.samples import KINDS, Sample, Samples

__all__ = ["COVERS", "MODELS", "WEIGHTS", "Fit", "Model", "check_choices", "fit", "fit_measured"]

#: How residuals count, and where the model lies.
WEIGHTS, COVERS = ("relative", "absolute"), ("mean", "above")
#: What rounding a coefficient may move a prediction by, as a share of the sample; share of the interval.
ROUNDING, CONFIDENCE = Fraction(1, 10**6), 0.95

Features = tuple[Fraction, ...]


@dataclass(frozen=True)
class Model:
    """One performance model: what is measured is the sum of coefficient times feature.

    Attributes
    ----------
    equation, formula, unit : str
    coefficients : tuple of str
    features : callable
        Features of what a sample gives, one for each coefficient; none is negative.
    overhead : bool
        Whether the last feature is always 1.
    """

    equation: str
    formula: str
    unit: str
    coefficients: tuple[str, ...]
    features: Callable[[Sequence[int]], Features]
    overhead: bool = True


def _given(values: Sequence[int]) -> Features:
    return (*map(Fraction, values), Fraction(1))


#: Performance models by the kind of their samples.
MODELS: Mapping[str, Model] = {
    "kv": Model("eq 1", "kv = h tokens + j", "", ("h", "j"), _given),
    "prefill": Model("eq 2", "k1 input tokens + c1", "s", ("k1", "c1"), _given),
    "decode": Model("eq 3", "k2 context tokens + c2 batch size + c3", "s", ("k2", "c2", "c3"), _given),
    "compute": Model(
        "eq 5", "k4 / GPUs + c4", "s", ("k4", "c4"), lambda values: (Fraction(1, values[0]), Fraction(1))
    ),
    "comm": Model(
        "all-reduce", "k5 (GPUs - 1) / GPUs", "s", ("k5",),
        lambda values: (Fraction(values[0] - 1, values[0]),), overhead=False,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Fit:
    """A fitted model and how well it fits.

    Attributes
    ----------
    kind : str
        Key of `MODELS`.
    coefficients : tuple of Fraction
        In the order of the model's.
    samples, left_out : int
        Samples fitted, and those that the model does not speak of.
    weights, cover : str
        "relative" or "absolute" residuals; "mean": least squares, "above": at least every sample.
    mean_relative, max_relative : float
        Mean and largest distance of a prediction, as a share of the sample.
    r_squared : float or None
        Share of the variance that is explained; None where all samples are the same.
    standard_error : float or None
        Of the residuals: a share of the sample with relative weights, else in the model's unit.  None with
        cover "above", which has no such distribution, and where there are no more samples than coefficients.
    interval, interval_tokens : float or None
        Largest half width of the 95 % prediction interval over the samples: as a share of the prediction,
        and in units of the first feature (tokens).
    """

    kind: str
    coefficients: tuple[Fraction, ...]
    samples: int
    left_out: int
    weights: str
    cover: str
    mean_relative: float
    max_relative: float
    r_squared: float | None
    standard_error: float | None
    interval: float | None
    interval_tokens: float | None
    _spread: tuple[tuple[float, ...], ...] = field(default=(), repr=False)

    @property
    def model(self) -> Model:
        """What was fitted."""
        return MODELS[self.kind]

    @property
    def named(self) -> dict[str, Fraction]:
        """Coefficients by name."""
        return dict(zip(self.model.coefficients, self.coefficients, strict=True))

    @property
    def row(self) -> dict[str, Any]:
        """The fit as a row of a table: a column for each coefficient, and how well it fits."""
        told = ("samples", "left_out", "mean_relative", "max_relative", "r_squared", "standard_error")
        return {
            "kind": self.kind,
            "model": self.model.formula,
            **self.named,
            **{name: getattr(self, name) for name in told},
        }

    def predict(self, *given: int) -> Fraction:
        """What the model says of a sample that gives this."""
        features = self.model.features(given)
        return sum((c * x for c, x in zip(self.coefficients, features, strict=True)), Fraction(0))

    def half_width(self, *given: int) -> float | None:
        """Half width of the 95 % prediction interval there, in the model's unit.

        Coefficients that are held at 0 count as known.
        """
        if self.standard_error is None:
            return None
        features = [float(x) for x in self.model.features(given)]
        noise = self.standard_error * (float(self.predict(*given)) if self.weights == "relative" else 1.0)
        spread = sum(
            a * b * value
            for a, row in zip(features, self._spread, strict=True)
            for b, value in zip(features, row, strict=True)
        )
        free = sum(1 for k, row in enumerate(self._spread) if row[k])
        t = _least_squares.student_t(CONFIDENCE, self.samples - free)
        return t * math.sqrt(noise * noise + max(0.0, spread))


def fit_measured(
    samples: Samples, kind: str, *, gpus: int | None = None, weights: str = "relative", cover: str = "mean"
) -> Fit:
    """Fit a model to the measurements of a file.

    Eq 3 speaks of two requests or more: decode iterations of one request are left out and counted.

    Parameters
    ----------
    samples : Samples
    kind : str
        Key of `MODELS`.
    gpus : int, optional
        Use only rows that were measured on so many GPUs.
    weights : {"relative", "absolute"}
    cover : {"mean", "above"}

    Raises
    ------
    InputError
        Naming file, column and value, where the rows do not determine the coefficients.
    """
    rows = samples.of(kind, gpus)
    used = tuple(s for s in rows if s.given[1] > 1) if kind == "decode" else rows
    try:
        return fit(kind, used, weights=weights, cover=cover, left_out=len(rows) - len(used))
    except InputError as error:
        raise error.within(samples.path) from None


def fit(
    kind: str,
    samples: Sequence[Sample],
    *,
    weights: str = "relative",
    cover: str = "mean",
    left_out: int = 0,
) -> Fit:
    """Fit a model: least squares with no coefficient below 0, or the least model above all samples.

    "Least above" has the least sum of distances (shares, with relative weights) among the models that
    predict at least every sample.

    Parameters
    ----------
    kind : str
        One of `MODELS`.
    samples : sequence of Sample
    weights : {"relative", "absolute"}
        Whether distances count as shares of what was measured.
    cover : {"mean", "above"}
        Least squares, or least above.
    left_out : int
        Samples that the caller did not use; only reported.

    Raises
    ------
    InputError
        If the samples do not determine the coefficients, naming the column that does not vary.
    """
    import numpy as np

    check_choices(weights, cover)
    model = MODELS[kind]
    rows = [model.features(s.given) for s in samples]
    _check(kind, model, samples)
    matrix = np.array([[float(x) for x in row] for row in rows])
    measured = np.array([float(s.measured) for s in samples])
    _check_independent(kind, model, matrix)
    scale = measured if weights == "relative" else np.ones_like(measured)
    weighted = matrix / scale[:, None]
    if cover == "mean":
        found, free = _least_squares.non_negative(weighted, measured / scale)
        exact = [Fraction(float(value)) for value in found]
    else:
        free = ()
        exact = list(_least_squares.least_above(rows, [s.measured for s in samples], (1 / scale).tolist()))
    coefficients = _rounded(exact, rows, samples, cover)
    predicted = [_predicted(coefficients, row) for row in rows]
    # Exact differences: where a model is exact, its errors are 0.
    residual = np.array([float(s.measured - value) for s, value in zip(samples, predicted, strict=True)])
    relative = np.abs(residual) / measured
    variance = float(((measured - measured.mean()) ** 2).sum())
    error, spread = _spread(weighted, residual / scale, free)
    made = Fit(
        kind, coefficients, len(samples), left_out, weights, cover,
        float(relative.mean()), float(relative.max()),
        1 - float((residual**2).sum()) / variance if variance else None,
        error, None, None, tuple(tuple(map(float, row)) for row in spread),
    )  # fmt: skip
    return _with_interval(made, samples, predicted)


def _spread(matrix: Any, residual: Any, free: tuple[int, ...]) -> tuple[float | None, Any]:
    """Standard error of a sample, and covariances of the coefficients; those that are not free have none."""
    import numpy as np

    count, columns = matrix.shape
    spread = np.zeros((columns, columns))
    if not free or count <= len(free):
        return None, spread
    error = math.sqrt(float((residual**2).sum()) / (count - len(free)))
    spread[np.ix_(free, free)] = error**2 * _inverse(matrix[:, free])
    return error, spread


def check_choices(weights: str, cover: str) -> None:
    """Check how a fit is to count residuals, and where it is to lie."""
    for name, value, known in (("weights", weights, WEIGHTS), ("cover", cover, COVERS)):
        if value not in known:
            raise InputError(f"{value!r} is none of {', '.join(known)}", field=name)


def _check_independent(kind: str, model: Model, matrix: Any) -> None:
    if _least_squares.dependent(matrix):
        columns = " and ".join(repr(column) for column in KINDS[kind][:-1])
        raise InputError(
            f"in the {len(matrix)} rows of kind {kind!r} that {model.equation} uses, no different changes "
            f"tell {', '.join(model.coefficients)} apart",
            field=f"column {columns}",
        )


def _predicted(coefficients: Sequence[Fraction], row: Sequence[Fraction]) -> Fraction:
    return sum((c * x for c, x in zip(coefficients, row, strict=True)), Fraction(0))


def _check(kind: str, model: Model, samples: Sequence[Sample]) -> None:
    count, need = len(samples), len(model.coefficients)
    if not count:
        more = " with a batch size above 1" if kind == "decode" else ""
        raise InputError(f"holds no row of kind {kind!r}{more}, which {model.equation} needs", field="kind")
    for k, column in enumerate(KINDS[kind][:-1]):
        first = samples[0].given[k]
        if model.overhead and all(s.given[k] == first for s in samples):
            raise InputError(
                f"is {first} in all {count} rows of kind {kind!r} that {model.equation} uses; it must vary",
                field=f"column {column!r}",
            )
    if count < need:
        raise InputError(
            f"{count} rows of kind {kind!r}; {model.equation} has {need} coefficients and needs as many",
            field="kind",
        )


def _rounded(
    exact: Sequence[Fraction], rows: Sequence[Features], samples: Sequence[Sample], cover: str
) -> tuple[Fraction, ...]:
    """Coefficients as short decimals; upwards where the model must stay above."""
    found = []
    for k, value in enumerate(exact):
        most = ROUNDING * min(s.measured / row[k] for s, row in zip(samples, rows, strict=True))
        step = Fraction(10) ** math.floor(math.log10(most))
        found.append((math.ceil(value / step) if cover == "above" else round(value / step)) * step)
    return tuple(found)


def _inverse(matrix: Any) -> Any:
    """Inverse of the normal matrix of independent columns of any units."""
    import numpy as np

    lengths = np.linalg.norm(matrix, axis=0)
    part = np.linalg.pinv(matrix / lengths)
    return (part @ part.T) / np.outer(lengths, lengths)


def _with_interval(made: Fit, samples: Sequence[Sample], predicted: Sequence[Fraction]) -> Fit:
    """The same fit with the largest half width of its intervals."""
    if made.standard_error is None:
        return made
    shares, widths = [], []
    for sample, value in zip(samples, predicted, strict=True):
        width = made.half_width(*sample.given)
        assert width is not None
        widths.append(width)
        shares.append(width / float(value))
    slope = float(made.coefficients[0])
    tokens = max(widths) / slope if slope and "tokens" in KINDS[made.kind][0] else None
    return replace(made, interval=max(shares), interval_tokens=tokens)
