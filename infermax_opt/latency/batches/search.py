"""How many lines, where they meet, how attention is counted: chosen by cross-validation.

For given knees the coefficients are least squares with none below 0.  One knee is tried everywhere; of two,
each is moved in turn while that helps.  Lines whose overhead is below 0 are left out.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.infermax.data.cost import Attention
from infermax_opt.latency._least_squares import non_negative
from infermax_opt.latency.batches.design import Design, condensed, lines
from infermax_opt.latency.batches.samples import BatchSamples

__all__ = ["MOST_PIECES", "Choice", "Trial", "choose"]

#: Most lines; parts that the samples are split into; seed of the split.
MOST_PIECES, FOLDS, SEED = 3, 5, 0
#: Most places of a knee, while lines are chosen and for the final fit.
COARSE, FINE = 32, 64
#: One more line must take this share off the error.
WORTH = 0.02
#: Final fits, each among the numbers of tokens around the knees of the one before.
REFINED = 2
#: Rounds in which knees are moved in turn.
ROUNDS = 8

#: Knees, and the coefficients with steps there.
Fitted = tuple[tuple[float, ...], Any]


@dataclass(frozen=True)
class Trial:
    """A form of the model, and its error on samples that it was not fitted to.

    Attributes
    ----------
    attention : Attention
    pieces : int
    error : float
        Of samples that hold what is not attention: root of the mean square, as a share of the sample or in
        seconds.
    attention_error : float
        The same of samples that hold attention.
    """

    attention: Attention
    pieces: int
    error: float
    attention_error: float


@dataclass(frozen=True)
class Choice:
    """The form that was chosen, fitted to all samples.

    Attributes
    ----------
    design : Design
    knees : tuple of float
        Tokens.
    found : ndarray of float
        Coefficients of the columns of `Design.with_knees`.
    trials : tuple of Trial
        All forms that were compared; none where there was nothing to choose.
    """

    design: Design
    knees: tuple[float, ...]
    found: Any
    trials: tuple[Trial, ...]


def choose(
    samples: BatchSamples,
    pieces: int | None,
    attention: Attention | None,
    weights: str,
    cover: str,
    extra: Collection[str],
) -> Choice:
    """Choose the form of the model, and fit it.

    Parameters
    ----------
    samples : BatchSamples
    pieces : int or None
        Number of lines; None: the fewest that another one is not worth its place beside.
    attention : Attention or None
        None: what predicts better; "exact" where both are the same.
    weights, cover, extra
        See `Design.of`.

    Raises
    ------
    InputError
        If the samples do not determine the coefficients.
    """
    kinds = [Attention.EXACT, Attention.SQUARE] if attention is None else [attention]
    designs = [Design.of(samples, kind, weights, cover, extra) for kind in kinds]
    most = 1 + min(MOST_PIECES - 1, len(designs[0].knees(COARSE)))
    if pieces is not None and pieces > most:
        problem = f"{pieces} lines need as many numbers of tokens between the least and the largest, less one"
        raise InputError(problem, field="pieces", source=samples.path)
    if all(s.square == s.exact for _, s in samples.rows()):
        designs = designs[:1]
    counts = range(1, most + 1) if pieces is None else [pieces]
    trials: list[Trial] = []
    if len(designs) * len(counts) > 1:
        trials = [
            Trial(design.attention, count, *errors)
            for design in designs
            for count, errors in zip(counts, _errors(design, counts), strict=True)
        ]
    best = _best(trials) if trials else Trial(designs[0].attention, counts[0], math.nan, math.nan)
    design = next(some for some in designs if some.attention is best.attention)
    knees, found = _refined(design, best.pieces)
    return Choice(design, knees, found, tuple(trials))


def _refined(design: Design, pieces: int) -> Fitted:
    """The fit to all samples, its knees at any number of tokens that one has."""
    import numpy as np

    knees: tuple[float, ...] = ()
    for _ in range(REFINED):
        places = design.knees(FINE, near=knees)
        knees, _ = _fitted(condensed(design.weighted(places)), len(design.names), places, pieces)[-1]
        if not knees:
            break
    rows: Any = np.linalg.qr(design.weighted(knees), mode="r")
    found, _ = non_negative(rows[:, :-1], rows[:, -1])
    return knees, found


def _best(trials: Sequence[Trial]) -> Trial:
    """The fewest lines that suffice for each way to count attention; of these the better one."""
    found: dict[Attention, Trial] = {}
    for trial in trials:
        if trial.attention not in found or trial.error < (1 - WORTH) * found[trial.attention].error:
            found[trial.attention] = trial
    return min(found.values(), key=lambda trial: trial.attention_error)


def _errors(design: Design, counts: Sequence[int]) -> list[tuple[float, float]]:
    """Errors of each number of lines, as `Trial` has them, on samples left out of the fit."""
    import numpy as np

    number = len(design.measured)
    folds = min(FOLDS, number)
    part = np.random.default_rng(SEED).permutation(number) % folds
    places, base = design.knees(COARSE), len(design.names)
    parts = [condensed(design.weighted(places, part == k)) for k in range(folds)]
    held = (design.tokens >= 0, design.attends)
    squares = [[0.0] * len(held) for _ in counts]
    for k in range(folds):
        others = condensed(np.vstack([some for j, some in enumerate(parts) if j != k]))
        fits = _fitted(others, base, places, max(counts))
        for which, some in enumerate(held):
            left_out = parts[k] if some.all() else design.weighted(places, (part == k) & some)
            for index, count in enumerate(counts):
                knees, found = fits[min(count, len(fits)) - 1]
                squares[index][which] += _squares(left_out, base, places, knees, found)
    sizes = [max(1, int(some.sum())) for some in held]
    return [(math.sqrt(first / sizes[0]), math.sqrt(second / sizes[1])) for first, second in squares]


def _fitted(reduced: Any, base: int, places: Sequence[float], most: int) -> list[Fitted]:
    """The best knees and coefficients for one line, two, up to `most`; fewer where none are better."""
    found = [_solve(reduced, base, places, ())]
    for count in range(2, most + 1):
        knees = _moved(reduced, base, places, found[-1][0], count - 1)
        if knees is None:
            break
        found.append(_solve(reduced, base, places, knees))
    return found


def _moved(
    reduced: Any, base: int, places: Sequence[float], start: tuple[float, ...], count: int
) -> tuple[float, ...] | None:
    """The best knees, from those with one less: a new one anywhere, then each in turn anew."""
    best = _placed(reduced, base, places, start)
    for _ in range(ROUNDS):
        before = best
        for index in range(count if best and count > 1 else 0):
            assert best is not None
            other = _placed(reduced, base, places, best[1][:index] + best[1][index + 1 :])
            if other is not None and other[0] < best[0]:
                best = other
        if best == before:
            break
    return None if best is None else best[1]


def _placed(
    reduced: Any, base: int, places: Sequence[float], fixed: tuple[float, ...]
) -> tuple[float, tuple[float, ...]] | None:
    """The error with one more knee where it is best, and all knees."""
    errors = (
        (_error(reduced, base, places, knees), knees)
        for knees in (tuple(sorted([*fixed, place])) for place in places if place not in fixed)
    )
    return min(((error, knees) for error, knees in errors if error is not None), default=None)


def _columns(base: int, places: Sequence[float], knees: Sequence[float]) -> list[int]:
    return [*range(base), *(base + places.index(knee) for knee in knees)]


def _solve(reduced: Any, base: int, places: Sequence[float], knees: tuple[float, ...]) -> Fitted:
    found, _ = non_negative(reduced[:, _columns(base, places, knees)], reduced[:, -1])
    return knees, found


def _error(reduced: Any, base: int, places: Sequence[float], knees: tuple[float, ...]) -> float | None:
    """Sum of squares with these knees; None where the overhead of a line is below 0."""
    import numpy as np

    # What has a few columns takes as many rows.
    small: Any = np.linalg.qr(reduced[:, [*_columns(base, places, knees), -1]], mode="r")
    found, _ = non_negative(small[:, :-1], small[:, -1])
    if lines([*found[:2], *found[base:]], knees)[-1][0] < 0:
        return None
    return float(((small[:, :-1] @ found - small[:, -1]) ** 2).sum())


def _squares(reduced: Any, base: int, places: Sequence[float], knees: tuple[float, ...], found: Any) -> float:
    """Sum of squares of coefficients that were fitted elsewhere."""
    return float(((reduced[:, _columns(base, places, knees)] @ found - reduced[:, -1]) ** 2).sum())
