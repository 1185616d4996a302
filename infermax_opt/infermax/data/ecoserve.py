"""EcoServe's workloads (section 2.1, Table 2): lengths, Poisson arrivals, predictions and deadlines.

The paper states mean, least and most of prompts and outputs.  The distributions between are ours: lognormal
ones, cut off at both ends, whose spread is chosen here and whose location gives the stated mean.  Prompts of
BookCorpus are drawn so and then cut to 2048 tokens, as in the paper.

*Predictions.*  The paper states the padding and which share of the predictions is long enough with it.  Here
a prediction is the output times 1 + e, e being normal with mean 0 and the spread that gives this share.

*Deadlines.*  A request may take scale x (t_p + t_g x output tokens) from its arrival on.  The paper measures
t_p and t_g, and does not state them.  Here t_p is what the mean prompt takes in batches full of such prompts,
and t_g is a batch of decodes that read 70 % of the KV cache.

*Batches.*  Their most tokens are the target forward size, which the paper does not state: the smallest number
whose prefill runs at 95 % of the most tokens a second that any has, attention aside.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import exp, log
from statistics import NormalDist

from infermax_opt.core.errors import InputError
from infermax_opt.infermax.data.cost import BatchFeatures, CostModel, prefill_work
from infermax_opt.infermax.data.instance import Instance, Objective, RequestGroup, ServiceLevel, System
from infermax_opt.infermax.data.profiles import load_profile

__all__ = [
    "LOADS",
    "OPT_13B_KV",
    "OPT_13B_PROFILE",
    "SUSTAINED",
    "TRACES",
    "Lengths",
    "TraceModel",
    "deadlines",
    "ecoserve_case",
    "ecoserve_instance",
    "spread_of",
    "target_forward_size",
    "with_deadlines",
    "with_predictions",
]

#: KV tokens of OPT-13B in 12 GB: 4 bytes by layer and hidden size (40, 5120) for each.
OPT_13B_KV = 14_648
#: The shipped estimate of OPT-13B on one A100, by which the suite and the study price batches.
OPT_13B_PROFILE = "opt-13b_a100"
#: Tokens of a KV block.
BLOCK = 32
#: Share of the KV cache that is read in the batch of t_g.
READ = Fraction(7, 10)
#: Share of the most tokens a second at which a batch counts as full; largest size tried.
FULL, LARGEST = Fraction(95, 100), 1 << 14
#: Drawn arrivals are whole microseconds, deadlines whole milliseconds.
MICROSECOND, MILLISECOND = Fraction(1, 10**6), Fraction(1, 1000)
#: Its shares and quantiles.
STANDARD = NormalDist()


@dataclass(frozen=True)
class Lengths:
    """A lognormal distribution between two ends, of whole tokens.

    Parameters
    ----------
    mean : float
        Of the distribution between its ends.
    least, most : int
    spread : float
        Standard deviation of the logarithm, before it is cut off.
    cut : int, optional
        What is longer is cut to this.
    """

    mean: float
    least: int
    most: int
    spread: float
    cut: int | None = None

    def _mean_at(self, location: float) -> float:
        """Mean of the distribution with this mean of the logarithm."""
        low, high = ((log(end) - location) / self.spread for end in (self.least, self.most))
        mass = STANDARD.cdf(high) - STANDARD.cdf(low)
        if mass < 1e-12:
            return float(self.least if location < log(self.least) else self.most)
        shifted = STANDARD.cdf(high - self.spread) - STANDARD.cdf(low - self.spread)
        return exp(location + self.spread**2 / 2) * shifted / mass

    def draw(self, number: int, rng: random.Random) -> list[int]:
        """So many lengths, tokens."""
        low, high = log(self.least) - 8 * self.spread, log(self.most) + 8 * self.spread
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self._mean_at(middle) < self.mean else (low, middle)
        ends = [STANDARD.cdf((log(end) - low) / self.spread) for end in (self.least, self.most)]
        found = []
        for _ in range(number):
            share = min(max(rng.uniform(*ends), 1e-15), 1 - 1e-15)
            tokens = round(exp(low + self.spread * STANDARD.inv_cdf(share)))
            found.append(min(max(tokens, self.least), self.cut or self.most, self.most))
        return found


@dataclass(frozen=True)
class TraceModel:
    """A trace of the paper.

    Attributes
    ----------
    inputs, outputs : Lengths
    requests : int
        In the paper.
    rate : Fraction
        Requests a second in the paper.
    padding, accuracy : Fraction
        Share added to predictions, and share of the predictions that are long enough then.
    reserve, buffer : Fraction
        Settings of the schedulers.
    """

    inputs: Lengths
    outputs: Lengths
    requests: int
    rate: Fraction
    padding: Fraction
    accuracy: Fraction
    reserve: Fraction
    buffer: Fraction

    @property
    def settings(self) -> str:
        """The settings as a scheduler's name takes them."""
        values = (("padding", self.padding), ("reserve", self.reserve), ("buffer", self.buffer))
        return ",".join(f"{name}={float(value):g}" for name, value in values)


