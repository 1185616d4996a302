"""Write the shipped cost profiles from a file of fitted batch-time coefficients.

Usage: ``python scripts/make_profiles.py batch_time_coefficients.json``
"""

from __future__ import annotations

import argparse
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

from infermax_opt.files.writing import dump_json

PROFILES = Path(__file__).resolve().parent.parent / "infermax_opt" / "infermax" / "data" / "profiles"

#: Profile name -> name of the coefficient set, without "_linear" or "_hinge".
FITS = {
    "llama-2-7b_a100": "llama-2-7b_a100_sxm_trtllm_tp1",
    "llama-2-7b_h100": "llama-2-7b_h100_sxm_trtllm_tp1",
    "llama-3.1-8b_a100": "llama-3.1-8b_a100_sxm_vllm_tp1",
    "llama-3.1-8b_h100": "llama-3.1-8b_h100_sxm_vllm_tp1",
    "llama-3.1-8b_h200": "llama-3.1-8b_h200_sxm_vllm_tp1",
    "llama-3.1-8b_b200": "llama-3.1-8b_b200_sxm_vllm_tp1",
    "llama-3.1-70b_a100_tp4": "llama-3.1-70b_a100_sxm_vllm_tp4",
    "llama-3.1-70b_h100_tp4": "llama-3.1-70b_h100_sxm_vllm_tp4",
    "llama-3.1-70b_h100_tp8": "llama-3.1-70b_h100_sxm_vllm_tp8",
    "llama-3.1-70b_h200_tp2": "llama-3.1-70b_h200_sxm_vllm_tp2",
    "qwen3-8b_h100": "qwen3-8b_h100_sxm_vllm_tp1",
    "qwen3-32b_h100_tp2": "qwen3-32b_h100_sxm_vllm_tp2",
}

EXAMPLE = "paper-default-guess"
EXAMPLE_SOURCE = "round numbers of the magnitude of the InferMax paper's Llama-2-7B on A100-80GB; not a fit"


def text(value: Decimal) -> str:
    """A decimal literal without exponent and without trailing zeros."""
    return format(value.normalize(), "f")


def pieces(kind: str, coef: dict[str, Decimal]) -> list[list[str]]:
    """Affine pieces [alpha, beta] of the non-attention time.

    A hinge ``b0 + b1_lo*n + (b1_hi - b1_lo) * max(0, n - knee)`` is the larger of its two lines.
    """
    if kind == "linear":
        return [[text(coef["b0"]), text(coef["b1"])]]
    step = (coef["b1_hi"] - coef["b1_lo"]) * coef["knee"]
    if step < 0 or coef["b0"] < step:
        raise ValueError(f"no convex hinge with non-negative pieces: {coef}")
    return [
        [text(coef["b0"]), text(coef["b1_lo"])],
        [text(coef["b0"] - step), text(coef["b1_hi"])],
    ]


def profile(name: str, fit: dict[str, Any]) -> dict[str, Any]:
    """One profile file's content."""
    coef = {key: Decimal(value) for key, value in fit["coef"].items()}
    tp = f" x{fit['tp']}" if fit["tp"] > 1 else ""
    error = fit["fit_error"]
    return {
        "name": name,
        "model": fit["model"],
        "device": fit["device"] + tp,
        "kv_capacity": fit["M_tokens"],
        "cost": {
            "batch": pieces(fit["kind"], coef),
            "decode": [text(coef["d0"]), text(coef["d1"])],
            "prefill": [text(coef["p0"]), text(coef["p1"])],
            "attention": "square",
        },
        "source": EXAMPLE_SOURCE if fit["name"] == EXAMPLE else fit["source"],
        "fit_error": error and {key: error[key] for key in ("mean_rel", "max_rel", "n")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("coefficients", type=Path)
    parser.add_argument("--into", type=Path, default=PROFILES)
    options = parser.parse_args()
    fits = json.loads(options.coefficients.read_text(encoding="utf-8"), parse_float=Decimal)["sets"]
    by_name = {fit["name"]: fit for fit in fits}
    profiles = [profile("paper-example", by_name[EXAMPLE])]
    for name, fit in FITS.items():
        profiles.append(profile(name, by_name[f"{fit}_linear"]))
        profiles.append(profile(f"{name}_hinge", by_name[f"{fit}_hinge"]))
    for value in profiles:
        dump_json(value, options.into / f"{value['name']}.json")


if __name__ == "__main__":
    main()
