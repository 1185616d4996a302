"""The workers to choose from: of shipped profiles, or of measured samples.

Samples of decode iterations on some numbers of GPUs say what those take (eq 3).  For another number N, what
was measured on the most GPUs below N is scaled by eq 5: with the computing time t(N) = k4 / N + c4 and
the communication time u(N) = k5 (N - 1) / N, both of one iteration, ::

    k2, c2, c3 on N GPUs  =  r k2,  r c2,  r (c3 - u(N0)) + u(N),     r = t(N) / t(N0)

so that all of an iteration but its communication shrinks as the measured shape does.  Prefill shrinks by r.
The KV capacity is M = N m_gpu - m_model, in the unit in which KV was measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fractions import Fraction

from infermax_opt.core.errors import InputError
from infermax_opt.infermax.data.profiles import load_profile, profile_names
from infermax_opt.latency.calibration import TOKENS
from infermax_opt.latency.configuration import Demand, Option
from infermax_opt.latency.fit import Fit, fit_measured
from infermax_opt.latency.profiles import decode_lines, prefill_seconds, profile_gpus
from infermax_opt.latency.samples import Samples
from infermax_opt.placement.data.instance import MAX_GPUS

__all__ = ["chosen_profiles", "options_of_profiles", "options_of_samples"]


def chosen_profiles(names: Iterable[str]) -> tuple[str, ...]:
    """Profiles by name, or by a name without its number of GPUs (``llama-3.1-70b_h100``): all of those.

    Raises
    ------
    InputError
        If a name is neither.
    """
    found: dict[str, None] = {}
    for name in names:
        if name in profile_names():
            found[name] = None
            continue
        bare = [other for other in profile_names() if re.sub(r"_tp\d+(?=_|$)", "", other) == name]
        if not bare:
            load_profile(name)  # says which there are
        found.update(dict.fromkeys(bare))
    return tuple(found)


def options_of_profiles(names: Sequence[str], demand: Demand) -> list[Option]:
    """Options made of profiles of one model; exact, also where a profile has several slopes.

    Parameters
    ----------
    names : sequence of str
        Names of profiles.
    demand : Demand

    Raises
    ------
    InputError
        If the profiles are of different models, or two of them of the same GPUs.
    """
    options: list[Option] = []
    models: dict[str, str] = {}
    for name in names:
        profile = load_profile(name)
        models.setdefault(profile.model, name)
        if len(models) > 1:
            (one, first), (other, second) = models.items()
            raise InputError(
                f"{first} is of {one}, {second} of {other}; a worker serves one model", field="profile"
            )
        gpus = profile_gpus(profile)
        device = profile.device.removesuffix(f" x{gpus}")
        for option in options:
            if (option.device, option.gpus) == (device, gpus):
                raise InputError(
                    f"{option.name} and {name} are both of {profile.device}; they leave no choice of GPUs",
                    field="profile",
                )
        prompt = prefill_seconds(profile.cost, [demand.longest_prompt])
        options.append(
            Option(name, device, gpus, Fraction(profile.capacity), TOKENS, decode_lines(profile.cost), prompt)
        )
    return options


def options_of_samples(
    samples: Samples,
    demand: Demand,
    gpu_memory: Fraction,
    model_memory: Fraction,
    gpus: Sequence[int] = (),
    *,
    weights: str = "relative",
    cover: str = "mean",
) -> tuple[list[Option], list[Fit]]:
    """Options made of measured samples, and the fits that they were made of.

    Parameters
    ----------
    samples : Samples
        With rows of kind kv and decode; also compute (and comm, if that takes time) for numbers of GPUs
        without decode rows.  Without prefill rows the time of a prefill is not known.
    demand : Demand
    gpu_memory, model_memory : Fraction
        Usable memory of a GPU, and of the model, in the unit of the KV samples.
    gpus : sequence of int
        Numbers of GPUs to choose from; those of the decode and compute rows, if not given.
    weights, cover : str
        Of `fit_measured`.

    Raises
    ------
    InputError
        Naming what the samples lack.
    """
    numbers = sorted(set(gpus)) or samples.gpus("decode", "compute")
    for number in numbers:
        if not 1 <= number <= MAX_GPUS:
            raise InputError(f"{number} is not between 1 and {MAX_GPUS}", field="gpus")
    scaling = _Scaling(samples, weights, cover)
    h, j = scaling.fit("kv").coefficients
    options = []
    for number in numbers or (1,):
        capacity = number * gpu_memory - model_memory
        decode = scaling.decode(number)
        prompt = None
        if samples.of("prefill"):
            prompt = scaling.prefill(number, demand.longest_prompt)
        options.append(Option(samples.path, "", number, capacity, (h, j), (decode,), prompt))
    return options, list(scaling.fits.values())


class _Scaling:
    """Eqs 2 and 3 for any number of GPUs; fits what is asked for, once."""

    def __init__(self, samples: Samples, weights: str, cover: str):
        self.samples = samples
        self.weights = weights
        self.cover = cover
        self.fits: dict[tuple[str, int | None], Fit] = {}

    def fit(self, kind: str, gpus: int | None = None) -> Fit:
        key = kind, gpus
        if key not in self.fits:
            self.fits[key] = fit_measured(
                self.samples, kind, gpus=gpus, weights=self.weights, cover=self.cover
            )
        return self.fits[key]

    def _measured(self, kind: str, gpus: int) -> int:
        """The measured number of GPUs to scale from."""
        known = self.samples.gpus(kind)
        if not known:
            self.fit(kind)  # says that there is none
        return max((n for n in known if n <= gpus), default=known[0])

    def _share(self, gpus: int, base: int) -> Fraction:
        if gpus == base:
            return Fraction(1)
        compute = self.fit("compute")
        return compute.predict(gpus) / compute.predict(base)

    def _comm(self, gpus: int) -> Fraction:
        return self.fit("comm").predict(gpus) if gpus > 1 and self.samples.of("comm") else Fraction(0)

    def prefill(self, gpus: int, tokens: int) -> Fraction:
        """Time of a prefill of so many tokens."""
        base = self._measured("prefill", gpus)
        return self.fit("prefill", base).predict(tokens) * self._share(gpus, base)

    def decode(self, gpus: int) -> tuple[Fraction, Fraction, Fraction]:
        """Coefficients of eq 3."""
        base = self._measured("decode", gpus)
        k2, c2, c3 = self.fit("decode", base).coefficients
        if base == gpus:
            return k2, c2, c3
        share = self._share(gpus, base)
        own = c3 - self._comm(base)
        if own < 0:
            raise InputError(
                f"by rows of kind 'comm', {float(self._comm(base)):g} s are communication on {base} GPUs, "
                f"above the c3 of {float(c3):g} s of decode iterations",
                source=self.samples.path,
            )
        return k2 * share, c2 * share, own * share + self._comm(gpus)
