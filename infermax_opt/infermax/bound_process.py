"""The search for lower bounds in a process of its own, so that it has a core to itself beside the planners.

Run as a module this is that process.  One line of JSON on standard input says the instance and the seconds.
Every bound that is found comes out as its certificate, one a line.
"""

from __future__ import annotations

import contextlib
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from infermax_opt.core.compiling_apart import OutOfTime, in_time
from infermax_opt.core.deadline import Deadline
from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.engines.child import end_child, end_with_parent, read_lines, start_child
from infermax_opt.files.certificates import certificate_to_json
from infermax_opt.files.json import parse_json, to_json_text
from infermax_opt.infermax.bounds.searched import searched_bounds
from infermax_opt.infermax.certificates import CERTIFICATION
from infermax_opt.infermax.data.formats import instance_from_json, instance_to_json
from infermax_opt.infermax.data.instance import Instance

__all__ = ["BoundProcess"]


class BoundProcess:
    """A search for bounds under way.

    Parameters
    ----------
    instance : Instance
    seconds : float, optional
        After which the search ends by itself with what it has; None is no limit.

    Attributes
    ----------
    failure : str or None
        What the process died of.
    """

    def __init__(self, instance: Instance, seconds: float | None):
        self.failure: str | None = None
        self._child = start_child(__name__, subprocess.DEVNULL)
        self._lines = read_lines(self._child)
        self._ended = self._stopped = False
        job = {"instance": instance_to_json(instance), "seconds": seconds}
        # From a thread: a large instance takes more than a pipe holds before the other side reads.
        threading.Thread(target=self._send, args=(to_json_text(job),), daemon=True).start()

    def _send(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._child.stdin.write(" ".join(text.split("\n")).encode() + b"\n")  # type: ignore[union-attr]
            self._child.stdin.flush()  # type: ignore[union-attr]

    def found(self, wait: float | None = 0.0) -> Iterator[LowerBound]:
        """Bounds since the last call, each as soon as it comes.

        Parameters
        ----------
        wait : float, optional
            Seconds to wait for the search to end; with 0 only what is there already is taken, with None
            there is no limit.
        """
        until = None if wait is None else time.monotonic() + wait
        while not self._ended:
            left = None if until is None else until - time.monotonic()
            try:
                line = (
                    self._lines.get_nowait()
                    if left is not None and left <= 0
                    else self._lines.get(timeout=left)
                )
            except queue.Empty:
                return
            if line is None:
                self._ended = True
                self._note_end()
            else:
                yield from self._taken(parse_json(line.decode()))

    def _taken(self, event: dict[str, Any]) -> Iterator[LowerBound]:
        if "failure" in event:
            self.failure = event["failure"]
        else:
            value = Fraction(event["lower_bound"])
            yield LowerBound(value, event["source"], Proof.CERTIFICATE, evidence=event["evidence"])

    def _note_end(self) -> None:
        code = self._child.wait()
        if code != 0 and not self._stopped and self.failure is None:
            self.failure = f"the process ended with exit code {code}"

    def end(self) -> None:
        """Stop the search; bounds that have come out can still be taken."""
        self._stopped = True
        end_child(self._child)


def main() -> None:
    """Search for bounds on the instance that standard input names."""
    job: dict[str, Any] = parse_json(sys.stdin.readline())
    end_with_parent()
    instance = instance_from_json(job["instance"])
    seconds = job["seconds"]
    late = Deadline(None if seconds is None else float(seconds))
    try:
        with in_time(late), contextlib.suppress(OutOfTime):
            for lower in searched_bounds(instance, stop=late):
                _print(certificate_to_json(instance, lower, CERTIFICATION))
    except Exception as error:  # one bound the less is no reason to lose the rest
        _print({"failure": f"{type(error).__name__}: {error}"})


def _print(value: dict[str, Any]) -> None:
    sys.stdout.write(" ".join(to_json_text(value).split("\n")) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
