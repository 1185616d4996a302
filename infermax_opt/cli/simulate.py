"""The command `simulate`: wiring only."""

from __future__ import annotations

from typing import Any

import click

from infermax_opt.cli.completion import files, policies
from infermax_opt.cli.console import (
    AS_JSON,
    DONE,
    FAILED,
    MAX_SIZE,
    check_output,
    check_outputs_differ,
    output_option,
    save,
    wrote,
)
from infermax_opt.cli.stream_options import given_stream, stream_parameters, tell_unplaceable

__all__ = ["simulate"]


def _list(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    from infermax_opt.cluster.policies.by_name import policies_text

    if value:
        click.echo(policies_text())
        context.exit()


@click.command(params=stream_parameters())
@MAX_SIZE
@click.option(
    "--policy",
    metavar="NAME",
    default="aladdin",
    show_default=True,
    shell_complete=policies,
    help="See --list.",
)
@click.option("--workers", "fleet", metavar="N", type=click.IntRange(1, 10**6), help="For jsq, power-of-two.")
@click.option("--groups", metavar="N", type=click.IntRange(1, 10**6), help="Schedulers, for grouped.")
@click.option(
    "--placement",
    metavar="FILE",
    shell_complete=files,
    help="Write the worker of every request to this file.",
)
@click.option(
    "--list", is_flag=True, is_eager=True, expose_value=False, callback=_list, help="List the policies."
)
@output_option("REQUESTS", "Write what each request saw to this file: .csv, or else JSON.")
@AS_JSON
@click.pass_context
def simulate(
    context: click.Context,
    /,
    input_file: str,
    form: str | None,
    policy: str,
    fleet: int | None,
    groups: int | None,
    placement: str | None,
    output: str | None,
    as_json: bool,
    seed: int,
    **options: Any,
) -> int:
    """Replay a stream of requests through a placement policy, and tell what the requests saw.

    Requests are placed at heartbeats by their predicted lengths, and every worker runs with their
    true ones: TTFT and ATGT of each request, the share within both limits, workers over time.
    Also says how often the limits a to e were exceeded; a policy need not keep them.

    \b
    Examples:
      infermax-opt simulate --list
      infermax-opt simulate azure.csv --format azure --first 2000 --ttft 2.2 --policy aladdin -o requests.csv
      infermax-opt simulate stream.json --policy jsq --workers 12
      infermax-opt simulate azure.csv --format azure --ttft 2.2 --predict-error 0.3 --policy look-ahead
    """  # noqa: D301
    from infermax_opt.cluster.policies.by_name import make_policy
    from infermax_opt.cluster.report_requests import requests_csv, simulation_text, simulation_to_json
    from infermax_opt.cluster.simulation import simulate_stream
    from infermax_opt.files.writing import all_written
    from infermax_opt.placement.data.formats import write_placement

    check_outputs_differ(output, placement)
    for path in (output, placement):
        check_output(path, input_file)
    decide = make_policy(policy, workers=fleet, groups=groups, seed=seed)
    stream = given_stream(context, input_file, form, seed=seed, **options)
    if tell_unplaceable(input_file, stream):
        return FAILED
    found = simulate_stream(stream, decide)
    replay, check = found.replay, found.check
    value, text = simulation_to_json(replay, check, policy), simulation_text(replay, check, policy)
    with all_written():
        if placement is not None:
            write_placement(replay.placement, placement)
        save(value, output, None if as_json else text, lambda: requests_csv(replay))
    if not as_json:
        wrote(placement)
    return DONE
