"""Values of command-line options that several commands and problems take."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeVar

import click

from infermax_opt.core.exact import to_fraction

__all__ = ["ALSO_READ", "LARGEST_SEED", "also_read", "decimal", "decimal_option", "token_counts", "window"]

F = TypeVar("F", bound=Callable[..., Any])

#: Largest seed of a random draw.
LARGEST_SEED = 2**31 - 1
#: Key of a command's context: files that options name, which the command itself may not know of.
ALSO_READ = "infermax_opt.also_read"


def also_read(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """A file to read, or a name where there is no such file: no output may replace it.

    Parameters
    ----------
    context, parameter : click.Context, click.Parameter
        As click hands them over.
    value : str, optional
        What was typed.
    """
    if value is not None:
        context.meta[ALSO_READ] = (*context.meta.get(ALSO_READ, ()), value)
    return value


def window(context: click.Context, parameter: click.Parameter, value: str | None) -> Any:
    """A span of time A:B in seconds.

    Parameters
    ----------
    context, parameter : click.Context, click.Parameter
        As click hands them over.
    value : str, optional
        What was typed.
    """
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
    """A decimal of 0 or more.

    Parameters
    ----------
    context, parameter : click.Context, click.Parameter
        As click hands them over.
    value : str, optional
        What was typed.
    """
    if value is None:
        return None
    try:
        number = to_fraction(value)
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None
    if number < 0:
        raise click.BadParameter(f"{value} is negative; the least is 0.")
    return number


def decimal_option(name: str, default: str | None, text: str, metavar: str = "S") -> click.Option:
    """An option whose value is a decimal of 0 or more.

    Parameters
    ----------
    name : str
        With its dashes.
    default : str, optional
    text : str
        For the help.
    metavar : str
    """
    return click.Option(
        [name], metavar=metavar, default=default, callback=decimal, show_default=True, help=text
    )


def token_counts(context: click.Context, parameter: click.Parameter, value: str | None) -> Any:
    """A list of token counts N,N,...

    Parameters
    ----------
    context, parameter : click.Context, click.Parameter
        As click hands them over.
    value : str, optional
        What was typed.
    """
    if value is None:
        return None
    parts = value.split(",")
    if not all(part.strip().isascii() and part.strip().isdigit() and int(part) > 0 for part in parts):
        raise click.BadParameter(f"{value!r} is not a list of token counts N,N,... of 1 or more.")
    return tuple(map(int, parts))
