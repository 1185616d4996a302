"""Check a lower-bound certificate without the package: INSTANCE CERTIFICATE [--profiles DIR].

Runs the one file ``infermax_opt/certificate_checker.py``, which needs the standard library only
and may be copied anywhere.
"""

from __future__ import annotations

import runpy
from pathlib import Path

CHECKER = Path(__file__).resolve().parent.parent / "infermax_opt" / "certificate_checker.py"

if __name__ == "__main__":
    runpy.run_path(str(CHECKER), run_name="__main__")
