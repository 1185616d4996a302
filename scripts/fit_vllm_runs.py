"""Write cost profiles and instances of three real vLLM runs from the kernels and requests that were measured.

Usage: ``python scripts/fit_vllm_runs.py FOLDER``, which holds ``vllm_runs`` with the folders that `RUNS` of
`infermax_opt.infermax.data.suites` names.

The runs are those of LLMServingSim 2 (casys-kaist, commit 5daddb2, MIT licence): 300 requests each on vLLM
0.19.  The profiles are what `calibrate --for batches` makes of the kernels with one line and with the larger
of two.  Neither knows that attention of both kinds in one batch takes longer than apart; errors and band of
whole batches have that in them.  The ones that end in ``_mixed`` know it, and that chunks read what they come
behind; they are fitted to whole batches.  Nothing here knows the CPU or the traffic between GPUs.
"""

from __future__ import annotations

import argparse
from fractions import Fraction
from pathlib import Path
from typing import Any

from infermax_opt import write_instance
from infermax_opt.files.writing import dump_json
from infermax_opt.infermax.data import profiles as shipped
from infermax_opt.infermax.data.suites import RUNS, vllm_run
from infermax_opt.latency.batches.fit import fit_batches
from infermax_opt.latency.batches.read import read_batches
from infermax_opt.latency.batches.report import profile_to_json
from infermax_opt.latency.batches.samples import BatchSamples

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
#: Most sequences whose next tokens are sampled in one batch.
SEQUENCES = 128
#: Share of the batches that the band of a profile holds.
SHARE = Fraction(9, 10)
#: How a profile is fitted, by the ending of its name.
FORMS: dict[str, dict[str, Any]] = {
    "": {"pieces": 1},
    "_hinge": {"pieces": 2},
    "_mixed": {"mixed": True, "prefix": True, "composed": True},
}


def profiles(name: str, samples: BatchSamples) -> list[dict[str, Any]]:
    """The contents of the profile files, one for each of `FORMS`."""
    model, device, _, capacity = MACHINES[name]
    made = []
    for suffix, form in FORMS.items():
        fit = fit_batches(samples, attention="exact", share=SHARE, **form)
        value = profile_to_json(fit, name=name + suffix, model=model, device=device, kv_capacity=capacity)
        value |= _said(value["errors"], whole=bool(form.get("composed")))
        made.append(value)
    return made


def _said(errors: dict[str, Any], *, whole: bool) -> dict[str, Any]:
    """Errors and source of a profile: of whole batches, or of kernels apart."""
    main = "all" if whole else "dense"
    prefix = "" if whole else "attention, pure "
    kinds = ("pure decode", "pure prefill", "mixed") if whole else ("decode", "prefill")
    others = ", ".join(
        f"{kind}{'' if whole else ' attention'} {errors[prefix + kind]['mean']:.1%}" for kind in kinds
    )
    what = "whole batches" if whole else "dense kernels"
    return {
        "fit_error": {
            "mean_rel": errors[main]["mean"], "max_rel": errors[main]["max"], "n": errors[main]["n"]
        },
        "source": "kernels measured by LLMServingSim 2 (casys-kaist, 5daddb2) for vLLM 0.19; GPU kernel "
        f"time only; mean errors: {what} as in fit_error, {others}",
    }  # fmt: skip


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
        layers = MACHINES[base][2]
        samples = read_batches(
            options.folder / "vllm_runs" / run.folder, layers=layers, max_sequences=SEQUENCES
        )
        for value in profiles(base, samples):
            dump_json(value, options.profiles / f"{value['name']}.json")
    for name, run in RUNS.items():
        write_instance(vllm_run(name, run, options.folder), options.instances / f"{name}.json")


if __name__ == "__main__":
    main()
