"""Workers of cost profiles: Aladdin's affine models of a profile's batch times.

- Eq 1: KV is counted in tokens.
- Eq 2 is a fit, as prefill attention has a squared term: to batches of prompts of up to `max_context`
  tokens each and `max_prefill_tokens` in all.
- Eq 3 is exact for a profile with one slope, for a batch of b requests with `context` cached tokens before
  the iteration.  One with several slopes is fitted to batches of up to `max_batch` requests of up to
  `max_context` tokens each.

With cover "above", a model is at least the profile's time for every batch within these ranges, not only for
the sampled ones.  Batch times are convex in batch size and context, so that an affine model above them at
the corners is above them all; a prefill of so many tokens takes longest in prompts of `max_context`
tokens and a rest, and there the time is convex between multiples of `max_context`.  One token, the first and
the last such multiple, and the most tokens are among the samples.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.core.shown import ShownRows
from infermax_opt.infermax.data.cost import BatchFeatures, CostModel, prefill_work
from infermax_opt.infermax.data.profiles import Profile, load_profile
from infermax_opt.latency.calibration import TOKENS, worker_of_models
from infermax_opt.latency.fit import Fit, fit
from infermax_opt.latency.samples import Sample
from infermax_opt.placement.data.instance import Worker

__all__ = [
    "MAX_BATCH",
    "MAX_CONTEXT",
    "MAX_PREFILL_TOKENS",
    "ProfileFit",
    "decode_lines",
    "decode_seconds",
    "fit_profile",
    "prefill_seconds",
    "profile_gpus",
    "worker_of_profile",
]

#: Ranges of the fits, if not given: the context length of Llama 2, four such prompts, vLLM's default batch.
MAX_CONTEXT, MAX_PREFILL_TOKENS, MAX_BATCH = 4096, 16384, 256
#: Most that a range may be.
MOST = 10**7
#: Samples of total prefill tokens, and of batch sizes.
TOTALS, BATCHES = 64, 24


@dataclass(frozen=True)
class ProfileFit(ShownRows):
    """A worker made of a profile.

    Attributes
    ----------
    profile : Profile
    worker : Worker
    prefill : Fit
    decode : Fit or None
        None where eq 3 is the profile's own model.
    max_context, max_prefill_tokens, max_batch : int
        Ranges of the fits.
    """

    profile: Profile
    worker: Worker
    prefill: Fit
    decode: Fit | None
    max_context: int
    max_prefill_tokens: int
    max_batch: int

    def facts(self) -> Mapping[str, Any]:
        """The profile, the worker's GPUs, and the mean errors; no error of decode where eq 3 is exact."""
        return {
            "profile": self.profile.name,
            "gpus": self.worker.gpus,
            "prefill_error": self.prefill.mean_relative,
            "decode_error": None if self.decode is None else self.decode.mean_relative,
        }

    def rows_shown(self) -> Iterable[Mapping[str, Any]]:
        """A row for each fit: its coefficients, and how well they fit."""
        return (fit.row for fit in (self.prefill, self.decode) if fit is not None)


def worker_of_profile(
    profile: str | Profile,
    *,
    cover: str = "mean",
    weights: str = "relative",
    max_context: int = MAX_CONTEXT,
    max_prefill_tokens: int = MAX_PREFILL_TOKENS,
    max_batch: int = MAX_BATCH,
) -> Worker:
    """Return the worker of `fit_profile`, without its errors.

    Parameters
    ----------
    profile, cover, weights, max_context, max_prefill_tokens, max_batch
        As `fit_profile` takes them.
    """
    return fit_profile(
        profile,
        cover=cover,
        weights=weights,
        max_context=max_context,
        max_prefill_tokens=max_prefill_tokens,
        max_batch=max_batch,
    ).worker


