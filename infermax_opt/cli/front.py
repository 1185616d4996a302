"""The command `front`: wiring only."""

from __future__ import annotations

import click

from infermax_opt.cli.completion import files
from infermax_opt.cli.console import (
    AS_JSON,
    DONE,
    INSTANCE,
    MAX_SIZE,
    PROGRESS,
    check_output,
    check_outputs_differ,
    output_option,
    progress_printer,
    save,
    wrote,
)
from infermax_opt.cli.options import read_aimed, seed_option, slos_option

__all__ = ["front"]


@click.command()
@INSTANCE
@slos_option
@MAX_SIZE
@click.option("--x", "x", metavar="METRIC", required=True, help="One metric: mean_tpot.")
@click.option("--y", "y", metavar="METRIC", required=True, help="The other one: tokens_per_second.")
@click.option(
    "--directions",
    type=click.IntRange(2, 100),
    default=7,
    show_default=True,
    help="Weighted sums of both that are solved, each metric alone included.",
)
@click.option(
    "--time-limit",
    metavar="S",
    type=click.FloatRange(0, 10**7, min_open=True),
    default=60.0,
    show_default=True,
    help="Time for everything, s.",
)
@seed_option("Of the schedules; the same seed gives the same, as far as time allows.")
@click.option(
    "--plot", metavar="PICTURE", shell_complete=files, help="Draw the front into this .png or .svg file."
)
@click.option(
    "--parts",
    metavar="FOLDER",
    shell_complete=files,
    help="Write each schedule on the front and each certificate into this folder.",
)
@output_option("FRONT", "Write the front to this file: .csv, or else JSON.")
@PROGRESS
@AS_JSON
def front(
    instance_file: str,
    slos: tuple[str, ...],
    x: str,
    y: str,
    directions: int,
    time_limit: float,
    seed: int,
    plot: str | None,
    parts: str | None,
    output: str | None,
    progress: bool | None,
    as_json: bool,
) -> int:
    """What two metrics can be together: schedules on one side, lower bounds on the other.

    Weighted sums of both metrics are solved one after the other.  Each gives a schedule, and a bound that
    no schedule is below: a half-plane.  Schedules are replayed, and bounds are checked by the verifier or
    left out.  Ctrl-C or SIGTERM stops early and reports what there is.

    \b
    Examples:
      infermax-opt front instances/toy.json --x mean_tpot --y tokens_per_second --plot front.png
      infermax-opt front trace.json --x mean_ttft --y mean_tpot --time-limit 300 --parts front -o front.json
    """  # noqa: D301
    from infermax_opt.files.proofs import check_folder
    from infermax_opt.files.writing import all_written
    from infermax_opt.gaps.fronts.parts import write_parts
    from infermax_opt.gaps.fronts.report import front_csv, front_text, front_to_json
    from infermax_opt.gaps.fronts.trace import trace_front

    check_outputs_differ(output, plot)
    for path in (output, plot):
        check_output(path, instance_file)
    if plot is not None:
        from infermax_opt.files.figure import picture_format

        picture_format(plot)
    if parts is not None:
        check_folder(parts)  # before the work, so that this is not lost
    found = trace_front(
        read_aimed(instance_file, None, slos), x, y,
        directions=directions, time_limit=time_limit, seed=seed, progress=progress_printer(progress),
    )  # fmt: skip
    with all_written():
        text = None if as_json else front_text(found)
        save(front_to_json(found), output, text, lambda: front_csv(found))
        if parts is not None:
            write_parts(found, parts)
        if plot is not None:
            from infermax_opt.files.figure import save_picture
            from infermax_opt.gaps.fronts.plot import plot_front

            save_picture(plot_front(found), plot)
    if not as_json:
        wrote(parts, plot)
    return DONE
