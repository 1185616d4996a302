"""Stand-alone checker of lower-bound certificates of makespan instances: one file, standard library only.

    python checker.py INSTANCE CERTIFICATE

recomputes the bound in exact numbers and trusts nothing else.  Exit code 0: it holds; 1: rejected; 2: a file
(``.gz`` or not) cannot be read.  Format: `infermax_opt.files.certificates`; proofs:
`infermax_opt.makespan.bounds.closed_form`.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import math
import re
import sys
import zlib
from collections import Counter
from fractions import Fraction
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

NUMBER = re.compile(r"\d{1,60}(\.\d{1,60})?([eE][+-]?\d{1,2})?|\d{1,600}/[1-9]\d{0,600}")
MOST_COVER = 20_000_000  # tokens times levels up to which the cover of all prompts is computed exactly


class Rejected(Exception):
    """The certificate does not prove its bound; the text says why."""


def require(condition: bool, problem: str) -> None:
    """Reject unless the condition holds."""
    if not condition:
        raise Rejected(problem)


def number(value: Any, name: str) -> Fraction:
    """Read a decimal or a fraction of 0 or more exactly."""
    require(type(value) is not bool and NUMBER.fullmatch(str(value)) is not None, f"{name} is no number")
    return Fraction(str(value))


def whole(value: Any, name: str) -> int:
    """Read a whole number of 1 or more."""
    result = number(value, name)
    require(result.denominator == 1 and 1 <= result <= 10**9, f"{name}: wrong number")
    return int(result)


def read_levels(prefill: Any) -> list[tuple[int, Fraction]]:
    """Tokens and seconds of the levels as they are written, fewest tokens first."""
    if "overhead" in prefill:
        fixed, each = (number(prefill[key], f"prefill.{key}") for key in ("overhead", "token"))
        sizes = [whole(tokens, "level") for tokens in prefill["levels"]]
        pairs = [(tokens, fixed + each * tokens) for tokens in sizes]
    else:
        pairs = [(whole(tokens, "level"), number(time, "level")) for tokens, time in prefill["levels"]]
    return sorted(pairs, key=lambda pair: (pair[0], -pair[1]))


class Instance:
    """What the bounds need of an instance file; times in whole ticks."""

    def __init__(self, data: Any):
        require(data["schema"] == "infermax-opt/instance/1", "instance: unknown schema")
        require(data["problem"] == "makespan", "instance: not of the makespan problem")
        self.clients, pairs = whole(data["clients"], "clients"), read_levels(data["prefill"])
        decode = [number(data["decode"][key], f"decode.{key}") for key in ("overhead", "token")]
        self.cost = pairs, decode
        lap = decode[0] + decode[1] * self.clients
        require(lap > 0, "a round takes no time")
        self.scale = math.lcm(lap.denominator, *(time.denominator for _, time in pairs))
        self.round = int(lap * self.scale)
        useful: list[tuple[int, int]] = []  # levels that no larger one beats
        for tokens, time in reversed(pairs):
            if not useful or time * self.scale < useful[-1][1]:
                useful.append((tokens, int(time * self.scale)))
        self.levels = useful[::-1]
        digest, self.outputs, self.prompts = hashlib.sha256(), Counter[int](), 0

        def feed(*parts: object) -> None:
            digest.update((" ".join(f"{len(str(p))}:{p}" for p in parts) + "\n").encode())

        feed("infermax-opt/instance/1", "makespan", data["name"], self.clients)
        feed(*decode)
        feed(*(value for pair in pairs for value in pair))
        for entry in data["requests"]:
            i, o = whole(entry["input_tokens"], "input"), whole(entry["output_tokens"], "output")
            estimate = whole(entry.get("estimated_output_tokens", o), "estimate")
            times = 1 if (count := entry.get("count")) is None else whole(count, "count")
            require(times <= 10**7, "count: too large")
            require(i <= self.levels[-1][0], "a prompt exceeds every level")
            for k in range(1, times + 1):
                feed(entry["id"] if count is None else f"{entry['id']}.{k}", i, o, estimate)
            self.outputs[o] += times
            self.prompts += i * times
        self.sha256 = digest.hexdigest()
        self.requests, self.tokens = self.outputs.total(), sum(o * n for o, n in self.outputs.items())


def check(data: Any, certificate: Any) -> Fraction:
    """Return the bound in seconds that the certificate proves for the instance, or raise Rejected."""
    try:
        instance = Instance(data)
        body = {key: value for key, value in certificate.items() if key != "sha256"}
        text = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
        expected = {"schema": "infermax-opt/certificate/1", "sha256": hashlib.sha256(text).hexdigest()}
        expected |= {"instance": data["name"], "instance_sha256": instance.sha256, "objective": "makespan"}
        for key, value in expected.items():
            require(certificate[key] == value, f"{key} is not {value}")
        require(type(certificate["source"]) is str, "source is no text")
        cost = certificate["cost"]
        same = read_levels(cost["prefill"]), [number(cost["decode"][k], k) for k in ("overhead", "token")]
        require(same == instance.cost, "is for another cost model")
        require(certificate["evidence"]["kind"] == "closed-form", "unknown kind of evidence")
        proofs = {"arc lengths": arc_lengths, "stages": stages, "paper eq 32": paper}
        proved = Fraction(proofs[certificate["evidence"]["argument"]](instance), instance.scale)
        claimed = number(certificate["lower_bound"], "lower_bound")
        require(claimed <= proved, f"claims {float(claimed)!r}, only {float(proved)!r} is proved")
        return claimed
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise Rejected(f"is malformed: {type(error).__name__} {error}") from None


def rounds(instance: Instance) -> int:
    """Decode rounds: all tokens on all clients, and of k J + 1 requests, k + 1 on one client."""
    jobs, clients = sorted(instance.outputs.elements(), reverse=True), instance.clients
    sums = [0, *accumulate(jobs)]
    ends = range(1, len(jobs) + 1, clients)
    together = max(sums[end] - sums[end - k] for k, end in enumerate(ends, 1))
    return max(-(-instance.tokens // clients), together)


def cover(instance: Instance) -> int:
    """Least ticks of levels that hold all prompts together."""
    unit = math.gcd(*(tokens for tokens, _ in instance.levels))
    need, sizes = -(-instance.prompts // unit), [(tokens // unit, time) for tokens, time in instance.levels]
    if need * len(sizes) > MOST_COVER:
        return min(-(-need * time // size) for size, time in sizes)
    least = [0]
    for held in range(1, need + 1):
        least.append(min(time + least[max(0, held - size)] for size, time in sizes))
    return least[need]


def stages(instance: Instance) -> int:
    """Prefill and decode, each for itself."""
    return cover(instance) + rounds(instance) * instance.round


def paper(instance: Instance) -> int:
    """Equations 31 and 32: the floor of tokens over the largest level, where that is the best one."""
    tokens, time = instance.levels[-1]
    require(all(time * fewer <= less * tokens for fewer, less in instance.levels), "eq 31 does not hold")
    return instance.prompts // tokens * time + rounds(instance) * instance.round


def arc_lengths(instance: Instance) -> int:
    """Least over the number of bins: prefill stages, and rounds with outputs rounded up to few lengths."""
    levels, clients, lap = instance.levels, instance.clients, instance.round
    hull: list[tuple[int, int]] = []  # of tokens and ticks of a stage, from below
    for x, y in [(0, levels[0][1]), *levels]:
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (x - hull[-2][0]) >= (y - hull[-2][1]) * (
            hull[-1][0] - hull[-2][0]
        ):
            hull.pop()
        hull.append((x, y))
    grain = math.gcd(*(time - levels[0][1] for _, time in levels)) or 1

    def on_hull(bins: int) -> Fraction:
        """Ticks of so many stages, each with as many tokens on average; convex in their number."""
        edges = ((x, y, Fraction(b - y, a - x)) for (x, y), (a, b) in pairwise(hull))
        return max(bins * y + (instance.prompts - bins * x) * slope for x, y, slope in edges)

    values = sorted(instance.outputs)
    count = [0, *accumulate(instance.outputs[value] for value in values)]
    total = [0, *accumulate(value * instance.outputs[value] for value in values)]

    def waste(i: int, j: int) -> int:
        return values[j - 1] * (count[j] - count[i]) - (total[j] - total[i])

    def one_more(row: list[int]) -> list[int]:
        """Least waste of the first j values with one length more: halves of j, Monge."""
        found, todo = [0] * len(row), [(1, len(values), 0, len(values) - 1)]
        while todo:
            low, high, first, last = todo.pop()
            j = (low + high) // 2
            found[j], at = min((row[i] + waste(i, j), i) for i in {0, *range(first, min(last, j - 1) + 1)})
            if low < j:
                todo.append((low, j - 1, first, max(first, at)))
            if j < high:
                todo.append((j + 1, high, max(first, at), last))
        return found

    least, fixed = rounds(instance), cover(instance)
    busy = -(-instance.tokens // clients)
    classes = -(-busy // values[-1])
    bins = max(-(-instance.requests // clients), -(-instance.prompts // levels[-1][0]), classes)
    row, lengths = [0, *(waste(0, j) for j in range(1, len(values) + 1))], 1
    best, now = None, on_hull(bins)
    while True:
        a = bins + 1 - classes
        useful = bins * (bins + 1) // 2 if classes < 2 else a * (a - 1) // 2 + 2 * a + classes - 1
        while lengths < min(useful, len(values)):
            row, lengths = one_more(row), lengths + 1
        spare = 0 if useful >= len(values) else row[-1]
        more = now - bins * levels[0][1]
        prefill = max(fixed, bins * levels[0][1] + math.ceil(more / grain) * grain)
        here = prefill + (decode := max(least, -(-(instance.tokens + spare) // clients))) * lap
        best = here if best is None else min(best, here)
        following = on_hull(bins + 1)  # and no less later on, once it rises
        later = (max(fixed, math.ceil(following)) if following >= now else fixed) + least * lap
        if bins >= instance.requests or later >= best:
            return best
        if decode == least and following < now:
            return later  # what many more bins would save at most
        bins, now = bins + 1, following


def load(path: Path) -> Any:
    """Read a JSON file with exact decimals; ``.gz`` is decompressed."""
    data = gzip.decompress(path.read_bytes()) if path.name.endswith(".gz") else path.read_bytes()
    return json.loads(data.decode(), parse_float=str)


def main(arguments: list[str]) -> int:
    """Check the certificate named on the command line."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    parser = argparse.ArgumentParser(description="check a lower bound; exit code 0: it holds, 1: rejected")
    parser.add_argument("instance", type=Path)
    parser.add_argument("certificate", type=Path)
    options = parser.parse_args(arguments)
    try:
        bound = check(instance := load(options.instance), load(options.certificate))
    except (Rejected, OSError, ValueError, EOFError, RecursionError, MemoryError, zlib.error) as problem:
        sys.stderr.write(f"{'rejected' if isinstance(problem, Rejected) else 'cannot be read'}: {problem}\n")
        return 1 if isinstance(problem, Rejected) else 2
    sys.stdout.write(f"certified: {instance['name']}: makespan >= {float(bound)!r} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
