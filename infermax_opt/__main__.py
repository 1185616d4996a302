"""Entry point of the console script, which survives Ctrl-C and SIGTERM while the program still loads."""

from __future__ import annotations

import gc
import signal
import sys

__all__ = ["main"]


#: Objects between two looks for cycles, and such looks between those at older objects, and at all.  What
#: Python has, 700, 10 and 10, takes a tenth of a small command, as modules make many objects that stay.
RARELY = (100_000, 20, 100)


def main() -> None:
    """Run the command line."""
    try:
        from infermax_opt.core.interrupts import exit_code, heed_signals
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)  # as `interrupts` would, which is not there yet
    try:
        gc.set_threshold(*RARELY)
        heed_signals()
        from infermax_opt.cli.main import main as run

        run()
    except KeyboardInterrupt as stop:
        sys.exit(exit_code(stop))


if __name__ == "__main__":
    main()
