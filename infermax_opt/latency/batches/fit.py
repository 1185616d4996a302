"""The cost model fitted to measured batches, with its errors and its band.

Coefficients are decimals of `DIGITS` significant digits, none below 0.  A model that is to lie above its
samples is rounded up, and that it does is checked in exact arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.core.shown import ShownRows
from infermax_opt.infermax.data.cost import Attention, CostModel
from infermax_opt.infermax.data.profiles import Band
from infermax_opt.latency._least_squares import non_negative
from infermax_opt.latency.batches.above import least_above
from infermax_opt.latency.batches.design import COEFFICIENTS, lines
from infermax_opt.latency.batches.errors import Region, band_of, errors_by_region, predicted
from infermax_opt.latency.batches.samples import BatchSamples, Sample, region
from infermax_opt.latency.batches.search import MOST_PIECES, Choice, Trial, choose
from infermax_opt.latency.fit import check_choices

__all__ = ["DIGITS", "BatchFit", "fit_batches"]

#: Significant digits of a coefficient.
DIGITS = 5
#: Coefficients below this many seconds are 0.
NOTHING = 1e-20
#: Mean error of a kind of batch from which on a term for it is worth a word.
LARGE = 0.05
#: Terms that may be left out: the kind of batch that each helps, the kinds that must be nearer already, and
#: what is said where it is 0.
EXTRA_TERMS = {
    "prefix": ("pure prefill", (), "no chunk takes longer for what it comes behind: prefix is 0"),
    "mixed": (
        "mixed",
        ("pure decode", "pure prefill"),
        "no batch of both kinds takes longer than the other terms say: e0 and e1 are 0",
    ),
}
#: Times a model that is to lie above is raised and rounded up before it is given up.
ROUNDS = 8


@dataclass(frozen=True)
class BatchFit(ShownRows):
    """A fitted cost model.

    Attributes
    ----------
    samples : BatchSamples
    cost : CostModel
        As fitted: without any overhead of the host.
    knees : tuple of int
        Tokens at which the lines of the non-attention time meet.
    weights, cover : str
    trials : tuple of Trial
        Forms that were compared by cross-validation.
    regions : tuple of Region
    band : Band
    notes : tuple of str
        What was left out, and what the samples do not tell.
    """

    samples: BatchSamples
    cost: CostModel
    knees: tuple[int, ...]
    weights: str
    cover: str
    trials: tuple[Trial, ...]
    regions: tuple[Region, ...]
    band: Band
    notes: tuple[str, ...]

    def facts(self) -> Mapping[str, Any]:
        """What was fitted, the form that was chosen, the errors of all batches as shares, and the band."""
        everywhere = next((some.errors for some in self.regions if some.name == "all"), None)
        return {
            "measured": self.samples.title,
            "samples": len(self.samples.batches),
            "pieces": len(self.cost.batch),
            "attention": self.cost.attention,
            "mean_error": None if everywhere is None else everywhere.mean,
            "max_error": None if everywhere is None else everywhere.maximum,
            "band_lo": self.band.lo,
            "band_hi": self.band.hi,
        }

    def rows_shown(self) -> Iterable[Mapping[str, Any]]:
        """A row for each kind of batches: the errors there, as shares of what was measured."""
        for some in self.regions:
            yield {"batches": some.name, "meaning": some.meaning, **some.errors._asdict()}


def fit_batches(
    samples: BatchSamples,
    *,
    pieces: int | None = None,
    attention: Attention | str | None = None,
    weights: str = "relative",
    cover: str = "mean",
    mixed: bool = False,
    prefix: bool = False,
    composed: bool = False,
    share: Fraction = Fraction(9, 10),
) -> BatchFit:
    """Fit the cost model to measured batches.

    Parameters
    ----------
    samples : BatchSamples
    pieces : int, optional
        Lines of the non-attention time, 1 to 3; chosen by cross-validation, if not given.
    attention : {"square", "exact"}, optional
        How prefill work is counted; chosen by cross-validation, if not given.
    weights : {"relative", "absolute"}
        Whether residuals count as shares of what was measured.
    cover : {"mean", "above"}
        Least squares, or the least model of the same form that is at least every sample.
    mixed : bool
        Whether to fit what batches of both kinds take longer.  Where attention was measured alone, that is
        fitted to what the other terms leave of it.
    prefix : bool
        Whether to fit what chunks take longer for the reads of what they come behind.
    composed : bool
        Whether to fit whole batches, composed of what was measured apart, rather than each part.
    share : Fraction
        Of the samples that the band holds.

    Raises
    ------
    InputError
        If the samples do not determine the coefficients, or nothing was measured apart.
    """
    check_choices(weights, cover)
    if pieces is not None and not 1 <= pieces <= MOST_PIECES:
        raise InputError(f"{pieces} is not between 1 and {MOST_PIECES}", field="pieces")
    if not 0 < share <= 1:
        raise InputError(f"{float(share):g} is not above 0 and at most 1", field="share")
    kind = None if attention is None else Attention(attention)
    extra = [name for name, asked in (("mixed", mixed), ("prefix", prefix)) if asked]
    try:
        fitted = samples.composed() if composed else samples
        chosen = choose(fitted, pieces, kind, weights, cover, extra)
        cost = _above(chosen, fitted) if cover == "above" else _mean(chosen, fitted, weights, mixed)
        _check_times(cost, samples)
    except InputError as error:
        raise error.within(samples.path) from None
    regions = tuple(errors_by_region(cost, samples))
    return BatchFit(
        samples, cost, tuple(int(knee) for knee in chosen.knees), weights, cover, chosen.trials,
        regions, band_of(cost, samples, share),
        (*samples.notes, *_untold(chosen, fitted), *_on_extra(cost, fitted, regions, extra)),
    )  # fmt: skip


def _mean(chosen: Choice, samples: BatchSamples, weights: str, mixed: bool) -> CostModel:
    """The fitted model; what was left out of the fit, batches of both kinds, gets its term afterwards.

    Parameters
    ----------
    chosen : Choice
    samples : BatchSamples
    weights : str
    mixed : bool
        Whether there is such a term.
    """
    cost = _cost(chosen, chosen.found)
    if not mixed or samples.form != "kernels":
        return cost
    part = "batch" if "batch" in samples.parts else "attention"
    return replace(cost, mixed=_beside(cost, part, samples.parts[part], weights))


def _check_times(cost: CostModel, samples: BatchSamples) -> None:
    """Check that every measured batch takes some time in the model."""
    part, some = ("batch", samples.batches) if samples.batches else ("dense", samples.parts["dense"])
    for sample, seconds in zip(some, predicted(cost, part, some), strict=True):
        if not seconds:
            problem = f"in the best fit a {region(sample)} batch of {sample.tokens} tokens takes no time"
            raise InputError(problem)


def _cost(chosen: Choice, found: Any, *, upwards: bool = False) -> CostModel:
    """The model of these coefficients, rounded."""
    names = chosen.design.names
    by_name = dict.fromkeys(COEFFICIENTS, 0.0) | dict(zip(names, map(float, found), strict=False))
    steps = [float(step) for step in found[len(names) :]]
    pieces = lines([by_name["alpha"], by_name["beta"], *steps], chosen.knees)

    def pair(first: float, second: float) -> tuple[Fraction, Fraction]:
        return _rounded(first, upwards), _rounded(second, upwards)

    return CostModel(
        # A step of 0 gives the same line again.
        list(dict.fromkeys(pair(*line) for line in pieces)),
        pair(by_name["d0"], by_name["d1"]),
        pair(by_name["p0"], by_name["p1"]),
        chosen.design.attention,
        mixed=pair(by_name["e0"], by_name["e1"]),
        prefix=_rounded(by_name["p2"], upwards),
    )


def _beside(cost: CostModel, part: str, some: Sequence[Sample], weights: str) -> tuple[Fraction, Fraction]:
    """What a part of batches of both kinds takes longer than the model says, by least squares.

    Parameters
    ----------
    cost : CostModel
    part : str
        Of `PARTS`.
    some : sequence of Sample
        Of that part.
    weights : str
    """
    import numpy as np

    both = [sample for sample in some if region(sample) == "mixed"]
    if not both:
        return Fraction(0), Fraction(0)
    measured = np.array([float(sample.seconds) for sample in both])
    scale = measured if weights == "relative" else np.ones_like(measured)
    rows = np.array([[1.0, sample.decode_kv] for sample in both]) / scale[:, None]
    found, _ = non_negative(rows, (measured - np.array(predicted(cost, part, both))) / scale)
    e0, e1 = map(float, found)
    return _rounded(e0, upwards=False), _rounded(e1, upwards=False)


def _on_extra(
    cost: CostModel, samples: BatchSamples, regions: Sequence[Region], asked: Sequence[str]
) -> list[str]:
    """Where a term that may be left out would help, and where it was asked for in vain.

    Parameters
    ----------
    cost : CostModel
    samples : BatchSamples
    regions : sequence of Region
    asked : sequence of {"mixed", "prefix"}
    """
    errors = {found.name: found.errors.mean for found in regions}
    told = {
        "mixed": any(s.decodes and s.prefills for _, s in samples.rows()),
        "prefix": any(s.prefill_kv for _, s in samples.rows()),
    }
    found = []
    for term, (kind, others, vain) in EXTRA_TERMS.items():
        if term in asked:
            found += [] if any(_coefficients(cost, term)) else [vain]
        elif told[term] and errors.get(kind, 0.0) > max([LARGE, *(errors.get(name, 0.0) for name in others)]):
            share = f"{errors[kind]:.1%}".replace("%", " %")
            found.append(
                f"{kind} batches are {share} off: --{term} fits a term for them, which no exact engine takes"
            )
    return found


def _coefficients(cost: CostModel, term: str) -> Sequence[Any]:
    return cost.mixed if term == "mixed" else (cost.prefix,)


def _rounded(value: float, upwards: bool) -> Fraction:
    if value < NOTHING:
        return Fraction(0)
    step = Fraction(10) ** (math.floor(math.log10(value)) + 1 - DIGITS)
    share = Fraction(value) / step
    return (math.ceil(share) if upwards else round(share)) * step


def _above(chosen: Choice, samples: BatchSamples) -> CostModel:
    """The least model of the chosen form that lies above all samples, exactly."""
    found = least_above(chosen.design, chosen.knees)
    cost = _cost(chosen, found, upwards=True)
    for _ in range(ROUNDS):
        short = max(_largest_share(cost, part, samples) for part in samples.parts)
        if short <= 1:
            return cost
        found = found * float(short) * (1 + 1e-9)
        cost = _cost(chosen, found, upwards=True)
    raise InputError("the least model above the samples was not found", field="cover")


def _largest_share(cost: CostModel, part: str, samples: BatchSamples) -> Fraction:
    """Largest measured time of a part as a share of the model's, exact; 1 or less: none lies above it."""
    some = samples.parts[part]
    ticks = cost.many_batch_ticks([s.features(cost.attention) for s in some])
    if part == "attention":
        dense = cost.many_batch_ticks([(s.tokens, 0, 0, 0, 0) for s in some])
        ticks = [whole - rest for whole, rest in zip(ticks, dense, strict=True)]
    # Of those that are closest; floats are near enough to tell which these are.
    ratios: Sequence[float] = [
        float(s.seconds) * cost.ticks_per_second / max(tick, 1) for s, tick in zip(some, ticks, strict=True)
    ]
    most = max(ratios)
    return max(
        s.seconds / cost.to_seconds(max(tick, 1))
        for s, tick, ratio in zip(some, ticks, ratios, strict=True)
        if ratio >= most * (1 - 1e-9)
    )


def _untold(chosen: Choice, samples: BatchSamples) -> list[str]:
    """Coefficients that are 0 as nothing was measured that would tell them."""
    names = chosen.design.names
    found = []
    every = [s for _, s in samples.rows()]
    for kind, slope, fixed, some in (
        ("decode", "d1", "d0", any(s.decodes for s in every)),
        ("prefill", "p1", "p0", any(s.prefills for s in every)),
    ):
        if not some:
            found.append(f"no sample has {kind} attention: {fixed} and {slope} are 0")
        elif fixed not in names:
            found.append(
                f"the samples do not tell {fixed} from the other overheads of a batch: it is in them"
            )
        assert not some or slope in names
    return found
