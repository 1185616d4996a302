"""Claims on the larger models: the paper's Figures 10 and 11 for Llama-33B and OPT-175B."""

from __future__ import annotations

from scripts.ecoserve_study.figures import TITLES
from scripts.ecoserve_study.models import LOADS, MODELS
from scripts.findings.claim import Claim
from scripts.findings.tables import Tables

__all__ = ["claims"]

#: In the order in which numbers are given.
SHOWN = ("orca", "vllm", "fastgen", "ecoserve", "ecoserve-oracle", "spt")


class _Models:
    """Cells of the table of models."""

    def __init__(self, tables: Tables):
        self.tables = tables

    def at(self, model: str, trace: str, load: str, scheduler: str, column: str) -> float:
        """A number."""
        where = {"model": model, "trace": trace, "load": load, "scheduler": scheduler}
        return self.tables.value("models", column, **where)

    def each(self, column: str, factor: float, bound: str | None) -> list[str]:
        """A column of the schedulers shown in each case, and its bound."""
        names = ", ".join(f"`{name}`" for name in SHOWN)
        lines = []
        for model, machine in MODELS.items():
            for load in LOADS:
                cells = []
                for trace, title in TITLES.items():
                    found = [factor * self.at(model, trace, load, name, column) for name in SHOWN]
                    text = f"{title} {', '.join(f'{value:.3g}' for value in found)}"
                    if bound is not None:
                        text += f" (at least {self.at(model, trace, load, SHOWN[0], bound):.3g})"
                    cells.append(text)
                lines.append(f"{machine.title} at {load}, {names}: {'; '.join(cells)}")
        return lines

    def change(self, model: str, one: str, other: str) -> str:
        """By how much the mean JCT of a scheduler differs from that of another one, on each trace."""
        cells = []
        for trace, title in TITLES.items():
            shares = [
                self.at(model, trace, load, one, "mean_jct") / self.at(model, trace, load, other, "mean_jct")
                for load in LOADS
            ]
            cells.append(f"{title} " + " and ".join(f"{100 * (share - 1):+.0f} %" for share in shares))
        return (
            f"{MODELS[model].title}, `{one}` against `{other}` at {' and '.join(LOADS)}: {', '.join(cells)}"
        )

    def less(self, one: str, other: str, column: str, models: tuple[str, ...] = tuple(MODELS)) -> list[bool]:
        """Whether a scheduler has no more of a column than another one, in each case."""
        return [
            self.at(model, trace, load, one, column) <= self.at(model, trace, load, other, column)
            for model in models
            for trace in TITLES
            for load in LOADS
        ]


def claims(tables: Tables) -> list[Claim]:
    """In the order of the paper."""
    found = _Models(tables)
    return [_latency(found), _deadlines(found), _parts(found)]


def _latency(found: _Models) -> Claim:
    small = [found.at("llama-33b", "sharegpt", load, "ecoserve", "mean_jct") for load in LOADS]
    paged = [found.at("llama-33b", "sharegpt", load, "vllm", "mean_jct") for load in LOADS]
    return Claim(
        "EcoServe sustains higher rates on larger models, too",
        "S4, Figure 10",
        "OPT-175B: 1.20 to 2.25x FastGen's rate, 1.28 to 2x vLLM's, 2.8 to 22x ORCA's; Llama-33B: 1.2 to "
        "2.18x, 2.4 to 4x, 3 to 64x.",
        ["mean JCT, s, at shares of the sustainable rate", *found.each("mean_jct", 1, "jct_bound")],
        "partly",
        "Against ORCA in every case, and against vLLM on OPT-175B, where KV is large, and on Alpaca. On "
        "Llama-33B, whose KV holds few requests, ShareGPT and BookCorpus are as on OPT-13B: what is "
        "reserved keeps others out. FastGen is not beaten by more than 1 %. On OPT-175B with Alpaca KV never "
        "binds, so most schedulers make the same schedule.",
        [
            *found.less("ecoserve", "orca", "mean_jct"),
            *found.less("ecoserve", "vllm", "mean_jct", ("opt-175b",)),
            *(one > other for one, other in zip(small, paged, strict=True)),
            *(
                found.at(model, trace, load, "fastgen", "mean_jct")
                < 1.01 * found.at(model, trace, load, "ecoserve", "mean_jct")
                for model in MODELS
                for trace in TITLES
                for load in LOADS
            ),
        ],
    )


def _deadlines(found: _Models) -> Claim:
    return Claim(
        "EcoServe keeps the most deadlines on larger models, too",
        "S4, Figures 10j-l",
        "47, 77 and 106 % more than FastGen, vLLM and ORCA for OPT-175B, 41, 80 and 91 % more for Llama-33B; "
        "2.8 and 4 % less than Oracle.",
        ["SSR, %, at shares of the sustainable rate", *found.each("ssr", 100, None)],
        "partly",
        "More than ORCA in every case, but no more than FastGen, which keeps nearly all where KV is large, "
        "and no more than the order by least work. Up to this rate the bound on the SSR says nothing.",
        [
            *found.less("orca", "ecoserve", "ssr"),
            *found.less("ecoserve", "fastgen", "ssr"),
            *found.less("ecoserve", "spt", "ssr"),
        ],
    )


def _parts(found: _Models) -> Claim:
    pairs = (("ecoserve", "ecoserve-d"), ("ecoserve-oracle", "ecoserve"))
    return Claim(
        "The parts of EcoServe help on larger models, too",
        "S4, Figure 11",
        "Groups, order and guests each lower the JCT of what only decouples; true lengths add some percent.",
        [found.change(model, *pair) for pair in pairs for model in MODELS],
        "agree",
        "In every case, but for OPT-175B with Alpaca, where nothing changes. How much depends on how "
        "scarce KV is.",
        [answer for pair in pairs for answer in found.less(*pair, "mean_jct")],
    )
