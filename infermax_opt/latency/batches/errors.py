"""How far a cost model is from samples: errors by kind of batch, and a band of factors around it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from statistics import median_low
from typing import NamedTuple

from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.profiles import Band
from infermax_opt.latency.batches.samples import PARTS, REGIONS, BatchSamples, Sample, region

__all__ = ["Errors", "Region", "band_of", "errors_by_region", "predicted"]

#: Significant digits of the factors of a band.
DIGITS = 4


class Errors(NamedTuple):
    """Distances of predictions from samples, as shares of the sample."""

    samples: int
    mean: float
    median: float
    p95: float
    maximum: float

    @classmethod
    def of(cls, shares: Sequence[float]) -> Errors:
        """The errors of one sample or more."""
        found = sorted(map(abs, shares))
        number = len(found)
        middle = (found[(number - 1) // 2] + found[number // 2]) / 2
        rank = math.ceil(0.95 * number) - 1
        return cls(number, math.fsum(found) / number, middle, found[rank], found[-1])


class Region(NamedTuple):
    """A kind of samples with the errors there."""

    name: str
    meaning: str
    errors: Errors


def predicted(cost: CostModel, part: str, samples: Sequence[Sample]) -> list[float]:
    """Seconds that the model says of a part of batches.

    Parameters
    ----------
    cost : CostModel
    part : str
        One of `PARTS`.
    samples : sequence of Sample
    """
    ticks = cost.many_batch_ticks([s.features(cost.attention) for s in samples])
    if part == "attention":
        dense = cost.many_batch_ticks([(s.tokens, 0, 0, 0, 0) for s in samples])
        ticks = [whole - some for whole, some in zip(ticks, dense, strict=True)]
    return [float(cost.to_seconds(some)) for some in ticks]


def _shares(cost: CostModel, part: str, samples: Sequence[Sample]) -> list[float]:
    return [
        guess / float(s.seconds) - 1 for guess, s in zip(predicted(cost, part, samples), samples, strict=True)
    ]


def errors_by_region(cost: CostModel, samples: BatchSamples) -> list[Region]:
    """Errors of whole batches by their kind and size, then of the parts that were measured alone."""
    found: list[Region] = []

    def add(name: str, meaning: str, shares: Sequence[float]) -> None:
        if shares:
            found.append(Region(name, meaning, Errors.of(shares)))

    batches = samples.batches
    if batches:
        shares = _shares(cost, "batch", batches)
        add("all", "whole batches", shares)
        middle = median_low(sorted(s.tokens for s in batches))
        tests: Mapping[str, Callable[[Sample], bool]] = {
            "small": lambda s: s.tokens <= middle,
            "large": lambda s: s.tokens > middle,
        }
        words = {"small": f"of at most {middle} tokens", "large": f"of more than {middle} tokens"}
        for name, test in tests.items():
            add(name, words[name], [e for e, s in zip(shares, batches, strict=True) if test(s)])
        for name in REGIONS:
            add(name, "whole batches", [e for e, s in zip(shares, batches, strict=True) if region(s) == name])
    for part in PARTS[1:]:
        some = samples.parts.get(part, ())
        shares = _shares(cost, part, some) if some else []
        if part == "dense":
            add("dense", "all but attention", shares)
            continue
        for name in REGIONS:
            alone = [e for e, s in zip(shares, some, strict=True) if region(s) == name]
            add(f"attention, {name}", "attention alone", alone)
    return found


def band_of(cost: CostModel, samples: BatchSamples, share: Fraction) -> Band:
    """The factors closest together, as hi / lo, between which this share of the samples lies.

    Whole batches count, or the samples without attention where there are no others.  Factors are rounded
    outwards.

    Parameters
    ----------
    cost : CostModel
    samples : BatchSamples
    share : Fraction
        Above 0, at most 1.
    """
    part, some = ("batch", samples.batches) if samples.batches else ("dense", samples.parts["dense"])
    ratios = sorted(
        float(s.seconds) / guess
        for guess, s in zip(predicted(cost, part, some), some, strict=True)
        if guess > 0
    )
    number = math.ceil(share * len(ratios))
    lo, hi = min(zip(ratios, ratios[number - 1 :], strict=False), key=lambda pair: pair[1] / pair[0])
    return Band(share, _outwards(lo, math.floor), _outwards(hi, math.ceil))


def _outwards(value: float, rounding: Callable[[Fraction], int]) -> Fraction:
    """A factor as a short decimal."""
    step = Fraction(10) ** (math.floor(math.log10(value)) + 1 - DIGITS)
    return rounding(Fraction(value) / step) * step
