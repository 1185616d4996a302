"""What shells offer while a command line is typed, and the command `completion` that sets them up."""

from __future__ import annotations

import contextlib
import os

import click
from click.shell_completion import CompletionItem, get_completion_class

from infermax_opt.core.completing import Items, files, folders, names

__all__ = [
    "COMPLETE_VAR", "completion", "engines", "files", "folders", "formats", "formulations",
    "policies", "profiles", "schedulers", "shipped", "starts", "suites",
]  # fmt: skip

PROGRAM = "infermax-opt"
#: Variable by which the script of a shell asks the program, as click names it.
COMPLETE_VAR = "_INFERMAX_OPT_COMPLETE"


def _schedulers() -> list[str]:
    from infermax_opt.core.registry import problems

    return list(dict.fromkeys(name for problem in problems() for name in problem.heuristics()))


def _formulations() -> list[str]:
    from infermax_opt.core.registry import problems

    return sorted({name for problem in problems() for name in problem.formulations()})


def _profiles() -> list[str]:
    from infermax_opt.infermax.data.profiles import profile_names

    return list(profile_names())


def _suites() -> list[str]:
    from infermax_opt.table.suites import suite_names

    return list(suite_names())


def _shipped() -> list[str]:
    from infermax_opt.table.shipped import shipped_names

    return [*shipped_names(), *_suites()]


def _policies() -> list[str]:
    from infermax_opt.cluster.policies.by_name import policy_names

    return list(policy_names())


def _formats() -> list[str]:
    from infermax_opt.files.format_schemas import json_schema_names

    return list(json_schema_names())


def engines(context: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Engines that the instance on the command line can take; all of them where there is none.

    Parameters
    ----------
    context : click.Context
        Of the command, with the words before.
    parameter : click.Parameter
        The option.
    incomplete : str
        What stands there already.
    """
    from infermax_opt.core.errors import InputError
    from infermax_opt.core.registry import problem_of, problems
    from infermax_opt.files.instances import read_instance

    names = list(dict.fromkeys(name for problem in problems() for name in problem.engines))
    # While the value of an option is missing, click leaves the other words unassigned.
    words = [context.params.get("instance_file"), *context.args]
    for path in filter(os.path.isfile, filter(None, words)):
        with contextlib.suppress(InputError):
            names = list(problem_of(read_instance(path)).engines)
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


#: Values of --scheduler, one of which may be in a Python file.
schedulers = names(_schedulers, or_files=True)
#: Values of --warm-start.
starts = names(lambda: ["best", "none", *_schedulers()], or_files=True)
formats = names(_formats)
formulations = names(_formulations)
profiles = names(_profiles)
suites = names(_suites)
shipped = names(_shipped)
policies = names(_policies)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that lets a shell complete commands, options, names and files.

    \b
    Examples:
      infermax-opt completion bash >> ~/.bashrc
      infermax-opt completion zsh >> ~/.zshrc
      infermax-opt completion fish > ~/.config/fish/completions/infermax-opt.fish
    """  # noqa: D301
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, PROGRAM, COMPLETE_VAR).source(), nl=False)
