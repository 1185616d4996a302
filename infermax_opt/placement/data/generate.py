"""Placement instances: one like the paper's evaluation, and families on which best-fit is not enough.

Lengths are lognormal, cut to a range.  The paper gives neither the lengths of its requests nor coefficients
of its performance models, so these are assumptions, made from what it does give:

- k1, c1: the prefill limit is about the latency of a prompt of 4096 tokens (section 6.1), so
  c1 + 4096 k1 is just under T_pre.
- c3: a batch may take 1.3 times as long as a request by itself (section 6.1), so c3 is about T_dec / 1.3.
- k2, c2: the least squares fit of LLaMA2-7B on an A100 (2.65e-7 s for a token of context, 4.72e-5 s for a
  request, profile ``llama-2-7b_a100``), scaled by the KV of a token and by the number of parameters, and
  divided by the number of GPUs.
- M in tokens, so h = 1 and j = 0: nine tenths of the memory of the GPUs less the parameters in 16 bits,
  over the KV of a token.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from fractions import Fraction

from infermax_opt.core.errors import InputError
from infermax_opt.core.lengths import check_error, estimate
from infermax_opt.placement.data.instance import PlacementGroup, PlacementInstance, Slo, Worker
from infermax_opt.placement.data.limits import Limits

__all__ = ["FAMILIES", "MODELS", "Family", "Lengths", "generate", "paper_like"]

#: LLaMA2-13B on an A100, and 70B on two (Table 3), with their limits (Table 2).
WORKER_13B = Worker(
    kv_capacity=Fraction(56_000),
    kv_token=Fraction(1),
    kv_request=Fraction(0),
    prefill_token=Fraction("0.000141"),
    prefill_overhead=Fraction("0.02"),
    decode_context=Fraction("0.000000415"),
    decode_request=Fraction("0.000091"),
    decode_overhead=Fraction("0.023"),
)
WORKER_70B = Worker(
    kv_capacity=Fraction(18_000),
    kv_token=Fraction(1),
    kv_request=Fraction(0),
    prefill_token=Fraction("0.000385"),
    prefill_overhead=Fraction("0.022"),
    decode_context=Fraction("0.000000083"),
    decode_request=Fraction("0.00024"),
    decode_overhead=Fraction("0.0577"),
    gpus=2,
)
SLO_13B, SLO_70B = Slo(Fraction("0.6"), Fraction("0.03")), Slo(Fraction("1.6"), Fraction("0.075"))
#: Share of limits b and e up to which ongoing requests fill a worker.
FILLED = Fraction(3, 5)
#: Decode time of ongoing requests so far, as a share of what T_dec allows: from, to.
SPENT = (0.5, 0.9)


@dataclass(frozen=True)
class Lengths:
    """Lognormal tokens, cut to a range.

    Parameters
    ----------
    median : float
    sigma : float
        Standard deviation of the logarithm.
    least, most : int
    """

    median: float
    sigma: float
    least: int
    most: int

    def draw(self, rng: random.Random) -> int:
        """Draw one."""
        tokens = round(self.median * rng.lognormvariate(0, self.sigma))
        return min(self.most, max(self.least, tokens))


@dataclass(frozen=True)
class Family:
    """A worker, its limits, and kinds of requests: share of all, prompts, outputs."""

    worker: Worker
    slo: Slo
    kinds: tuple[tuple[float, Lengths, Lengths], ...]


#: Like conversations of ShareGPT: means of about 230 and 240 tokens.
PROMPTS, OUTPUTS = Lengths(110, 1.25, 1, 4096), Lengths(160, 0.95, 1, 2048)

#: Families by the number of parameters of the paper's models.
MODELS: dict[str, Family] = {
    "13b": Family(WORKER_13B, SLO_13B, ((1.0, PROMPTS, OUTPUTS),)),
    "70b": Family(WORKER_70B, SLO_70B, ((1.0, PROMPTS, OUTPUTS),)),
}

#: ``paper``: prefill binds, with small requests.  ``long-prompts``: prefill binds, about three requests a
#: worker.  ``kv-tight``: KV binds, soon after the start: long chats on GPUs of half the memory, with time for
#: prefill.  ``mixed``: chats and summaries; prefill binds for these, iteration time for those.
#: ``long-outputs``: KV binds long after the start, when it depends on who ends when.  ``strict``: an ATGT
#: of 26 ms, where iteration time binds.
FAMILIES: dict[str, Family] = {
    "paper": MODELS["13b"],
    "long-prompts": Family(
        WORKER_70B, SLO_70B, ((1.0, Lengths(1300, 0.3, 600, 3000), Lengths(150, 0.8, 1, 2048)),)
    ),
    "kv-tight": Family(
        replace(WORKER_13B, kv_capacity=Fraction(12_000)),
        Slo(Fraction(2), Fraction("0.04")),
        ((1.0, Lengths(900, 0.7, 16, 4096), Lengths(150, 0.8, 4, 1024)),),
    ),
    "mixed": Family(
        replace(WORKER_13B, kv_capacity=Fraction(9_000)),
        replace(SLO_13B, atgt=Fraction("0.028")),
        (
            (0.8, Lengths(60, 0.8, 4, 1024), Lengths(350, 0.8, 16, 2048)),
            (0.2, Lengths(900, 0.5, 300, 4096), Lengths(60, 0.6, 4, 512)),
        ),
    ),
    "long-outputs": Family(
        replace(WORKER_13B, kv_capacity=Fraction(9_000)),
        replace(SLO_13B, atgt=Fraction("0.04")),
        ((1.0, Lengths(220, 0.8, 16, 2048), Lengths(1000, 0.5, 16, 2048)),),
    ),
    "strict": Family(
        WORKER_13B,
        replace(SLO_13B, atgt=Fraction("0.026")),
        ((1.0, Lengths(110, 1.1, 1, 2048), Lengths(700, 0.8, 1, 4096)),),
    ),
}


def paper_like(seed: int = 0, requests: int = 100, *, model: str = "13b") -> PlacementInstance:
    """An instance like the paper's: lengths like ShareGPT's, its models, A100s, limits of Table 2.

    Parameters
    ----------
    seed : int
    requests : int
    model : {"13b", "70b"}

    Raises
    ------
    InputError
        If there is no such model.
    """
    if model not in MODELS:
        raise InputError(f"{model!r} is none of {', '.join(MODELS)}", field="model")
    return _generate(MODELS[model], f"paper-{model}", requests, seed, 0.0, 0.0)


def generate(
    family: str, *, requests: int = 100, seed: int = 0, ongoing: float = 0.0, error: float = 0.0
) -> PlacementInstance:
    """An instance of a family.

    Parameters
    ----------
    family : str
        A name in `FAMILIES`.
    requests : int
        In all, ongoing ones included.
    seed : int
    ongoing : float
        Share of the requests that are on workers already.
    error : float
        Standard deviation of the logarithm of predicted over true output tokens.

    Raises
    ------
    InputError
        If there is no such family, or a number is out of range.
    """
    if family not in FAMILIES:
        raise InputError(f"{family!r} is none of {', '.join(FAMILIES)}", field="family")
    if not 0 <= ongoing <= 1:
        raise InputError(f"{ongoing} is not between 0 and 1", field="ongoing")
    check_error(error)
    return _generate(FAMILIES[family], family, requests, seed, ongoing, error)


def _generate(
    family: Family, name: str, requests: int, seed: int, ongoing: float, error: float
) -> PlacementInstance:
    if requests < 1:
        raise InputError(f"{requests} is not 1 or more", field="requests")
    rng = random.Random(seed)
    shares = [share for share, _, _ in family.kinds]
    many = round(ongoing * requests)
    groups = []
    for k in range(1, requests + 1):
        ((_, prompts, outputs),) = rng.choices(family.kinds, shares)
        tokens, true = prompts.draw(rng), outputs.draw(rng)
        # A prediction knows the most that a request can generate.
        predicted = min(outputs.most, estimate(true, error, rng)) if error else true
        if k <= many and true > 1:
            generated = rng.randint(1, true - 1)
            # Milliseconds, so that times stay short decimals.
            spent = Fraction(int(1000 * generated * family.slo.atgt * Fraction(rng.uniform(*SPENT))), 1000)
            # The worker is still to be found; any will do until then.
            groups.append(PlacementGroup(f"r{k}", tokens, predicted, true, generated, spent, 1))
        else:
            groups.append(PlacementGroup(f"r{k}", tokens, predicted, true))
    title = f"{name}-{requests}-s{seed}" + (f"-o{ongoing:g}" if ongoing else "")
    title += f"-e{error:g}" if error else ""
    instance = PlacementInstance(title, tuple(groups), family.worker, family.slo)
    return replace(instance, groups=_spread(instance)) if many else instance


def _spread(instance: PlacementInstance) -> tuple[PlacementGroup, ...]:
    """Put ongoing requests on workers, first-fit, so that these have room left."""
    limits = Limits.of(instance)
    members: list[list[int]] = []

    def takes(others: list[int], k: int) -> bool:
        together = [*others, k]
        context = sum(limits.context[i] for i in together)
        return context <= FILLED * limits.most_context and limits.kv_peak(together) <= FILLED * limits.most_kv

    groups = []
    for k, group in enumerate(instance.groups):
        if group.worker is not None:
            number = next((w for w, others in enumerate(members) if takes(others, k)), len(members))
            if number == len(members):
                members.append([])
            members[number].append(k)
            group = replace(group, worker=number + 1)
        groups.append(group)
    return tuple(groups)
