"""A plan as a page for a browser, made from the plan's JSON alone."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from infermax_opt.files.charts import band_chart, line_chart, range_chart
from infermax_opt.files.page import (
    definitions,
    escaped,
    figure,
    file_link,
    grid,
    link,
    page,
    paragraph,
    section,
    table,
)
from infermax_opt.files.text import UNKNOWN, counted
from infermax_opt.fleet.figures import share
from infermax_opt.fleet.page_words import (
    STATUSES,
    VARIED,
    answer,
    at_reference,
    enough,
    enough_apart,
    meanings,
    price,
    rates,
    reference,
)

__all__ = ["plan_page"]

Row = Mapping[str, Any]


def plan_page(plan: Mapping[str, Any], beside: Sequence[str] = (), folder: str = ".") -> str:
    """The page of a plan.

    Parameters
    ----------
    plan : mapping
        As `infermax_opt.fleet.report.plan_to_json` gives it.
    beside : sequence of str
        Files with the same numbers, in the folder of the page.
    folder : str
        Of the page, to which links are relative.
    """
    rows = [{**row, "machine": _kind(row), "type": row["machine"]} for row in plan["rows"]]
    plan = {**plan, "rows": rows}
    first = [row for row in rows if all(row[name] == rows[0][name] for name in VARIED)]
    files = [_links(beside)] if beside else []
    parts = [
        paragraph(answer(plan), "answer"),
        *([paragraph(f"Not complete: stopped by {plan['stopped']}.")] if plan["stopped"] else []),
        *_others(plan),
        _machines_section(first),
        *([_sensitivity(plan)] if len(plan["variants"]) > 1 else []),
        *_optional_sections({**plan, "rows": first}),
        _proof_section(rows, plan["online_knows"], folder),
        _assumptions(plan),
        section("All numbers", *files, _all_numbers(rows)),
    ]
    return page("How many machines this trace needs", *parts)


def _kind(row: Row) -> str:
    """The type of a row, with its variant, and the error of predictions where there are any."""
    parts = [str(row["machine"]), _variant(row)]
    parts += [] if row["predict_error"] is None else [f"\u00b1{100 * row['predict_error']:g} %"]
    return " ".join(filter(None, parts))


def _variant(row: Row) -> str:
    """How batches of a row differ from their cost model; nothing where they do not."""
    parts = [f"x {row['cost_factor']:g}"] if row["cost_factor"] != 1 else []
    parts += [f"+ {1000 * row['overhead']:g} ms"] if row["overhead"] else []
    return " ".join(parts)


def _links(names: Sequence[str]) -> str:
    """Links to files in the folder of a page."""
    links = ", ".join(link(os.path.basename(name), os.path.basename(name)) for name in names)
    return f"<p>The same as files: {links}.</p>"


def _others(plan: Mapping[str, Any]) -> list[str]:
    """The other machines at the same rate, and what a fleet sustains, as a list."""
    lines = [f"{enough(row)}{price(row)}." for row in at_reference(plan["rows"])[1:]]
    asked = [row for row in at_reference(plan["rows"]) if row["split_never"] is not None]
    lines += [enough_apart(row) for row in asked]
    for one in plan["sustained"]:
        lines.append(f"{one['machines']} x {one['machine']}: {rates(one)}.")
    items = "".join(f"<li>{escaped(line[0].upper() + line[1:])}</li>" for line in lines)
    return [f"<ul>{items}</ul>"] if items else []


def _by_machine(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["machine"], []).append(row)
    return found


def _machines_section(rows: Sequence[Row]) -> str:
    """Machines over types, and over rates for each type."""
    rate, some = reference(rows), at_reference(rows)
    title = f"Machines needed at rate {rate:g}, by type"
    picture = range_chart(
        title, [(row["machine"], row["lower"], row["upper"]) for row in some], "machines", whole=True
    )
    head = ("machine", "lower", "upper", "status")
    drawn = [figure(title, picture, table(title, head, [[row[name] for name in head] for row in some]))]
    for name, of_type in _by_machine(rows).items():
        if len(of_type) > 1:
            drawn += _overrates(name, of_type, ("lower", "upper"), "machines")
    words = "Circles are what every routing and every schedule needs at least; squares are what was found."
    return section("Machines", paragraph(words), grid(drawn))


def _overrates(name: str, rows: Sequence[Row], keys: tuple[str, str], unit: str) -> list[str]:
    """The band of a type over rates; nothing where nothing is known."""
    low, high = ([(row["rate"], row[key]) for row in rows if row[key] is not None] for key in keys)
    if not low and not high:
        return []
    title = f"{name}: {unit} over the rate"
    picture = band_chart(title, low, high, "rate (1: as in the trace)", unit, whole=True)
    head = ("rate", *keys)
    return [figure(title, picture, table(title, head, [[row[key] for key in head] for row in rows]))]


def _optional_sections(plan: Mapping[str, Any]) -> list[str]:
    """Cost, attainment and machine-hours, where they are known."""
    rows, found = plan["rows"], []
    for title, unit, stem in (
        ("Cost", "price of a million output tokens", "cost_per_million"),
        ("Cost with pools apart", "price of a million output tokens, pools apart", "split_cost_per_million"),
        ("Machine-hours", "machine-hours", "machine_hours"),
        ("Machine-hours by windows", "machine-hours with windows", "windows_hours"),
    ):
        keys = f"{stem}_lower", f"{stem}_upper"
        if any(row[keys[1]] is not None for row in rows):
            found.append(section(title, grid([_ranges(unit, rows, keys)])))
    over_time = [_over_time(row) for row in rows if row["windows"]]
    if over_time:
        words = (
            "Each window keeps the share by itself, for the requests that arrive in it. Lower numbers are "
            "proved for each window; with the upper ones, all windows were replayed together."
        )
        found.append(section("Machines over time", paragraph(words), grid(over_time)))
    if any(row["split_lower"] is not None for row in rows):
        found.append(_apart(plan))
    if plan["mixes"]:
        found.append(_mixes(plan["mixes"]))
    drawn = [_attained(row, plan["share"]) for row in rows if len(row["attained"]) > 1]
    if drawn:
        words = (
            "For each number of machines tried, the largest share of requests that was seen to keep the "
            "limits, by simulated clocks. More may be possible; the number that counts as found was "
            "replayed exactly."
        )
        found.append(section("Attainment against machines", paragraph(words), grid(drawn)))
    return found


def _sensitivity(plan: Mapping[str, Any]) -> str:
    """Machines needed where batches take other times than their cost model says."""
    rate, error = reference(plan["rows"]), min(row["predict_error"] or 0 for row in plan["rows"])
    rows = [row for row in plan["rows"] if (row["rate"], row["predict_error"] or 0) == (rate, error)]
    drawn = []
    for name in dict.fromkeys(row["type"] for row in rows):
        title = f"{name} at rate {rate:g}, by how long batches take"
        ranges = [
            (_variant(row) or "as given", row["lower"], row["upper"]) for row in rows if row["type"] == name
        ]
        behind = table(title, ("batches", "lower", "upper"), ranges)
        drawn.append(figure(title, range_chart(title, ranges, "machines", whole=True), behind))
    words = (
        "Batches take so many times as long as the cost model says, and the host takes so much besides. What "
        "is proved for the fastest machines holds for every machine that is slower, whatever its batches "
        "take. What is found for the slowest was replayed on machines just as slow; a faster one would form "
        "other batches, so it is no proof for those between. Other charts are of machines as given, with the "
        "first overhead; the table of all rows has the rest."
    )
    return section("Sensitivity", paragraph(words), grid(drawn))


def _apart(plan: Mapping[str, Any]) -> str:
    """Machines that prefill and machines that decode, and how many of these go with one of those."""
    rows = [row for row in plan["rows"] if row["split_lower"] is not None]
    # Rows that differ in their predictions alone have the same pools.
    kinds = {(f"{row['type']} {_variant(row)}".strip(), row["rate"]): row for row in reversed(rows)}
    rows = [{**row, "type": name} for (name, _), row in reversed(kinds.items())]
    drawn = []
    for name in dict.fromkeys(row["type"] for row in rows):
        some = [row for row in rows if row["type"] == name]
        for pool in ("prefill", "decode") if len(some) > 1 else ():
            keys = f"split_{pool}_lower", f"split_{pool}_upper"
            drawn += _overrates(name, some, keys, f"{pool} machines")
    for row in rows:
        drawn.append(_pools(row, plan))
    words = (
        "A prefill machine makes the first token of a request; its KV is transferred; a decode machine makes "
        "the others. Both lower bounds hold for every routing and schedule of such pools, and at once; the "
        "upper numbers were found together and replayed. The decode pool knows how long outputs will be, and "
        "transfers do not wait for each other. In one pool each machine does both."
    )
    title = "Decode machines for each prefill machine"
    head = ("machine and rate", "found", "by the work of either")
    ratios = [
        [f"{row['type']}, rate {row['rate']:g}", row["split_ratio"], row["split_work_ratio"]] for row in rows
    ]
    return section("Prefill and decode apart", paragraph(words), grid(drawn), table(title, head, ratios))


def _pools(row: Row, plan: Mapping[str, Any]) -> str:
    """Both pools of a row, their sum, and what one pool takes."""
    decode = plan["split"]["decode_machine"] or row["type"]
    title = f"{row['type']} to prefill, {decode} to decode, at rate {row['rate']:g}"
    ranges = [
        ("prefill", row["split_prefill_lower"], row["split_prefill_upper"]),
        ("decode", row["split_decode_lower"], row["split_decode_upper"]),
        ("both pools", row["split_lower"], row["split_upper"]),
        (f"one pool of {row['type']}", row["lower"], row["upper"]),
    ]
    return figure(
        title,
        range_chart(title, ranges, "machines", whole=True),
        table(title, ("pool", "lower", "upper"), ranges),
    )


def _mixes(mixed: Sequence[Row]) -> str:
    """The cheapest mix at each rate."""
    title, keys = "Price of an hour of the cheapest mix", ("price_per_hour_lower", "price_per_hour_upper")
    lines = []
    for one in mixed:
        parts = " + ".join(f"{count} x {name}" for name, count in one["machines"].items()) or UNKNOWN
        lines.append([one["rate"], *(one[key] for key in keys), parts])
    ranges = [(f"rate {one['rate']:g}", one[keys[0]], one[keys[1]]) for one in mixed]
    behind = table(title, ("rate", *keys, "mix found"), lines)
    searched = "" if all(one["certified"] for one in mixed) else "Some lower bounds are those of a search. "
    words = (
        "Machines of several types together. No mix costs less than the lower bound; that of the upper was "
        f"replayed. {searched}Found: " + "; ".join(f"{line[3]} at rate {line[0]:g}" for line in lines)
    )
    drawn = figure(title, range_chart(title, ranges, "price of an hour"), behind)
    return section("Mixes", paragraph(f"{words}."), grid([drawn]))


def _over_time(row: Row) -> str:
    """Machines of each window of a row."""
    title = f"{row['machine']} at rate {row['rate']:g}: machines by window"
    low, high = (
        [(one["begin"], one[key]) for one in row["windows"] if one[key] is not None]
        for key in ("lower", "upper")
    )
    head = ("begin", "end", "requests", "unfit", "lower", "upper")
    behind = table(title, head, [[one[key] for key in head] for one in row["windows"]])
    picture = band_chart(title, low, high, "begin of the window, s", "machines", whole=True)
    return figure(title, picture, behind)


def _ranges(unit: str, rows: Sequence[Row], keys: tuple[str, str]) -> str:
    title = f"{unit[0].upper()}{unit[1:]}, by type and rate"
    named = [(f"{row['machine']}, rate {row['rate']:g}", row) for row in rows]
    picture = range_chart(title, [(name, row[keys[0]], row[keys[1]]) for name, row in named], unit)
    head = ("machine and rate", *keys)
    return figure(
        title, picture, table(title, head, [[name, *(row[k] for k in keys)] for name, row in named])
    )


def _attained(row: Row, asked: float) -> str:
    title = f"{row['machine']} at rate {row['rate']:g}: share of requests within the limits"
    points = [(one["machines"], one["share"]) for one in row["attained"]]
    picture = line_chart(title, points, asked, "machines", "share")
    return figure(title, picture, table(title, ("machines", "share"), points))


def _proof_section(rows: Sequence[Row], online_knows: Sequence[str], folder: str) -> str:
    """What was proved of each row and how, with its certificate."""
    lines = []
    for row in rows:
        by = UNKNOWN if row["policy"] is None else f"{row['policy']} with {row['scheduler']}"
        name = f"{row['machine']}, rate {row['rate']:g}"
        status = _proved(STATUSES[row["status"]], row["certified"], row["certified_lower"])
        lines.append([name, row["lower"], row["upper"], status, by, _proof(row["certificate"], folder)])
        for side in ("prefill", "decode") if row["split_never"] is not None else ():
            low, high = row[f"split_{side}_lower"], row[f"split_{side}_upper"]
            proof = _proof(row[f"{side}_certificate"], folder)
            lines.append([f"{name}, {side} pool", low, high, _pool_status(row, low, high), UNKNOWN, proof])
    head = ("machine and rate", "lower", "upper", "status", "found by", "certificate")
    never = [
        f"<li>{escaped(text)}</li>" for text in dict.fromkeys(t for row in rows for t in row["impossible"])
    ]
    return section(
        "What was proved, and how",
        definitions(meanings(online_knows)),
        table("Proof of each row", head, lines),
        *(
            [
                paragraph("They fit no machine or can never keep their limits, so they count as missed:"),
                f"<ul>{''.join(never)}</ul>",
            ]
            if never
            else []
        ),
    )


def _pool_status(row: Row, low: int | None, high: int | None) -> str:
    """What is known of a pool."""
    known = "feasible" if high is not None else "bound-only"
    if row["split_never"]:
        known = "infeasible"
    elif low == high:
        known = "optimal"
    return _proved(STATUSES[known], row["split_certified"])


def _proved(status: str, certified: bool, otherwise: int | None = None) -> str:
    """A status, and whether a checker has the time for the proof.

    Parameters
    ----------
    status : str
    certified : bool
    otherwise : int, optional
        What the certificate proves where more was proved by a search.
    """
    if certified:
        return status
    if otherwise is not None:
        return f"{status}, by a search of all routings and schedules; the certificate proves {otherwise}"
    return f"{status}; not certified: its proof takes longer than a checker works"


def _proof(name: str | None, folder: str) -> Any:
    """A link to a certificate, if there is one."""
    return None if name is None else file_link(name, folder)


def _assumptions(plan: Mapping[str, Any]) -> str:
    """What the numbers hold for."""
    row = min(plan["rows"], key=lambda row: row["left_out"])
    tokens = f"{row['output_tokens']:,} output token{'s' * (row['output_tokens'] != 1)}"
    span = f"{row['requests']:,} request{'s' * (row['requests'] != 1)} of {plan['trace']}, {tokens}"
    said = [
        ("trace", f"{span}; at rate r arrivals are r times as fast"),
        ("TTFT", "from the arrival of a request to its first token, whatever it waits for"),
        ("TPOT", "of a request: the mean time of its later tokens"),
        (
            "share",
            f"{share(plan['share'])} of all requests keep all limits; {row['may_miss']} may miss them",
        ),
        (
            "machines",
            "share nothing: each serves requests of its own, batch by batch as its cost profile says",
        ),
        ("cost", "price of the machines until the last arrival, for a million output tokens of the trace"),
    ]
    if plan["split"]:
        seconds, decode = plan["split"]["transfer_seconds_per_token"], plan["split"]["decode_machine"]
        who = "the same type" if decode is None else decode
        moved = f"of KV from prefill to decode machines ({who}): {seconds:g} s a token, after the first token"
        said.append(("transfer", f"{moved}; decode machines run no prompts"))
    if plan["predict_errors"]:
        drawn = f"seed {plan['seed']}; the lower bounds hold for all of them"
        said.append(("\u00b1 %", f"outputs are predicted: times 1 + e, e normal with that spread, {drawn}"))
    for reason, count in plan.get("trace_left_out", {}).items():
        said.append(("not asked", f"{counted(count, 'requests')} of {plan['trace']}: {reason}"))
    if any(row["left_out"] for row in plan["rows"]):
        left = ", ".join(f"{name} {some[0]['left_out']}" for name, some in _by_machine(plan["rows"]).items())
        said.append(("left out", f"requests that no machine of the type can hold: {left}"))
    head = (
        "machine",
        "kv_capacity",
        "max_batch_tokens",
        "max_prefill_tokens",
        "max_running",
        "price_per_hour",
    )
    kinds = [[kind[name] for name in head] for kind in plan["machines"]]
    return section("Assumptions", definitions(said), table("Machines, in tokens and requests", head, kinds))


def _all_numbers(rows: Sequence[Row]) -> str:
    """Every number of every row."""
    single = [name for name in rows[0] if name != "type" and not isinstance(rows[0][name], list | dict)]
    lines = [[row[name] for name in single] for row in rows]
    return f"<details><summary>Table: all rows</summary>{table('All rows', single, lines)}</details>"
