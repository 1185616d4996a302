"""Claims of the appendix: groups of schedulers, low contention, the real system, mixed requests."""

from __future__ import annotations

from dataclasses import dataclass

from scripts.findings.cases import PAIRS
from scripts.findings.claim import MODELS, Claim, both, percent, times
from scripts.findings.studies import TABLE_1
from scripts.findings.tables import Tables

__all__ = ["claims"]

_LONG = tuple(pair for pair in PAIRS if "LILO" in pair)
_SHORT = tuple(pair for pair in PAIRS if "LILO" not in pair)


def claims(tables: Tables) -> list[Claim]:
    """The claims in the order of the paper."""
    return [
        _groups(tables),
        _calm(tables),
        _calm_sarathi(tables),
        _real(),
        _latency(tables),
        _ttft(tables),
        _tpot(tables),
    ]


def _groups(tables: Tables) -> Claim:
    def apart(one: str, other: str, model: str) -> float:
        up = tables.ratio("fig05", "makespan_s", one, other, cost=model).value
        down = tables.ratio("fig05", "makespan_s", other, one, cost=model).value
        return max(up, down) - 1

    def slow(column: str, model: str) -> str:
        worst = tables.ratio("fig05", column, "sarathi_nohy", "sarathi_pc", cost=model)
        return f"{times(worst.value)} (at {worst.at('I', 'O')})"

    def worth(variant: str, model: str) -> str:
        shares = [
            (float(a["makespan_s"]) / float(b["makespan_s"]), a)
            for a, b in tables.pairs("policies", variant, "solve", cost=model)
        ]
        value, row = max(shares, key=lambda pair: pair[0])
        return f"{percent(value - 1)} (at M = {row['M']}, I = {row['I']})"

    return Claim(
        "Hybrid batches and chunks matter little at P = C; Sarathi without hybrid batches is far slower",
        "4.2, A.1",
        "Three groups perform alike: Sarathi; Sarathi with P = C, with or without chunks; vLLM, with or "
        "without hybrid batches. Sarathi without hybrid batches is left out for its latency and TTFT.",
        [
            f"Latency differs by at most {both(lambda m: percent(apart('vllm_hy', 'vllm', m)))} between "
            "vLLM with and without hybrid batches, and by "
            f"{both(lambda m: percent(apart('sarathi_nocp', 'sarathi_pc', m)))} between Sarathi with P = C "
            "with and without chunks.",
            f"Sarathi without hybrid batches needs up to {both(lambda m: slow('makespan_s', m))} the time of "
            f"Sarathi with P = C, and up to {both(lambda m: slow('ttft_s', m))} its TTFT.",
            "For the best schedules found (`policies.csv`), giving up hybrid batches costs up to "
            f"{both(lambda m: worth('solve_nohybrid', m))}, giving up chunks up to "
            f"{both(lambda m: worth('solve_nochunks', m))}.",
        ],
        "agree",
        "The groups are as the paper found them. In single cells with short prompts Sarathi without hybrid "
        "batches is the fastest of all, because it admits fewer requests. The last numbers compare schedules "
        "found within a time limit and are no proofs: where a policy is forbidden, the planners are weaker.",
        [
            all(apart("vllm_hy", "vllm", m) < 0.1 for m in MODELS),
            all(apart("sarathi_nocp", "sarathi_pc", m) < 0.05 for m in MODELS),
        ],
    )


