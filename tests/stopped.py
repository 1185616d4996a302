"""Commands that a signal stops while they search: once they say that they do, not after some seconds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.support import ROOT

__all__ = ["begin", "stopped", "until"]

#: A while in the search, in seconds.
WHILE = 0.3


def until(true: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for something, so many seconds at most."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def begin(*args: object, errors: int = subprocess.PIPE) -> subprocess.Popen[str]:
    """Start the program as from a terminal; `errors` is where its standard error goes."""

    def as_from_a_terminal() -> None:
        # Where the tests run in the background of a shell, Ctrl-C would be ignored.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    return subprocess.Popen(
        [sys.executable, "-m", "infermax_opt", *map(str, args)],
        stdout=subprocess.PIPE, stderr=errors, text=True, preexec_fn=as_from_a_terminal,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def stopped(
    *args: object, after: str, folder: Path, number: signal.Signals = signal.SIGINT
) -> subprocess.CompletedProcess[str]:
    """A command that got a signal while it searched; its standard error without the lines of progress.

    Parameters
    ----------
    *args : object
        Of a command that knows ``--progress``.
    after : str
        What it says there once it searches.
    folder : path
        For its standard error.
    number : signal
    """
    told = folder / "told.txt"
    with told.open("w") as errors:
        process = begin(*args, "--progress", errors=errors.fileno())
        try:
            until(lambda: after in told.read_text() or process.poll() is not None)
            time.sleep(WHILE)
            process.send_signal(number)
            text, _ = process.communicate(timeout=30)
        finally:
            process.kill()
    lines = [line for line in told.read_text().splitlines(keepends=True) if not line.startswith("[")]
    return subprocess.CompletedProcess(process.args, process.returncode, text, "".join(lines))
