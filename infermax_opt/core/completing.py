"""What shells offer for the value of an option: files, folders, names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem

__all__ = ["Completer", "Items", "files", "folders", "names"]

#: Of click's `CompletionItem`, which is generic in recent versions only.
Items = list[Any]
Completer = Callable[[click.Context, click.Parameter, str], Items]


def files(context: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Names of files.

    Parameters
    ----------
    context, parameter : click.Context, click.Parameter
        As click hands them over.
    incomplete : str
        What was typed so far.
    """
    return [CompletionItem(incomplete, type="file")]


def folders(context: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Names of folders.

    Parameters
    ----------
    context, parameter : click.Context, click.Parameter
        As click hands them over.
    incomplete : str
        What was typed so far.
    """
    return [CompletionItem(incomplete, type="dir")]


def names(load: Callable[[], Iterable[str]], or_files: bool = False) -> Completer:
    """Complete names, or files where none fits and these are taken, too.

    Parameters
    ----------
    load : callable
        Gives the names; called when a shell asks.
    or_files : bool
    """

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
        found = [] if os.sep in incomplete else [name for name in load() if name.startswith(incomplete)]
        if or_files and not found:
            return files(context, parameter, incomplete)
        return [CompletionItem(name) for name in found]

    return complete
