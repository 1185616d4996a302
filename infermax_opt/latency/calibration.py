"""Workers of fitted models, and all that a file of samples can be fitted to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from infermax_opt.core.checks import checked_kind
from infermax_opt.core.errors import InputError
from infermax_opt.core.shown import ShownRows
from infermax_opt.latency.fit import Fit, fit_measured
from infermax_opt.latency.samples import Samples
from infermax_opt.placement.data.instance import Worker

__all__ = ["TOKENS", "Calibration", "calibrate", "worker_of_models"]

#: Eq 1 where KV is counted in tokens.
TOKENS = (Fraction(1), Fraction(0))


@dataclass(frozen=True)
class Calibration(ShownRows):
    """Fits of all kinds of samples that a file holds, by kind, for a worker of so many GPUs."""

    path: str
    fits: Mapping[str, Fit]
    gpus: int

    def facts(self) -> Mapping[str, Any]:
        """The file, the GPUs of the worker, and the mean error of each fit, as a share of the sample."""
        errors = {f"{kind}_error": fit.mean_relative for kind, fit in self.fits.items()}
        return {"path": self.path, "gpus": self.gpus, **errors}

    def rows_shown(self) -> Iterable[Mapping[str, Any]]:
        """A row for each kind of samples: its coefficients, and how well they fit."""
        return (fit.row for fit in self.fits.values())

    def worker(self, kv_capacity: Fraction) -> Worker:
        """Return the worker; KV counts in tokens where there are no KV samples.

        Raises
        ------
        InputError
            If there are no samples of prefill or of decode.
        """
        for kind in ("prefill", "decode"):
            if kind not in self.fits:
                raise InputError(f"holds no row of kind {kind!r}, which a worker needs", source=self.path)
        kv = self.fits["kv"].coefficients if "kv" in self.fits else TOKENS
        return worker_of_models(
            kv_capacity, kv, self.fits["prefill"].coefficients, self.fits["decode"].coefficients, self.gpus
        )


def calibrate(
    samples: Samples, *, gpus: int | None = None, weights: str = "relative", cover: str = "mean"
) -> Calibration:
    """Fit a model to each kind of samples that a file holds.

    Parameters
    ----------
    samples : Samples
    gpus : int, optional
        Of the worker; needed where prefill and decode samples are of several numbers of GPUs.
    weights : {"relative", "absolute"}
    cover : {"mean", "above"}

    Raises
    ------
    InputError
        If the samples do not determine the coefficients, or the number of GPUs.
    """
    checked_kind(samples, Samples, "samples")
    known = samples.gpus("prefill", "decode")
    if gpus is None and len(known) > 1:
        listed = ", ".join(map(str, known))
        raise InputError(
            f"prefill and decode rows are of {listed} GPUs; say which", field="gpus", source=samples.path
        )
    number = gpus or (known[0] if known else 1)
    fits = {
        kind: fit_measured(
            samples,
            kind,
            gpus=number if kind in ("prefill", "decode") else None,
            weights=weights,
            cover=cover,
        )
        for kind in samples.rows
    }
    return Calibration(samples.path, fits, number)


def worker_of_models(
    kv_capacity: Fraction,
    kv: Sequence[Fraction],
    prefill: Sequence[Fraction],
    decode: Sequence[Fraction],
    gpus: int,
) -> Worker:
    """Return a worker with coefficients (h, j) of eq 1, (k1, c1) of eq 2 and (k2, c2, c3) of eq 3.

    Parameters
    ----------
    kv_capacity : Fraction
    kv : sequence of Fraction
        h and j.
    prefill : sequence of Fraction
        k1 and c1.
    decode : sequence of Fraction
        k2, c2 and c3.
    gpus : int
    """
    return Worker(
        kv_capacity,
        kv_token=kv[0],
        kv_request=kv[1],
        prefill_token=prefill[0],
        prefill_overhead=prefill[1],
        decode_context=decode[0],
        decode_request=decode[1],
        decode_overhead=decode[2],
        gpus=gpus,
    )
