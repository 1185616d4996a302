"""Checkers as programs without a process for each file: what they say, and their exit codes.

That they start by themselves is for tests that start them; what they make of a file is the same here, where
a traceback is one of the test.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from pathlib import Path
from unittest import mock

from infermax_opt.checking.main import main
from tests.support import ROOT, one_file

__all__ = ["judged_here"]


def judged_here(
    problem: str | None, *arguments: object, cwd: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """How a checker ends that is called with these arguments.

    Parameters
    ----------
    problem : str, optional
        Whose one file is called; the command that finds the checker, if None.
    *arguments : object
    cwd : path
        Folder of relative paths.
    """
    words = list(map(str, arguments))
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with (
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "argv", ["check", *words]),
    ):
        try:
            code = main() if problem is None else one_file(problem).main(words)
        except SystemExit as stop:
            code = stop.code
    assert isinstance(code, int)
    return subprocess.CompletedProcess(words, code, *map(written, (out, err)))


def written(stream: io.TextIOWrapper) -> str:
    """What was written to a stream of this module."""
    stream.flush()
    stream.seek(0)
    return stream.read()
