"""The commands `calibrate` and `configure`: wiring only."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from infermax_opt.cli import completion
from infermax_opt.cli.batches import OPTIONS, batch_options, calibrate_batches
from infermax_opt.cli.console import AS_JSON, DONE, FAILED, MAX_SIZE, check_output, output_option, save, wrote
from infermax_opt.cli.options import TRACE_FORMATS

if TYPE_CHECKING:
    from infermax_opt.latency.configuration import Demand
    from infermax_opt.placement.data.instance import Worker

__all__ = ["calibrate", "configure"]

F = TypeVar("F", bound=Callable[..., Any])
#: Ranges of a fit to a cost profile.
RANGES = ("max_context", "max_prefill_tokens", "max_batch")


def _decimal(context: click.Context, parameter: click.Parameter, value: str | None) -> Fraction | None:
    from infermax_opt.core.exact import to_fraction

    if value is None:
        return None
    try:
        number = to_fraction(value)
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None
    if number <= 0:
        raise click.BadParameter(f"{value} is not above 0.")
    return number


def _decimal_option(name: str, metavar: str, text: str, required: bool = False) -> Callable[[F], F]:
    return click.option(name, metavar=metavar, callback=_decimal, required=required, help=text)


def _fitting(command: F) -> F:
    """Options of every fit."""
    for option in (
        click.option(
            "--cover",
            type=click.Choice(["mean", "above"]),
            default="mean",
            show_default=True,
            help="Least squares, or the least model that is at least every sample.",
        ),
        click.option(
            "--weights",
            type=click.Choice(["relative", "absolute"]),
            default="relative",
            show_default=True,
            help="Residuals as shares of the sample, or in its unit.",
        ),
    ):
        command = option(command)
    return command


def _range_option(name: str, least: int, default: int, text: str) -> Callable[[F], F]:
    return click.option(
        name,
        metavar="N",
        type=click.IntRange(least, 10**7),
        default=default,
        show_default=True,
        help=f"Profiles: {text} fitted.",
    )


def _only_with(context: click.Context, other: str, *names: str) -> None:
    """Options that mean nothing here must not be given."""
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "") is not ParameterSource.DEFAULT
        if parameter.name in names and given:
            raise click.UsageError(f"{parameter.opts[0]} goes with {other} only.")


@click.command()
@MAX_SIZE
@click.argument("samples_file", metavar="[SAMPLES]", required=False, shell_complete=completion.files)
@click.option(
    "--for",
    "purpose",
    type=click.Choice(["worker", "batches"]),
    default="worker",
    show_default=True,
    help="Fit a worker of placements, or the cost of batches.",
)
@click.option(
    "--profile",
    metavar="NAME",
    shell_complete=completion.profiles,
    help="Make a worker of this cost profile instead.",
)
@click.option("--gpus", metavar="N", type=click.IntRange(1, 10**4), help="Use samples of so many GPUs.")
@_decimal_option("--kv-capacity", "KV", "In the unit of the KV samples, or tokens; a worker's -o needs it.")
@_fitting
@batch_options
@_range_option("--max-context", 16, 4096, "tokens of the longest prompt and context")
@_range_option("--max-prefill-tokens", 16, 16384, "tokens of the largest prefill batch")
@_range_option("--max-batch", 2, 256, "requests of the largest decode batch, where the slope varies,")
@output_option("FILE", "Write the worker (`worker` of a placement instance), or the cost profile.")
@AS_JSON
@click.pass_context
def calibrate(
    context: click.Context,
    /,
    samples_file: str | None,
    purpose: str,
    profile: str | None,
    gpus: int | None,
    kv_capacity: Fraction | None,
    weights: str,
    cover: str,
    output: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Fit the latency models of a worker (Aladdin, eqs 1 to 5), or the cost of batches, to what was measured.

    \b
    Columns of SAMPLES for a worker (CSV; times in s; a row needs those of its kind):
      kv       tokens, kv                           KV of one request, in any unit
      prefill  input_tokens, seconds                a prefill batch
      decode   context_tokens, batch_size, seconds  an iteration; context summed over the batch
      compute  gpus, seconds                        computing of one iteration of a certain shape
      comm     gpus, seconds                        its communication
    and the column `kind`.  Prefill and decode rows may name their `gpus`; 1, if not.

    Without KV samples, KV counts in tokens.

    With --for batches, SAMPLES are measured batches, and the result is a cost profile, which `import`,
    `solve` and others take as --cost FILE.  A batch takes the larger of some lines alpha + beta tokens, and
    attention: d0 + d1 kv_read where it decodes, p0 + p1 work where it prefills, with --mixed
    e0 + e1 kv_read where it does both, and with --prefix so much for each token that a chunk comes behind.

    \b
    SAMPLES of batches are one of
      a CSV file of whole batches, pure and mixed, with the columns
        tokens           tokens processed: one a decoding request, and all of the chunks
        decode_requests  requests that decode
        kv_read          tokens cached by these before the batch, summed
        prefill_chunks   CHUNK@PREFIX, parted by blanks: 512@0 256@1024
        seconds          how long the batch took
      a folder of vLLM kernel tables, as LLMServingSim measures them (--layers): kernels_dense.csv,
        kernels_per_sequence.csv, kernels_attention.csv; times in us
      a profile of Vidur's operators, mlp.csv (--layers, --gpus); times in ms; no attention
      aiconfigurator:MODEL@SYSTEM/BACKEND (--gpus), which asks the package aiconfigurator-core for batches;
        install it with infermax-opt[calibrate]

    The number of lines and how prefill work is counted are chosen by cross-validation.  The band of a
    profile is the factors between which a share of the samples lies; errors and band are those of the fit
    without --host-overhead.  Of kernel tables, each kernel and the attention of pure batches are fitted as
    measured alone; errors are those of whole batches, too.

    \b
    Examples:
      infermax-opt calibrate batches.csv --for batches --kv-capacity 41408 -o my-gpu.json --plot fit.png
      infermax-opt calibrate kernels/ --for batches --layers 32 --host-overhead 0.002 -o my-gpu.json
      infermax-opt calibrate aiconfigurator:Qwen/Qwen3-8B@h100_sxm/vllm --for batches -o qwen.json
      infermax-opt calibrate samples.csv --kv-capacity 120000 -o worker.json
      infermax-opt calibrate --profile llama-3.1-70b_h100_tp4 --cover above -o worker.json
    """  # noqa: D301
    if purpose == "batches":
        if samples_file is None:
            raise click.UsageError("give a file or a folder of samples.")
        ranges = {name: options.pop(name) for name in RANGES}
        _only_with(context, "--for worker", "profile", *ranges)
        return calibrate_batches(
            samples_file, weights=weights, cover=cover, gpus=gpus, kv_capacity=kv_capacity, output=output,
            as_json=as_json, **options,
        )  # fmt: skip
    _only_with(context, "--for batches", *OPTIONS)
    return _calibrate_worker(
        context, samples_file, profile, gpus, kv_capacity, weights, cover, output, as_json,
        **{name: options[name] for name in RANGES},
    )  # fmt: skip


