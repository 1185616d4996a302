"""Claims of section 4.2: many requests."""

from __future__ import annotations

from itertools import pairwise

from scripts.findings.claim import MODELS, Claim, both, percent, times
from scripts.findings.measure import Row
from scripts.findings.studies import TABLE_1
from scripts.findings.tables import Tables

__all__ = ["claims"]


def claims(tables: Tables) -> list[Claim]:
    """The claims in the order of the paper."""
    return [
        _fastest(tables),
        _sarathi_tps(tables),
        _trade_off(tables),
        _middle_ground(tables),
        _tps_shape(tables),
        _tpot_peak(tables),
        _evictions(tables),
        _kept(tables),
    ]


def _fastest(tables: Tables) -> Claim:
    def wins(model: str) -> str:
        cells = [(row["I"], row["O"]) for row in tables.rows("fig05", cost=model, scheduler="vllm")]
        won = sum("vllm" in tables.winner("fig05", TABLE_1, cost=model, I=i, O=o) for i, o in cells)
        return f"{won} of {len(cells)}"

    def behind(model: str, *outputs: int) -> float:
        ratios = [
            min(
                tables.value("fig05", "makespan_s", cost=model, I=row["I"], O=row["O"], scheduler=name)
                for name in TABLE_1
            )
            / float(row["makespan_s"])
            for o in outputs
            for row in tables.rows("fig05", cost=model, scheduler="vllm", O=o)
        ]
        return 1 - min(ratios)

    return Claim(
        "vLLM is the fastest, except where long outputs make it evict",
        "4.2, Figure 5",
        "Prefilling first gives large batches, the lowest latency and the highest TPS, as long as long "
        "outputs do not force frequent evictions.",
        [
            f"vLLM is the fastest of Table 1 (ties included) in {both(wins)} cells of I and O.",
            "Where it is not, the fastest saves up to "
            f"{both(lambda m: percent(behind(m, 1, 8, 32)))} of its time for O <= 32 and up to "
            f"{both(lambda m: percent(behind(m, 128, 512, 1024)))} for O >= 128.",
        ],
        "partly",
        "True where nothing is evicted. But vLLM already evicts at O = 8 once I >= 128, as it fills the "
        "cache with prompts before it decodes, and there Sarathi with P = C is faster.",
        [
            all(
                tables.value("fig05", "evictions", cost="paper", I=i, O=o, scheduler="vllm") > 0
                for i in (128, 512, 1024)
                for o in (8, 32)
            ),
            all(
                tables.ratio("fig05", "makespan_s", "vllm", "sarathi_pc", cost=m, I=i, O=o).value > 1
                for m in MODELS
                for i in (128, 512, 1024)
                for o in (8, 32)
            ),
        ],
    )


def _sarathi_tps(tables: Tables) -> Claim:
    def loss(model: str) -> str:
        worst = tables.ratio("fig05", "tps", "vllm", "sarathi", cost=model)
        return f"{percent(1 - 1 / worst.value)} (at {worst.at('I', 'O')})"

    def gain(model: str) -> str:
        best = tables.ratio("fig05", "tps", "sarathi", "vllm", cost=model)
        return f"{percent(best.value - 1)} (at {best.at('I', 'O')})"

    return Claim(
        "Sarathi has up to 40.9 % less TPS than vLLM",
        "4.2, Figure 5",
        "Chunks of P = 512 cost Sarathi up to 40.9 % of vLLM's throughput.",
        [f"At most {both(loss)} less.", f"In other cells it has up to {both(gain)} more."],
        "partly",
        "The direction holds where prefills dominate. The size of the loss is a property of the machine: "
        "with O = 1 it is about 1 - (a/4096 + b)/(a/512 + b) for a fixed cost a per batch and b per token, "
        "so 40.9 % needs a fixed cost of nearly the time of 450 tokens, against 97 in the paper-like model "
        "and 175 in the A100 fit.",
    )


