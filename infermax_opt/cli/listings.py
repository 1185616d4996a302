"""Commands that list what there is."""

from __future__ import annotations

import json
from typing import Any

import click

from infermax_opt.cli import completion
from infermax_opt.cli.console import AS_JSON, DONE, save, say
from infermax_opt.files.schemas import SCHEMAS

__all__ = ["file_formats", "problem_kinds", "profiles", "schedulers", "versions"]


@click.command()
@AS_JSON
def versions(as_json: bool) -> int:
    """Versions of this package and of what it computes with, and which extras are not installed."""
    from infermax_opt.api.listings import versions as found_versions

    found = found_versions()
    value = {"schema": SCHEMAS["versions"], **found}
    save(value, None, None if as_json else "\n".join(f"{name:13} {text}" for name, text in found.items()))
    return DONE


@click.command()
@AS_JSON
def schedulers(as_json: bool) -> int:
    """Names for `schedule --scheduler` and `solve --warm-start`, which take FILE.py:NAME, too."""
    from infermax_opt.core.registry import problems

    found: dict[str, Any] = {"schema": SCHEMAS["schedulers"]}
    for problem in problems():
        found.setdefault(problem.heuristics_title, []).extend(problem.heuristics())
    text = "\n\n".join(
        f"{problem.heuristics_title} of {problem.name} instances\n{problem.heuristics_text()}"
        for problem in problems()
    )
    save(found, None, None if as_json else text)
    return DONE


@click.command(name="problems")
@AS_JSON
def problem_kinds(as_json: bool) -> int:
    """Kinds of instances, and the engines of each for `solve --solver`."""
    from infermax_opt.core.registry import left_out, problems
    from infermax_opt.files.text import aligned, printable

    rows = [(problem.name, problem.about, f"--solver {'|'.join(problem.engines)}") for problem in problems()]
    lines = aligned(rows, indent="")
    lines += [f"{some.name}: not usable: {printable(some.reason)}" for some in left_out()]
    found = [
        {"name": problem.name, "about": problem.about, "engines": list(problem.engines)}
        for problem in problems()
    ]
    unusable = [{"name": some.name, "package": some.package, "reason": some.reason} for some in left_out()]
    save(
        {"schema": SCHEMAS["problems"], "problems": found, "not_usable": unusable},
        None,
        None if as_json else "\n".join(lines),
    )
    return DONE


@click.command()
@AS_JSON
def profiles(as_json: bool) -> int:
    """Shipped cost profiles, with the mean relative error of their fit."""
    from infermax_opt.infermax.data.profiles import load_profile, profile_names, profiles_text

    found = [load_profile(name) for name in profile_names()]
    value = [
        {"name": p.name, "model": p.model, "device": p.device, "kv_capacity": p.kv_capacity,
         "fit_error": p.fit_error, "source": p.source, "kernel_time_only": p.kernel_time_only,
         "estimate": p.estimate,
         "band": p.band and {"share": p.band.share, "lo": p.band.lo, "hi": p.band.hi}}
        for p in found
    ]  # fmt: skip
    save({"schema": SCHEMAS["profiles"], "profiles": value}, None, None if as_json else profiles_text(found))
    return DONE


@click.command(name="formats")
@click.argument("name", required=False, shell_complete=completion.formats)
@AS_JSON
def file_formats(name: str | None, as_json: bool) -> int:
    """Formats of the files that are read and written; the JSON Schema of the one named.

    The schema is whole: a validator needs no other file.  A reader refuses what the schema of its format
    refuses, and more.

    \b
    Examples:
      infermax-opt formats
      infermax-opt formats instance-infermax > instance.schema.json
    """  # noqa: D301
    from infermax_opt.files.format_schemas import json_schema, json_schema_names
    from infermax_opt.files.text import aligned

    if name is not None:
        say(json.dumps(json_schema(name), indent=2))
        return DONE
    found = [{"name": some, "title": json_schema(some)["title"]} for some in json_schema_names()]
    text = "\n".join(aligned([(some["name"], some["title"]) for some in found], indent=""))
    save({"schema": SCHEMAS["formats"], "formats": found}, None, None if as_json else text)
    return DONE
