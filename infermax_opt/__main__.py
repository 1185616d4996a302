"""Entry point of the console script, which survives Ctrl-C and SIGTERM while the program still loads."""

from __future__ import annotations

import sys

from infermax_opt.core.interrupts import exit_code, heed_signals

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    try:
        heed_signals()
        from infermax_opt.cli.main import main as run

        run()
    except KeyboardInterrupt as stop:
        sys.exit(exit_code(stop))


if __name__ == "__main__":
    main()
