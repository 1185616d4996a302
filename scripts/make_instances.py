"""Write the shipped instances: the paper's constrained cases and a toy.

Usage: ``python scripts/make_instances.py``
"""

from __future__ import annotations

import argparse
from pathlib import Path

from infermax_opt import CostModel, Instance, Policy, RequestGroup, System, write_instance

INSTANCES = Path(__file__).resolve().parent.parent / "instances"

#: Explicit coefficients, so that the instances read without the shipped profiles.
COST = CostModel(
    batch=[("0.007", "0.000075")],
    decode=("0.0003", "0.00000026"),
    prefill=("0.0003", "0.0000000015"),
)


def paper_case(input_tokens: int, chunked: bool) -> Instance:
    """Four identical requests that generate four tokens; the KV cache fits about two of them."""
    capacity = max(2 * input_tokens, input_tokens + 3)
    return Instance(
        name=f"csp-i{input_tokens}-o4-b4" + ("-chunked" if chunked else ""),
        groups=(RequestGroup("r", input_tokens, 4, count=4),),
        system=System(kv_capacity=capacity, max_batch_tokens=4096, max_prefill_tokens=4096),
        policy=Policy(chunked_prefill=chunked),
        cost=COST,
    )


def toy() -> Instance:
    """Two requests and room for both prompts, but not for both to finish: evict, or run one by one."""
    return Instance(
        name="toy",
        groups=(RequestGroup("a", 4, 4), RequestGroup("b", 4, 4)),
        system=System(kv_capacity=9, max_batch_tokens=16, max_prefill_tokens=16),
        cost=COST,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--into", type=Path, default=INSTANCES)
    folder = parser.parse_args().into
    (folder / "paper-csp").mkdir(parents=True, exist_ok=True)
    for power in range(11):
        for chunked in (False, True):
            name = f"i{2**power}" + ("-chunked" if chunked else "")
            write_instance(paper_case(2**power, chunked), folder / "paper-csp" / f"{name}.json")
    write_instance(toy(), folder / "toy.json")


if __name__ == "__main__":
    main()
