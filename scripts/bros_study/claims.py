"""The claims of the evaluation of BROS, set against the tables."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.bros_study.claims_larger import larger
from scripts.bros_study.figures import frontier_at
from scripts.bros_study.rates import Row
from scripts.bros_study.readings import pairs, points, relative, span
from scripts.bros_study.settings import FRONTIER, OPT_13B, OPT_30B
from scripts.bros_study.tables import Tables, choose, numbers, one
from scripts.findings.claim import Claim

__all__ = ["claims"]

#: Policies that stand for the paper's baselines, and what they are called there.
BASELINES = {"fcfs": "vLLM", "rr": "RR"}


def claims(tables: Tables) -> list[Claim]:
    """All claims, in the order of the paper's figures."""
    makers = (
        _queue, _latency, _throughput, _ttft, _tpot, _baselines, _bound, larger, _frontier, _real_time,
        _sharing, _overhead, _snapshots,
    )  # fmt: skip
    return [make(tables) for make in makers]


def _queue(tables: Tables) -> Claim:
    rows = tables["queue"]
    rates = list(dict.fromkeys(row["rate"] for row in rows))
    found = [tuple(one(rows, rate=rate, policy=p) for p in ("longest-wait", "fcfs")) for rate in rates]
    text = [
        f"{rate} requests/s: normalised latency {a['normalised_s']} s/token against {b['normalised_s']} "
        f"of `fcfs` "
        f"(at least {b['normalised_bound_s']}); queueing {a['queueing']} % against {b['queueing']} %"
        for rate, (a, b) in zip(rates, found, strict=True)
    ]
    return Claim(
        "Preemption by longest wait lowers normalised latency and the queueing share",
        "Figure 3",
        "512 ShareGPT requests on OPT-13B: preemptive scheduling by the time since the last iteration "
        "reduces "
        "normalised latency, as it reduces queueing.",
        text,
        "not testable",
        "Up to 15 requests a second hardly anybody waits in our model, and both orders are the same. Above, "
        "memory binds, and "
        "preemption loses by recompute, which swaps would avoid. Nor does "
        "the paper state its rates in "
        "the text.",
        [*(a["normalised_s"] == b["normalised_s"] for a, b in found[:2]),
         *(float(a["normalised_s"]) > float(b["normalised_s"]) for a, b in found[2:])],
    )  # fmt: skip


def _against(tables: Tables, column: str, change: bool) -> list[str]:
    """`bros` against both baselines in a column, by workload."""
    text = list[str]()
    for other, name in BASELINES.items():
        for workload in ("sharegpt", "lmsys"):
            found = pairs(tables, "bros", other, workload)
            numbers = relative(found, column) if change else points(found, column)
            unit = "%" if change else "points"
            text.append(f"against `{other}` ({name}), {workload}, {len(found)} cases: {span(numbers)} {unit}")
    return text


def _latency(tables: Tables) -> Claim:
    below = [max(relative(pairs(tables, "bros", other), "normalised_s")) < 0 for other in BASELINES]
    return Claim(
        "BROS lowers normalised latency",
        "7.2.1, Figure 10",
        "By 74.20 % against vLLM and 54.31 % against RR (LMSYS: 69.61 and 25.77 %).",
        _against(tables, "normalised_s", change=True),
        "partly",
        "Lower in every case, as in the paper; no case reaches its figures with ShareGPT. The mean is of "
        "requests that were done in the window, so each policy has its own; sizes depend on the machine "
        "and the load.",
        [*below, min(relative(pairs(tables, "bros", "fcfs", "sharegpt"), "normalised_s")) > -74.2,
         min(relative(pairs(tables, "bros", "rr", "sharegpt"), "normalised_s")) > -54.31],
    )  # fmt: skip


