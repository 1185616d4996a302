"""Check a lower-bound certificate without the package: INSTANCE CERTIFICATE [--profiles DIR].

Runs the one file ``infermax_opt/infermax/checker.py``, or ``infermax_opt/makespan/checker.py`` where the
instance names that problem.  Both need the standard library only and may be copied anywhere.
"""

from __future__ import annotations

import gzip
import json
import runpy
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "infermax_opt"


def checker(arguments: list[str]) -> str:
    """File of the checker for the first file named; what cannot be read is the checker's own to say."""
    for path in (Path(some) for some in arguments if not some.startswith("-")):
        try:
            data = gzip.decompress(path.read_bytes()) if path.name.endswith(".gz") else path.read_bytes()
            value = json.loads(data)
        except (OSError, ValueError, EOFError):
            break
        if isinstance(value, dict) and value.get("problem") == "makespan":
            return "makespan/checker.py"
        break
    return "infermax/checker.py"


if __name__ == "__main__":
    runpy.run_path(str(PACKAGE / checker(sys.argv[1:])), run_name="__main__")
