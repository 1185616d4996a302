"""Types of workers by name: the paper's models, cost profiles, files that `calibrate` wrote.

Commands load this for their help, so what reads files and profiles loads on use.
"""

from __future__ import annotations

import os
from fractions import Fraction
from typing import TYPE_CHECKING

import click

from infermax_opt.core.completing import names
from infermax_opt.core.errors import InputError
from infermax_opt.core.options import also_read, decimal_option

if TYPE_CHECKING:
    from infermax_opt.placement.data.instance import Slo, Worker

__all__ = ["chosen_worker", "worker_options"]


def _names() -> list[str]:
    from infermax_opt.infermax.data.profiles import profile_names
    from infermax_opt.placement.data.generate import MODELS

    return [*MODELS, *profile_names()]


def worker_options(prefix: str = "") -> list[click.Option]:
    """The options of a type of worker and its latency limits; `prefix` begins their help."""
    return [
        click.Option(
            ["--worker"],
            metavar="13b|70b|PROFILE|FILE",
            default="13b",
            show_default=True,
            callback=also_read,
            shell_complete=names(_names, or_files=True),
            help=f"{prefix}Type of worker: the paper's 13b on an A100 or 70b on two, a cost profile, or a "
            "file that `calibrate` wrote.",
        ),
        decimal_option("--ttft", None, f"{prefix}Limit of the prefill, s. Default: that of 13b or 70b."),
        decimal_option(
            "--atgt",
            None,
            f"{prefix}Limit of the average time of a generated token, s. Default: that of 13b or 70b.",
        ),
    ]


def chosen_worker(name: str, ttft: Fraction | None, atgt: Fraction | None) -> tuple[Worker, Slo]:
    """The type of worker of that name, and the limits, where not given those of the paper for its models.

    The models of a profile are never below its times, so that what they plan is kept.

    Parameters
    ----------
    name : str
    ttft, atgt : Fraction, optional
        Seconds.

    Raises
    ------
    InputError
        If there is no such worker, or a limit is missing.
    """
    from infermax_opt.files.json import STANDARD, read_as
    from infermax_opt.infermax.data.profiles import profile_names
    from infermax_opt.latency.profiles import worker_of_profile
    from infermax_opt.placement.data.formats import worker_from_json
    from infermax_opt.placement.data.generate import MODELS
    from infermax_opt.placement.data.instance import Slo

    if name in MODELS:
        model = MODELS[name]
        return model.worker, Slo(
            model.slo.ttft if ttft is None else ttft, model.slo.atgt if atgt is None else atgt
        )
    if name in profile_names():
        worker = worker_of_profile(name, cover="above")
    elif name == STANDARD or os.path.exists(name) or os.sep in name or ".json" in name:
        worker = read_as(name, worker_from_json)
    else:
        raise InputError(f"{name!r} is none of {', '.join(MODELS)}, a profile, or a file", field="worker")
    if ttft is None or atgt is None:
        raise InputError("both are needed with this worker", field="--ttft, --atgt")
    return worker, Slo(ttft, atgt)