def _throughput(tables: Tables) -> Claim:
    fcfs, rr = (pairs(tables, "bros", other) for other in BASELINES)
    slow = [pair for pair in fcfs if float(pair[0]["rate"]) <= 5]
    full = [pair for pair in fcfs if pair[0]["rate"] == "15" and pair[0]["workload"] == "sharegpt"]
    less = [a["rate"] for a, b in rr if float(a["be_per_s"]) < float(b["be_per_s"])]
    return Claim(
        "BROS costs little best-effort throughput",
        "7.2.1, Figure 10",
        "11.29 % less than vLLM and 8.80 % less than RR (LMSYS: 17.67 and 15.18 %).",
        [
            *_against(tables, "be_per_s", change=True),
            f"against `fcfs` at up to 5 requests/s: {span(relative(slow, 'be_per_s'))} %; at 15 with "
            f"ShareGPT: "
            f"{span(relative(full, 'be_per_s'))} %",
        ],
        "partly",
        "Little below saturation, much above it: with 15 ShareGPT requests a second most of the "
        "best-effort work "
        "goes. Against `rr` it is more, not less, up to 10 requests a second. How far the paper's rates "
        "were from "
        "saturation is not known.",
        [min(relative(slow, "be_per_s")) > -17, max(relative(full, "be_per_s")) < -50, set(less) == {"15"}],
    )


def _ttft(tables: Tables) -> Claim:
    found = [points(pairs(tables, "bros", other), "ttft") for other in BASELINES]
    return Claim(
        "BROS attains far more TTFT limits",
        "7.2.2, Figure 11",
        "36.38 times as many as vLLM and 11.75 times as many as RR (LMSYS: 21.42 and 14.23).",
        _against(tables, "ttft", change=False),
        "partly",
        "Far more than `fcfs` in every case; more than `rr` in every case, by little at low rates. The "
        "paper's ratios "
        "are not comparable: they are not ratios of its averages, and vLLM has 0 % in 8 of 15 cases.",
        [min(found[0]) > 70, 0 < min(found[1]) < 10],
    )


def _tpot(tables: Tables) -> Claim:
    worse = [
        (a["rate"], a["workload"]) for other in BASELINES for a, b in pairs(tables, "bros", other)
        if float(a["tpot"]) < float(b["tpot"])
    ]  # fmt: skip
    return Claim(
        "BROS attains more TPOT limits",
        "7.2.2, Figure 11",
        "1.73 times as many as vLLM and 1.47 times as many as RR (LMSYS: 2.62 and 2.28).",
        _against(tables, "tpot", change=False),
        "partly",
        "More up to 10 requests a second and with LMSYS, by few points; fewer with ShareGPT at 15 a "
        "second, where "
        "the machine is overloaded. The paper owes its gain to shared blocks and swaps, which we lack, "
        "so this is "
        "no refutation.",
        [set(worse) == {("15", "sharegpt")}, max(points(pairs(tables, "bros", "fcfs"), "tpot")) < 20],
    )  # fmt: skip


def _baselines(tables: Tables) -> Claim:
    text, shares = list[str](), dict[tuple[str, str], list[float]]()
    for policy, name in BASELINES.items():
        rows = choose(tables["hybrid"], policy=policy)
        for column in ("ttft", "tpot"):
            found = shares[policy, column] = numbers(rows, column)
            text.append(
                f"`{policy}` ({name}): {column.upper()} {min(found):.1f} to {max(found):.1f} %, "
                f"{sum(found) / len(found):.1f} % on average of {len(found)} cases"
            )
    return Claim(
        "vLLM hardly ever keeps the TTFT, RR seldom",
        "7.2.2",
        "On average 1.28 % of the TTFT limits with vLLM (none in 8 of 15 cases) and 10.55 % with RR; "
        "TPOT with RR "
        "47.34 % (LMSYS 42.81 %).",
        text,
        "partly",
        "`fcfs` keeps less than a quarter of them in every case. `rr` keeps most of them at low rates "
        "and hardly "
        "any with ShareGPT at 15 a second. Averages depend on the rates that are averaged.",
        [max(shares["fcfs", "ttft"]) < 25, max(shares["rr", "ttft"]) > 90, min(shares["rr", "ttft"]) < 5],
    )


