"""What every command shares: one-line errors, exit codes, output files, progress."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from infermax_opt.cli.completion import COMPLETE_VAR, files
from infermax_opt.core.compiled import tell_compiling
from infermax_opt.core.errors import InputError, told
from infermax_opt.core.interrupts import TERMINATED, exit_code
from infermax_opt.core.options import ALSO_READ
from infermax_opt.core.plugins import left_out
from infermax_opt.core.registry import left_out_so_far
from infermax_opt.files.json import STANDARD
from infermax_opt.files.text import printable

if TYPE_CHECKING:
    from infermax_opt.core.progress import ProgressEvent

__all__ = [
    "AS_JSON", "MAX_SIZE", "PROGRESS", "Program",
    "check_inputs", "check_output", "check_outputs_differ", "not_done", "output_option",
    "progress_printer", "save", "say", "tell_dropped", "telling_untried", "wrote",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])

DONE, FAILED, UNUSABLE, BROKEN_PIPE = 0, 1, 2, 141
DEBUG = "INFERMAX_OPT_DEBUG"
#: Characters of a long message that are told, of its begin and of its end.
ENDS = 1_500, 300
#: Key of the context of a command one of whose files goes to standard output.
TAKEN = "infermax_opt.standard_output"
#: Key of the context of a command whose report could not be printed: the error.
UNHEARD = "infermax_opt.unheard"

PROGRESS = click.option(
    "--progress/--no-progress",
    default=None,
    help="Tell on standard error how far it is.  Default: where that is a terminal.",
)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines instead of text.")


def _limit_files(context: click.Context, option: click.Parameter, mebibytes: int | None) -> None:
    from infermax_opt.files.json import limit_bytes

    if mebibytes is not None:
        limit_bytes(mebibytes * 2**20)
        context.call_on_close(lambda: limit_bytes(None))


INSTANCE = click.argument("instance_file", metavar="INSTANCE", shell_complete=files)
SUBJECT = click.argument("subject_file", metavar="SCHEDULE|RESULT", shell_complete=files)

#: Option of every command that reads files.
MAX_SIZE = click.option(
    "--max-size",
    metavar="MIB",
    type=click.IntRange(1, 2**20),
    callback=_limit_files,
    expose_value=False,
    help="MiB that a file may hold, decompressed. Default: 256.",
)


def output_option(metavar: str, text: str, required: bool = False) -> Callable[[F], F]:
    """Option -o: where the command writes its file, whole or not at all.

    Parameters
    ----------
    metavar : str
        What the file holds.
    text : str
        For the help.
    required : bool
    """
    return click.option("-o", "--output", metavar=metavar, required=required, shell_complete=files, help=text)


class Program(click.Group):
    """A click group whose errors are one line on stderr.

    Commands return an exit code: 0 done, 1 violated or infeasible.  Unusable input is 2.
    """

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run a command line and leave with its exit code; no exception gets past.

        Parameters
        ----------
        args : sequence of str, optional
            Those of the process by default.
        prog_name, complete_var : str, optional
            Name of the program, and of the variable by which a shell asks what may follow.
        standalone_mode, windows_expand_args : bool
            As click has them; without effect here.
        **extra
            For the context of the command.
        """
        self._main_shell_completion(extra, prog_name or "infermax-opt", complete_var or COMPLETE_VAR)
        code = self._run(list(sys.argv[1:] if args is None else args), prog_name or "infermax-opt", extra)
        if code == BROKEN_PIPE:
            # Else the interpreter flushes at exit, fails again and says so.
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(code)

    def _run(self, args: list[str], prog_name: str, extra: dict[str, Any]) -> int:
        progress_printer()
        try:
            with self.make_context(prog_name, args, **extra) as context:
                code = self.invoke(context)
            if UNHEARD in context.meta:
                raise context.meta[UNHEARD]
            sys.stdout.flush()
            _tell_left_out()
        except click.exceptions.Exit as stop:
            if stop.exit_code == DONE:
                _tell_left_out()
            return stop.exit_code
        except BrokenPipeError:
            return BROKEN_PIPE
        except (KeyboardInterrupt, click.Abort) as stop:
            code = exit_code(stop)
            return _complain("terminated" if code == TERMINATED else "interrupted", code)
        except BaseException as error:  # a package may raise anything
            return _complain(_in_words(error), UNUSABLE)
        return code if isinstance(code, int) else DONE


def _in_words(error: BaseException) -> str:
    """What went wrong, for the user; the traceback of a defect is printed where it is asked for."""
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else "output: "
        return f"{where}{error.strerror or error}"
    if isinstance(error, MemoryError):
        return "out of memory; try a smaller instance, or `solve` with --memory-limit"
    ours = isinstance(error, InputError)
    if os.environ.get(DEBUG) and (not ours or error.__cause__ is not None):
        traceback.print_exc()
    if ours:
        return str(error)
    return f"internal error: {told(error)}; please report it, with the output under {DEBUG}=1"


def _tell_left_out() -> None:
    """Say, after a command that did its work, which problems and bounds it did without."""
    found = left_out_so_far()
    if found:
        more = f" (and {len(found) - 1} more; see `infermax-opt problems`)" if len(found) > 1 else ""
        _complain(f"left out: {found[0].refusal()}{more}", DONE)
    for error in left_out():
        _complain(f"left out: {error}", DONE)


def _complain(message: str, code: int) -> int:
    """Print one line on stderr, whatever the message holds; the middle of a long one is left out."""
    text = " ".join(message.split())
    text = text if len(text) <= sum(ENDS) else f"{text[: ENDS[0]]} ... {text[-ENDS[1] :]}"
    try:
        click.echo(f"infermax-opt: {printable(text)}", err=True)
    except OSError:
        return code  # nobody is listening; the exit code still tells
    return code


