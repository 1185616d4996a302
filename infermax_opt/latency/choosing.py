"""The best number of GPUs per worker, of profiles or of measured samples."""

from __future__ import annotations

from collections.abc import Sequence

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import Number, to_fraction
from infermax_opt.latency.configuration import Configuration, Demand, configure
from infermax_opt.latency.fit import Fit
from infermax_opt.latency.options import chosen_profiles, options_of_profiles, options_of_samples
from infermax_opt.latency.samples import Samples

__all__ = ["configure_worker"]


def configure_worker(
    demand: Demand,
    *,
    atgt: Number,
    ttft: Number | None = None,
    profiles: Sequence[str] = (),
    samples: Samples | None = None,
    memory: tuple[Number, Number] | None = None,
    gpus: Sequence[int] = (),
    weights: str = "relative",
    cover: str = "mean",
) -> tuple[Configuration, tuple[Fit, ...]]:
    """Choose the GPUs of a worker: the most tokens per second and GPU (Aladdin, eq 6).

    Parameters
    ----------
    demand : Demand
        What requests need: see `demand_of`.
    atgt, ttft : decimal
        Limits on the average time of a generated token, and of the first one, s; the latter if wanted.
    profiles : sequence of str
        Cost profiles to choose from; without ``_tpN``, all numbers of GPUs.
    samples : Samples, optional
        Instead of profiles: what was measured (see `read_samples`).
    memory : pair of decimals, optional
        With samples: usable memory of a GPU and memory of the model, in the unit of the KV samples.
    gpus : sequence of int
        With samples: numbers of GPUs to choose from; none are the measured ones.
    weights : {"relative", "absolute"}
    cover : {"mean", "above"}
        With samples: how they are fitted, as in `calibrate`.

    Returns
    -------
    Configuration
        Its `best` is None where no worker serves the demand.
    tuple of Fit
        Of the samples.

    Raises
    ------
    InputError
        If there are not either profiles or samples, or one is unusable.
    """
    if bool(profiles) == (samples is not None):
        raise InputError("give profiles, or samples", field="profiles")
    if samples is None:
        return configure(options_of_profiles(chosen_profiles(profiles), demand), demand, atgt, ttft), ()
    if memory is None:
        raise InputError("of a GPU and of the model is needed with samples", field="memory")
    usable, model = map(to_fraction, memory)
    found, fits = options_of_samples(
        samples, demand, usable, model, tuple(gpus), weights=weights, cover=cover
    )
    return configure(found, demand, atgt, ttft), tuple(fits)
