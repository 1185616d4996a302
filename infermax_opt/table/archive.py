"""The best-known archive: the best verified schedule and lower bound of every instance of a suite.

``DIR/SUITE.json`` holds one entry per instance, ``DIR/SUITE/`` the schedules and certificates that
the entries name.  An entry changes only when something strictly better passes the verifier, and
the file is replaced whole; bounds that only a solver vouches for are not taken.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from infermax_opt.api import verify
from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import decimal_text
from infermax_opt.core.result import AnyResult, Claim, LowerBound, Proof, Result, UpperBound
from infermax_opt.core.shown import ShownRows
from infermax_opt.core.values import AnyInstance, AnySchedule
from infermax_opt.core.verification import AnyVerification
from infermax_opt.files.fields import Fields
from infermax_opt.files.instances import any_schedule_from_json, any_schedule_to_json, write_schedule
from infermax_opt.files.json import read_as, to_json_text
from infermax_opt.files.lock import locked
from infermax_opt.files.writing import dump_json, write_bytes
from infermax_opt.table.archive_entries import BestLower, BestUpper, Entry

__all__ = ["Archive", "BestLower", "BestUpper", "Entry", "schedule_sha256"]

ARCHIVE_SCHEMA = "infermax-opt/best-known/1"
#: Largest compressed schedule kept; of a larger one only the hash and the value are.
MAX_SCHEDULE_BYTES = 2**17


def schedule_sha256(schedule: AnySchedule) -> str:
    """Hash of a schedule's canonical JSON: keys sorted, no spaces, equal batches in a row merged."""
    value = any_schedule_to_json(schedule)
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=decimal_text)
    return hashlib.sha256(text.encode()).hexdigest()