def _calm(tables: Tables) -> Claim:
    def behind(model: str) -> str:
        loss = 0.0
        for row in tables.rows("fig12", cost=model, scheduler="vllm"):
            best = min(
                tables.value("fig12", "makespan_s", cost=model, I=row["I"], O=row["O"], scheduler=name)
                for name in TABLE_1
            )
            loss = max(loss, 1 - best / float(row["makespan_s"]))
        return percent(loss)

    def gap(model: str) -> str:
        return f"{tables.largest('fig12', 'gap_percent', cost=model, scheduler='vllm').value:.1f} %"

    def slow(model: str) -> str:
        worst = tables.ratio("fig12", "makespan_s", "sarathi_nohy", "vllm", cost=model)
        return f"{times(worst.value)} (at {worst.at('I', 'O')})"

    def faster(model: str) -> str:
        return percent(tables.ratio("fig12", "makespan_s", "vllm", "solve", cost=model).value - 1)

    def group(model: str) -> str:
        largest = max(
            tables.ratio("fig12", "makespan_s", one, other, cost=model).value
            for one in ("vllm", "vllm_hy", "sarathi_pc", "sarathi_nocp")
            for other in ("vllm", "vllm_hy", "sarathi_pc", "sarathi_nocp")
        )
        return percent(largest - 1)

    return Claim(
        "With 32 requests nobody is evicted and vLLM is the fastest",
        "A.1, Figure 12",
        "At B = 32 there are no evictions. vLLM has the lowest latency, the variants with P = C are like "
        "it, and Sarathi without hybrid batches gets very slow as I grows.",
        [
            f"No scheduler evicts. vLLM is within {both(behind)} of the fastest of Table 1 and within "
            f"{both(gap)} of the certified optimum in every cell.",
            f"vllm, vllm_hy, sarathi_pc and sarathi_nocp differ by at most {both(group)}.",
            f"Sarathi without hybrid batches takes up to {both(slow)} the time of vLLM.",
        ],
        "agree",
        "There is little to gain at B = 32: the best schedules found are at most "
        f"{both(faster)} faster than vLLM, and under `paper` vLLM is proved to be almost optimal.",
        [
            all(r["evictions"] == "0" for r in tables.rows("fig12") if r["scheduler"] in TABLE_1),
            all(
                float(tables.largest("fig12", "gap_percent", cost=m, scheduler="vllm").value) < 12
                for m in MODELS
            ),
        ],
    )


def _calm_sarathi(tables: Tables) -> Claim:
    def more(column: str, o: int, model: str) -> str:
        worst = tables.ratio("fig12", column, "sarathi", "vllm", cost=model, O=o)
        return f"{percent(worst.value - 1)} (at {worst.at('I')})"

    def less(model: str) -> str:
        best = tables.ratio("fig12", "tpot_s", "vllm", "sarathi", cost=model, O=32)
        return f"{percent(1 - 1 / best.value)} (at {best.at('I')})"

    return Claim(
        "At B = 32 Sarathi is slower than vLLM for O = 32 and equal for O = 1024",
        "A.1, Figure 12",
        "At O = 32 Sarathi has the higher latency and TPOT, as its batches are smaller; at O = 1024 they "
        "are alike.",
        [
            f"O = 32: up to {both(lambda m: more('makespan_s', 32, m))} more latency, up to "
            f"{both(lambda m: more('tpot_s', 32, m))} more TPOT, but up to {both(less)} less TPOT elsewhere.",
            f"O = 1024: at most {both(lambda m: more('makespan_s', 1024, m))} more latency.",
        ],
        "partly",
        "Latency agrees. TPOT does so up to I = 128 only: at I = 1024 vLLM's requests wait for the other "
        "prompts after their first token, and Sarathi's TPOT is lower.",
        [
            tables.ratio("fig12", "tpot_s", "vllm", "sarathi", cost="paper", O=32).row["I"] == "1024",
            tables.ratio("fig12", "makespan_s", "sarathi", "vllm", cost="paper", O=1024).value < 1.05,
        ],
    )


def _real() -> Claim:
    return Claim(
        "On vLLM v0.6.3 evictions change TPS by similar factors",
        "A.2, Figures 13 and 14",
        "On a real system evictions raise TPS up to 2.1x and 2.3x at M = 100, 1.2x and 1.4x at M = 1K, and "
        "lower it 1.5x and 1.08x at M = 10K; predicted latencies are off by up to 30 %.",
        ["Nothing: the tables come from cost models, not from a GPU."],
        "not testable",
        "The factors are near ours of items 12 and 13, but vLLM gains more at M = 100 and Sarathi loses less "
        "at M = 10K than we compute.",
    )


