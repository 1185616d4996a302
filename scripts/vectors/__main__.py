"""Write the test vectors of checkers: ``python -m scripts.vectors [--into FOLDER]``, from the checkout.

Bounds are computed anew; another release of a solver may come to other evidence.  A test,
`tests/checking/test_vectors.py`, sees that each vector is judged as the index says.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from infermax_opt.core.registry import problem_of
from infermax_opt.files.instances import write_instance
from scripts.vectors import fleet
from scripts.vectors.accepted import Accepted, of_infermax, of_others
from scripts.vectors.faults import (
    OF_EVIDENCE,
    ONE_STEP,
    REASONS,
    Fault,
    changed,
    of_claim,
    of_envelope,
    of_evidence,
)  # fmt: skip
from scripts.vectors.files import packed, unreadable, unusable
from scripts.vectors.forged import too_much_work, unsuitable

FOLDER = Path("instances", "vectors")
SCHEMA = "infermax-opt/vectors/1"
ABOUT = (
    "Each vector is an instance and a certificate, and what a checker must say of them. "
    "outcome and exit_code bind; reason is the class of what the checkers of this project say. "
    "max_size (MiB that a file may hold, decompressed; else 256) and question (the hash of what is asked) "
    "are to be given to the checker where a vector has them. See docs/checkers.md."
)
#: Exit code of each outcome.
EXIT_CODES = {"accepted": 0, "rejected": 1, "unusable": 2, "unreadable": 2}
#: Bytes above which a certificate is compressed.
LARGE = 900


class Writer:
    """Writes files and notes what is in them."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.vectors: list[dict[str, Any]] = []

    def instance(self, some: Accepted) -> str:
        """Write an instance; return its path."""
        problem, aim = problem_of(some.instance).name, some.instance.objective_name
        words = "".join(ch if ch.isascii() and ch.isalnum() else " " for ch in f"{some.instance.name} {aim}")
        path = Path("instances", "-".join([problem, *words.split()]) + ".json")
        (self.folder / path.parent).mkdir(parents=True, exist_ok=True)
        write_instance(some.instance, self.folder / path)
        return path.as_posix()

    def file(self, path: str, value: dict[str, Any]) -> str:
        """Write a certificate or an instance; return its path, which shows whether it is compressed."""
        data = (json.dumps(value) + "\n").encode()
        if len(data) > LARGE:
            path, data = f"{path}.gz", packed(data)
        return self.raw(path, data)

    def raw(self, path: str, data: bytes) -> str:
        """Write bytes."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        return path

    def note(self, instance: str | None, certificate: str, problem: str, outcome: str, **more: Any) -> None:
        """Add a vector to the index.

        Parameters
        ----------
        instance, certificate : str
            Paths; no instance where the certificate holds its question.
        problem : str
        outcome : str
        **more : Any
            What else there is to say.
        """
        row = {} if instance is None else {"instance": instance}
        row |= {"certificate": certificate, "problem": problem, "outcome": outcome}
        self.vectors.append({**row, "exit_code": EXIT_CODES[outcome], **more})


def signed(certificate: dict[str, Any]) -> dict[str, Any]:
    """The certificate with the hash of what it says."""
    body = {key: value for key, value in certificate.items() if key != "sha256"}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return {**body, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def write_accepted(to: Writer, some: Accepted) -> tuple[str, str]:
    """Write a certificate that is accepted; return the paths of its instance and of itself."""
    problem, path = problem_of(some.instance).name, to.instance(some)
    aim = "" if problem != "infermax" else f"{Path(path).stem.removeprefix('infermax-')}-"
    certificate = to.file(f"accepted/{problem}-{aim}{some.kind}.json", some.certificate)
    evidence = some.certificate["evidence"]
    kind, bound = evidence.get("kind", "parts"), some.certificate["lower_bound"]
    to.note(path, certificate, problem, "accepted", kind=kind, lower_bound=bound)
    return path, certificate


def write_faults(to: Writer, some: Accepted, paths: tuple[str, str], faults: Iterator[Fault]) -> None:
    """Write certificates that are rejected.

    Parameters
    ----------
    to : Writer
    some : Accepted
    paths : (str, str)
        Of its instance and of itself.
    faults : iterator of Fault
    """
    stem, problem = Path(paths[1]).name.partition(".")[0], problem_of(some.instance).name
    for fault in faults:
        value = signed(fault.certificate) if fault.signed else fault.certificate
        certificate = to.file(f"rejected/{stem}/{fault.name}.json", value)
        kind = some.certificate["evidence"].get("kind", "parts")
        to.note(paths[0], certificate, problem, "rejected", kind=kind, reason=fault.reason)


def write_variants(to: Writer, some: Accepted, path: str) -> None:
    """Write what is accepted, too: other texts of the same certificate, and a smaller claim.

    Parameters
    ----------
    to : Writer
    some : Accepted
    path : str
        Of its instance.
    """
    text, bound = json.dumps(some.certificate).encode(), some.certificate["lower_bound"]
    backwards = dict(reversed(some.certificate.items()))
    # A number with a point is hashed as the text that stands there.
    more = {**signed({**some.certificate, "comment": "of no account \u00e9", "number": "0.5"}), "number": 0.5}
    less = signed({**some.certificate, "lower_bound": "1/3"})
    whole = signed(changed(some.certificate, "lower_bound", 2))
    exponent = signed(changed(some.certificate, "lower_bound", "25e-1"))
    variants = (
        ("compressed.json.gz", packed(text), bound),
        ("byte-order-mark.json", b"\xef\xbb\xbf" + text, bound),
        ("keys-in-another-order.json", json.dumps(backwards).encode(), bound),
        ("keys-unknown.json", json.dumps(more).encode(), bound),
        ("claims-less.json", json.dumps(less).encode(), "1/3"),
        ("claims-a-whole-number.json", json.dumps(whole).encode(), "2"),
        ("claims-with-an-exponent.json", json.dumps(exponent).encode(), "2.5"),
    )
    for name, data, claim in variants:
        certificate = to.raw(f"accepted/variants/{name}", data)
        kind = some.certificate["evidence"]["kind"]
        to.note(path, certificate, problem_of(some.instance).name, "accepted", kind=kind, lower_bound=claim)


def write_files(to: Writer, some: Accepted, paths: tuple[str, str]) -> None:
    """Write files that are refused before anything is checked.

    Parameters
    ----------
    to : Writer
    some : Accepted
    paths : (str, str)
        Of its instance and of itself.
    """
    problem = problem_of(some.instance).name
    for raw in unreadable(some.certificate):
        certificate = to.raw(f"unreadable/{raw.name}", raw.data)
        more = {} if raw.max_size is None else {"max_size": raw.max_size}
        to.note(paths[0], certificate, problem, "unreadable", reason=raw.reason, **more)
    value = json.loads((to.folder / paths[0]).read_text())
    for name, instance in unusable(value):
        path = to.file(f"unusable/{name}.json", instance)
        to.note(path, paths[1], problem, "unusable", reason="unusable")


def write_fleets(to: Writer) -> None:
    """Write certificates of fleets, which hold their question."""
    for some in (*fleet.accepted(), *fleet.rejected()):
        outcome = "accepted" if some.reason is None else "rejected"
        # Many, and alike: compressed they take little.
        data = packed((json.dumps(some.certificate) + "\n").encode())
        path = to.raw(f"{outcome}/fleet-{some.name}.json.gz", data)
        asked = {} if some.asked is None else {"question": some.asked}
        bound = some.certificate.get(some.claim)
        proved = None if bound == fleet.NEVER else str(bound)
        said = {"lower_bound": proved} if some.reason is None else {"reason": some.reason}
        to.note(None, path, "fleet", outcome, kind=some.claim, **said, **asked)


def main() -> int:
    """Write all vectors and their index."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--into", type=Path, default=FOLDER)
    folder = parser.parse_args().into
    if folder.exists() and any(folder.iterdir()) and not (folder / "index.json").is_file():
        parser.error(f"{folder}: holds other files")
    shutil.rmtree(folder, ignore_errors=True)
    to, seen = Writer(folder), set[str]()
    for some in (*of_infermax(), *of_others()):
        problem, paths = problem_of(some.instance).name, write_accepted(to, some)
        kind = "closed-form" if some.kind == "running-limit" else some.kind
        write_faults(to, some, paths, iter([of_claim(some.certificate)]))
        if kind not in seen:
            write_faults(to, some, paths, of_evidence(OF_EVIDENCE, kind, some.certificate))
        if paths[0].endswith("infermax-arrivals-makespan.json"):
            write_faults(to, some, paths, of_evidence(ONE_STEP, kind, some.certificate))
        if problem not in seen:
            write_faults(to, some, paths, of_envelope(problem, some.certificate))
        if not seen:
            write_variants(to, some, paths[0])
            write_files(to, some, paths)
        seen |= {problem, kind}
    for reason, forged in (("work", too_much_work()), ("evidence", unsuitable())):
        for name, of, certificate in forged:
            instance = to.file(f"instances/{of['problem']}-{name}.json", of)
            proof = to.file(f"rejected/{of['problem']}-{name}.json", signed(certificate))
            kind = certificate["evidence"]["kind"]
            to.note(instance, proof, of["problem"], "rejected", kind=kind, reason=reason)
    write_fleets(to)
    head = json.dumps({"schema": SCHEMA, "about": ABOUT, "reasons": REASONS}, indent=1).removesuffix("\n}")
    rows = ",\n  ".join(map(json.dumps, to.vectors))  # one a line
    to.raw("index.json", f'{head},\n "vectors": [\n  {rows}\n ]\n}}\n'.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
