"""Worker configuration: the number of GPUs of a worker with the most tokens per second and GPU (eq 6).

With N GPUs, KV capacity M, KV m_r of a request, and iterations that take t(b) for b requests (eq 3)::

    T_max = min{ b_kv / (N t(b_kv)),  b_slo / (N T_dec) },   b_kv = M / m_r,   t(b_slo) = T_dec (eq 4)

where t(b) is the most of one or more lines of eq 3: several make a profile with several slopes, exactly.
Both terms are b / (N t(b)) at a batch size: at most what the cache holds, and at most what the limit T_dec
on a token's average time (ATGT) allows.  Batch sizes are averages over time and need not be whole.

A request holds KV only while it is served, and every request in a batch gets one token an iteration: the
requests found in a batch are those of the workload in proportion to their decode iterations, at any of
them.  Over its O - 1 decode iterations a request of I input and O output tokens has I + O/2 tokens after
an iteration on average, the m_r of eq 6, and I + O/2 - 1 before it, the context of eq 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from infermax_opt.core.checks import MAX_TOKENS, checked_whole
from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import Number, to_fraction
from infermax_opt.core.shown import Shown, ShownRows

__all__ = ["Choice", "Configuration", "Demand", "Option", "configure", "demand_of"]


@dataclass(frozen=True)
class Demand:
    """What the requests of a workload need, in tokens.

    Attributes
    ----------
    requests : int
    input_tokens, output_tokens : Fraction
        Means.
    held : Fraction
        Mean of what a request in a decode batch holds after the iteration.
    longest_prompt : int
        Most input tokens.
    longest : int
        Most tokens that a request ever holds: input and output but the last one.
    """

    requests: int
    input_tokens: Fraction
    output_tokens: Fraction
    held: Fraction
    longest_prompt: int
    longest: int

    @property
    def context(self) -> Fraction:
        """Mean of what a request in a decode batch holds before the iteration."""
        return self.held - 1


@dataclass(frozen=True)
class Option:
    """A type of worker to choose.

    Attributes
    ----------
    name : str
        What it was made of.
    device : str
        GPU type, or "".
    gpus : int
    kv_capacity : Fraction
        M; 0 or less where the model does not fit.
    kv : (Fraction, Fraction)
        h and j of eq 1.
    decode : tuple of (Fraction, Fraction, Fraction)
        k2, c2 and c3 of eq 3, seconds; an iteration takes the most of these.
    prompt_seconds : Fraction or None
        Prefill of the workload's longest prompt, alone; None where it is not known.
    """

    name: str
    device: str
    gpus: int
    kv_capacity: Fraction
    kv: tuple[Fraction, Fraction]
    decode: tuple[tuple[Fraction, Fraction, Fraction], ...]
    prompt_seconds: Fraction | None = None

    def kv_of(self, tokens: Fraction | int) -> Fraction:
        """KV of a request of so many tokens (eq 1)."""
        return self.kv[0] * tokens + self.kv[1]

    def seconds(self, batch: Fraction | int, context: Fraction | int) -> Fraction:
        """Time of an iteration of `batch` requests of `context` tokens each (eq 3)."""
        return max((k2 * context + c2) * batch + c3 for k2, c2, c3 in self.decode)

    def batch_within(self, limit: Fraction, context: Fraction) -> Fraction | None:
        """Largest batch whose iteration takes at most `limit` seconds (eq 4); None where any does."""
        slopes = [(k2 * context + c2, c3) for k2, c2, c3 in self.decode]
        return min(((limit - c3) / each for each, c3 in slopes if each), default=None)


@dataclass(frozen=True)
class Choice(Shown):
    """An option with the terms of eq 6.

    Attributes
    ----------
    option : Option
    kv_batch, kv_seconds, kv_rate : Fraction or None
        Batch size with a full cache, its iteration time, tokens per second and GPU.
    slo_batch, slo_rate : Fraction or None
        Batch size whose iteration takes T_dec, tokens per second and GPU; None also where iterations do
        not grow with the batch.
    rate : Fraction or None
        The less of the rates; None where the option is excluded.
    binds : {"KV", "ATGT"} or None
    problem : str or None
        Why the option is excluded.
    """

    option: Option
    kv_batch: Fraction | None = None
    kv_seconds: Fraction | None = None
    kv_rate: Fraction | None = None
    slo_batch: Fraction | None = None
    slo_rate: Fraction | None = None
    rate: Fraction | None = None
    binds: str | None = None
    problem: str | None = None

    def facts(self) -> Mapping[str, Any]:
        """The option, and what limits it."""
        return {
            "worker": self.option.name,
            "gpus": self.option.gpus,
            "tokens_per_second_and_gpu": self.rate,
            "binds": self.binds,
            "problem": self.problem,
        }


@dataclass(frozen=True)
class Configuration(ShownRows):
    """All options by number of GPUs under limits in seconds, and the best, if any can be."""

    demand: Demand
    atgt: Fraction
    ttft: Fraction | None
    choices: tuple[Choice, ...]
    best: Choice | None

    def facts(self) -> Mapping[str, Any]:
        """The limits, seconds; how many options there are; the best of them."""
        best = {} if self.best is None else self.best.facts()
        return {
            "requests": self.demand.requests,
            "atgt": self.atgt,
            "ttft": self.ttft,
            "options": len(self.choices),
            **{name: best.get(name) for name in ("worker", "gpus", "tokens_per_second_and_gpu", "binds")},
        }

    def rows_shown(self) -> Iterable[Mapping[str, Any]]:
        """A row for each option, the fewest GPUs first: what limits it, and the terms of eq 6."""
        for choice in self.choices:
            terms = ("kv_batch", "kv_seconds", "kv_rate", "slo_batch", "slo_rate")
            yield {
                **choice.facts(),
                **{name: getattr(choice, name) for name in terms},
                "best": choice == self.best,
            }


def demand_of(lengths: Iterable[tuple[int, int]]) -> Demand:
    """Sum up a workload.

    Parameters
    ----------
    lengths : iterable of (int, int)
        Input and output tokens of each request.

    Raises
    ------
    InputError
        If no request has more than one output token: nothing would be decoded.
    """
    count = inputs = outputs = iterations = twice_held = prompt = longest = 0
    for pair in lengths:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InputError(f"{pair!r} is no pair of numbers of tokens", field=f"lengths[{count}]")
        i, o = (checked_whole(number, f"lengths[{count}]", 1, MAX_TOKENS) for number in pair)
        count += 1
        inputs += i
        outputs += o
        iterations += o - 1
        twice_held += (o - 1) * (2 * i + o)
        prompt = max(prompt, i)
        longest = max(longest, i + o - 1)
    if not iterations:
        raise InputError(
            f"none of the {count} requests has 2 output tokens or more; nothing is decoded", field="requests"
        )
    return Demand(
        count, Fraction(inputs, count), Fraction(outputs, count), Fraction(twice_held, 2 * iterations),
        prompt, longest,
    )  # fmt: skip


def configure(
    options: Sequence[Option], demand: Demand, atgt: Number, ttft: Number | None = None
) -> Configuration:
    """Choose the worker with the most tokens per second and GPU (eq 6); the fewest GPUs among equals.

    An option is excluded where its model does not fit, where a request of the workload could never be
    served (longest KV, longest prompt against `ttft`), and where a single request of mean context misses
    `atgt` already.

    Parameters
    ----------
    options : sequence of Option
    demand : Demand
    atgt, ttft : decimal
        Seconds; no limit on the time to the first token if not given.

    Raises
    ------
    InputError
        If there is no option, a limit is not above 0, a worker takes no KV or no time for a request,
        or `ttft` is given and the time of a prefill is not known.
    """
    if not options:
        raise InputError("there is nothing to choose from", field="options")
    most = _limit(atgt, "atgt"), None if ttft is None else _limit(ttft, "ttft")
    choices = tuple(_choice(option, demand, *most) for option in sorted(options, key=lambda o: o.gpus))
    best = max(choices, key=lambda c: Fraction(-1) if c.rate is None else c.rate)
    return Configuration(demand, *most, choices, None if best.rate is None else best)


def _limit(value: Number, field: str) -> Fraction:
    try:
        number = to_fraction(value)
    except ValueError as error:
        raise InputError(str(error), field=field) from None
    if number <= 0:
        raise InputError(f"{value} is not above 0", field=field)
    return number


def _choice(option: Option, demand: Demand, atgt: Fraction, ttft: Fraction | None) -> Choice:
    problem = _problem(option, demand, atgt, ttft)
    if problem is not None:
        return Choice(option, problem=problem)
    context = demand.context
    kv_batch = option.kv_capacity / option.kv_of(demand.held)
    kv_seconds = option.seconds(kv_batch, context)
    kv_rate = kv_batch / (option.gpus * kv_seconds)
    slo_batch = option.batch_within(atgt, context)
    if slo_batch is None:
        return Choice(option, kv_batch, kv_seconds, kv_rate, rate=kv_rate, binds="KV")
    slo_rate = slo_batch / (option.gpus * atgt)
    rate, binds = min((kv_rate, "KV"), (slo_rate, "ATGT"), key=lambda pair: pair[0])
    return Choice(option, kv_batch, kv_seconds, kv_rate, slo_batch, slo_rate, rate, binds)


def _problem(option: Option, demand: Demand, atgt: Fraction, ttft: Fraction | None) -> str | None:
    """Why a worker cannot serve the workload, if so."""
    capacity, prompt = option.kv_capacity, option.prompt_seconds
    if capacity <= 0:
        return f"the model leaves {_short(capacity)} of the GPUs' memory for KV"
    kv, most = option.kv_of(demand.held), option.kv_of(demand.longest)
    none, one = option.seconds(0, demand.context), option.seconds(1, demand.context)
    if not kv or not one:
        raise InputError(f"{option.name}: a request takes no KV or no time; eq 6 has no meaning")
    if most > capacity:
        return f"the longest request needs {_short(most)} of KV; there is {_short(capacity)}"
    if ttft is not None:
        if prompt is None:
            raise InputError(f"{option.name}: the time of a prefill is not known", field="ttft")
        if prompt > ttft:
            need = f"the longest prompt, {demand.longest_prompt} tokens, takes {_short(prompt)} s"
            return f"{need}; the TTFT limit is {_short(ttft)} s"
    if none >= atgt:
        return f"c3 of {_short(none)} s is not below the ATGT limit of {_short(atgt)} s"
    if one > atgt:
        return f"a request alone takes {_short(one)} s; the ATGT limit is {_short(atgt)} s"
    if kv > capacity:
        return f"the cache of {_short(capacity)} holds no request of {_short(kv)}"
    return None


def _short(value: Fraction) -> str:
    return f"{float(value):.6g}"