def _share(thousandths: int) -> Fraction:
    return Fraction(thousandths, 1000)


TRACES: Mapping[str, TraceModel] = {
    "alpaca": TraceModel(
        Lengths(19.31, 9, 2470, 0.8), Lengths(58.41, 13, 292, 0.7), 52_000, Fraction(36),
        _share(100), _share(775), _share(12), _share(150),
    ),
    "sharegpt": TraceModel(
        Lengths(161.31, 16, 3200, 1.2), Lengths(337.99, 19, 991, 0.9), 90_000, Fraction(28),
        _share(150), _share(732), _share(30), _share(150),
    ),
    "bookcorpus": TraceModel(
        Lengths(1952.11, 18, 461_000, 0.9, cut=2048), Lengths(681.2, 32, 1041, 0.5), 11_000, Fraction(12, 10),
        _share(200), _share(698), _share(50), _share(100),
    ),
}  # fmt: skip
"""By name."""

#: Most requests a second that can be sustained with that profile, about: `sustainable_rate` of 20,000.
SUSTAINED = {"alpaca": Fraction(779, 10), "sharegpt": Fraction(374, 100), "bookcorpus": Fraction(492, 1000)}
#: Rates of the suite, as shares of these, and its requests.
LOADS = (Fraction(1, 2), Fraction(4, 5), Fraction(1), Fraction(6, 5))
REQUESTS = {"alpaca": 3000, "sharegpt": 1000, "bookcorpus": 200}


def target_forward_size(cost: CostModel) -> int:
    """The smallest batch whose prefill runs at 95 % of the most tokens a second, attention aside."""

    def speed(tokens: int) -> Fraction:
        features = BatchFeatures(tokens, 0, 0, 1, 0)
        return Fraction(tokens, max(1, cost.batch_ticks(features)))

    low, high = 1, LARGEST
    enough = FULL * speed(LARGEST)  # convex pieces: more tokens are never slower
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if speed(middle) >= enough else (middle + 1, high)
    return low