def not_done(path: str, wrong: Sequence[object], done: str) -> int:
    """Say that nothing was made of a schedule, and what is wrong with it; return the exit code.

    Parameters
    ----------
    path : str
        Of the schedule.
    wrong : sequence
        What is wrong, at least one thing.
    done : str
        What was not done, such as ``drawn``.
    """
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    click.echo(f"infermax-opt: {path}: not {done}, it is wrong: {wrong[0]}{more}", err=True)
    return FAILED


def check_inputs(*inputs: str) -> None:
    """Check that at most one of the files to read, those of options among them, is standard input.

    Raises
    ------
    InputError
    """
    if [*inputs, *_also_read()].count(STANDARD) > 1:
        raise InputError("is to be read twice; name a file for one of them", source="standard input")


def _also_read() -> tuple[str, ...]:
    """The files that options name."""
    context = click.get_current_context(silent=True)
    found: tuple[str, ...] = context.meta.get(ALSO_READ, ()) if context else ()
    return found


def check_output(output: str | None, *inputs: str) -> None:
    """Find out before the work that `output` can be written, and that it is none of `inputs`.

    Where it is standard output, what the command says goes to standard error from then on.

    Raises
    ------
    InputError
    """
    check_inputs(*inputs)
    if output is None:
        return
    if output == STANDARD:
        click.get_current_context().meta[TAKEN] = True
        return
    target = os.path.realpath(output)
    if os.path.isdir(target) or output.endswith(os.sep):
        raise InputError("cannot be written: is a directory", source=output)
    if is_input(target, *inputs):
        raise InputError("is an input of this command; it is not overwritten", source=output)
    if os.path.exists(target) and not os.path.isfile(target):
        return  # a device or a pipe
    try:
        with tempfile.TemporaryFile(dir=os.path.dirname(target)):
            pass
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", source=output) from None


def is_input(path: str, *inputs: str) -> bool:
    """Whether a path is one of the inputs, or a file that an option names.

    Parameters
    ----------
    path : str
    *inputs : str
    """
    given = [name for name in (*inputs, *_also_read()) if os.path.exists(name)]
    return os.path.exists(path) and any(os.path.samefile(name, path) for name in given)


def check_outputs_differ(*outputs: str | None) -> None:
    """Check that no two outputs are the same file.

    Raises
    ------
    InputError
    """
    seen = set[str]()
    for output in outputs:
        if output is not None:
            path = os.path.realpath(output)
            if path in seen:
                raise InputError("is to be written twice", source=output)
            seen.add(path)


def say(text: str) -> None:
    """Print a report: to standard output, or to standard error where a file goes to the former.

    Where nobody hears it, such as `head` that read enough, the command writes its files before it fails.
    """
    meta = click.get_current_context().meta
    try:
        click.echo(text, err=TAKEN in meta)
    except OSError as error:
        meta.setdefault(UNHEARD, error)


def wrote(*names: str | None) -> None:
    """Say which files were written, if any."""
    from infermax_opt.files.writing import is_unwritten

    for name in names:
        if name is not None and name != STANDARD and not is_unwritten(name):
            say(f"wrote {click.format_filename(name)}")


def save(
    value: Mapping[str, Any],
    output: str | None,
    summary: str | None,
    as_csv: Callable[[], str] | None = None,
) -> None:
    """Write a JSON value to `output` (if given) and print the summary (or the value itself).

    The summary comes out even where the file cannot be written.
    Without a summary, the value that went to standard output is not printed again.

    Parameters
    ----------
    value : mapping
        As JSON knows it.
    output : str, optional
        File, or ``-`` for standard output.
    summary : str, optional
        What people read; None: they get the value.
    as_csv : callable, optional
        Makes the text of the file instead where its name ends in .csv.
    """
    from infermax_opt.files.json import to_json_text
    from infermax_opt.files.writing import all_written, dump_json, write_text

    with all_written():
        if output is not None and as_csv is not None and output.lower().endswith(".csv"):
            write_text(as_csv(), output)
        elif output is not None:
            dump_json(value, output)
        if summary is None and output != STANDARD:
            say(to_json_text(value).rstrip("\n"))
        elif summary is not None:
            say(summary)
            wrote(output)
        sys.stdout.flush()


def progress_printer(wanted: bool | None = None) -> Callable[[object], None] | None:
    """Return a printer of progress lines with the elapsed time, which also tells what is compiled.

    Parameters
    ----------
    wanted : bool, optional
        Whether there is to be one; None: where standard error is a terminal.
    """
    if not (sys.stderr.isatty() if wanted is None else wanted):
        tell_compiling(None)
        return None
    began = time.monotonic()

    def show(line: object) -> None:
        click.echo(f"[{time.monotonic() - began:7.1f} s] {line}", err=True)

    tell_compiling(show)
    return show


def tell_dropped(path: str, reasons: Mapping[str, int]) -> None:
    """Say on standard error how many requests of a trace are left out.

    Parameters
    ----------
    path : str
        Of the trace.
    reasons : mapping of str to int
        How many, by reason.
    """
    from infermax_opt.files.text import counted

    for reason, count in reasons.items():
        click.echo(f"infermax-opt: {path}: left out {counted(count, 'requests')}: {reason}", err=True)


def telling_untried(show: Callable[[object], None] | None) -> Callable[[ProgressEvent], None]:
    """Listen to progress: what was left out is told in any case, the rest as `show` shows it.

    Parameters
    ----------
    show : callable, optional
        As of `progress_printer`.
    """

    def hear(event: ProgressEvent) -> None:
        if event.step == "untried":
            click.echo(f"infermax-opt: {event}", err=True)
        elif show is not None:
            show(event)

    return hear
