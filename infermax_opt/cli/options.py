"""Options that several commands take, and what they mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, TypeVar

import click

from infermax_opt.cli import completion
from infermax_opt.cli.console import TAKEN, check_inputs
from infermax_opt.core.band import Band
from infermax_opt.core.errors import InputError
from infermax_opt.core.options import LARGEST_SEED, also_read
from infermax_opt.files.text import printable

__all__ = [
    "COST",
    "TRACE_FORMATS",
    "aimed",
    "asked",
    "asking",
    "band_option",
    "cost_option",
    "read_aimed",
    "read_band",
    "seed_option",
    "slos_option",
    "time_limit_option",
]

F = TypeVar("F", bound=Callable[..., Any])

#: Key of a command's context: what ``--cost`` names.
COST = "infermax_opt.cost"

#: Layouts of traces and of runs, by name, as `infermax_opt.foreign.traces` reads them; "infermax" is the
#: layout of the InferMax fork's request_metrics.csv.
TRACE_FORMATS = (
    "aiperf", "aisimulate", "azure", "blis", "burstgpt", "guidellm", "inference-perf", "infermax",
    "llmservingsim", "llmservingsim-sim", "mooncake", "sglang", "splitwise", "vidur", "vidur-chrome-trace",
    "vllm", "vllm-otlp",
)  # fmt: skip


class Seconds(click.ParamType):  # type: ignore[type-arg]  # generic in recent versions only
    """A positive number of seconds."""

    name = "s"
    MOST = 10**7

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it.

        Parameters
        ----------
        value : str or float
        param : click.Parameter, optional
            The option, which an error names.
        ctx : click.Context, optional
        """
        try:
            number = float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        if not 0 < number <= self.MOST:
            self.fail(f"{value} is not between 0 and {self.MOST} seconds.", param, ctx)
        return number


def time_limit_option(text: str) -> Callable[[F], F]:
    """Option --time-limit of commands that search: seconds, a minute unless told otherwise.

    Parameters
    ----------
    text : str
        For the help.
    """
    return click.option(
        "--time-limit", metavar="S", type=Seconds(), default=60.0, show_default=True, help=text
    )


def seed_option(text: str) -> Callable[[F], F]:
    """Option --seed.

    Parameters
    ----------
    text : str
        For the help.
    """
    return click.option(
        "--seed", type=click.IntRange(0, LARGEST_SEED), default=0, show_default=True, help=text
    )


def _cost(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if also_read(context, parameter, value) is not None:
        context.meta[COST] = value


def cost_option(command: F) -> F:
    """Give a command the option ``--cost``, which `read_aimed` heeds."""
    return click.option(
        "--cost",
        metavar="PROFILE",
        callback=_cost,
        expose_value=False,
        shell_complete=completion.files,
        help="Take the cost of this profile file (see `calibrate --for batches`), not the instance's.",
    )(command)


def band_option(command: F) -> F:
    """Give a command the option ``--band``, which `read_band` takes."""
    return click.option(
        "--band",
        callback=also_read,
        metavar="LO:HI|PROFILE",
        help="For all machines whose batches take LO to HI times as long, or the band of a cost profile.",
    )(command)


def read_band(instance: Any, band: str | None) -> Band | None:
    """The band that an option names for an instance; None without one.

    Parameters
    ----------
    instance : instance
    band : str, optional
    """
    from infermax_opt.core.registry import problem_of

    return None if band is None else problem_of(instance).scoring.band(band)


def slos_option(command: F) -> F:
    """Give a command the options ``--slo`` and ``--cost``, which `read_aimed` takes."""
    slos = click.option(
        "--slo",
        "slos",
        metavar="[CLASS:]LIMITS",
        multiple=True,
        help="Service level where a request has none itself, s: ttft=0.5,tpot=0.05,e2e=9.",
    )
    return slos(cost_option(command))


def aimed(command: F) -> F:
    """Give a command the options ``--objective``, ``--slo`` and ``--cost``, which `read_aimed` takes."""
    objective = click.option(
        "--objective",
        metavar="NAME|JSON",
        help="Minimise this metric, or these by weight, instead of the file's.",
    )
    return objective(slos_option(command))


def asking(command: F) -> F:
    """Give a command the options ``--at-most`` and ``--at-least``, which `asked` takes."""
    at_most = click.option(
        "--at-most",
        metavar="METRIC=LIMIT",
        multiple=True,
        help="Ask whether a schedule keeps this and all other limits: mean_e2e=1.8, makespan=0.9*vllm.",
    )
    at_least = click.option(
        "--at-least",
        metavar="METRIC=LIMIT",
        multiple=True,
        help="The same for a metric that is to be high: attainment=0.99.",
    )
    return at_most(at_least(command))


def asked(
    instance: Any, objective: str | None, at_most: Sequence[str], at_least: Sequence[str]
) -> tuple[Any, Fraction | None]:
    """The instance to solve, and the value of its objective that is asked about, if these options ask.

    Parameters
    ----------
    instance : instance
    objective : str, optional
        What was asked to be minimised, which excludes a question.
    at_most, at_least : sequence of str
        ``METRIC=LIMIT``.
    """
    from infermax_opt.api import aims

    if not at_most and not at_least:
        return instance, None
    if objective is not None:
        raise InputError("a question has limits instead of an objective", field="objective")
    return aims.asked(instance, at_most=at_most, at_least=at_least)


def read_aimed(path: str, objective: str | None, slos: Sequence[str]) -> Any:
    """Read an instance of any problem, with what these options and ``--cost`` change; the latter is said.

    Parameters
    ----------
    path : str
    objective : str, optional
        Name of a metric, or a JSON object of weights.
    slos : sequence of str
        ``[CLASS:]ttft=S,tpot=S,e2e=S``, each limit as wanted.

    Raises
    ------
    InputError
        Also where the problem has no such choice.
    """
    from infermax_opt.api.aims import with_aim
    from infermax_opt.core.registry import problem_of
    from infermax_opt.files.instances import read_instance

    instance = read_instance(path)
    context = click.get_current_context(silent=True)
    cost = context.meta.get(COST) if context else None
    if context is not None and cost is not None:
        check_inputs(path)
        try:
            instance, replaced = problem_of(instance).priced(instance, cost)
        except InputError as error:
            raise error.within(path) from error.__cause__
        text = f"cost: {printable(click.format_filename(cost))}: {printable(replaced)}"
        click.echo(text, err=TAKEN in context.meta or bool(context.params.get("as_json")))
    return with_aim(instance, objective, slos=slos)
