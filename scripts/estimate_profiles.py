"""Write cost profiles of models without measurements: the roofline of the machine times what is usually lost.

Usage: ``python scripts/estimate_profiles.py [--into FOLDER]``

The roofline is what data sheets promise.  It gives one ideal time for each coefficient:

==================================  =====================================================================
alpha of a piece                    read all weights once, at the bandwidth of the memory
beta of a piece                     two operations for each weight and token, at the peak of the cores
slope of decode                     read the keys and values of one token
slope of prefill                    the attention of a prompt: 2 x layers x width operations per token^2
d0, p0                              one unit a layer: these are launches, which no data sheet has
==================================  =====================================================================

A measured profile divided by its roofline says what is lost, coefficient by coefficient.  An estimate is
the roofline of its model times the median loss of `MEASURED`.  Its error is that of the same rule for
each of `MEASURED`, from the others: batch times of the estimate against those of the fit, over `batches`.
Traffic between GPUs and the CPU are in neither.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from statistics import mean, median
from typing import Any

from infermax_opt.files.writing import dump_json
from infermax_opt.infermax.data.cost import BatchFeatures, CostModel
from infermax_opt.infermax.data.cost_format import cost_to_json
from infermax_opt.infermax.data.profiles import load_profile

PROFILES = Path(__file__).resolve().parent.parent / "infermax_opt" / "infermax" / "data" / "profiles"

#: Bytes of a weight, a key or a value.
BYTES = 2
#: The share of a GPU's memory that serving engines use.
USED = Fraction(9, 10)
#: Digits of a coefficient.
DIGITS = 5
SOURCE = (
    "estimate: roofline of the data sheets times the median loss of {fits}; fit_error is that of each of "
    "these estimated from the others; GPU kernel time only, no CPU, no traffic between GPUs"
)


@dataclass(frozen=True)
class Model:
    """A decoder's size, as its makers publish it."""

    name: str
    layers: int
    width: int
    kv_width: int
    weights: float
    #: Weights that only look up a token's vector: they are not multiplied.
    looked_up: float


@dataclass(frozen=True)
class Machine:
    """GPUs that share each layer."""

    name: str
    memory: float
    bandwidth: float
    peak: float
    gpus: int = 1

    @property
    def device(self) -> str:
        """As profiles say it."""
        return self.name + (f" x{self.gpus}" if self.gpus > 1 else "")


LLAMA_2_7B = Model("Llama-2-7B", 32, 4096, 4096, 6.74e9, 0.13e9)
LLAMA_31_8B = Model("Llama-3.1-8B", 32, 4096, 1024, 8.03e9, 0.53e9)
LLAMA_31_70B = Model("Llama-3.1-70B", 80, 8192, 1024, 70.55e9, 1.05e9)
LLAMA_3_70B = Model("Llama-3-70B", 80, 8192, 1024, 70.55e9, 1.05e9)
LLAMA_33B = Model("Llama-33B", 60, 6656, 6656, 32.53e9, 0.21e9)
# OPT looks up positions, too, and its last layer shares the vectors of the first, so these are multiplied.
OPT_13B = Model("OPT-13B", 40, 5120, 5120, 12.85e9, 0.01e9)
OPT_30B = Model("OPT-30B", 48, 7168, 7168, 29.97e9, 0.01e9)
OPT_175B = Model("OPT-175B", 96, 12288, 12288, 174.6e9, 0.03e9)


def a100(gpus: int = 1) -> Machine:
    """A100 SXM with 80 GB."""
    return Machine("a100_sxm", 80e9, 2.039e12, 312e12, gpus)


def a100_40gb(gpus: int) -> Machine:
    """A100 SXM with 40 GB."""
    return Machine("a100_sxm_40gb", 40e9, 1.555e12, 312e12, gpus)


#: Shipped fits of the same kind of GPU.
MEASURED = {
    "llama-2-7b_a100": (LLAMA_2_7B, a100()),
    "llama-3.1-8b_a100": (LLAMA_31_8B, a100()),
    "llama-3.1-70b_a100_tp4": (LLAMA_31_70B, a100(4)),
}
ESTIMATED = {
    "opt-13b_a100": (OPT_13B, a100()),
    "opt-13b_a100-40gb_tp2": (OPT_13B, a100_40gb(2)),
    "opt-30b_a100-40gb_tp4": (OPT_30B, a100_40gb(4)),
    "opt-175b_a100_tp8": (OPT_175B, a100(8)),
    "llama-33b_a100_tp2": (LLAMA_33B, a100(2)),
    "llama-3-70b_a100_tp8": (LLAMA_3_70B, a100(8)),
}


