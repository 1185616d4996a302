"""The instances behind the paper's figures, under several cost models."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import infermax_opt as imx
from infermax_opt.infermax.data.suites import csp_case, paper_cost

__all__ = ["COSTS", "PAIRS", "Case", "constrained", "equal", "mixed"]

#: Cost models by the name that the tables use.
COSTS: Mapping[str, imx.CostModel] = {
    # Section 3.2 to the letter: attention work of a chunk of c tokens is c squared.
    "paper": paper_cost(imx.Attention.SQUARE),
    # The same coefficients, but a chunk also reads the prefix that is cached before it.
    "exact": paper_cost(imx.Attention.EXACT),
    # Fitted to measured kernels of the paper's model on the paper's GPU.
    "a100": imx.load_profile("llama-2-7b_a100").cost,
}

SHORT, LONG = (8, 16), (512, 1024)
_GROUPS = {"SISO": (SHORT, SHORT), "SILO": (SHORT, LONG), "LISO": (LONG, SHORT), "LILO": (LONG, LONG)}
#: The six workloads of appendix A.3: every pair of request groups.
PAIRS = tuple(f"{a}+{b}" for k, a in enumerate(_GROUPS) for b in list(_GROUPS)[k + 1 :])


@dataclass(frozen=True)
class Case:
    """One instance and what is run on it.

    Parameters
    ----------
    keys : mapping of str to str
        The columns that identify the case in its table.
    instance : Instance
    schedulers : tuple of str
        Names that `infermax_opt.schedule` takes.
    search : bool
        Look for a bound better than the closed forms.
    solve : bool
        Look for a schedule as good as possible, and for a better bound.
    variants : mapping of str to Policy
        Look for one under each of these policies, too; the names are those of the rows.
    """

    keys: Mapping[str, str]
    instance: imx.Instance
    schedulers: tuple[str, ...]
    search: bool = True
    solve: bool = False
    variants: Mapping[str, imx.Policy] = field(default_factory=dict)


def equal(
    cost: str, requests: int, inputs: int, outputs: int, capacity: int, running: int | None = None
) -> imx.Instance:
    """Equal requests on the paper's machine: C = P = 4096, every policy allowed."""
    limit = "" if running is None else f"-r{running}"
    return imx.Instance(
        name=f"{cost}-b{requests}-i{inputs}-o{outputs}-m{capacity}{limit}",
        groups=(imx.RequestGroup("r", inputs, outputs, count=requests),),
        system=imx.System(capacity, max_batch_tokens=4096, max_prefill_tokens=4096, max_running=running),
        cost=COSTS[cost],
    )


def mixed(cost: str, pair: str, requests: int, capacity: int, seed: int) -> imx.Instance:
    """Half of the requests from each group of the pair, lengths drawn evenly, shuffled."""
    draw = random.Random(f"{pair} {requests} {seed}")
    first, second = (_GROUPS[name] for name in pair.split("+"))
    half = requests // 2
    lengths = [
        (draw.choice(inputs), draw.choice(outputs))
        for (inputs, outputs), count in ((first, half), (second, requests - half))
        for _ in range(count)
    ]
    draw.shuffle(lengths)
    name = f"{cost}-{pair.lower().replace('+', '-')}-b{requests}-m{capacity}-s{seed}"
    system = imx.System(capacity, max_batch_tokens=4096, max_prefill_tokens=4096)
    return imx.Instance.of_requests(name, lengths, system, COSTS[cost])


def constrained(cost: str, inputs: int) -> imx.Instance:
    """The paper's constrained study (section 4.5): O = B = 4, M = max(2 I, I + 3), whole prompts."""
    base = csp_case(inputs, chunked=False)
    return replace(base, name=f"{cost}-{base.name}", cost=COSTS[cost])