def _means(
    tables: Tables, column: str, model: str, pair: str, requests: int, capacity: int
) -> dict[str, float]:
    """Mean over the seeds, by rank."""
    found: dict[str, list[float]] = {}
    for row in tables.rows("fig15", cost=model, M=capacity, mix=pair, B=requests):
        if not row["scheduler"].startswith("solve") and row[column]:
            found.setdefault(row["scheduler"], []).append(float(row[column]))
    return {name: sum(values) / len(values) for name, values in found.items()}


@dataclass(frozen=True)
class _Ranks:
    """Comparisons of two ranks on one column, over some mixes and all sizes."""

    tables: Tables
    column: str
    capacity: int = 100_000

    def most(self, worse: str, better: str, pairs: tuple[str, ...], model: str) -> tuple[float, str]:
        """Largest ratio, and where."""
        best = (0.0, "")
        for pair in pairs:
            for requests in (16, 64, 256, 1024):
                means = _means(self.tables, self.column, model, pair, requests, self.capacity)
                ratio = means[f"rank_{worse}"] / means[f"rank_{better}"]
                best = max(best, (ratio, f"{pair}, B = {requests}"))
        return best

    def say(self, worse: str, better: str, pairs: tuple[str, ...] = PAIRS) -> str:
        """The same in words, under both cost models."""

        def one(model: str) -> str:
            value, where = self.most(worse, better, pairs, model)
            return f"{times(value)} ({where})"

        return both(one)


def _latency(tables: Tables) -> Claim:
    def gaps(model: str) -> str:
        parts = []
        for pair in PAIRS:
            rows = tables.rows("fig15", cost=model, M=100_000, mix=pair, B=1024, seed=1)
            gap = {r["scheduler"]: float(r["gap_percent"]) for r in rows}
            ranks = min(value for name, value in gap.items() if name != "solve")
            parts.append(f"{pair} {ranks:.1f} % and {gap['solve']:.1f} %")
        return "; ".join(parts)

    def evicted(pair: str) -> str:
        rows = tables.rows("fig15", cost="paper", M=100_000, mix=pair, B=1024, seed=1)
        ranks = min(int(r["evictions"]) for r in rows if r["scheduler"] != "solve")
        best = next(r["evictions"] for r in rows if r["scheduler"] == "solve")
        return f"{ranks} and {best} for {pair}"

    wide, tight = _Ranks(tables, "makespan_s"), _Ranks(tables, "makespan_s", 10_000)
    return Claim(
        "Serving short prompts first lowers latency: up to 1.3x against short outputs first, 1.4x against "
        "no order",
        "A.3, Figure 15",
        "Ranking by I has up to 1.3x and 1.4x less latency than ranking by O and no ranking, above all for "
        "LILO + SILO.",
        [
            f"M = 100K, rank by I against rank by O: up to {wide.say('output', 'input')} less; against no "
            f"rank: up to {wide.say('org', 'input')}.",
            f"The other way, rank by O against rank by I: up to {wide.say('input', 'output')} less; against "
            f"no rank: up to {wide.say('org', 'output')}.",
            f"M = 10K, rank by I against rank by O: up to {tight.say('output', 'input')} less; against no "
            f"rank: up to {tight.say('org', 'input')}.",
            f"Gap to the certified optimum at B = 1024, M = 100K under `paper` (best rank, best found): "
            f"{gaps('paper')}.",
            f"Evictions there (least of any rank, best found): {'; '.join(evicted(pair) for pair in PAIRS)}.",
        ],
        "disagree",
        "We see next to no difference in latency between the ranks, and what there is favours ranking by "
        "O. Which details of the paper's ranking make the difference we cannot tell from its text (whom it "
        "evicts, P, how phases mix). The gaps show that there is much to gain on these mixes, but not by "
        "order alone: at long outputs every rank admits so many requests that it has to evict hundreds.",
        [
            all(wide.most("output", "input", PAIRS, m)[0] < 1.05 for m in MODELS),
            all(wide.most("org", "input", PAIRS, m)[0] < 1.05 for m in MODELS),
            all(wide.most("input", "output", PAIRS, m)[0] > 1.05 for m in MODELS),
            all(tight.most("org", "input", PAIRS, m)[0] < 1.1 for m in MODELS),
        ],
    )