def _calibrate_worker(
    context: click.Context,
    samples_file: str | None,
    profile: str | None,
    gpus: int | None,
    kv_capacity: Fraction | None,
    weights: str,
    cover: str,
    output: str | None,
    as_json: bool,
    **ranges: int,
) -> int:
    """Fit the models of a worker, of samples or of a profile."""
    from infermax_opt.latency import report
    from infermax_opt.placement.data.formats import write_worker

    if (samples_file is None) == (profile is None):
        raise click.UsageError("give a file of samples, or --profile.")
    check_output(output, *([samples_file] if samples_file else []))
    worker: Worker | None
    if profile is not None:
        from infermax_opt.latency.profiles import fit_profile

        _only_with(context, "a file of samples", "gpus", "kv_capacity")
        made = fit_profile(profile, weights=weights, cover=cover, **ranges)
        worker, value = made.worker, report.profile_fit_to_json(made)
        text = report.profile_fit_text(made)
    else:
        from infermax_opt.latency.calibration import calibrate as fit_samples
        from infermax_opt.latency.samples import read_samples

        assert samples_file is not None
        _only_with(context, "--profile", *ranges)
        if output is not None and kv_capacity is None:
            raise click.UsageError("-o needs --kv-capacity.")
        fitted = fit_samples(read_samples(samples_file), gpus=gpus, weights=weights, cover=cover)
        worker = None if kv_capacity is None else fitted.worker(kv_capacity)
        value, text = report.calibration_to_json(fitted, worker), report.calibration_text(fitted, worker)
    save(value, None, None if as_json else text)
    if output is not None and worker is not None:
        write_worker(worker, output)
        if not as_json:
            wrote(output)
    return DONE


