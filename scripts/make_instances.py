"""Write the shipped instances: the paper's constrained cases, a toy, and a makespan case of 100 requests.

Usage: ``python scripts/make_instances.py``
"""

from __future__ import annotations

import argparse
from pathlib import Path

from infermax_opt import Instance, RequestGroup, System, write_instance
from infermax_opt.infermax.data.suites import CSP_INPUTS, csp_case, paper_cost
from infermax_opt.makespan.data.formats import write_makespan_instance
from infermax_opt.makespan.data.generate import gsm8k_like

INSTANCES = Path(__file__).resolve().parent.parent / "instances"


def toy() -> Instance:
    """Two requests and room for both prompts, but not for both to finish: evict, or run one by one."""
    return Instance(
        name="toy",
        groups=(RequestGroup("a", 4, 4), RequestGroup("b", 4, 4)),
        system=System(kv_capacity=9, max_batch_tokens=16, max_prefill_tokens=16),
        cost=paper_cost(),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--into", type=Path, default=INSTANCES)
    folder = parser.parse_args().into
    (folder / "paper-csp").mkdir(parents=True, exist_ok=True)
    for size in CSP_INPUTS:
        for chunked in (False, True):
            name = f"i{size}" + ("-chunked" if chunked else "")
            write_instance(csp_case(size, chunked), folder / "paper-csp" / f"{name}.json")
    write_instance(toy(), folder / "toy.json")
    small = gsm8k_like(requests=100, clients=20, error=0.2)
    write_makespan_instance(small, folder / "makespan-100x20.json")


if __name__ == "__main__":
    main()
