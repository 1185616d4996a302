"""Stand-alone checker of lower-bound certificates: one file, standard library only, exact numbers.

    python certificate_checker.py INSTANCE CERTIFICATE [--profiles DIR]

recomputes the bound and trusts nothing else.  Exit code 0: it holds; 1: rejected; 2: a file cannot
be read.  ``.gz`` files are accepted.  Format: `infermax_opt.certificates`.  The proofs stand in
`infermax_opt.bounds`: `closed_form`, `counts`, `occupancy`, `lagrangian`.
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
from collections import deque
from fractions import Fraction
from itertools import accumulate, product
from pathlib import Path
from typing import Any

Kinds = list[tuple[int, int, int]]  # input tokens, output tokens and number of equal requests
FAR = math.inf  # potential of a state that is never reached
NUMBER = re.compile(r"-?\d{1,60}(\.\d{1,60})?([eE][+-]?\d{1,2})?|\d{1,600}/[1-9]\d{0,600}")


class Rejected(Exception):
    """The certificate does not prove its bound; the text says why."""


def require(condition: bool, problem: str) -> None:
    """Reject unless the condition holds."""
    if not condition:
        raise Rejected(problem)


def number(value: Any, name: str) -> Fraction:
    """Read a decimal or a fraction exactly."""
    text = str(value)
    require(not isinstance(value, bool) and NUMBER.fullmatch(text) is not None, f"{name} is no number")
    return Fraction(text)


def whole(value: Any, name: str, least: int | None = None) -> int:
    """Read a whole number."""
    result = number(value, name)
    require(result.denominator == 1 and (least is None or result >= least), f"{name}: wrong number")
    return int(result)


def rates(cost: Any) -> tuple[list[list[Fraction]], list[Fraction], list[Fraction], str]:
    """Read the coefficients of a cost model."""
    pieces = [[number(v, "cost.batch") for v in pair] for pair in cost["batch"]]
    decode, prefill = ([number(v, f"cost.{key}") for v in cost[key]] for key in ("decode", "prefill"))
    return pieces, decode, prefill, cost["attention"]


class Instance:
    """What the bounds need of an instance file."""

    def __init__(self, data: Any, profiles: Path | None):
        require(data["schema"] == "infermax-opt/instance/1", "instance: unknown schema")
        require(data["objective"] in ("makespan", "throughput"), "only the makespan has certificates")
        system, policy, cost = data["system"], data["policy"], data["cost"]
        if "profile" in cost:
            require(re.fullmatch(r"[\w.-]+", cost["profile"]) is not None, "instance: bad profile name")
            cost = load(Path(profiles or ".", f"{cost['profile']}.json"))["cost"]
        self.capacity = whole(system["kv_capacity"], "kv_capacity", 1)
        self.batch_tokens = whole(system["max_batch_tokens"], "max_batch_tokens", 1)
        self.prefill_tokens = whole(system["max_prefill_tokens"], "max_prefill_tokens", 1)
        limit = system.get("max_running")
        self.running = None if limit is None else whole(limit, "max_running", 1)
        self.block = whole(system.get("block_size", 1), "block_size", 1)
        flags = ("hybrid_batching", "chunked_prefill", "preemption")
        self.hybrid, self.chunked, self.preemption = (policy[flag] is True for flag in flags)
        require(all(type(policy[key]) is bool for key in policy), "policy: neither true nor false")
        self.budget = min(self.batch_tokens, self.prefill_tokens)
        self.spread = self.chunked and cost["attention"] != "exact"  # chunks save attention work
        self.cost = pieces, decode, prefill, attention = rates(cost)
        flat = [v for pair in [*pieces, decode, prefill] for v in pair]
        require(all(v >= 0 for v in flat) and len(pieces) > 0, "cost: negative or missing")
        self.scale = math.lcm(*(v.denominator for v in flat))
        self.pieces = [(int(a * self.scale), int(b * self.scale)) for a, b in pieces]
        self.d0, self.d1, self.p0, self.p1 = (int(v * self.scale) for v in [*decode, *prefill])
        digest = hashlib.sha256()

        def feed(*parts: object) -> None:
            digest.update((" ".join(f"{len(str(p))}:{p}" for p in parts) + "\n").encode())

        feed("infermax-opt/instance/1", data["problem"], data["name"])
        feed(self.capacity, self.batch_tokens, self.prefill_tokens)
        feed(self.running, self.block)
        feed(self.hybrid, self.chunked, self.preemption)
        feed(attention, *(v for pair in pieces for v in pair))
        feed(*decode, *prefill)
        feed(data["objective"], "makespan", 1)
        self.name = data["name"]
        self.kinds: dict[tuple[int, int, Fraction], int] = {}
        for entry in data["requests"]:
            i, o = whole(entry["input_tokens"], "input", 1), whole(entry["output_tokens"], "output", 1)
            arrival = number(entry.get("arrival", 0), "arrival")
            times = 1 if (count := entry.get("count")) is None else whole(count, "count", 1)
            require(times <= 10**7, "count: too large")
            for k in range(1, times + 1):
                feed(entry["id"] if count is None else f"{entry['id']}.{k}", i, o, arrival)
            self.kinds[i, o, arrival] = self.kinds.get((i, o, arrival), 0) + times
        self.sha256 = digest.hexdigest()

    def since(self, time: Fraction) -> Kinds:
        """Input tokens, output tokens and number of the requests that arrive at `time` or later."""
        return [(i, o, count) for (i, o, arrival), count in self.kinds.items() if arrival >= time]


def check(instance_data: Any, certificate: Any, profiles: Path | None = None) -> Fraction:
    """Return the bound in seconds that the certificate proves for the instance, or raise Rejected."""
    try:
        instance = Instance(instance_data, profiles)
        body = {key: value for key, value in certificate.items() if key != "sha256"}
        text = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
        expected = {"schema": "infermax-opt/certificate/1", "sha256": hashlib.sha256(text).hexdigest()}
        expected |= {"instance": instance.name, "instance_sha256": instance.sha256}
        for key, value in {**expected, "objective": instance_data["objective"]}.items():
            require(certificate[key] == value, f"{key} is not {value}")
        require(type(certificate["source"]) is str, "source is no text")
        require(rates(certificate["cost"]) == instance.cost, "is for another cost model")
        evidence = certificate["evidence"]
        piece = instance.pieces[whole(evidence["piece"], "piece", 0)]
        proofs = {"closed-form": closed_form, "occupancy": occupancy, "lagrangian": lagrangian}
        exponent = min(4096, whole(evidence.get("exponent", 0), "exponent", -4096))  # of units in a tick
        proved = proofs[evidence["kind"]](instance, evidence, *piece, Fraction(2) ** exponent)
        claimed = number(certificate["lower_bound"], "lower_bound")
        require(claimed <= proved, f"claims {float(claimed)!r}, only {float(proved)!r} is proved")
        return claimed
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise Rejected(f"is malformed: {type(error).__name__} {error}") from None


def token_work(instance: Instance, kinds: Kinds, beta: int) -> int:
    """Least work but for the attention of the prompts, in ticks."""
    d1 = min(instance.d1, beta) if instance.preemption else instance.d1
    return sum(c * (beta * (i + o - 1) + d1 * ((o - 1) * i + (o - 1) * (o - 2) // 2)) for i, o, c in kinds)


def squares(instance: Instance, kinds: Kinds, batches: int = 10**18) -> int:
    """Least attention work of the prompts in so many batches, in ticks."""
    chunks = ((i, c, batches - o + 1 if instance.spread else 1) for i, o, c in kinds)
    return instance.p1 * sum(c * max(i, i * i // q) for i, c, q in chunks)


def closed_form(instance: Instance, evidence: Any, alpha: int, beta: int, _: Fraction) -> Fraction:
    """Work, attention constants and a least number of batches."""
    kinds = instance.since(since := number(evidence["since"], "since"))
    require(since >= 0 and len(kinds) > 0, "since: no request arrives then or later")
    prefill = -(-sum(i * c for i, _, c in kinds) // instance.budget)
    if not instance.chunked:
        prefill = max(prefill, sum(c for i, _, c in kinds if 2 * i > instance.budget))
    later = sum((o - 1) * c for _, o, c in kinds)
    longest = max(o for _, o, _ in kinds)
    decode = 0 if instance.preemption else max(longest - 1, -(-later // instance.batch_tokens))
    batches = max(prefill, count_batches(instance, kinds, evidence, prefill + decode))
    least = min(instance.p0, instance.d0)
    presence = instance.d0 * decode + least * max(0, batches - prefill - decode)
    area = sum(c * ((o - 1) * i + o * (o - 1) // 2) for i, o, c in kinds)
    if not instance.preemption or (beta - instance.d1) * instance.capacity >= 2 * instance.d0:
        others = max(0, batches - prefill - -(-area // instance.capacity))
        presence = max(presence, instance.d0 * area // instance.capacity + least * others)
    work = token_work(instance, kinds, beta)
    if not instance.spread:
        work += squares(instance, kinds)
    elif evidence["reference"] is not None:
        # 1/q >= 2/q0 - q/q0**2 with q = J - O + 1 and q0 = reference - O + 1, J >= batches.
        reference = whole(evidence["reference"], "reference", max(batches, longest))
        spread = [(instance.p1 * i * i * c, reference - o + 1) for i, o, c in kinds]
        require(sum(-(-s // q**2) for s, q in spread) <= alpha, "reference: saves more than alpha")
        work += sum(s // q + (reference - batches) * (s // q**2) for s, q in spread)
    return since + Fraction(alpha * batches + instance.p0 * prefill + presence + work, instance.scale)


def count_batches(instance: Instance, kinds: Kinds, evidence: Any, phases: int) -> int:
    """Least number of batches by the named argument."""
    argument = evidence["argument"]
    if (alone := argument == "longest request") or argument == "prefill tail":
        ordered = sorted(kinds, key=lambda kind: -kind[1])
        prompts = (i for i, _, _ in ordered) if alone else accumulate(i * c for i, _, c in ordered)
        return max(-(-p // instance.budget) + o - 1 for p, (_, o, _) in zip(prompts, ordered, strict=True))
    if argument == "token budget":
        return -(-sum((i + o - 1) * c for i, o, c in kinds) // instance.batch_tokens)
    if argument == "running limit":
        return -(-sum(o * c for _, o, c in kinds) // whole(instance.running, "running limit"))
    if argument == "separate phases":
        require(not (instance.preemption or instance.hybrid), "phases need not be separate")
        return phases
    require(argument in ("KV area", "KV slots"), "argument: unknown")
    size, capacity = instance.block, instance.capacity // instance.block
    cut = whole(evidence["cut"], "cut", 0)

    def blocks(upto: int) -> int:  # sum of ceil(x / size) for x = 1..upto
        full, rest = divmod(upto, size)
        return size * full * (full + 1) // 2 + rest * (full + 1)

    def above(level: int) -> tuple[int, int]:  # tokens of more than `level` blocks: number, blocks
        spans = [(min(i + o, max(i, level * size + 1)), i + o, c) for i, o, c in kinds]
        volume = sum(c * (blocks(end - 1) - blocks(first - 1)) for first, end, c in spans)
        return sum(c * (end - first) for first, end, c in spans), volume

    if argument == "KV slots":
        return -(-above(cut - 1)[0] // (capacity // cut))  # division by zero: cut out of range
    require(cut <= capacity // 2, "cut: is above half of the capacity")
    huge, huge_volume = above(capacity - cut)
    big, big_volume = above(capacity // 2)
    small = above(max(0, cut - 1))[1] - big_volume
    room = (big - huge) * capacity - (big_volume - huge_volume)
    return big + max(0, -((room - small) // capacity))


def occupancy(instance: Instance, evidence: Any, alpha: int, beta: int, unit: Fraction) -> Fraction:
    """No step of the occupancy graph earns more than it costs, by the potentials."""
    kinds, prices = instance.since(Fraction(0)), evidence["prices"]
    names = ("token", "size", "out_fixed", "out_size")
    token, size, out_fixed, out_size = (whole(prices[name], name) for name in names)
    young = whole(evidence["young"], "young", 0)
    old = [(i + min(young, o - 1), o - min(young, o - 1), c) for i, o, c in kinds]
    prompts, ends = sorted({i for i, _, _ in old}), sorted({i + o for i, o, _ in old})
    require(all(type(prices[key]) in (list, tuple) for key in ("first", "finish")), "prices: no list")
    starts = {i: whole(pay, "first") for i, pay in zip(prompts, prices["first"], strict=True)}
    finishes = {end: whole(pay, "finish") for end, pay in zip(ends, prices["finish"], strict=True)}
    shortest, longest = prompts[0], ends[-1] - 1
    idle = token + size * shortest
    require(size >= 0 and idle >= 0, "prices: idling would earn")
    given, capacity = evidence["potential"], instance.capacity
    most = min(sum(c for _, _, c in kinds), capacity // shortest, instance.running or capacity)
    wide = (top := len(given) - 1) < most  # the last list stands for `top` active requests and more
    require(1 <= top <= most, "potential: wrong number of lists")
    d0, p0, either = instance.d0, instance.p0, min(instance.d0, instance.p0)
    presence = [either] * 3 if young else [either if instance.preemption else d0, d0 + p0, p0]
    plain, mixed, pure_cost = (math.floor((alpha + cost) * unit) for cost in presence)
    rho = math.floor(max(0, beta - instance.d1) * unit)
    in_fixed, in_size, refilled = -rho - out_fixed, rho - out_size, (shortest + 1, longest)
    evictions = instance.preemption and longest > shortest
    # Steps into batches with first tokens, with decodes or pure: reach and cost, fixed and for each token.
    admits = [((i, i), (-pay, 0)) for i, pay in starts.items()]
    pures = [((i + 1, i + 1), (-pay - token - size * i, 0)) for i, pay in starts.items()]
    pures += [((shortest + 2, longest + 1), (in_fixed - in_size - token + size, in_size - size))] * evictions
    ranges = [(k * shortest, min(k * ends[-1], capacity + k)) for k in range(top + 1)]
    if wide:
        ranges[top] = (top * shortest, capacity + most)
    width = max(last for _, last in ranges) + 1
    require(width * len(given) <= 10**8, "potential: too large")
    potential = []
    for (first, last), values in zip(ranges, given, strict=True):
        require(len(values) == last - first + 1, "potential: wrong length of a list")
        require(all(v is None or type(v) is int for v in values), "potential: no whole number")
        row = [FAR if v is None else v for v in values]
        potential.append([FAR] * first + row + [FAR] * (width - last - 1))
    require(potential[0][0] < FAR, "potential: the empty state has none")
    admitted = pure = [FAR] * width
    for k in range(1, top + 1):
        first, last = ranges[k]
        row, several = potential[k], wide and k == top
        admitted_below, admitted, pure_below, pure = admitted, [FAR] * width, pure, [FAR] * width
        # Where from one request more leads here: the list below and, if it stands for several, itself.
        sources = [(potential[k - 1], admitted_below, pure_below)] + [(row, admitted, pure)] * several
        for below, _, _ in sources * evictions:
            lowest(below, row, ranges[k], refilled, (in_fixed, in_size), "a refill")
        before = None
        while before != (admitted, pure):  # all steps lead to more tokens, so this ends
            before = (admitted[:], pure[:]) if several else (admitted, pure)  # once where none starts here
            for below, admitted_from, pure_from in sources:
                for source, (reach, cost) in product((below, admitted_from), admits):
                    lowest(source, admitted, ranges[k], reach, cost, None)
                for source, (reach, cost) in product((below, pure_from), pures):
                    lowest(source, pure, ranges[k], reach, cost, None)
        earned = max(token * k, token * most) if several else token * k
        least = FAR
        for u in range(first, last + 1):
            require(pure[u] == FAR or row[u] <= pure[u] + pure_cost, "potential: a prefill batch earns")
            require(u == first or row[u - 1] <= row[u] + idle, "potential: idling earns")
            if u <= capacity and u + k <= last:
                total = min(row[u] + plain, admitted[u] + mixed) - earned - size * u
                least = min(least, total) if several else total  # more than k requests grow by more
                require(row[u + k] <= least, "potential: a batch earns")
            elif several and u > capacity + k:
                require(row[u] <= least, "potential: a batch earns")
        for other in (k - 1, k) if several else (k - 1,):
            # Steps to fewer requests are steps to more on the mirrored lists.
            span = [width - 1 - u for u in reversed(ranges[other])]
            source, target = row[::-1], potential[other][::-1]
            for end, pay in finishes.items():
                lowest(source, target, span, (end, end), (-pay, 0), "finishing")
            if evictions:
                lowest(source, target, span, refilled, (out_fixed, out_size), "an eviction")
    tokens = sum(c * (token * o + size * (i * o + o * (o - 1) // 2)) for i, o, c in old)
    earned = tokens + sum(c * (starts[i] + finishes[i + o]) for i, o, c in old)
    work = token_work(instance, kinds, beta) + squares(instance, kinds)
    return (work + earned / unit) / instance.scale


def lowest(source: Any, target: Any, span: Any, reach: Any, cost: Any, step: str | None) -> None:
    """Lower target[u], u in span, to the least source[u - s] + fixed + slope * s for s in reach.

    Where `step` names what that costs, reject if there is anything to lower.
    """
    (first, last), (low, high), (fixed, slope) = span, reach, cost
    queue, fed = deque[tuple[Any, int]](), max(0, first - high)
    for u in range(first, last + 1):
        for new in range(fed, u - low + 1):
            key = source[new] - slope * new
            while queue and queue[-1][0] >= key:
                queue.pop()
            queue.append((key, new))
        fed = max(fed, u - low + 1)
        while queue and queue[0][1] < u - high:
            queue.popleft()
        if queue:
            value = queue[0][0] + fixed + slope * u
            require(step is None or target[u] <= value, f"potential: {step} earns")
            target[u] = min(target[u], value)


def lagrangian(instance: Instance, evidence: Any, alpha: int, beta: int, unit: Fraction) -> Fraction:
    """Cheapest paths of all kinds under lists of prices, for each number of batches."""
    kinds, block = instance.since(Fraction(0)), instance.block
    theta, capacity = whole(evidence["theta"], "theta", 0), instance.capacity // block
    require(theta <= min(instance.d0, instance.p0), "theta: too large")
    batch, rho = (math.floor(cost * unit) for cost in (alpha + theta, max(0, beta - instance.d1)))
    share = math.floor((instance.d0 - theta) * unit) // capacity
    lists = evidence["prices"]
    require(all(type(v) is int and v >= 0 for runs in lists for run in runs for v in run), "prices: below 0")
    (horizon,) = {sum(times for _, times in runs) for runs in lists}  # all of one length
    require(max(o for _, o, _ in kinds) <= horizon <= 10**7, "prices: too short or too long")
    area = sum(c * sum(-(-m // block) for m in range(i, i + o)) for i, o, c in kinds)
    least = max(-(-area // capacity), max(o for _, o, _ in kinds))
    best: list[Any] = [-FAR] * horizon  # for 1, 2, ... batches
    for runs in lists:
        ends = [[c * end for end in cheapest_paths(instance, i, o, runs, share, rho)] for i, o, c in kinds]
        paid = accumulate(batch - capacity * price for price, times in runs for _ in range(times))
        best = list(map(max, best, map(sum, zip(paid, *ends, strict=True))))
    total = Fraction(max(least, horizon + 1) * batch) / unit + squares(instance, kinds)
    for j in range(least, horizon + 1):
        total = min(total, Fraction(best[j - 1]) / unit + squares(instance, kinds, j))
    prefill = -(-sum(i * c for i, _, c in kinds) // instance.budget)
    return (total + token_work(instance, kinds, beta) + (instance.p0 - theta) * prefill) / instance.scale


def cheapest_paths(instance: Instance, prompt: int, outputs: int, runs: Any, share: int, rho: int) -> Any:
    """Cost of the cheapest path of a request that ends by each batch."""
    sizes = [-(-(prompt + n) // instance.block) for n in range(outputs)]
    enter = [rho * (prompt + n - 1) * (n > 0) for n in range(outputs)]
    steps = [min(share * s, e if instance.preemption else FAR) for s, e in zip(sizes, enter, strict=True)]
    held, out, ends, done = [FAR] * outputs, [0, *[FAR] * (outputs - 1)], [], FAR
    for price, times in runs:
        after: Any = None
        for left in range(times, 0, -1):
            rows = zip([FAR, *held], steps, held, out, enter, sizes, strict=False)
            reached = [min(a + step, idle, o + e) + price * size for a, step, idle, o, e, size in rows]
            if instance.preemption:
                out = [0, *map(min, out[1:], held)]
            done, held = min(done, reached.pop()), [*reached, FAR]
            before, after = after, (done, held, out)
            settled = before == after  # more batches at this price change nothing
            ends += [done] * (left if settled else 1)
            if settled:
                break
    return ends


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
    parser.add_argument("--profiles", type=Path, default=Path(__file__).parent / "profiles")
    options = parser.parse_args(arguments)
    try:
        instance, certificate = load(options.instance), load(options.certificate)
        bound = check(instance, certificate, options.profiles)
    except Rejected as problem:
        sys.stderr.write(f"rejected: {problem}\n")
        return 1
    except (OSError, ValueError, EOFError, RecursionError, MemoryError, zlib.error) as error:
        sys.stderr.write(f"cannot be read: {error}\n")
        return 2
    sys.stdout.write(f"certified: {instance['name']}: makespan >= {float(bound)!r} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