def kv_bytes(model: Model) -> int:
    """Bytes of the keys and values of one token."""
    return 2 * model.layers * model.kv_width * BYTES


def kv_capacity(model: Model, machine: Machine) -> int:
    """Tokens that fit beside the weights."""
    left = float(USED) * machine.memory * machine.gpus - BYTES * model.weights
    return int(left / kv_bytes(model))


def roofline(model: Model, machine: Machine, pieces: int) -> list[float]:
    """Ideal coefficients: alpha and beta of each piece, d0, d1, p0, p1."""
    bandwidth, peak = machine.bandwidth * machine.gpus, machine.peak * machine.gpus
    multiplied = model.weights - model.looked_up
    piece = [BYTES * multiplied / bandwidth, 2 * multiplied / peak]
    decode = [model.layers, kv_bytes(model) / bandwidth]
    prefill = [model.layers, 2 * model.layers * model.width / peak]
    return [*piece * pieces, *decode, *prefill]


def coefficients(cost: CostModel) -> list[float]:
    """In the order of `roofline`."""
    return [float(c) for part in (*cost.batch, cost.decode, cost.prefill) for c in part]


def estimate(name: str, suffix: str, measured: list[str]) -> CostModel:
    """The cost of a model: its roofline times the median loss of the measured ones."""
    model, machine = (MEASURED | ESTIMATED)[name]
    fits = {other: load_profile(other + suffix).cost for other in measured}
    pieces = len(fits[measured[0]].batch)
    losses = [
        [
            real / ideal
            for real, ideal in zip(coefficients(cost), roofline(*MEASURED[other], pieces), strict=True)
        ]
        for other, cost in fits.items()
    ]
    ideal = roofline(model, machine, pieces)
    found = [text(i * median(loss)) for i, loss in zip(ideal, zip(*losses, strict=True), strict=True)]
    pairs = list(zip(found[::2], found[1::2], strict=True))
    return CostModel(pairs[:pieces], pairs[-2], pairs[-1])


def text(value: float) -> str:
    """A decimal literal of `DIGITS` digits, without exponent."""
    return format(Decimal(f"{value:.{DIGITS - 1}e}").normalize(), "f")


def batches() -> Iterator[BatchFeatures]:
    """Batches of prompts, of decodes and of both."""
    for tokens in (64, 128, 256, 512, 1024, 2048, 4096):
        yield BatchFeatures(tokens, 0, 0, 1, tokens**2)
    for running, held in itertools.product((1, 8, 32, 128, 256, 512), (128, 512, 1024, 2048)):
        yield BatchFeatures(running, running, running * held, 0, 0)
        yield BatchFeatures(running + 512, running, running * held, 1, 512**2)


def error(suffix: str) -> dict[str, Any]:
    """How far each measured profile is from its estimate by the others."""
    found = []
    for name in MEASURED:
        real = load_profile(name + suffix)
        guess = estimate(name, suffix, [other for other in MEASURED if other != name])
        for batch in batches():
            if batch.decode_kv > real.capacity:
                continue
            truth = float(real.cost.to_seconds(real.cost.batch_ticks(batch)))
            found.append(abs(float(guess.to_seconds(guess.batch_ticks(batch))) / truth - 1))
    return {"mean_rel": round(mean(found), 5), "max_rel": round(max(found), 5), "n": len(found)}


def profile(name: str, suffix: str) -> dict[str, Any]:
    """One profile file's content."""
    model, machine = ESTIMATED[name]
    cost = estimate(name, suffix, list(MEASURED))
    return {
        "name": name + suffix,
        "model": model.name,
        "device": machine.device,
        "kv_capacity": kv_capacity(model, machine),
        "cost": cost_to_json(cost),
        "source": SOURCE.format(fits=", ".join(other + suffix for other in MEASURED)),
        "fit_error": error(suffix),
        "estimate": True,
        "kernel_time_only": True,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--into", type=Path, default=PROFILES)
    options = parser.parse_args()
    for name, suffix in itertools.product(ESTIMATED, ("", "_hinge")):
        dump_json(profile(name, suffix), options.into / f"{name}{suffix}.json")


if __name__ == "__main__":
    main()