def _trade_off(tables: Tables) -> Claim:
    def tpot(model: str, *outputs: int) -> str:
        factors = [tables.ratio("fig05", "tpot_s", "vllm", "sarathi", cost=model, O=o) for o in outputs]
        best = max(factors, key=lambda extreme: extreme.value)
        return f"{times(best.value)} (at {best.at('I', 'O')})"

    def slower(model: str) -> list[Row]:
        """Cells where vLLM's TTFT is not the lower one."""
        pairs = tables.pairs("fig05", "vllm", "sarathi", cost=model)
        return [a for a, b in pairs if float(a["ttft_s"]) >= float(b["ttft_s"])]

    cells = len(tables.rows("fig05", cost="paper", scheduler="vllm"))
    return Claim(
        "TTFT is traded against TPOT; Sarathi's TPOT is up to 5x lower",
        "4.2, Figure 5",
        "Schedulers that may prefill C tokens per batch have the lower TTFT and the higher TPOT; Sarathi's "
        "TPOT is up to 5x lower than vLLM's.",
        [
            f"Sarathi's TPOT is lower by up to {both(lambda m: tpot(m, 32, 128, 512, 1024))} for O >= 32, "
            f"and by up to {both(lambda m: tpot(m, 8))} at O = 8.",
            f"vLLM's TTFT is the lower one in {both(lambda m: str(cells - len(slower(m))))} of {cells} "
            "cells.",
        ],
        "agree",
        "At O = 8 the factor is even higher: vLLM makes a request wait for the prefills of all others "
        "between two of its few tokens. The exceptions in TTFT have O = 1 and I <= 8, where Sarathi "
        "answers its first small batch sooner.",
        [
            all(
                4 < tables.ratio("fig05", "tpot_s", "vllm", "sarathi", cost=m, O=32).value < 6 for m in MODELS
            ),
            all(row["O"] == "1" and int(row["I"]) <= 8 for m in MODELS for row in slower(m)),
        ],
    )


def _middle_ground(tables: Tables) -> Claim:
    def worst(model: str, *outputs: int) -> str:
        loss = 0.0
        for o in outputs:
            for row in tables.rows("fig05", cost=model, scheduler="sarathi_pc", O=o):
                best = max(
                    tables.value("fig05", "tps", cost=model, I=row["I"], O=o, scheduler=name)
                    for name in TABLE_1
                )
                loss = max(loss, 1 - float(row["tps"]) / best)
        return percent(loss)

    return Claim(
        "Sarathi with P = C has nearly the highest TPS for every O",
        "4.2, Figure 5",
        "With P = C Sarathi is close to the best TPS at each output length.",
        [
            f"It stays within {both(lambda m: worst(m, 1, 8, 32))} of the best of Table 1 for O <= 32.",
            f"For O >= 128 it loses up to {both(lambda m: worst(m, 128, 512, 1024))}.",
        ],
        "partly",
        "At long outputs all schedulers of Table 1 admit too many requests. Sarathi (P = 512) admits fewer "
        "and mostly wins; for some short prompts the one that mixes no phases (sarathi_nohy) does.",
    )


def _tps_shape(tables: Tables) -> Claim:
    def falls(model: str) -> str:
        pairs = wrong = 0
        for name in ("vllm", "sarathi", "sarathi_pc"):
            for o in (1, 8, 32, 128, 512, 1024):
                values = [float(r["tps"]) for r in tables.rows("fig05", cost=model, scheduler=name, O=o)]
                pairs += len(values) - 1
                wrong += sum(b > a for a, b in pairwise(values))
        return f"{pairs - wrong} of {pairs}"

    def peak(model: str, i: int) -> str:
        return tables.largest("fig05", "tps", cost=model, scheduler="vllm", I=i).row["O"]

    def limit_peak(model: str, i: int) -> str:
        rows = tables.rows("fig05", cost=model, scheduler="vllm", I=i)
        best = max(rows, key=lambda r: float(r["tps"]) * float(r["makespan_s"]) / float(r["lower_bound_s"]))
        return best["O"]

    return Claim(
        "TPS falls with I; with O it rises, then falls",
        "4.2, Figures 5 and 6",
        "Longer prompts lower TPS. Short outputs leave it to the prefills, long ones make every decode batch "
        "heavier, so TPS peaks in between.",
        [
            f"Of the steps to the next larger I, {both(falls)} lower TPS (vllm, sarathi, sarathi_pc).",
            f"vLLM peaks at O = {both(lambda m: peak(m, 32))} for I = 32 and at O = "
            f"{both(lambda m: peak(m, 1024))} for I = 1024 (of 1, 8, 32, 128, 512, 1024).",
            f"The ceiling that the bounds leave peaks at O = {both(lambda m: limit_peak(m, 32))} for I = 32 "
            f"and at O = {both(lambda m: limit_peak(m, 1024))} for I = 1024.",
        ],
        "agree",
        "For long prompts the peak moves to O = 512 or 1024, as the paper's reasoning suggests.",
    )


