"""The paper's largest model, Llama-3-70B on eight A100s: its part of Figures 10 and 11."""

from __future__ import annotations

from scripts.bros_study.rates import Row
from scripts.bros_study.readings import Pair, points, relative, span
from scripts.bros_study.settings import LARGER
from scripts.bros_study.tables import Tables, one
from scripts.findings.claim import Claim

__all__ = ["larger"]


def _row(tables: Tables, workload: str, rate: str, policy: str) -> Row:
    return one(tables["larger"], workload=workload, rate=rate, policy=policy)


def _pairs(tables: Tables, policy: str, other: str) -> list[Pair]:
    return [
        (_row(tables, workload, rate, policy), _row(tables, workload, rate, other))
        for workload, _, rate, _ in LARGER
    ]


def larger(tables: Tables) -> Claim:
    """What the figures of the other models say, for this one."""
    fcfs, rr = (_pairs(tables, "bros", other) for other in ("fcfs", "rr"))
    slack = _pairs(tables, "slack", "bros")
    below = [float(row["attainment_at_most"]) - float(row["attainment"]) for row, _ in slack]
    text = [
        f"against `{name}`, {len(found)} cases: normalised latency "
        f"{span(relative(found, 'normalised_s'))} %, best-effort requests "
        f"{span(relative(found, 'be_per_s'))} %, TTFT {span(points(found, 'ttft'))} and "
        f"TPOT {span(points(found, 'tpot'))} points"
        for name, found in (("fcfs", fcfs), ("rr", rr))
    ]
    text.append(
        f"`slack` against `bros`: both attained {span(points(slack, 'attainment'))} points, best-effort "
        f"requests {span(relative(slack, 'be_per_s'))} %; it is {min(below):.1f} to {max(below):.1f} points "
        f"below the bound"
    )
    return Claim(
        "The gains hold for Llama-3-70B",
        "7.2, Figures 10 and 11",
        "Llama-3-70B on eight A100-80GB is the third model; ratios are averages over models.",
        text,
        "partly",
        "The profile is an estimate, and with 1.3 million KV tokens memory never binds in 60 s, so what is "
        "left is the order. Latency and TTFT gain on both in every case, the TPOT does not; best-effort "
        "requests are never fewer than those of `rr`. `slack` is below `bros` in neither coordinate.",
        [
            max(relative(fcfs, "normalised_s")) < 0,
            max(relative(rr, "normalised_s")) < 0,
            min(points(fcfs, "ttft")) > 0,
            min(points(rr, "ttft")) > 0,
            min(points(rr, "tpot")) < 0,
            min(relative(rr, "be_per_s")) >= 0,
            min(points(slack, "attainment")) >= 0,
            min(relative(slack, "be_per_s")) >= 0,
        ],
    )
