"""A result of `solve` or `bound` as a page for a browser, made from its file alone."""

from __future__ import annotations

import os
from collections.abc import Mapping

from infermax_opt.core.exact import lower_rounding
from infermax_opt.core.registry import problem_measured
from infermax_opt.core.result import Answer, Claim, Status
from infermax_opt.files.charts import range_chart
from infermax_opt.files.page import definitions, figure, file_link, grid, page, paragraph, section, table
from infermax_opt.files.report import metric_text
from infermax_opt.files.text import UNKNOWN, percent

__all__ = ["PROOFS", "result_page"]

PROOFS = {
    "closed-form": "by a formula, which `verify` computes again",
    "certificate": "by a certificate, which a checker with nothing but the standard library checks",
    "solver": "by the solver that is named; nothing else checks it",
}
"""How a lower bound was proved, in words."""

STATUSES = {
    Status.OPTIMAL: "the schedule is optimal: no schedule is better",
    Status.FEASIBLE: "a schedule was found; whether there is a better one is open",
    Status.BOUND_ONLY: "no schedule was asked for or found",
    Status.INFEASIBLE: "no schedule is possible",
    Status.UNKNOWN: "neither a schedule nor a bound was found",
}
#: Latencies of which a chart is drawn, where there are several of one kind.
SECONDS = "s"


def result_page(claim: Claim, source: str, folder: str = ".") -> str:
    """The page of a result.

    Parameters
    ----------
    claim : Claim
        What its file holds.
    source : str
        The file.
    folder : str
        Of the page, to which links are relative.
    """
    units = _units(claim)
    unit = units.get(claim.objective)
    upper = metric_text(claim.upper_bound, unit)
    lower = metric_text(claim.lower_bound, unit, lower_rounding(claim.gap))
    title = f"{claim.objective}: what was found, and what no schedule goes below"
    low, high = (None if x is None else float(x) for x in (claim.lower_bound, claim.upper_bound))
    across = claim.objective if unit is None else f"{claim.objective}, {unit}"
    drawn = figure(
        title,
        range_chart(title, [(claim.instance, low, high)], across),
        table(title, ("instance", "lower bound", "schedule"), [[claim.instance, lower, upper]]),
    )
    return page(
        f"{claim.instance}: {claim.objective}",
        paragraph(_answer(claim, lower, upper), "answer"),
        section("Bounds", grid([drawn])) if (low, high) != (None, None) else "",
        _metrics(claim, units),
        _proof(claim, source, folder, lower),
        _assumptions(claim, source),
    )


def _units(claim: Claim) -> Mapping[str, str | None]:
    """Units of metrics, as far as a schedule tells of which problem it is."""
    return {} if claim.schedule is None else problem_measured(claim.schedule, claim.metrics).metrics.units


def _answer(claim: Claim, lower: str, upper: str) -> str:
    """What the result says, in a sentence."""
    where = "" if claim.band is None else f", for batches that take {claim.band} times as long"
    found = f"a schedule of {claim.instance} reaches {upper} of {claim.objective}"
    if claim.upper_bound is None:
        if claim.lower_bound is None:
            return f"{claim.instance}: {STATUSES[claim.status]}{where}."
        return f"No schedule of {claim.instance} has less than {lower} of {claim.objective}{where}."
    if claim.lower_bound is None:
        return f"{found[0].upper()}{found[1:]}{where}; no lower bound is known."
    if claim.gap is not None and claim.gap == 0:
        return f"{found[0].upper()}{found[1:]}{where}, and none does better."
    gap = UNKNOWN if claim.gap is None else percent(claim.gap, "ceiling")
    proved = f"none has less than {lower}, so a better one gains at most {gap}"
    return f"{found[0].upper()}{found[1:]}{where}; {proved}."


def _metrics(claim: Claim, units: Mapping[str, str | None]) -> str:
    """Metrics of the schedule: charts of latencies by kind, and a table of all."""
    known = {name: value for name, value in claim.metrics.items() if value is not None}
    if not known:
        return ""
    kinds: dict[str, list[tuple[str, None, float]]] = {}
    for name, value in known.items():
        # Such as mean_ttft and p99_ttft: what is measured comes last.
        if units.get(name) == SECONDS and "_" in name:
            kinds.setdefault(name.rpartition("_")[2], []).append((name, None, float(value)))
    drawn = []
    for kind, rows in kinds.items():
        if len(rows) > 1:
            title = f"{kind} of the schedule, s"
            behind = table(title, ("metric", "value"), [[name, value] for name, _, value in rows])
            drawn.append(figure(title, range_chart(title, rows, "s", ends=("", "schedule")), behind))
    meanings = (
        {} if claim.schedule is None else problem_measured(claim.schedule, claim.metrics).metrics.definitions
    )
    lines = [[name, metric_text(value, units.get(name)), meanings.get(name)] for name, value in known.items()]
    words = "All values are of the schedule as it was replayed, batch by batch, in exact numbers."
    return section(
        "Metrics of the schedule", paragraph(words), grid(drawn),
        table("All metrics", ("metric", "value", "what it is"), lines),
    )  # fmt: skip


def _proof(claim: Claim, source: str, folder: str, lower: str) -> str:
    """What was proved and how."""
    said: list[tuple[object, object]] = [("status", STATUSES[claim.status])]
    if claim.upper_source is not None:
        said.append(("schedule", f"found by {claim.upper_source}"))
    if claim.lower_bound is not None and claim.proof is not None:
        how = f"{lower}, found by {claim.lower_source}; proved {PROOFS[claim.proof.value]}"
        said.append(("lower bound", how))
    if claim.answer is not None:
        rounding = lower_rounding() if claim.answer is Answer.NO else "nearest"
        asked = metric_text(claim.target, _units(claim).get(claim.objective), rounding)
        said.append(("asked", f"is there a schedule with at most {asked}: {claim.answer.value}"))
    if claim.undecided is not None:
        said.append(("undecided", claim.undecided))
    parts = [definitions(said)]
    if claim.certificate is not None:
        path = os.path.join(os.path.dirname(source), claim.certificate)
        name = file_link(path, folder) if os.path.exists(path) else claim.certificate
        parts.append(table("Certificate", ("of the lower bound", "file"), [[claim.lower_source, name]]))
    return section("What was proved, and how", *parts)


def _assumptions(claim: Claim, source: str) -> str:
    """What the numbers are of."""
    said = [
        ("instance", f"{claim.instance}, SHA-256 {claim.instance_sha256}"),
        ("objective", claim.objective),
        ("result", os.path.basename(source)),
        ("page", "made from the file of the result; it was not verified again (`infermax-opt verify` does)"),
    ]
    return section("Assumptions", definitions(said))
