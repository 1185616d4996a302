"""Files that the command `plan` writes: the plan, its page, and the proofs."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from infermax_opt.cli.console import is_input, save, wrote
from infermax_opt.core.exact import decimal_text

if TYPE_CHECKING:
    from infermax_opt.fleet.plan_row import PlanRow
    from infermax_opt.fleet.report import Proofs
    from infermax_opt.fleet.sweep import Plan

__all__ = ["write_certificates", "write_plan"]


def write_plan(value: dict[str, Any], rows: list[PlanRow], output: str | None, text: str | None) -> None:
    """Write the files that are asked for, and print the text, or else the value.

    Parameters
    ----------
    value : dict
        The plan as JSON.
    rows : list of PlanRow
    output : str or None
    text : str or None
    """
    from infermax_opt.fleet.plan_files import outputs_of, write_page_of
    from infermax_opt.fleet.report import plan_csv

    made = outputs_of(output)
    if made:
        write_page_of(value, rows, made[0])
    save(value, None if made else output, text, lambda: plan_csv(rows))
    if text is not None:
        wrote(*made)


def write_certificates(plan: Plan, folder: str, trace_file: str, output: str | None) -> dict[int, Proofs]:
    """Write all proofs of a plan into a folder, each to a file of its own; those of rows by their places.

    A proof has never the path of an input or another output of the command: it gets a number behind its name
    then.  One that cannot be written is named by no row.

    Parameters
    ----------
    plan : Plan
    folder, trace_file : str
    output : str or None
        Where the plan goes.
    """
    from infermax_opt.fleet.report import Proofs

    files = _ProofFiles(folder, trace_file, output)
    found, known, apart, pools = {}, dict[str, str | None](), None, tuple[str | None, ...]()
    for k, row in enumerate(plan.rows):
        kind = f"{row.machine.name} {row.machine.variant.words.replace(' ', '')}".strip()
        stem, question = f"{kind}-rate{decimal_text(row.rate)}", row.question.sha256
        # Rows that differ in their predictions have the same proof.
        if question not in known:
            known[question] = files.write(row.bound.certificate, stem)
        if row.scaled is not None:
            files.write(row.scaled.certificate, f"{stem}-hours")
        if row.windows is not None:
            files.write(row.windows.certificate, f"{stem}-windows")
        if row.split is not None and row.split is not apart:
            apart = row.split
            sides = {"prefill": apart.prefill, "decode": apart.decode}
            pools = tuple(files.write(bound.certificate, f"{stem}-{side}") for side, bound in sides.items())
        found[k] = Proofs(known[question], *(pools if row.split is not None else ()))
    for rate, mix in plan.mixes:
        files.write(mix.bound.certificate, f"mix-rate{decimal_text(rate)}")
    for name, one in plan.sustained:
        files.write(one.certificate, f"{name}-fleet{one.machines}")
    return found


class _ProofFiles:
    """A folder for proofs, and the paths that are taken.

    Parameters
    ----------
    folder, trace_file : str
    output : str or None
        As in `write_certificates`.
    """

    def __init__(self, folder: str, trace_file: str, output: str | None):
        from infermax_opt.files.proofs import made_folder
        from infermax_opt.fleet.plan_files import outputs_of

        made_folder(folder)
        self.folder, self.trace_file = folder, trace_file
        self.taken: dict[str, int] = {}
        self.kept = {os.path.realpath(name) for name in (output, *outputs_of(output)) if name is not None}

    def write(self, certificate: dict[str, Any] | None, wanted: str) -> str | None:
        """Write a proof, if there is one, to a file with about such a name; None if there is none then."""
        from infermax_opt.files.writing import dump_json, is_unwritten

        if certificate is None:
            return None
        path = self._path(wanted)
        dump_json(certificate, path)
        return None if is_unwritten(path) else path

    def _path(self, wanted: str) -> str:
        """A path that nothing else has; a profile may have any name, and several rows may have one."""
        name, path = re.sub(r"[^\w.-]", "_", wanted).lstrip("."), ""
        while not path or is_input(path, self.trace_file) or os.path.realpath(path) in self.kept:
            self.taken[name] = self.taken.get(name, 0) + 1
            again = f"-{self.taken[name]}" if self.taken[name] > 1 else ""
            path = os.path.join(self.folder, f"{name}{again}.json")
        return path
