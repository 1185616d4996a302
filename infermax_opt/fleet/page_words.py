"""What a plan comes to, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from infermax_opt.files.text import counted
from infermax_opt.fleet.figures import bounds, share

__all__ = [
    "STATUSES", "VARIED", "answer", "at_reference", "enough", "enough_apart", "meanings", "price", "rates",
    "reference",
]  # fmt: skip

LIMITS = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "end-to-end latency"}
#: What tells variants of a type of machines apart.
VARIED = ("cost_factor", "overhead")
STATUSES = {
    "optimal": "lower and upper bound meet",
    "feasible": "bounds are apart",
    "bound-only": "no number of machines was found that reaches the share",
    "infeasible": "no number of machines reaches the share",
}
MEANINGS = (
    (
        "lower",
        "Every routing and every schedule needs that many machines, also such that know the future. In "
        "windows of time, what requests need at least is set against what machines can do; an adversary "
        "chooses who misses. A certificate holds all numbers, and a checker that needs only the standard "
        "library recomputes them. Of a few short requests all routings and schedules may be searched "
        "instead, as the status says.",
    ),
    (
        "upper",
        "That many reach the share, with a routing policy and an online scheduler or with a plan that knows "
        "the future, as its row says. Every batch of every machine was replayed in exact numbers; a request "
        "that nobody serves misses.",
    ),
)
ONLINE = "The same without the plan that knows the future."
Row = Mapping[str, Any]


def meanings(online_knows: Sequence[str]) -> list[tuple[str, str]]:
    """What the bounds mean; `online_knows`: what those of online schedulers rest on that no server knows."""
    return [*MEANINGS, ("online", " ".join([ONLINE, *(f"Yet {text}." for text in online_knows)]))]


def reference(rows: Sequence[Row]) -> float:
    """The rate that the answer speaks of: 1 if there, or else the least."""
    rates = {row["rate"] for row in rows}
    return 1.0 if 1.0 in rates else min(rates)


def at_reference(rows: Sequence[Row]) -> list[Row]:
    """Rows of that rate, the least error and the first variant of the machines, the best first."""
    rate, error = reference(rows), min(row["predict_error"] or 0 for row in rows)
    wanted = rate, error, *(rows[0][name] for name in VARIED)
    some = [
        row
        for row in rows
        if (row["rate"], row["predict_error"] or 0, *(row[name] for name in VARIED)) == wanted
    ]
    by_cost = all(row["price_per_hour"] is not None for row in some)

    def order(row: Row) -> tuple[int, bool, float]:
        # Who serves more of the trace comes first: the others' numbers are about fewer requests.
        if row["upper"] is None:
            return row["left_out"], row["lower"] is None, float("inf")
        return row["left_out"], False, row["upper"] * (row["price_per_hour"] if by_cost else 1)

    return sorted(some, key=order)


def answer(plan: Mapping[str, Any]) -> str:
    """The answer in a sentence: the best machine at the trace's own rate."""
    rows = at_reference(plan["rows"])
    best = rows[0]
    limits = " and ".join(f"{LIMITS[name]} {limit:g} s" for name, limit in plan["slo"].items())
    many = "request" if best["requests"] == 1 else f"{best['requests']:,} requests"
    fit = f" that fit {best['machine']}" if best["left_out"] else ""
    who = f"{share(plan['share'])} of the {many}{fit} at rate {best['rate']:g}"
    if best["lower"] is None:
        if any(row["split_lower"] is not None for row in rows):
            return f"No number of machines that prefill and decode keeps {limits} for {who}; pools apart may."
        return f"No number of machines keeps {limits} for {who}, of whatever type asked for."
    if best["upper"] is None:
        return f"To keep {limits} for {who} takes at least {best['lower']} x {best['machine']}."
    return f"To keep {limits} for {who}, {_enough(best)}{price(best)}."


def enough(row: Row) -> str:
    """What is known of a row, in words; also of how many requests it says nothing, as they do not fit."""
    left = row["left_out"]
    without = f" without {counted(left, 'requests')} of the trace, which it cannot hold" if left else ""
    return f"{_enough(row)}{without}"


def _enough(row: Row) -> str:
    name, lower, upper = row["machine"], row["lower"], row["upper"]
    if lower is None:
        return f"no number of {name} is enough"
    if upper is None:
        return f"at least {lower} x {name} are needed; how many are enough was not found"
    verb = "is" if upper == 1 else "are"
    if lower == upper:
        fewer = ", and fewer are proved not to be" if upper > 1 else ""
        return f"{upper} x {name} {verb} enough{fewer}"
    least = "whether 1 is, is open" if lower == 1 else f"fewer than {lower} are proved not to be"
    return f"{upper} x {name} {verb} enough, and {least}"


def price(row: Row) -> str:
    """What a million output tokens cost, in words; nothing without a price."""
    least, most = row["cost_per_million_lower"], row["cost_per_million_upper"]
    if most is None:
        return ""
    return f", at {bounds(least, most)} for a million output tokens"


def enough_apart(row: Row) -> str:
    """What is known of both pools of a row, in words."""
    if row["split_never"]:
        return f"{row['type']}, prefill and decode apart: no number of machines is enough."
    least = f"{row['split_prefill_lower']} + {row['split_decode_lower']}"
    if row["split_upper"] is None:
        return f"{row['type']}, prefill and decode apart: at least {least} are needed."
    found = f"{row['split_prefill_upper']} + {row['split_decode_upper']}"
    proved = "" if found == least else f"; at least {least} are needed"
    return f"{row['type']}, prefill and decode apart: {found} are enough{proved}."


def rates(one: Row) -> str:
    """Rates that a number of machines sustains, in words."""
    if one["upper"] == 0:
        return "the share is reached at no rate, as more requests than may miss never keep their limits"
    they = "it is" if one["machines"] == 1 else "they are"
    reached = "no rate was found at which the share is reached"
    if one["lower"] is not None:
        reached = f"{they} seen to reach the share at rate {one['lower']:g}"
    if one["upper"] is None:
        return f"{reached}; no rate is refuted"
    return f"{reached}, and proved never to from rate {one['upper']:g} on"