def _ttft(tables: Tables) -> Claim:
    others = tuple(pair for pair in PAIRS if pair != "LISO+LILO")
    only = ("LISO+LILO",)
    wide, tight = _Ranks(tables, "ttft_s"), _Ranks(tables, "ttft_s", 10_000)
    return Claim(
        "Short prompts first has up to 3x and 2x less TTFT, except for LILO + LISO",
        "A.3, Figure 16",
        "Ranking by I lowers mean TTFT by up to 3x and 2x against ranking by O and none; where prompts are "
        "alike (LILO + LISO) ranking by O is best, by up to 1.6x and 2.1x.",
        [
            f"M = 100K, rank by I against rank by O: up to {wide.say('output', 'input', others)}; against "
            f"no rank: up to {wide.say('org', 'input', others)}.",
            f"LISO + LILO, rank by O against rank by I: {wide.say('input', 'output', only)}; against no "
            f"rank: {wide.say('org', 'output', only)}.",
            f"M = 10K, rank by O against rank by I, without LISO + LILO: up to "
            f"{tight.say('input', 'output', others)}.",
        ],
        "agree",
        "All four factors are as in the paper, to a fifth. With a tenth of the memory the advice turns "
        "around on some mixes: where all prompts are short, ranking by O is far ahead.",
        [
            all(2.5 < wide.most("output", "input", others, m)[0] < 3.5 for m in MODELS),
            all(1.8 < wide.most("org", "input", others, m)[0] < 2.5 for m in MODELS),
            all(1.4 < wide.most("input", "output", only, m)[0] < 1.8 for m in MODELS),
            all(1.7 < wide.most("org", "output", only, m)[0] < 2.3 for m in MODELS),
            all(tight.most("input", "output", others, m)[1] == "SISO+SILO, B = 1024" for m in MODELS),
        ],
    )


def _tpot(tables: Tables) -> Claim:
    wide = _Ranks(tables, "tpot_s")
    return Claim(
        "TPOT: rank by I is up to 1.3x lower with LILO, rank by O up to 1.7x and 1.3x lower without",
        "A.3, Figure 17",
        "With LILO, where memory runs out, ranking by I has up to 1.3x less TPOT than the others; without, "
        "ranking by O has up to 1.7x and 1.3x less than ranking by I and none.",
        [
            f"M = 100K with LILO, rank by I against rank by O: up to {wide.say('output', 'input', _LONG)}; "
            f"against no rank: up to {wide.say('org', 'input', _LONG)}.",
            f"With LILO, rank by O against rank by I: up to {wide.say('input', 'output', _LONG)}.",
            f"Without, rank by O against rank by I: up to {wide.say('input', 'output', _SHORT)}; against no "
            f"rank: up to {wide.say('org', 'output', _SHORT)}.",
        ],
        "partly",
        "Directions agree, and the 1.3x of rank I against rank O. But it holds for LISO + LILO only; for "
        "SILO + LILO ranking by O is clearly lower. Without LILO the factors are smaller than the paper's.",
        [
            all(1.2 < wide.most("output", "input", _LONG, m)[0] < 1.45 for m in MODELS),
            all(wide.most("output", "input", _LONG, m)[1].startswith("LISO+LILO") for m in MODELS),
            all(wide.most("input", "output", _LONG, m)[1].startswith("SILO+LILO") for m in MODELS),
            all(1.05 < wide.most("input", "output", _SHORT, m)[0] < 1.5 for m in MODELS),
            all(1.02 < wide.most("org", "output", _SHORT, m)[0] < 1.3 for m in MODELS),
        ],
    )
