"""A module of this package run as a process of its own: a job on its standard input, events on its output.

Both are JSON, one line each.  The process sees its standard input end when the parent does, so it need not
outlive it.
"""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

__all__ = ["Lines", "end_child", "end_with_parent", "read_lines", "start_child"]

#: Whole lines of the output of a process; None at its end.
Lines = queue.SimpleQueue[bytes | None]


def start_child(module: str, errors: IO[bytes] | int) -> subprocess.Popen[bytes]:
    """Start ``python -m module`` with pipes for its standard input and output.

    Parameters
    ----------
    module : str
        Dotted name.
    errors : file or int
        Where its standard error goes, as `subprocess.Popen` takes it.
    """
    package = str(Path(__file__).resolve().parents[2])
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [package, environment.get("PYTHONPATH")]))
    # No dense algebra through numpy happens there; its threads would only use memory.
    environment["OPENBLAS_NUM_THREADS"] = "1"
    return subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env=environment,
        # Ctrl-C in the terminal is for the parent, which ends the child.
        start_new_session=True,
    )


def read_lines(child: subprocess.Popen[bytes]) -> Lines:
    """Collect what a process prints, as it comes."""
    lines: Lines = queue.SimpleQueue()
    threading.Thread(target=_read, args=(child.stdout, lines), daemon=True).start()
    return lines


def _read(pipe: IO[bytes], lines: Lines) -> None:
    with contextlib.suppress(OSError, ValueError):
        for line in pipe:
            # A killed process may leave half a line.
            if line.endswith(b"\n"):
                lines.put(line)
    lines.put(None)


def end_child(child: subprocess.Popen[bytes]) -> int:
    """Kill a process that still runs; its exit code."""
    child.kill()
    code = child.wait()
    for pipe in (child.stdin, child.stdout):
        with contextlib.suppress(OSError):
            pipe.close()  # type: ignore[union-attr]
    return code


def end_with_parent() -> None:
    """In a child: end as soon as standard input does, which is when its parent ends, however that ends."""

    def watch() -> None:
        sys.stdin.read()
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