def _tpot_peak(tables: Tables) -> Claim:
    def course(name: str, o: int, model: str = "paper") -> list[float]:
        return [float(r["tpot_s"]) for r in tables.rows("fig05", cost=model, scheduler=name, O=o)]

    def line(name: str, o: int) -> str:
        return ", ".join(f"{value:.3f}" for value in course(name, o)) + f" s at O = {o}"

    return Claim(
        "TPOT falls again beyond some I",
        "4.2, Figure 5",
        "For long enough prompts TPOT goes down again: at long outputs because fewer requests are evicted, "
        "at short ones because batches get smaller.",
        [
            f"vLLM under `paper`, I = 1, 8, 32, 128, 512, 1024: {line('vllm', 32)}; {line('vllm', 128)}; "
            f"{line('vllm', 1024)}.",
            f"Sarathi: {line('sarathi', 32)}; {line('sarathi', 128)}; {line('sarathi', 1024)}.",
        ],
        "partly",
        "True of Sarathi at short and middle outputs, under both cost models. vLLM's TPOT dips between I = "
        "128 and 512 at O = 32 and 128 (under `paper`) and then rises to its maximum. At O = 1024 it rises "
        "throughout: from I = 128 on there are fewer evictions, but each costs a longer refill, during "
        "which everybody waits.",
        [
            all(
                max(course("vllm", o, m)) == course("vllm", o, m)[-1] for o in (32, 128, 1024) for m in MODELS
            ),
            all(course("vllm", o)[4] < course("vllm", o)[3] for o in (32, 128)),
            all(course("sarathi", 32, m) == sorted(course("sarathi", 32, m), reverse=True) for m in MODELS),
        ],
    )


def _evictions(tables: Tables) -> Claim:
    def line(name: str, o: int) -> str:
        return ", ".join(r["evictions"] for r in tables.rows("fig05", cost="paper", scheduler=name, O=o))

    rising = all(
        int(a["evictions"]) <= int(b["evictions"])
        for name in ("vllm", "sarathi", "sarathi_pc")
        for i in (1, 8, 32, 128, 512, 1024)
        for rows in [tables.rows("fig05", cost="paper", scheduler=name, I=i)]
        for a, b in pairwise(rows)
    )
    return Claim(
        "Evictions grow with O; long prompts limit them",
        "4.2, Figure 5",
        "The more tokens a request still has to produce, the more are evicted. A long prompt admits fewer "
        "requests per batch (P / I) and so leads to fewer evictions; very short requests cause few.",
        [
            f"vLLM, I = 1, 8, 32, 128, 512, 1024: {line('vllm', 32)} evictions at O = 32; "
            f"{line('vllm', 128)} at O = 128; {line('vllm', 1024)} at O = 1024.",
            f"Sarathi: {line('sarathi', 32)}; {line('sarathi', 128)}; {line('sarathi', 1024)}.",
            "Both cost models give the same numbers: without arrivals no scheduler looks at batch times.",
        ],
        "agree",
        "Evictions never fall as O grows, and fall from I = 128 on as I grows.",
        [
            rising,
            all(
                tables.value("fig05", "evictions", cost="paper", I=r["I"], O=r["O"], scheduler=r["scheduler"])
                == float(r["evictions"])
                for r in tables.rows("fig05", cost="a100")
                if not r["scheduler"].startswith("solve")
            ),
        ],
    )


def _kept(tables: Tables) -> Claim:
    positive = {
        (r["scheduler"], r["I"])
        for r in tables.rows("fig05", cost="paper", O=1)
        if float(r["kv_kept_percent"]) > 0 and r["scheduler"] != "solve"
    }
    full = [
        float(r["kv_kept_percent"]) for r in tables.rows("fig05", cost="paper", O=1024, scheduler="sarathi")
    ]
    calm = [
        float(r["kv_kept_percent"]) for r in tables.rows("fig05", cost="paper", O=32, scheduler="sarathi")
    ]
    vllm = [float(r["kv_kept_percent"]) for r in tables.rows("fig05", cost="paper", O=32, scheduler="vllm")]
    return Claim(
        "KV use: none at O = 1 but for Sarathi's chunks; over 90 % at O = 1024",
        "4.2, Figure 5",
        "With one output token only Sarathi at I = 1024 keeps KV between batches; at O = 32 its use is "
        "steady; at O = 1024 it exceeds 90 % of the cache.",
        [
            "At O = 1 only Sarathi at I = 1024 keeps any "
            f"({tables.value('fig05', 'kv_kept_percent', cost='paper', O=1, I=1024, scheduler='sarathi')} % "
            "of M).",
            f"At O = 32 Sarathi keeps {min(calm):.1f} to {max(calm):.1f} % on average over the batches "
            f"whatever I is, vLLM {min(vllm):.1f} to {max(vllm):.1f} %.",
            f"At O = 1024 Sarathi keeps {min(full):.1f} to {max(full):.1f} %.",
        ],
        "agree",
        "Averaged over all batches, the ones at the end included, we see somewhat less than 90 % for short "
        "prompts.",
        [positive == {("sarathi", "1024")}, max(calm) - min(calm) < 1, min(full) > 85],
    )
