"""Values of command-line options that several commands take."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from fractions import Fraction

    from infermax_opt.placement.data.instance import Slo, Worker

__all__ = ["TRACE_FORMATS", "chosen_worker", "decimal", "decimal_option", "window", "worker_options"]

F = TypeVar("F", bound=Callable[..., Any])

#: Layouts of traces, by name, as `infermax_opt.files.traces` reads them.
TRACE_FORMATS = ("azure", "burstgpt", "mooncake", "splitwise", "vidur")


def window(context: click.Context, parameter: click.Parameter, value: str | None) -> Any:
    """A span of time A:B in seconds."""
    from infermax_opt.core.exact import to_fraction

    if value is None:
        return None
    try:
        start, end = (to_fraction(part) for part in value.split(":"))
    except ValueError:
        raise click.BadParameter(f"{value!r} is not two numbers of seconds A:B.") from None
    if not 0 <= start < end:
        raise click.BadParameter(f"{value!r} is not A:B with 0 <= A < B.")
    return start, end


def decimal(context: click.Context, parameter: click.Parameter, value: str | None) -> Fraction | None:
    """A decimal of 0 or more."""
    from infermax_opt.core.exact import to_fraction

    if value is None:
        return None
    try:
        number = to_fraction(value)
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None
    if number < 0:
        raise click.BadParameter(f"{value} is negative; the least is 0.")
    return number


def decimal_option(name: str, default: str | None, text: str, metavar: str = "S") -> Callable[[F], F]:
    """An option whose value is a decimal of 0 or more."""
    return click.option(
        name, metavar=metavar, default=default, callback=decimal, show_default=True, help=text
    )


def worker_options(prefix: str = "") -> Callable[[F], F]:
    """The options of a type of worker and its latency limits; `prefix` begins their help."""
    options = [
        click.option(
            "--worker",
            metavar="13b|70b|PROFILE|FILE",
            default="13b",
            show_default=True,
            help=f"{prefix}Type of worker: the paper's 13b on an A100 or 70b on two, a cost profile, or a "
            "file that `calibrate` wrote.",
        ),
        decimal_option(
            "--ttft", None, f"{prefix}Limit of the prefill. Default: that of 13b or 70b. Seconds."
        ),
        decimal_option(
            "--atgt",
            None,
            f"{prefix}Limit of the average time of a generated token. Default: that of 13b or 70b. Seconds.",
        ),
    ]

    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def chosen_worker(name: str, ttft: Fraction | None, atgt: Fraction | None) -> tuple[Worker, Slo]:
    """The type of worker of that name, and the limits, where not given those of the paper for its models.

    The models of a profile are never below its times, so that what they plan is kept.

    Raises
    ------
    InputError
        If there is no such worker, or a limit is missing.
    """
    import os

    from infermax_opt.core.errors import InputError
    from infermax_opt.infermax.data.formats import read_as
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
    elif os.path.exists(name) or os.sep in name or ".json" in name:
        worker = read_as(name, worker_from_json)
    else:
        raise InputError(f"{name!r} is none of {', '.join(MODELS)}, a profile, or a file", field="worker")
    if ttft is None or atgt is None:
        raise InputError("both are needed with this worker", field="--ttft, --atgt")
    return worker, Slo(ttft, atgt)
