"""Snapshots like those of the paper's evaluation: OPT-13B on two A100-40GB, ShareGPT lengths.

The paper gives limits (0.4 s for a first token, 0.2 s for a later one), moments of lengths (ShareGPT:
prompts of 222.76 tokens with a standard deviation of 256.36, outputs of 234.51 and 268.50; best-effort
requests of 512 to 1,024 and 32 to 128), blocks of 16 tokens and a batch of 128.  It gives no coefficients
and no snapshot, so these are estimates:

- Lengths are lognormal with those moments; a request under way has generated a uniform share of its output.
- Three quarters of real-time and four fifths of best-effort requests are in decode.  Who is in decode has
  waited up to half of its limit, who is not as well.
- Times by roofline: 26 GB of weights read in 0.02 s with what a batch costs besides, 0.12 ms of computation
  for a token, 0.82 MB of KV for a cached token at 2.6 TB/s; 13 MB for a block from the host at 50 GB/s.
- With swap, that share of the requests in decode have a uniform number of their blocks on the host.
"""

from __future__ import annotations

import math
import random
from fractions import Fraction

from infermax_opt.core.errors import InputError
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.iteration.data.instance import (
    BE_TOKENS,
    BEST_EFFORT,
    DECODE,
    PREFILL,
    REAL_TIME,
    VALUES,
    IterationGroup,
    IterationInstance,
    Machine,
)

__all__ = ["generate_snapshot", "opt_cost"]

#: Mean and standard deviation of prompts and outputs of ShareGPT (Table 2 of the paper).
PROMPTS, OUTPUTS = (222.76, 256.36), (234.51, 268.50)
#: Ranges of the prompts and outputs of best-effort requests.
BE_PROMPTS, BE_OUTPUTS = (512, 1024), (32, 128)
#: Most tokens of a context of OPT.
MOST_CONTEXT = 2048
BLOCK = 16
#: Shares of requests in decode.
RT_DECODES, BE_DECODES = 0.75, 0.8
SWAP = (Fraction("0.0005"), Fraction("0.00026"))


def opt_cost() -> CostModel:
    """Batch times of OPT-13B on two A100-40GB, estimated (module docstring)."""
    return CostModel([("0.02", "0.00012")], ("0.0005", "3.2e-7"), ("0.0005", "1.5e-9"), "exact")  # type: ignore[arg-type]


def generate_snapshot(
    real_time: int,
    best_effort: int,
    *,
    seed: int = 0,
    swap: float = 0.0,
    late: float = 0.0,
    values: bool = False,
) -> IterationInstance:
    """A snapshot.

    Parameters
    ----------
    real_time, best_effort : int
        Requests of each class.
    seed : int
    swap : float
        Share of the requests in decode that have blocks on the host; with 0 there is no swap at all.
    late : float
        Share of the real-time requests that have waited for longer than their limit.
    values : bool
        Whether every token is worth 1, for the objective ``seconds_per_value``.

    Raises
    ------
    InputError
        If a number is out of range.
    """
    for name, share in (("swap", swap), ("late", late)):
        if not 0 <= share <= 1:
            raise InputError(f"{share} is not between 0 and 1", field=name)
    rng = random.Random(seed)
    groups = [_real_time(rng, f"rt{k}", swap, late, values) for k in range(1, real_time + 1)]
    groups += [_best_effort(rng, f"be{k}", swap) for k in range(1, best_effort + 1)]
    machine = Machine(
        128, 800, Fraction("0.06"), Fraction("0.4"), Fraction("0.2"), opt_cost(), swap=SWAP if swap else None
    )
    extra = [f"swap{round(100 * swap)}"] if swap else []
    extra += [f"late{round(100 * late)}"] if late else []
    extra += ["values"] if values else []
    name = "-".join([f"rt{real_time}-be{best_effort}", *extra, f"s{seed}"])
    return IterationInstance(name, tuple(groups), machine, VALUES if values else BE_TOKENS)


def _draw(rng: random.Random, moments: tuple[float, float]) -> int:
    mean, deviation = moments
    variance = math.log(1 + (deviation / mean) ** 2)
    drawn = rng.lognormvariate(math.log(mean) - variance / 2, math.sqrt(variance))
    return min(MOST_CONTEXT // 2, max(1, round(drawn)))


def _host(rng: random.Random, cached: int, swap: float) -> int:
    """Blocks on the host of a request in decode."""
    return rng.randint(1, max(1, cached // BLOCK)) if rng.random() < swap else 0


def _real_time(rng: random.Random, name: str, swap: float, late: float, values: bool) -> IterationGroup:
    prompt, output = _draw(rng, PROMPTS), _draw(rng, OUTPUTS)
    decodes, overdue = rng.random() < RT_DECODES, rng.random() < late
    limit = 0.2 if decodes else 0.4
    waited = Fraction(round(1000 * limit * (1.5 if overdue else rng.uniform(0, 0.5))), 1000)
    worth = Fraction(int(values))
    if not decodes:
        blocks = -(-prompt // BLOCK)
        return IterationGroup(name, REAL_TIME, PREFILL, prompt, waited=waited, new_blocks=blocks, value=worth)
    context = prompt + rng.randint(1, output)
    return IterationGroup(
        name, REAL_TIME, DECODE, context, waited=waited, new_blocks=int(context % BLOCK == 1),
        host_blocks=_host(rng, context, swap), value=worth,
    )  # fmt: skip


def _best_effort(rng: random.Random, name: str, swap: float) -> IterationGroup:
    prompt, output = rng.randint(*BE_PROMPTS), rng.randint(*BE_OUTPUTS)
    if rng.random() >= BE_DECODES:
        return IterationGroup(name, BEST_EFFORT, PREFILL, prompt, new_blocks=-(-prompt // BLOCK))
    context = prompt + rng.randint(1, output)
    return IterationGroup(
        name, BEST_EFFORT, DECODE, context, new_blocks=int(context % BLOCK == 1),
        host_blocks=_host(rng, context, swap),
    )  # fmt: skip