def _bound(tables: Tables) -> Claim:
    text, far = list[str](), dict[str, list[float]]()
    for row in choose(tables["hybrid"], workload="sharegpt", profile=OPT_30B, seed="1", policy="bros"):
        ours = one(
            tables["hybrid"], workload="sharegpt", profile=OPT_30B, seed="1", policy="slack", rate=row["rate"]
        )
        text.append(
            f"OPT-30B, ShareGPT, {row['rate']} requests/s: `bros` {float(row['attainment']):.1f} %, `slack` "
            f"{float(ours['attainment']):.1f} %, at most {float(row['attainment_at_most']):.1f} %"
        )
    for policy in ("bros", "slack"):
        rows = choose(tables["hybrid"], policy=policy)
        far[policy] = [float(row["attainment_at_most"]) - float(row["attainment"]) for row in rows]
        text.append(
            f"`{policy}`, all {len(rows)} cases: {span(far[policy]).replace('+', '')} points below the bound"
        )
    better = pairs(tables, "slack", "bros")
    return Claim(
        "How far BROS is from what any schedule attains",
        "beyond Figure 11",
        "No bound and no optimum are given.",
        text,
        "not testable",
        "No claim of the paper. Both limits together: in every case `slack` attains more than `bros` and "
        "does "
        "more best-effort requests. Part of what is left may be owed to the window, which cuts requests off "
        "that the bound "
        "lets end just in time.",
        [min(points(better, "attainment")) > 0, min(points(better, "be_per_s")) > 0],
    )


def _frontier(tables: Tables) -> Claim:
    workload, profile, rate, seed = FRONTIER
    text, inside = list[str](), list[bool]()
    for row in choose(tables["hybrid"], workload=workload, profile=profile, rate=rate, seed=str(seed)):
        most = frontier_at(tables["frontier"], float(row["be_per_s"]))
        inside.append(float(row["attainment"]) <= most)
        text.append(
            f"`{row['policy']}`: both attained by {float(row['attainment']):.1f} % at "
            f"{float(row['be_per_s']):.2f} "
            f"best-effort requests/s; at that rate at most {most:.1f} %"
        )
    return Claim(
        "BROS strikes the better trade-off",
        "7.2, with the frontier beyond Figures 10 and 11",
        "It sacrifices a small part of the best-effort throughput for large improvements of real-time "
        "requests.",
        [f"OPT-30B, ShareGPT, {rate} requests/s, seed {seed}:", *text],
        "partly",
        "Better than `rr` in both coordinates here, incomparable with `fcfs`, and below `slack` in both. "
        "The frontier "
        "is a bound only; how much of the distance can be gained is open.",
        [*inside, *_beats(tables, "bros", "rr"), *_beats(tables, "slack", "bros")],
    )


def _beats(tables: Tables, policy: str, other: str) -> list[bool]:
    """Whether a policy is better in both coordinates in the case of the frontier."""
    workload, profile, rate, seed = FRONTIER
    where = {"workload": workload, "profile": profile, "rate": rate, "seed": str(seed)}
    a, b = (one(tables["hybrid"], **where, policy=name) for name in (policy, other))
    return [float(a[column]) > float(b[column]) for column in ("attainment", "be_per_s")]


def _real_time(tables: Tables) -> Claim:
    rows, text, changes = tables["real_time"], list[str](), list[float]()
    for row in choose(rows, policy="bros"):
        other = one(rows, profile=row["profile"], rate=row["rate"], policy="fcfs")
        changes.append(100 * (float(row["normalised_s"]) / float(other["normalised_s"]) - 1))
        text.append(
            f"{row['profile'].partition('_')[0].upper()}, {row['rate']} requests/s: "
            f"{row['normalised_s']} s/token against "
            f"{other['normalised_s']} of `fcfs` (at least {row['normalised_bound_s']}); done in the window "
            f"{row['rt_per_s']} against {other['rt_per_s']} a second"
        )
    return Claim(
        "BROS is faster on real-time requests alone",
        "7.3, Figure 12",
        "Without step (iii) and shared blocks: 29.36 % less normalised latency and 1.08 times the "
        "throughput of vLLM.",
        text,
        "not testable",
        "Up to 10 requests a second memory does not bind here, and both make the same schedule in all "
        "that is shown. "
        f"At 15 it does: the latency hardly changes ({span(changes)} %), and `bros` finishes fewer, as "
        f"what it evicts "
        "is computed again. The paper's system swaps instead.",
        [max(map(abs, changes)) < 2, *_same_until_full(rows)],
    )