def fit_profile(
    profile: str | Profile,
    *,
    cover: str = "mean",
    weights: str = "relative",
    max_context: int = MAX_CONTEXT,
    max_prefill_tokens: int = MAX_PREFILL_TOKENS,
    max_batch: int = MAX_BATCH,
) -> ProfileFit:
    """Make a worker of a cost profile.

    Parameters
    ----------
    profile : str or Profile
    cover : {"mean", "above"}
        Least squares, or the least affine models above: an underestimating model lets placements break
        their latency limits.
    weights : {"relative", "absolute"}
    max_context : int
        Tokens of the longest prompt and of the longest context of a request.
    max_prefill_tokens : int
        Tokens of a prefill batch, at least `max_context`.
    max_batch : int
        Requests of a decode batch.

    Raises
    ------
    InputError
        If there is no such profile or a range is no such number.
    """
    if isinstance(profile, str):
        profile = load_profile(profile)
    for name, value, least in (
        ("max_context", max_context, 16),
        ("max_prefill_tokens", max_prefill_tokens, max_context),
        ("max_batch", max_batch, 2),
    ):
        if not least <= value <= MOST:
            raise InputError(f"{value} is not between {least} and {MOST}", field=name)
    cost = profile.cost
    prefill = fit("prefill", _prefills(cost, max_context, max_prefill_tokens), weights=weights, cover=cover)
    lines = decode_lines(cost)
    decode = None
    if len(lines) > 1:
        decode = fit("decode", _decodes(cost, max_batch, max_context), weights=weights, cover=cover)
    worker = worker_of_models(
        Fraction(profile.capacity),
        TOKENS,
        prefill.coefficients,
        decode.coefficients if decode else lines[0],
        profile_gpus(profile),
    )
    return ProfileFit(profile, worker, prefill, decode, max_context, max_prefill_tokens, max_batch)


def profile_gpus(profile: Profile) -> int:
    """GPUs that a profile's device text names (``h100_sxm x4``)."""
    match = re.search(r" x(\d+)$", profile.device)
    return int(match[1]) if match else 1


def decode_lines(cost: CostModel) -> tuple[tuple[Fraction, Fraction, Fraction], ...]:
    """Coefficients (k2, c2, c3) of eq 3, one for each slope; a decode batch takes the most of these."""
    unit = cost.seconds
    return tuple((unit.d1, beta, alpha + unit.d0) for alpha, beta in zip(unit.alpha, unit.beta, strict=True))


def prefill_seconds(cost: CostModel, prompts: list[int]) -> Fraction:
    """Exact time of a batch that prefills whole prompts of so many tokens."""
    work = sum(prefill_work(cost.exact_attention, tokens, 0) for tokens in prompts)
    return cost.to_seconds(cost.batch_ticks(BatchFeatures(sum(prompts), 0, 0, len(prompts), work)))


def decode_seconds(cost: CostModel, context: int, batch: int) -> Fraction:
    """Exact time of a batch that decodes `batch` requests with `context` cached tokens in all.

    Parameters
    ----------
    cost : CostModel
    context : int
        Cached tokens of all requests.
    batch : int
        Requests.
    """
    return cost.to_seconds(cost.batch_ticks(BatchFeatures(batch, batch, context, 0, 0)))


def _prefills(cost: CostModel, longest: int, most: int) -> list[Sample]:
    """Batches of up to `most` tokens in prompts of the longest, a quarter and a 16th of its length."""
    totals = {1, longest, most // longest * longest, most}
    totals |= {max(1, most * k // TOTALS) for k in range(1, TOTALS)}
    chosen = set[tuple[int, int]]()
    for total in totals:
        chosen |= {(total, min(total, longest // part)) for part in (1, 4, 16)}
    samples = []
    for total, size in sorted(chosen):
        prompts = [size] * (total // size) + [total % size] * (total % size > 0)
        samples.append(Sample((total,), prefill_seconds(cost, prompts)))
    return samples


def _decodes(cost: CostModel, most: int, longest: int) -> list[Sample]:
    """Batches of 1 to `most` requests with contexts of 1 to `longest` tokens each."""
    batches = {1, most} | {round(most ** (k / BATCHES)) for k in range(1, BATCHES)}
    contexts = (1, longest // 16, longest // 4, longest)
    return [
        Sample((batch * each, batch), decode_seconds(cost, batch * each, batch))
        for batch in sorted(batches)
        for each in contexts
    ]
