"""A solve in a process of its own, which can be watched and stopped: for notebooks and long runs.

The process ends with the one that started it.  Schedules that come back are replayed here before they count.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import fields, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, Self

from infermax_opt import api
from infermax_opt.core.errors import InputError
from infermax_opt.core.frames import plain
from infermax_opt.core.progress import Progress, ProgressEvent
from infermax_opt.core.registry import problem_of
from infermax_opt.core.result import AnyResult, LowerBound, Proof, Scope, SolverReport, UpperBound
from infermax_opt.core.shown import Shown
from infermax_opt.core.values import AnyInstance
from infermax_opt.engines.child import end_child, read_lines, start_child
from infermax_opt.files.instances import any_schedule_from_json, any_schedule_to_json
from infermax_opt.files.json import parse_json, to_json_text

__all__ = ["SolveHandle", "start_solve"]


def start_solve(instance: AnyInstance, *, progress: Progress | None = None, **options: Any) -> SolveHandle:
    """Start `solve` in a process of its own, and return at once.

    Parameters
    ----------
    instance : instance of any problem
    progress : callable, optional
        As in `solve`; called in this process, in a thread of its own.
    **options
        Those of `solve`, but for `bounds` and `band`: ``time_limit``, ``solver``, ``formulation``,
        ``warm_start``, ``memory_limit``, ``threads``, ``seed``, ``target``.

    Returns
    -------
    SolveHandle
        `events` so far, `stop` for the best so far, `result` to wait.

    Raises
    ------
    InputError
        If an option is none of `solve`.  What else is wrong with them is told by `result`.
    """
    known = ("time_limit", "solver", "formulation", "warm_start", "memory_limit", "threads", "seed", "target")
    for name in options:
        if name not in known:
            raise InputError(f"is no option; there are {', '.join(known)}", field=name)
    return SolveHandle(instance, options, progress)


class SolveHandle(Shown):
    """A solve under way; leaving a ``with`` block of it ends the process.

    Parameters
    ----------
    instance : instance of any problem
    options : mapping
        Of `solve`.
    progress : callable, optional

    Attributes
    ----------
    instance : instance
    events : list of ProgressEvent
        All so far.
    """

    def __init__(self, instance: AnyInstance, options: Mapping[str, Any], progress: Progress | None = None):
        self.instance = instance
        self.events: list[ProgressEvent] = []
        self._progress = progress
        self._failure: BaseException | None = None
        self._ended = ""
        self._heeds = False
        self._found: AnyResult | None = None
        self._done = threading.Event()
        given = to_json_text(problem_of(instance).instance_to_json(instance))
        job = json.dumps({"instance": given, "options": _plain_options(options)})
        self._child = start_child("infermax_opt.api.background_process", subprocess.DEVNULL)
        self._lines = read_lines(self._child)
        threading.Thread(target=self._listen, args=(job,), daemon=True).start()

    def facts(self) -> Mapping[str, Any]:
        """Whether it runs, and the figures so far."""
        last = self.progress
        known = {} if last is None else dict(last.facts())
        return {"instance": self.instance.name, "running": self.running, **known}

    @property
    def running(self) -> bool:
        """Whether the process still works."""
        return not self._done.is_set()

    @property
    def progress(self) -> ProgressEvent | None:
        """The last event, with the best schedule and bound so far; None before the first."""
        events = list(self.events)
        if not events:
            return None
        numbers = next((some for some in reversed(events) if some.step in ("bound", "schedule")), events[-1])
        return replace(events[-1], value=numbers.value, bound=numbers.bound)

    def stop(self) -> AnyResult:
        """End the search, as Ctrl-C does; the best so far.

        Raises
        ------
        InputError
            If an option was wrong, or the search was stopped before it had anything.
        """
        self._ask_to_stop()
        return self.result()

    def result(self, timeout: float | None = None) -> AnyResult:
        """Wait for the result, as `solve` gives it.  Ctrl-C ends the waiting, not the search.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None is no limit.

        Raises
        ------
        TimeoutError
            If there is none by then; the search goes on.
        InputError
            If an option was wrong, or the process ended without a result.
        """
        if not self._done.wait(timeout):
            raise TimeoutError(f"no result after {timeout:g} s; the search goes on")
        if self._failure is not None:
            raise self._failure
        assert self._found is not None
        return self._found

    def close(self) -> None:
        """End the process at once, without a result."""
        self._ended = self._ended or "closed"
        end_child(self._child)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _ask_to_stop(self) -> None:
        """Interrupt the process, at the latest when it heeds that: before, SIGINT may be ignored and lost."""
        with contextlib.suppress(OSError):
            if self._child.poll() is None:
                self._ended = "stopped"
                if self._heeds:
                    os.kill(self._child.pid, signal.SIGINT)

    def _listen(self, job: str) -> None:
        """Send the job and take what comes, in a thread."""
        try:
            with contextlib.suppress(OSError, ValueError):
                self._child.stdin.write(job.encode() + b"\n")  # type: ignore[union-attr]
                self._child.stdin.flush()  # type: ignore[union-attr]
            while (line := self._lines.get()) is not None:
                self._take(json.loads(line))
            if self._found is None and self._failure is None:
                code = self._child.wait()
                # One that has just begun knows no better than to end.
                early = f"was {self._ended} before there was a result"
                how = early if self._ended else f"the process ended with exit code {code}"
                self._failure = InputError(how, source="solve")
        except BaseException as error:  # a callback's, or a schedule that is wrong: told by `result`
            self._failure = error
        finally:
            end_child(self._child)
            self._done.set()

    def _take(self, message: dict[str, Any]) -> None:
        if "event" in message:
            event = ProgressEvent(**message["event"])
            self.events.append(event)
            try:
                wanted = self._progress is not None and self._progress(event) is True
            except StopIteration:
                wanted = True
            if wanted:
                self._progress = None
                self._ask_to_stop()
        elif "heeds" in message:
            self._heeds = True
            if self._ended == "stopped":
                self._ask_to_stop()
        elif "failure" in message:
            self._failure = InputError(message["failure"], **message["where"])
        else:
            found = _result(self.instance, parse_json(message["result"]))
            self._found = replace(found, events=_improvements(self.events))


def _improvements(events: list[ProgressEvent]) -> tuple[ProgressEvent, ...]:
    return tuple(some for some in events if some.step in ("bound", "schedule"))


def _plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as JSON knows them."""
    job = dict(options)
    start = job.get("warm_start", "best")
    if not isinstance(start, str):
        job["warm_start"] = {"schedule": to_json_text(any_schedule_to_json(start))}
    if job.get("target") is not None:
        job["target"] = str(Fraction(job["target"]))
    for name, value in job.items():
        if isinstance(value, Fraction | Decimal):
            job[name] = float(value)
        elif not isinstance(value, str | int | float | dict | None):
            raise InputError(f"{value!r:.60} is neither a number nor a name", field=name)
    return job


