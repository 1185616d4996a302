"""Write cost profiles and instances of three real vLLM runs from the kernels and requests that were measured.

Usage: ``python scripts/fit_vllm_runs.py FOLDER``, which holds ``vllm_runs`` with the folders that `RUNS` of
`infermax_opt.infermax.data.suites` names.

The runs are those of LLMServingSim 2 (casys-kaist, commit 5daddb2, MIT licence): 300 requests each on vLLM
0.19.  The time of a batch without attention is the sum of its dense kernels, each once a layer (layernorm
twice), the embedding and the final layernorm once, and of what a sequence takes at the end; fitted by one
line and by the larger of two.  Pure decodes and pure prefills give the rest.  Residuals count as shares of
what was measured.  Nothing here knows the CPU, the traffic between GPUs, or that attention of both kinds in
one batch takes longer than apart.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from infermax_opt import write_instance
from infermax_opt.core.exact import decimal_text, to_fraction
from infermax_opt.files.json import dump_json
from infermax_opt.infermax.data import profiles as shipped
from infermax_opt.infermax.data.cost import prefill_work
from infermax_opt.infermax.data.suites import RUNS, vllm_run
from infermax_opt.latency._least_squares import non_negative

PROFILES = Path(shipped.__file__).parent
INSTANCES = Path(__file__).resolve().parent.parent / "instances" / "vllm-runs"
#: Bytes that vLLM takes of 96 GiB.
USED = 96 * 2**30 * 9 // 10
#: Profile: model, device, layers, KV tokens.  Those of the RTX 4090 are the run's; the other runs tell none,
#: and get 0.9 of 96 GiB a GPU less two bytes a parameter, as the other profiles do.
MACHINES = {
    "llama-3.1-8b_rtx4090": ("Llama-3.1-8B", "rtx4090", 32, 41_408),
    "llama-3.1-8b_rtxpro6000": ("Llama-3.1-8B", "rtxpro6000", 32, (USED - 16_060_121_088) // 131_072),
    "qwen3-32b_rtxpro6000_tp2": (
        "Qwen3-32B",
        "rtxpro6000 x2",
        64,
        (2 * USED - 2 * 32_760_004_608) // 262_144,
    ),
}
ONCE, TWICE = ("embedding", "final_layernorm"), ("layernorm",)
#: Most tokens of a batch, and most sequences whose next tokens are sampled in one.
TOKENS, SEQUENCES = 2048, 128
#: Significant digits of a coefficient.
DIGITS = 5


def series(path: Path, key: str) -> dict[str, dict[int, float]]:
    """Microseconds by layer and size."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            found[row["layer"]][int(row[key])] = float(row["time_us"])
    return found


def dense(folder: Path, layers: int) -> tuple[Any, Any]:
    """Tokens of a batch, and microseconds without attention."""
    kernels = series(folder / "kernels_dense.csv", "tokens")
    times = {name: 1 if name in ONCE else (1 + (name in TWICE)) * layers for name in kernels}
    ends = series(folder / "kernels_per_sequence.csv", "sequences").values()
    sizes = sorted(n for n in set.intersection(*(set(k) for k in kernels.values())) if n <= TOKENS)
    measured = [
        sum(times[name] * kernels[name][n] for name in kernels)
        + sum(np.interp(min(n, SEQUENCES), list(end), list(end.values())) for end in ends)
        for n in sizes
    ]
    return np.array(sizes, float), np.array(measured)


def attention(folder: Path, layers: int) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Tokens read and microseconds of pure decodes, work and microseconds of pure prefills."""
    decodes, prefills = [], []
    with (folder / "kernels_attention.csv").open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            chunk, prefix, count, context = (
                int(row[k]) for k in ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
            )
            micros = layers * float(row["time_us"])
            if not chunk:
                decodes.append((count * context, micros))
            elif not count:
                prefills.append((prefill_work(1, chunk, prefix), micros))
    first, second = np.array(decodes, float).T, np.array(prefills, float).T
    return (first[0], first[1]), (second[0], second[1])


def fitted(columns: Sequence[Any], measured: Any) -> tuple[Any, Any]:
    """Coefficients of the columns, none below 0, and the relative errors."""
    matrix = np.stack(columns, 1)
    found, _ = non_negative(matrix / measured[:, None], np.ones_like(measured))
    return found, np.abs(matrix @ found / measured - 1)


def hinge(tokens: Any, measured: Any) -> tuple[list[tuple[float, float]], Any]:
    """The two lines whose larger one fits best, and its errors."""
    best: tuple[float, list[tuple[float, float]], Any] | None = None
    for knee in tokens[1:-1]:
        found, errors = fitted((np.ones_like(tokens), tokens, np.maximum(0, tokens - knee)), measured)
        lines = [(found[0], found[1]), (found[0] - found[2] * knee, found[1] + found[2])]
        if lines[1][0] >= 0 and (best is None or (errors**2).sum() < best[0]):
            best = float((errors**2).sum()), lines, errors
    assert best is not None  # a knee beyond all samples is a line
    return best[1], best[2]


def seconds(micros: float) -> str:
    """Microseconds as a decimal of seconds."""
    return decimal_text(to_fraction(f"{micros:.{DIGITS - 1}e}") / 10**6)


def profiles(name: str, folder: Path) -> list[dict[str, Any]]:
    """The contents of two profile files: one line, and two."""
    model, device, layers, capacity = MACHINES[name]
    tokens, measured = dense(folder, layers)
    line, errors = fitted((np.ones_like(tokens), tokens), measured)
    shapes = [("", [tuple(line)], errors), ("_hinge", *hinge(tokens, measured))]
    (read, decode_micros), (work, prefill_micros) = attention(folder, layers)
    decode, decode_errors = fitted((np.ones_like(read), read), decode_micros)
    prefill, prefill_errors = fitted((np.ones_like(work), work), prefill_micros)
    apart = f"decode attention {decode_errors.mean():.1%}, prefill attention {prefill_errors.mean():.1%}"
    return [
        {
            "name": name + suffix,
            "model": model,
            "device": device,
            "kv_capacity": capacity,
            "cost": {
                "batch": [[seconds(a), seconds(b)] for a, b in pieces],
                "decode": [seconds(c) for c in decode],
                "prefill": [seconds(c) for c in prefill],
                "attention": "exact",
            },
            "source": "kernels measured by LLMServingSim 2 (casys-kaist, 5daddb2) for vLLM 0.19; GPU kernel "
            f"time only; mean errors: dense kernels as in fit_error, {apart}",
            "fit_error": {
                "mean_rel": float(f"{found.mean():.5g}"),
                "max_rel": float(f"{found.max():.5g}"),
                "n": len(tokens),
            },
        }
        for suffix, pieces, found in shapes
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--profiles", type=Path, default=PROFILES)
    parser.add_argument("--instances", type=Path, default=INSTANCES)
    options = parser.parse_args()
    for folder in (options.profiles, options.instances):
        folder.mkdir(parents=True, exist_ok=True)
    for run in RUNS.values():
        base = run.profile.removesuffix("_hinge")
        for value in profiles(base, options.folder / "vllm_runs" / run.folder):
            dump_json(value, options.profiles / f"{value['name']}.json")
    for name, run in RUNS.items():
        write_instance(vllm_run(name, run, options.folder), options.instances / f"{name}.json")


if __name__ == "__main__":
    main()