@click.command()
@MAX_SIZE
@click.option(
    "--profile",
    "profiles",
    metavar="NAME",
    multiple=True,
    shell_complete=completion.profiles,
    help="Cost profile; repeat it, or leave out _tpN to take all numbers of GPUs.",
)
@click.option(
    "--samples",
    "samples_file",
    metavar="SAMPLES",
    shell_complete=completion.files,
    help="Measured samples (see `calibrate`).",
)
@_decimal_option("--gpu-memory", "KV", "Samples: usable memory of a GPU, in the unit of the KV samples.")
@_decimal_option("--model-memory", "KV", "Samples: memory of the model, in the same unit.")
@click.option(
    "--gpus",
    metavar="N",
    type=click.IntRange(1, 10**4),
    multiple=True,
    help="Samples: a number of GPUs to choose from; repeat it.  Default: the measured ones.",
)
@_decimal_option("--atgt", "S", "Limit on the average time of a generated token, s.", required=True)
@_decimal_option("--ttft", "S", "Limit on the time to the first token, s.")
@click.option("--input-tokens", metavar="N", type=click.IntRange(1, 10**9), help="Of every request.")
@click.option("--output-tokens", metavar="N", type=click.IntRange(2, 10**9), help="Of every request.")
@click.option(
    "--trace",
    "trace_file",
    metavar="TRACE",
    shell_complete=completion.files,
    help="Lengths of requests, instead (see `import`).",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(TRACE_FORMATS),
    help="Layout of the trace file.",
)
@_fitting
@AS_JSON
@click.pass_context
def configure(
    context: click.Context,
    /,
    profiles: tuple[str, ...],
    samples_file: str | None,
    gpu_memory: Fraction | None,
    model_memory: Fraction | None,
    gpus: tuple[int, ...],
    atgt: Fraction,
    ttft: Fraction | None,
    input_tokens: int | None,
    output_tokens: int | None,
    trace_file: str | None,
    form: str | None,
    weights: str,
    cover: str,
    as_json: bool,
) -> int:
    """Choose the GPUs of a worker: the most tokens/s/GPU (Aladdin, eq 6).

    A batch is as large as the KV cache holds, or as the ATGT limit allows by the time of an iteration.
    Exit code 1 where no option can serve the workload.

    \b
    Examples:
      infermax-opt configure --profile llama-3.1-70b_h100 --atgt 0.05 --input-tokens 1024 --output-tokens 256
      infermax-opt configure --samples samples.csv --gpu-memory 80e9 --model-memory 14e9 --gpus 1 --gpus 2 \\
        --atgt 0.03 --trace conv.csv --format azure
    """  # noqa: D301
    from infermax_opt.latency import report
    from infermax_opt.latency.choosing import configure_worker
    from infermax_opt.latency.samples import read_samples

    if bool(profiles) == (samples_file is not None):
        raise click.UsageError("give --profile, or --samples.")
    memory = None
    if profiles:
        _only_with(context, "--samples", "gpu_memory", "model_memory", "gpus", "weights", "cover")
    elif gpu_memory is None or model_memory is None:
        raise click.UsageError("--samples needs --gpu-memory and --model-memory.")
    else:
        memory = gpu_memory, model_memory
    chosen, fits = configure_worker(
        _demand(input_tokens, output_tokens, trace_file, form),
        atgt=atgt,
        ttft=ttft,
        profiles=profiles,
        samples=None if samples_file is None else read_samples(samples_file),
        memory=memory,
        gpus=gpus,
        weights=weights,
        cover=cover,
    )
    text = report.configuration_text(chosen)
    value = report.configuration_to_json(chosen)
    if fits:
        text += "\nfitted\n" + report.fits_text(fits)
        value["fits"] = report.fits_to_json(fits)
    save(value, None, None if as_json else text)
    return FAILED if chosen.best is None else DONE


def _demand(inputs: int | None, outputs: int | None, trace_file: str | None, form: str | None) -> Demand:
    from infermax_opt.latency.configuration import demand_of

    if trace_file is None:
        if inputs is None or outputs is None or form is not None:
            raise click.UsageError("give --input-tokens and --output-tokens, or --trace and --format.")
        return demand_of([(inputs, outputs)])
    if form is None or inputs is not None or outputs is not None:
        raise click.UsageError("--trace needs --format, and no --input-tokens or --output-tokens.")
    from infermax_opt.foreign.traces import read_trace

    # The unit of arrivals does not matter for lengths.
    trace = read_trace(trace_file, form, time_unit="s" if form == "mooncake" else None)
    return demand_of((r.input_tokens, r.output_tokens) for r in trace.requests)
