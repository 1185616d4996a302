"""The command `instance`: wiring only."""

from __future__ import annotations

from typing import Any

import click

from infermax_opt.cli.completion import folders, shipped
from infermax_opt.cli.console import AS_JSON, DONE, check_output, output_option, say, wrote
from infermax_opt.core.errors import InputError
from infermax_opt.files.schemas import SCHEMAS

__all__ = ["instance"]


@click.command()
@click.argument("name", metavar="[NAME | SUITE | SUITE/ROW]", required=False, shell_complete=shipped)
@output_option("FILE", "Write the instance to this file; default: to standard output.")
@click.option(
    "--data",
    metavar="DIR",
    shell_complete=folders,
    help="Folder of the Azure traces. Default: $INFERMAX_OPT_DATA.",
)
@AS_JSON
def instance(name: str | None, output: str | None, data: str | None, as_json: bool) -> int:
    """Instances that come with this package: write one, or list them.

    Without a name it lists the instances that come as files, and the suites; with a suite, its rows.

    \b
    Examples:
      infermax-opt instance
      infermax-opt instance toy -o toy.json
      infermax-opt instance paper-csp
      infermax-opt instance paper-csp/csp-i64-o4-b4 | infermax-opt solve -
    """  # noqa: D301
    from infermax_opt.files.instances import write_instance
    from infermax_opt.files.json import STANDARD, to_json_text
    from infermax_opt.files.text import counted
    from infermax_opt.table.shipped import load_instance, shipped_names

    if name is None or ("/" not in name and name not in shipped_names()):
        value = _listed(name, data)
        click.echo(to_json_text(value).rstrip("\n") if as_json else _text(value))
        return DONE
    path = output or STANDARD
    check_output(path)
    made = load_instance(name, data)
    write_instance(made, path)
    if path != STANDARD:
        say(f"{made.name}: {counted(len(made.requests), 'requests')}")
        wrote(path)
    return DONE


def _listed(suite: str | None, data: str | None) -> dict[str, Any]:
    """What there is, or the rows of a suite."""
    from infermax_opt.table.shipped import shipped_names
    from infermax_opt.table.suites import get_suite, suite_names

    if suite is not None and suite not in suite_names():
        raise InputError(
            f"{suite!r} is no instance and no suite; without a name both are listed", field="name"
        )
    names = suite_names() if suite is None else (suite,)
    suites = {one: [case.name for case in get_suite(one, data).cases] for one in names}
    shipped = list(shipped_names()) if suite is None else []
    return {"schema": SCHEMAS["instance"], "instances": shipped, "suites": suites}


def _text(value: dict[str, Any]) -> str:
    """The lists for people; the rows themselves where one suite was asked for."""
    suites = value["suites"]
    if not value["instances"]:
        return "\n".join(f"{suite}/{row}" for suite, rows in suites.items() for row in rows)
    width = max(map(len, suites))
    lines = [
        f"{suite:{width}}  {len(rows):3} rows, such as {suite}/{rows[0]}" for suite, rows in suites.items()
    ]
    return "\n".join([*value["instances"], "", *lines])