def _same_until_full(rows: Sequence[Row]) -> list[bool]:
    """Whether `bros` and `fcfs` differ only where the machine is full."""
    same = list[bool]()
    for row in choose(rows, policy="bros"):
        other = one(rows, profile=row["profile"], rate=row["rate"], policy="fcfs")
        if row["rate"] == "15":
            same.append(float(row["rt_per_s"]) < float(other["rt_per_s"]))
        else:
            same.append({**row, "policy": "fcfs"} == other)
    return same


def _sharing(tables: Tables) -> Claim:
    text, gains = list[str](), list[float]()
    for row in choose(tables["sharing"], kv="1"):
        more, much = (one(tables["sharing"], rate=row["rate"], kv=kv) for kv in ("shared", "10"))
        gains.append(100 * float(row["most"]) / float(row["held"]))
        text.append(
            f"{row['rate']} requests/s: of {row['held']} blocks held, {row['by_rule']} are shared by the "
            f"paper's rule and "
            f"{row['most']} at most ({gains[-1]:.2f} %); TTFT {row['ttft']} % and TPOT {row['tpot']} %, "
            f"with so many blocks "
            f"more {more['ttft']} and {more['tpot']} %, with ten times the KV {much['ttft']} and "
            f"{much['tpot']} % "
            f"({row['evictions']}, {more['evictions']} and {much['evictions']} evictions)"
        )
    return Claim(
        "Bidirectional KV cache management raises attainment",
        "7.4.1, Figure 13",
        "OPT-30B, 10 requests a second: TTFT 1.23 times and TPOT 1.63 times that with recompute.",
        text,
        "not testable",
        "The paper's figure has lazy checkpoints and swaps beside shared blocks, and we have neither. "
        "What the pairing bound "
        f"shows: sharing last blocks alone saves at most {max(gains):.2f} % of the blocks on average, by "
        f"any rule.",
        [max(gains) < 3],
    )


def _overhead(tables: Tables) -> Claim:
    text, shares = list[str](), list[float]()
    for name, profile in (("OPT-13B", OPT_13B), ("OPT-30B", OPT_30B)):
        rows = choose(tables["hybrid"], profile=profile, policy="bros")
        found = [100 * float(row["choosing_ms"]) / float(row["batch_ms"]) for row in rows]
        shares += found
        text.append(f"{name}, {len(rows)} cases: {min(found):.1f} to {max(found):.1f} % of a batch")
    return Claim(
        "Scheduling takes 9.12 to 9.52 % (OPT-13B) and 7.56 to 8.42 % (OPT-30B) of an iteration",
        "7.4.2, Figure 14",
        "Sorting of requests and queries of the cost model, at each iteration.",
        text,
        "not testable",
        "Ours is processor time of the scheduler and the simulator, over batch times of an estimate; "
        "theirs is of "
        "another implementation on another machine. Nothing follows for theirs.",
        [max(shares) < 7],
    )


def _snapshots(tables: Tables) -> Claim:
    text = []
    for rt in dict.fromkeys(row["rt"] for row in tables["snapshots"]):
        rows = choose(tables["snapshots"], rt=rt)
        times = [1000 * value for value in numbers(rows, "seconds")]
        text.append(
            f"{rt} real-time and {rows[0]['be']} best-effort requests, {len(rows)} snapshots: "
            f"{min(times):.0f} to "
            f"{max(times):.0f} ms, largest gap {max(numbers(rows, 'gap_percent')):.2f} %"
        )
    return Claim(
        "The iteration problem needs a heuristic",
        "4.2",
        "The problem is a variant of bin packing with very many batches; Algorithm 1 is proposed instead.",
        text,
        "partly",
        "Without swap the table of prefixes solves a snapshot to proven optimality in about 0.1 s. That "
        "is more "
        "than a batch takes, so not yet fast enough online, but enough to judge a heuristic. "
        "docs/iteration.md has swaps.",
        [
            max(numbers(tables["snapshots"], "gap_percent")) == 0,
            1000 * min(numbers(tables["snapshots"], "seconds")) > min(numbers(tables["hybrid"], "batch_ms")),
        ],
    )
