"""The page: claims of the EcoServe paper, what the tables say about them, and a verdict."""

from __future__ import annotations

from infermax_opt.infermax.data.ecoserve import TRACES
from scripts.ecoserve_study import claims_comparison, claims_models, claims_settings
from scripts.ecoserve_study.figures import CAPTIONS, TITLES
from scripts.ecoserve_study.models import MODELS
from scripts.ecoserve_study.studies import LOADS, STUDIES, WINDOW
from scripts.findings.claim import summary
from scripts.findings.tables import Tables

__all__ = ["page"]

_INTRO = """# EcoServe's claims, measured, with bounds

What the EcoServe paper (H. Shen and T. Sen, "Maximizing Multi-Resource Utilization with SLO Guarantees in LLM
Serving") says of schedulers, measured again, with one thing added: what no schedule can beat.

```sh
python -m scripts.ecoserve_study claims --out scripts/ecoserve_study          # tables, figures, this page
python -m scripts.ecoserve_study claims --page --out scripts/ecoserve_study   # figures and this page
```

**Setting.** {windows}, seed 0, drawn with the paper's moments, Poisson arrivals, the paper's padding,
reserve, buffer and accuracy of predictions; KV of 14,648 tokens in blocks of 32; batches up to the target
forward size. Batches cost what the shipped profile `opt-13b_a100` says, an estimate. Rates are shares of the
most that any schedule of a window sustains ({rates} requests/s), and the paper's own ({published}).
Every schedule was replayed and verified. Llama-33B (two GPUs, 12,019 KV tokens) and OPT-175B (eight, 55,949)
have a table of their own, by the shipped profiles {profiles}, estimates too.

**No claim is refuted here.** There are no swaps, so who loses its KV recomputes it; the predictor, the
scheduler and copies of late guests take no time; windows are short and begin with an empty machine. Where our
numbers differ, the verdict is *partly* or *not testable*, and says why.

**Bounds.** `rate_bound`: priced work. `jct_bound`: the best one of the shortest remaining priced work,
interaction, pace and overload; of Llama-33B and OPT-175B without pace, which came later. `ssr_bound`: the
attainment program, computed for every rate, and for the SLO scales on
ShareGPT; not computed for the other sweeps. Bounds know all lengths in advance. Those of `sharing.csv` are
certified, and the certificates were checked.
"""


def page(tables: Tables) -> str:
    """The page as Markdown."""
    claims = [
        *claims_comparison.claims(tables),
        *claims_models.claims(tables),
        *claims_settings.claims(tables),
    ]
    parts = [_intro(tables), summary(claims), _distances(tables), "## Claim by claim\n"]
    parts += [claim.text(number) for number, claim in enumerate(claims, 1)]
    return "\n".join([*parts, _pictures()])


def _intro(tables: Tables) -> str:
    rates = []
    for trace in TITLES:
        (bound,) = {row["rate_bound"] for row in tables.rows("rates", trace=trace, load="1")}
        rates.append(f"{TITLES[trace]} {bound}")
    windows = ", ".join(f"{WINDOW[trace]} requests of {title}" for trace, title in TITLES.items())
    published = ", ".join(f"{float(TRACES[trace].rate):g}" for trace in TITLES)
    profiles = " and ".join(f"`{machine.profile}`" for machine in MODELS.values())
    return _INTRO.format(windows=windows, rates=", ".join(rates), published=published, profiles=profiles)


def _distances(tables: Tables) -> str:
    """Best scheduler and bound at every rate."""
    lines = [
        "## How far from the optimum", "",
        "The least mean JCT and the highest SSR of a scheduler, beside what no schedule beats.", "",
        "| trace | load | mean JCT, s | bound | gap, % | SSR, % | bound |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]  # fmt: skip
    for trace, title in TITLES.items():
        for load in LOADS:
            rows = tables.rows("rates", trace=trace, load=load)
            fast = min(rows, key=lambda row: float(row["mean_jct"]))
            kept = max(rows, key=lambda row: float(row["ssr"]))
            jct, bound = float(fast["mean_jct"]), float(fast["jct_bound"])
            lines.append(
                f"| {title} | {load} | {jct:.3g} (`{fast['scheduler']}`) | {bound:.3g} | "
                f"{100 * (1 - bound / jct):.0f} "
                f"| {100 * float(kept['ssr']):.0f} (`{kept['scheduler']}`) | "
                f"{100 * float(kept['ssr_bound']):.0f} |"
            )
    return "\n".join(lines) + "\n"


def _pictures() -> str:
    lines = ["## Figures", ""]
    for name, (caption, table) in CAPTIONS.items():
        lines += [f"{caption} ([table](csv/{table}.csv)):", "", f"![{caption}](figures/{name}.svg)", ""]
    lines.append("All tables: " + ", ".join(f"[{name}](csv/{name}.csv)" for name in STUDIES) + ".")
    return "\n".join(lines) + "\n"