def _result(instance: AnyInstance, value: dict[str, Any]) -> AnyResult:
    """A result from what the process says; its schedule is replayed here."""
    report, lower, certified = plain(value["solver"]), _bound(value["lower"]), _bound(value["certified"])
    written = value["schedule"]
    schedule = None if written is None else any_schedule_from_json(written, "", problem_of(instance))
    upper = metrics = None
    if schedule is not None:
        check = api.verify(instance, schedule)
        if not check.ok or check.objective is None:
            raise InputError(f"gave a schedule that is wrong: {check}", source="solve")
        upper, metrics = UpperBound(check.objective, value["source"]), check.metrics
    names = [field.name for field in fields(SolverReport)]
    scope = report["scope"]
    own = {name: report[name] for name in names} | {"scope": None if scope is None else Scope(scope)}
    target = value["target"]
    return AnyResult(
        instance=instance.name,
        instance_sha256=instance.sha256,
        objective=instance.objective_name,
        upper=upper,
        lower=lower,
        certified=certified,
        schedule=schedule,
        metrics=metrics,
        solver=SolverReport(**own),
        infeasible=value["infeasible"],
        target=None if target is None else Fraction(target),
        undecided=value["undecided"],
        given=instance,
    )


def _bound(value: dict[str, Any] | None) -> LowerBound | None:
    if value is None:
        return None
    exact, proof = Fraction(value["value"]), Proof(value["proof"])
    return LowerBound(exact, value["source"], proof, evidence=value["evidence"], reason=value["reason"])
