"""Commands in processes of their own that need not load the program: forks of one that has loaded it.

For tests that are about packages beside the program, or about what a command leaves behind: such a command
finds its packages, keeps its caches and ends as `python -m infermax_opt` does, and takes a tenth of the time.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["forked"]

#: A line of standard input for each command, a line of standard output for how it ended.  All modules are
#: loaded but those with kernels, whose compiler is slow to load and slows down the forks that need none.
SERVER = """
import importlib, json, os, pkgutil, sys, traceback
import matplotlib.figure
import infermax_opt
from infermax_opt.__main__ import main

for module in pkgutil.walk_packages(infermax_opt.__path__, "infermax_opt."):
    if "_kernels" not in module.name:
        importlib.import_module(module.name)
answers = os.dup(1)
os.dup2(2, 1)
for line in sys.stdin:
    order = json.loads(line)
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        os.write(answers, b"%d\\n" % os.waitstatus_to_exitcode(status))
        continue
    for name, number in (("out", 1), ("err", 2)):
        os.dup2(os.open(order[name], os.O_WRONLY | os.O_CREAT, 0o600), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(order["environment"])
    sys.path[1:1] = order["environment"]["PYTHONPATH"].split(os.pathsep)
    importlib.invalidate_caches()
    sys.argv = ["infermax-opt", *order["arguments"]]
    code = 1
    try:
        main()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else stop.code is not None
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
"""


@functools.cache
def server() -> subprocess.Popen[str]:
    """The process that has loaded the program; it ends with this one, whose end closes its standard input."""
    return subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def forked(*arguments: object, path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a command says and how it ends, with the packages of a folder beside the program's own.

    `environment` comes on top of that of the tests.
    """
    running, words = server(), list(map(str, arguments))
    assert running.stdin is not None
    assert running.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        around = {**environment, "PYTHONPATH": str(path)}
        order = {"arguments": words, "environment": around, "out": str(out), "err": str(err)}
        running.stdin.write(json.dumps(order) + "\n")
        running.stdin.flush()
        code = int(running.stdout.readline())
        return subprocess.CompletedProcess(words, code, out.read_text(), err.read_text())
