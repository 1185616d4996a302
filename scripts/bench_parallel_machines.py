"""Identical parallel machines: how many instances are proved, how far apart the rest is, how long it takes.

Protocol: one process; instances one after the other, each of its own seed, made by `random.Random`.
A small instance of every class is solved first, so that kernels are compiled and libraries loaded; after that
the wall time of `solve_parallel_machines` alone counts, the check of the assignment does not.
`proved` counts results whose makespan equals their lower bound; `most apart` is the largest difference
between the two.  State versions and CPU with any figure quoted from here.

Classes (lengths are whole numbers of 1 or more):

- ``tokens-*``: 1319 output lengths on 200 machines: normal with mean 345 and deviation 188, cut off at 512;
  uniform 1..512; exponential with mean 345; lognormal (5.6, 0.7).
- ``U(a,b)`` uniform, ``N(a,b)`` normal, as in Haouari and Jemmali, Mrad and Souayah, and Dell'Amico et al.;
  2.05 to 3 jobs per machine; `n` in the bounds stands for the number of jobs.
- ``correlated``: a base length per three jobs, 100..300, and at most 10 more.
- ``franca-b``: uniform 1..b; ``frangioni-b``: 98 % uniform in 0.9 b..b, the rest in 1..0.2 b; both with 10 to
  1000 jobs on 5 to 25 machines.

Usage: ``python scripts/bench_parallel_machines.py [--limit 10] [--seeds 3] [--only U] [--jobs 1000]``
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Iterator

from infermax_opt.makespan.machines.solve import Assignment, solve_parallel_machines

Maker = Callable[[random.Random, int], list[int]]
RATIOS = (2.05, 2.25, 2.5, 2.75, 3.0)
MACHINES = (10, 20, 40, 80, 160, 400)


def uniform(low: int, high: int) -> Maker:
    return lambda rng, n: [rng.randint(low, high) for _ in range(n)]


def normal(mean: float, deviation: float, most: int = 1 << 40) -> Maker:
    return lambda rng, n: [min(most, max(1, round(rng.gauss(mean, deviation)))) for _ in range(n)]


def correlated(rng: random.Random, n: int) -> list[int]:
    base = [rng.randint(100, 300) for _ in range(-(-n // 3))]
    return [base[i // 3] + rng.randint(0, 10) for i in range(n)]


def frangioni(high: int) -> Maker:
    def made(rng: random.Random, n: int) -> list[int]:
        long = round(0.98 * n)
        low = [rng.randint(1, high // 5) for _ in range(n - long)]
        return [rng.randint(9 * high // 10, high) for _ in range(long)] + low

    return made


TOKENS: dict[str, Maker] = {
    "tokens-normal": normal(345, 188, 512),
    "tokens-uniform": uniform(1, 512),
    "tokens-exponential": lambda rng, n: [max(1, round(rng.expovariate(1 / 345))) for _ in range(n)],
    "tokens-lognormal": lambda rng, n: [max(1, round(rng.lognormvariate(5.6, 0.7))) for _ in range(n)],
}
FEW: dict[str, Maker] = {
    "U(1,100)": uniform(1, 100),
    "U(20,100)": uniform(20, 100),
    "U(50,100)": uniform(50, 100),
    "U(100,200)": uniform(100, 200),
    "U(100,800)": uniform(100, 800),
    "N(100,20)": normal(100, 20),
    "N(100,50)": normal(100, 50),
    "correlated": correlated,
    "U(n,4n)": lambda rng, n: uniform(n, 4 * n)(rng, n),
    "N(4n,n)": lambda rng, n: normal(4 * n, n)(rng, n),
}
MANY: dict[str, Maker] = {
    **{f"franca-{b}": uniform(1, b) for b in (100, 1000, 10000)},
    **{f"frangioni-{b}": frangioni(b) for b in (100, 1000, 10000)},
}
SIZES = [(10, 5), (50, 5), (50, 10), (50, 25), (100, 10), (100, 25), (500, 25), (1000, 25)]


def cases(most: int) -> Iterator[tuple[str, int, int, Maker]]:
    """Class, jobs, machines and maker."""
    for name, maker in TOKENS.items():
        yield name, 1319, 200, maker
    for name, maker in FEW.items():
        for m in MACHINES:
            for ratio in RATIOS:
                if round(ratio * m) <= most:
                    yield name, round(ratio * m), m, maker
    for name, maker in MANY.items():
        for n, m in SIZES:
            if n <= most:
                yield name, n, m, maker


def checked(lengths: list[int], machines: int, result: Assignment) -> None:
    load = [0] * machines
    for length, k in zip(lengths, result.machine, strict=True):
        load[k] += length
    assert max(load) == result.makespan >= result.lower_bound


def main() -> None:
    parser = argparse.ArgumentParser(description="Proofs and seconds for identical parallel machines.")
    parser.add_argument("--limit", type=float, default=10.0, help="seconds per instance")
    parser.add_argument("--seeds", type=int, default=3, help="instances per class and size")
    parser.add_argument("--only", default="", help="classes whose names begin with this")
    parser.add_argument("--jobs", type=int, default=1000, help="most jobs, except for the tokens")
    parser.add_argument("--unproved", action="store_true", help="name every instance that was not proved")
    options = parser.parse_args()
    for name, maker in (FEW | MANY).items():
        if name.startswith(options.only):
            solve_parallel_machines(maker(random.Random(0), 45), 20, time_limit=5)
    print("| class | jobs | machines | instances | proved | most apart | median, s | max, s |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    everything: list[tuple[int, float]] = []
    for name, n, m, maker in cases(options.jobs):
        if not name.startswith(options.only):
            continue
        apart, seconds = [], []
        for seed in range(options.seeds):
            lengths = maker(random.Random(1000 * seed + n), n)
            begun = time.perf_counter()
            result = solve_parallel_machines(lengths, m, time_limit=options.limit)
            seconds.append(time.perf_counter() - begun)
            checked(lengths, m, result)
            apart.append(result.makespan - result.lower_bound)
            if apart[-1] and options.unproved:
                print(f"seed {seed}: {result.lower_bound} ({result.proof}) to {result.makespan}")
        everything += zip(apart, seconds, strict=True)
        print(
            f"| {name} | {n} | {m} | {len(apart)} | {apart.count(0)} | {max(apart)}"
            f" | {statistics.median(seconds):.3f} | {max(seconds):.3f} |",
            flush=True,
        )
    proved = sum(not gap for gap, _ in everything)
    print(f"{proved} of {len(everything)} proved; {sum(gap <= 1 for gap, _ in everything)} within one unit")


if __name__ == "__main__":
    main()