class Archive(ShownRows):
    """The archive of one suite.

    Parameters
    ----------
    directory : path
        Holds the archives of all suites; created by the first improvement.
    suite : str
    """

    def __init__(self, directory: str | os.PathLike[str], suite: str):
        self.directory = Path(directory)
        self.suite = suite
        self.path = self.directory / f"{suite}.json"
        if self.directory.exists() and not self.directory.is_dir():
            raise InputError("is not a directory", source=str(self.directory))

    def facts(self) -> Mapping[str, Any]:
        """Folder and suite; how many instances have a schedule, a bound, a gap of 0; or what is wrong."""
        where = {"directory": str(self.directory), "suite": self.suite}
        try:
            rows = list(self.rows_shown())
        except InputError as error:
            return {**where, "problem": str(error)}
        return {
            **where,
            "schedules": sum(row["upper"] is not None for row in rows),
            "bounds": sum(row["lower"] is not None for row in rows),
            "optimal": sum(row["gap"] == 0 for row in rows),
        }

    def rows_shown(self) -> Iterable[Mapping[str, Any]]:
        """A row for each instance: both sides, where they are from, and the gap; the file is read anew.

        Raises
        ------
        InputError
            As `entries`.
        """
        return [entry.row for entry in self.entries().values()]

    def entries(self) -> dict[str, Entry]:
        """All entries by instance name.

        Raises
        ------
        InputError
            If the file is unusable, or an entry's lower bound exceeds its upper bound.
        """
        return read_as(self.path, self._parse) if self.path.exists() else {}

    def _parse(self, value: object) -> dict[str, Entry]:
        top = Fields(value, "", ["schema", "suite", "entries"])
        top.schema(ARCHIVE_SCHEMA)
        if top.text("suite") != self.suite:
            raise InputError(f"is {top.text('suite')!r}, not {self.suite!r}", field="suite")
        found: dict[str, Entry] = {}
        for index, item in enumerate(top.items("entries")):
            entry = Entry.from_json(item, f"entries[{index}]")
            if entry.instance in found:
                raise InputError(f"{entry.instance!r} is there twice", field=f"entries[{index}]")
            found[entry.instance] = entry
        return found

    def entry(self, instance: AnyInstance) -> Entry:
        """What is known of an instance; an entry without either side, if nothing.

        Raises
        ------
        InputError
            If the entry of that name is for another instance.
        """
        return self._entry_of(self.entries(), instance)

    def _entry_of(self, entries: Mapping[str, Entry], instance: AnyInstance) -> Entry:
        sha256 = instance.sha256
        entry = entries.get(instance.name, Entry(instance.name, sha256))
        if entry.instance_sha256 != sha256:
            raise self._error(instance.name, "is for another instance of that name")
        return entry

    def _error(self, name: str, problem: str) -> InputError:
        return InputError(problem, field=name, source=str(self.path))

    def prepare(self) -> None:
        """Find out before the work that the archive can be read and written.

        Raises
        ------
        InputError
        """
        with self._locked():
            self.entries()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            (self.directory / self.suite).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = error.strerror or str(error)
            raise InputError(f"cannot be written: {reason}", source=str(self.directory)) from None
        with locked(self.directory / f".{self.suite}.lock", wait=True):
            yield

    def schedule(self, instance: AnyInstance) -> AnySchedule | None:
        """Best-known schedule, verified; None where none is kept.

        Raises
        ------
        InputError
            If the schedule is not the one of the entry, breaks a rule, or does not replay to what
            the entry claims.
        """
        upper = self.entry(instance).upper
        if upper is None or upper.schedule is None:
            return None
        schedule: AnySchedule = read_as(self.directory / upper.schedule, any_schedule_from_json)
        if schedule_sha256(schedule) != upper.schedule_sha256:
            raise self._error(instance.name, f"{upper.schedule} is not the schedule of the entry")
        check = verify(instance, schedule)
        if not check.ok or check.objective is None:
            fault = [*check.violations, *check.faults][0]
            raise self._error(instance.name, f"{upper.schedule} is not a valid schedule: {fault}")
        if upper.value != _ceiling(check.objective):
            raise self._error(
                instance.name,
                f"claims {decimal_text(upper.value)}, but its schedule replays to "
                f"{decimal_text(check.objective)}",
            )
        return schedule

    def best(self, instance: AnyInstance) -> AnyResult:
        """The best known of an instance, as a result: its schedule is replayed, its bound as it was verified.

        Raises
        ------
        InputError
            If the entry of that name is for another instance, or its schedule is not what it claims.
        """
        entry = self.entry(instance)
        schedule, upper, lower = self.schedule(instance), entry.upper, entry.lower
        certificate = str(self.directory / lower.certificate) if lower and lower.certificate else None
        return AnyResult(
            instance=instance.name,
            instance_sha256=instance.sha256,
            objective=instance.objective_name,
            upper=None if upper is None else UpperBound(upper.value, upper.source),
            lower=None
            if lower is None
            else LowerBound(lower.value, lower.source, Proof(lower.proof), certificate),
            schedule=schedule,
            metrics=None if schedule is None else verify(instance, schedule).metrics,
            given=instance,
        )

    def part(self, name: str) -> Iterator[tuple[str, bytes]]:
        """An archive of one instance: its files, by their names below the archive's folder."""
        entries = self.entries()
        held = [entries[name]] if name in entries else []
        yield self.path.name, to_json_text(self._value(held)).encode()
        for entry in held:
            if entry.upper is not None and entry.upper.schedule is not None:
                path = self.directory / entry.upper.schedule
                try:
                    yield entry.upper.schedule, path.read_bytes()
                except OSError as error:
                    reason = error.strerror or str(error)
                    raise InputError(f"cannot be read: {reason}", source=str(path)) from None

    def _value(self, entries: Sequence[Entry]) -> dict[str, object]:
        """The archive's file, as JSON knows it."""
        found = [entry.to_json() for entry in entries]
        return {"schema": ARCHIVE_SCHEMA, "suite": self.suite, "entries": found}

    def beaten_by(self, name: str, upper: Fraction | None, lower: Fraction | None) -> bool:
        """Whether such bounds would improve the entry of that name, or contradict it.

        Parameters
        ----------
        name : str
            Of the instance.
        upper, lower : Fraction, optional
            Objective of a schedule, and a lower bound.
        """
        entry = self.entries().get(name)
        if entry is None:
            return True
        better = upper is not None and (entry.upper is None or upper < entry.upper.value)
        return better or (lower is not None and (entry.lower is None or lower > entry.lower.value))

    def improve(
        self,
        instance: AnyInstance,
        subject: AnyResult | Claim,
        *,
        source: str,
        versions: Mapping[str, str],
        certificate: Path | None = None,
        date: str | None = None,
    ) -> tuple[str, ...]:
        """Verify a result and keep whichever of its sides is strictly better.

        Parameters
        ----------
        instance : instance of any problem
        subject : result or Claim
        source : str
            What found the schedule.
        versions : mapping of package to version
        certificate : path, optional
            Certificate of the lower bound; copied.
        date : str, optional
            Default: today, UTC.

        Returns
        -------
        tuple of str
            What was improved: ``"upper"``, ``"lower"``, both or nothing.

        Raises
        ------
        InputError
            If the result is wrong, or contradicts the archive; the archive stays as it was.
        """
        claim = subject.claim() if isinstance(subject, Result) else subject
        check = verify(instance, claim)
        if not check.ok:
            fault = [*check.violations, *check.faults][0]
            raise self._error(instance.name, f"the offered result is wrong: {fault}")
        today = date or datetime.datetime.now(datetime.UTC).date().isoformat()
        with self._locked():
            entries = self.entries()
            before = self._entry_of(entries, instance)
            after = self._with_upper(before, claim, check, source, versions, today)
            after = self._with_lower(after, claim, check, versions, certificate, today)
            improved = tuple(
                side for side in ("upper", "lower") if getattr(after, side) != getattr(before, side)
            )
            if improved:
                self._store(entries, before, after, claim.schedule, certificate)
        return improved

    def _with_upper(
        self,
        entry: Entry,
        claim: Claim,
        check: AnyVerification,
        source: str,
        versions: Mapping[str, str],
        date: str,
    ) -> Entry:
        if claim.schedule is None or check.objective is None:
            return entry
        # What replay gives, not what the result says.
        value = _ceiling(check.objective)
        if entry.upper is not None and value >= entry.upper.value:
            return entry
        digest = schedule_sha256(claim.schedule)
        name = f"{self.suite}/{entry.instance}.{digest[:8]}.json.gz"
        try:
            return replace(entry, upper=BestUpper(value, source, digest, name, dict(versions), date))
        except InputError as error:
            raise error.within(str(self.path)) from None

    def _with_lower(
        self,
        entry: Entry,
        claim: Claim,
        check: AnyVerification,
        versions: Mapping[str, str],
        certificate: Path | None,
        date: str,
    ) -> Entry:
        if claim.lower_bound is None or claim.proof is None or check.bound is None:
            return entry
        value = Fraction(decimal_text(claim.lower_bound, rounding="floor"))
        if entry.lower is not None and value <= entry.lower.value:
            return entry
        name = None
        if certificate is not None:
            digest = hashlib.sha256(certificate.read_bytes()).hexdigest()
            name = (
                f"{self.suite}/{entry.instance}.{digest[:8]}.certificate{''.join(certificate.suffixes[-2:])}"
            )
        lower = BestLower(
            value,
            claim.lower_source or "unknown",
            claim.proof.value,
            check.bound.value,
            name,
            dict(versions),
            date,
        )
        try:
            better = replace(entry, lower=lower)
        except InputError as error:
            raise error.within(str(self.path)) from None
        # A solver's word may refute the archive, but not enter it.
        return entry if check.bound.is_word else better

    def _store(
        self,
        entries: dict[str, Entry],
        before: Entry,
        after: Entry,
        schedule: AnySchedule | None,
        certificate: Path | None,
    ) -> None:
        """Write the new files, then the entries that name them, then remove the old files."""
        if after.upper is not None and after.upper != before.upper and schedule is not None:
            path = self.directory / str(after.upper.schedule)
            write_schedule(schedule, path)
            if path.stat().st_size > MAX_SCHEDULE_BYTES:
                path.unlink()
                after = replace(after, upper=replace(after.upper, schedule=None))
        lower = after.lower if after.lower != before.lower else None
        if certificate is not None and lower is not None and lower.certificate is not None:
            write_bytes(certificate.read_bytes(), self.directory / lower.certificate)
        entries[after.instance] = after
        dump_json(self._value([entries[name] for name in sorted(entries)]), self.path)
        for old in _files(before) - _files(after):
            with contextlib.suppress(OSError):
                (self.directory / old).unlink()


def _files(entry: Entry) -> set[str]:
    named = (entry.upper and entry.upper.schedule, entry.lower and entry.lower.certificate)
    return {name for name in named if name}


def _ceiling(value: Fraction) -> Fraction:
    return Fraction(decimal_text(value, rounding="ceiling"))