def deadlines(instance: Instance) -> tuple[Fraction, Fraction]:
    """t_p and t_g of an instance, seconds, rounded to microseconds; see the module."""
    cost, system, requests = instance.cost, instance.system, instance.requests
    tokens = system.prefill_budget
    mean = max(1, round(Fraction(sum(r.input_tokens for r in requests), len(requests))))
    each = min(mean, tokens)
    count = max(1, tokens // each)
    work = count * prefill_work(cost.exact_attention, each, 0)
    full = cost.to_seconds(cost.batch_ticks(BatchFeatures(count * each, 0, 0, count, work)))
    held = mean + Fraction(sum(r.output_tokens for r in requests), 2 * len(requests))
    read = int(READ * system.kv_capacity)
    decodes = min(max(1, int(read / held)), system.max_batch_tokens)
    step = cost.to_seconds(cost.batch_ticks(BatchFeatures(decodes, decodes, read, 0, 0)))
    prompt = full * max(1, -(-mean // tokens))
    return _rounded(prompt, MICROSECOND), _rounded(step, MICROSECOND)


def _rounded(value: Fraction, unit: Fraction) -> Fraction:
    return max(1, round(value / unit)) * unit


def with_deadlines(instance: Instance, scale: Fraction) -> Instance:
    """The instance with a limit of the end-to-end latency for each request: scale x (t_p + t_g x output).

    Parameters
    ----------
    instance : Instance
    scale : Fraction
        2 in the paper.

    Raises
    ------
    InputError
        If the scale is not above 0.
    """
    if scale <= 0:
        raise InputError(f"{float(scale):g} is not above 0", field="slo_scale")
    prompt, step = deadlines(instance)

    def promised(group: RequestGroup) -> RequestGroup:
        limit = _rounded(scale * (prompt + step * group.output_tokens), MILLISECOND)
        own = ServiceLevel.of(group.slo, "slo")
        return replace(group, slo=ServiceLevel(own.ttft, own.tpot, limit))

    return replace(instance, groups=tuple(map(promised, instance.groups)))


def with_predictions(instance: Instance, spread: float, seed: int) -> Instance:
    """The instance with predicted outputs: each the output times 1 + e, e normal with mean 0.

    Parameters
    ----------
    instance : Instance
        Its groups are requests of their own; those of a group get the same prediction.
    spread : float
        Standard deviation of e; 0 predicts all outputs.
    seed : int
        The same seed draws the same predictions.

    Raises
    ------
    InputError
        If the spread is not from 0 to 10.
    """
    if not 0 <= spread <= 10:
        raise InputError(f"{spread:g} is not from 0 to 10", field="spread")
    rng = random.Random(seed)

    def predicted(group: RequestGroup) -> RequestGroup:
        tokens = max(1, round(group.output_tokens * (1 + rng.gauss(0, 1) * spread)))
        return replace(group, predicted_output_tokens=tokens)

    return replace(instance, groups=tuple(map(predicted, instance.groups)))


def ecoserve_case(trace: str, load: Fraction) -> Instance:
    """An instance of the suite: a trace at a share of what can be sustained."""
    rate = load * SUSTAINED[trace]
    cost = load_profile(OPT_13B_PROFILE).cost
    made = ecoserve_instance(trace, cost, requests=REQUESTS[trace], rate=rate)
    return replace(made, name=f"ecoserve-{trace}-x{float(load):g}")


def spread_of(trace: TraceModel) -> float:
    """Spread of predictions of which the stated share is long enough with the stated padding."""
    needed = float(trace.padding / (1 + trace.padding))
    return needed / STANDARD.inv_cdf(float(trace.accuracy))


def ecoserve_instance(
    trace: str,
    cost: CostModel,
    *,
    requests: int,
    rate: Fraction | None = None,
    seed: int = 0,
    kv_capacity: int = OPT_13B_KV,
    slo_scale: Fraction = Fraction(2),
    error: float | None = None,
) -> Instance:
    """A workload of the paper on one machine, by the requests that miss their deadlines.

    Parameters
    ----------
    trace : str
        One of `TRACES`.
    cost : CostModel
    requests : int
    rate : Fraction, optional
        Requests a second in the mean; that of the paper by default.
    seed : int
        The same seed draws the same lengths, gaps (in units of their mean) and predictions.
    kv_capacity : int
    slo_scale : Fraction
    error : float, optional
        Spread of the predictions; by default the one of the paper's accuracy.

    Raises
    ------
    InputError
        If there is no such trace, or a number is out of range.
    """
    if trace not in TRACES:
        raise InputError(f"{trace!r} is none of {', '.join(TRACES)}", field="trace")
    model = TRACES[trace]
    rate = model.rate if rate is None else rate
    if rate <= 0:
        raise InputError(f"{float(rate):g} requests a second are not above 0", field="rate")
    rng = random.Random(seed)
    prompts, outputs = model.inputs.draw(requests, rng), model.outputs.draw(requests, rng)
    groups, units = [], 0
    for k, (prompt, output) in enumerate(zip(prompts, outputs, strict=True)):
        groups.append(RequestGroup(f"r{k + 1}", prompt, output, units * MICROSECOND))
        units += round(rng.expovariate(1.0) / float(rate) / float(MICROSECOND))
    size = target_forward_size(cost)
    instance = Instance(
        name=f"ecoserve-{trace}-n{requests}-s{seed}",
        groups=tuple(groups),
        system=System(kv_capacity, size, size, block_size=BLOCK),
        cost=cost,
        objective=Objective.of("missed"),
    )
    spread = spread_of(model) if error is None else error
    return with_deadlines(with_predictions(instance, spread, seed), slo_scale)
