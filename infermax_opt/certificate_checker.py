"""Stand-alone checker of lower-bound certificates: one file, standard library only, exact numbers.

    python certificate_checker.py INSTANCE CERTIFICATE [--profiles DIR]

recomputes the bound from the instance and the certificate and trusts nothing else.  Exit code 0:
the bound holds; 1: rejected; 2: a file cannot be read.  ``.gz`` files are accepted.  The proofs of
what is recomputed stand in `infermax_opt.bounds.closed_form`, `counts` and `occupancy`; the format
is described in `infermax_opt.certificates`.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import re
import sys
import zlib
from collections import deque
from fractions import Fraction
from pathlib import Path
from typing import Any

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
    require(result.denominator == 1, f"{name} is no whole number")
    require(least is None or result >= least, f"{name} is less than {least}")
    return int(result)


class Instance:
    """What the bounds need of an instance file."""

    def __init__(self, data: Any, profiles: Path | None):
        require(data["schema"] == "infermax-opt/instance/1", "instance: unknown schema")
        require(data["objective"] in ("makespan", "throughput"), "only the makespan has certificates")
        system, policy, cost = data["system"], data["policy"], data["cost"]
        if "profile" in cost:
            require(re.fullmatch(r"[\w.-]+", cost["profile"]) is not None, "instance: bad profile name")
            require(profiles is not None, "instance: names a profile; say --profiles DIR")
            cost = load(Path(profiles or ".", f"{cost['profile']}.json"))["cost"]
        self.capacity = whole(system["kv_capacity"], "kv_capacity", 1)
        self.batch_tokens = whole(system["max_batch_tokens"], "max_batch_tokens", 1)
        self.prefill_tokens = whole(system["max_prefill_tokens"], "max_prefill_tokens", 1)
        running = system.get("max_running")
        self.running = None if running is None else whole(running, "max_running", 1)
        self.block = whole(system.get("block_size", 1), "block_size", 1)
        self.hybrid, self.chunked, self.preemption = (
            policy[key] is True for key in ("hybrid_batching", "chunked_prefill", "preemption")
        )
        require(all(type(policy[key]) is bool for key in policy), "policy: neither true nor false")
        self.exact = cost["attention"] == "exact"
        pieces = [[number(v, "cost.batch") for v in pair] for pair in cost["batch"]]
        decode = [number(v, "cost.decode") for v in cost["decode"]]
        prefill = [number(v, "cost.prefill") for v in cost["prefill"]]
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
        feed(cost["attention"], *(v for pair in pieces for v in pair))
        feed(*decode, *prefill)
        feed(data["objective"], "makespan", 1)
        self.name = data["name"]
        self.cost = [pieces, decode, prefill, cost["attention"]]
        self.kinds: dict[tuple[int, int, Fraction], int] = {}
        for entry in data["requests"]:
            i, o = whole(entry["input_tokens"], "input", 1), whole(entry["output_tokens"], "output", 1)
            arrival = number(entry.get("arrival", 0), "arrival")
            count = entry.get("count")
            times = 1 if count is None else whole(count, "count", 1)
            require(times <= 10**7, "count: too large")
            for k in range(1, times + 1):
                feed(entry["id"] if count is None else f"{entry['id']}.{k}", i, o, arrival)
            self.kinds[i, o, arrival] = self.kinds.get((i, o, arrival), 0) + times
        self.sha256 = digest.hexdigest()

    def since(self, time: Fraction) -> list[tuple[int, int, int]]:
        """Input tokens, output tokens and number of the requests that arrive at `time` or later."""
        return [(i, o, count) for (i, o, arrival), count in self.kinds.items() if arrival >= time]


def check(instance_data: Any, certificate: Any, profiles: Path | None = None) -> Fraction:
    """Return the bound in seconds that the certificate proves for the instance, or raise Rejected."""
    try:
        instance = Instance(instance_data, profiles)
        body = {key: value for key, value in certificate.items() if key != "sha256"}
        text = json.dumps(body, sort_keys=True, separators=(",", ":"))
        require(certificate["sha256"] == hashlib.sha256(text.encode()).hexdigest(), "sha256 differs")
        require(certificate["schema"] == "infermax-opt/certificate/1", "unknown schema")
        require(type(certificate["source"]) is str, "source is no text")
        require(certificate["instance"] == instance.name, "is for another instance")
        require(certificate["instance_sha256"] == instance.sha256, "instance_sha256 differs")
        require(certificate["objective"] == instance_data["objective"], "is for another objective")
        cost = certificate["cost"]
        pieces = [[number(v, "cost") for v in pair] for pair in cost["batch"]]
        decode, prefill = ([number(v, "cost") for v in cost[key]] for key in ("decode", "prefill"))
        named = [pieces, decode, prefill, cost["attention"]]
        require(named == instance.cost, "is for another cost model")
        evidence = certificate["evidence"]
        piece = whole(evidence["piece"], "piece", 0)
        require(piece < len(instance.pieces), "piece: there is no such piece")
        kinds = {"closed-form": closed_form, "occupancy": occupancy}
        require(evidence["kind"] in kinds, "evidence: unknown kind")
        proved = kinds[evidence["kind"]](instance, evidence, *instance.pieces[piece])
        claimed = number(certificate["lower_bound"], "lower_bound")
        require(claimed <= proved, f"claims {float(claimed)!r}, only {float(proved)!r} is proved")
        return claimed
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise Rejected(f"is malformed: {type(error).__name__} {error}") from None


def token_work(instance: Instance, kinds: list[tuple[int, int, int]], beta: int) -> int:
    """Least work but for the attention of the prompts, in ticks."""
    d1 = min(instance.d1, beta) if instance.preemption else instance.d1
    return sum(c * (beta * (i + o - 1) + d1 * ((o - 1) * i + (o - 1) * (o - 2) // 2)) for i, o, c in kinds)


# --- closed forms -------------------------------------------------------------------------------


def closed_form(instance: Instance, evidence: Any, alpha: int, beta: int) -> Fraction:
    """Work, attention constants and a least number of batches."""
    since = number(evidence["since"], "since")
    kinds = instance.since(since)
    require(since >= 0 and len(kinds) > 0, "since: no request arrives then or later")
    budget = min(instance.batch_tokens, instance.prefill_tokens)
    prefill = -(-sum(i * c for i, _, c in kinds) // budget)
    if not instance.chunked:
        prefill = max(prefill, sum(c for i, _, c in kinds if 2 * i > budget))
    decode = 0
    if not instance.preemption:
        later = sum((o - 1) * c for _, o, c in kinds)
        decode = max(max(o for _, o, _ in kinds) - 1, -(-later // instance.batch_tokens))
    batches = max(prefill, count_batches(instance, kinds, evidence, budget, prefill + decode))
    least = min(instance.p0, instance.d0)
    presence = instance.d0 * decode + least * max(0, batches - prefill - decode)
    area = sum(c * ((o - 1) * i + o * (o - 1) // 2) for i, o, c in kinds)
    if not instance.preemption or (beta - instance.d1) * instance.capacity >= 2 * instance.d0:
        others = max(0, batches - prefill - -(-area // instance.capacity))
        presence = max(presence, instance.d0 * area // instance.capacity + least * others)
    work = token_work(instance, kinds, beta)
    if not (instance.chunked and not instance.exact):
        work += sum(instance.p1 * i * i * c for i, _, c in kinds)
    elif evidence["reference"] is not None:
        # 1/q >= 2/q0 - q/q0**2 with q = J - O + 1 and q0 = reference - O + 1, J >= batches.
        reference = whole(evidence["reference"], "reference", max(batches, max(o for _, o, _ in kinds)))
        squares = [(instance.p1 * i * i * c, reference - o + 1) for i, o, c in kinds]
        require(sum(-(-s // q**2) for s, q in squares) <= alpha, "reference: saves more than alpha")
        work += sum(s // q for s, q in squares)
        work += (reference - batches) * sum(s // q**2 for s, q in squares)
    return since + Fraction(alpha * batches + instance.p0 * prefill + presence + work, instance.scale)


def count_batches(
    instance: Instance, kinds: list[tuple[int, int, int]], evidence: Any, budget: int, phases: int
) -> int:
    """Least number of batches by the named argument."""
    argument = evidence["argument"]
    if argument == "longest request":
        return max(-(-i // budget) + o - 1 for i, o, _ in kinds)
    if argument == "prefill tail":
        best = prompts = 0
        for i, o, c in sorted(kinds, key=lambda kind: -kind[1]):
            prompts += i * c
            best = max(best, -(-prompts // budget) + o - 1)
        return best
    if argument == "token budget":
        return -(-sum((i + o - 1) * c for i, o, c in kinds) // instance.batch_tokens)
    if argument == "running limit":
        require(instance.running is not None, "there is no running limit")
        return -(-sum(o * c for _, o, c in kinds) // (instance.running or 1))
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
        tokens = volume = 0
        for i, o, c in kinds:
            first = max(i, level * size + 1)
            if first <= i + o - 1:
                tokens += c * (i + o - first)
                volume += c * (blocks(i + o - 1) - blocks(first - 1))
        return tokens, volume

    if argument == "KV slots":
        require(1 <= cut <= capacity, "cut: out of range")
        return -(-above(cut - 1)[0] // (capacity // cut))
    require(cut <= capacity // 2, "cut: is above half of the capacity")
    huge, huge_volume = above(capacity - cut)
    big, big_volume = above(capacity // 2)
    small = above(max(0, cut - 1))[1] - big_volume
    room = (big - huge) * capacity - (big_volume - huge_volume)
    return big + max(0, -((room - small) // capacity))


# --- occupancy ----------------------------------------------------------------------------------


def occupancy(instance: Instance, evidence: Any, alpha: int, beta: int) -> Fraction:
    """No step of the occupancy graph earns more than it costs, by the potentials."""
    kinds = instance.since(Fraction(0))
    exponent = whole(evidence["exponent"], "exponent")
    require(-4096 <= exponent <= 4096, "exponent: out of range")

    def units(ticks: int) -> int:
        return ticks << exponent if exponent >= 0 else ticks >> -exponent

    prices = evidence["prices"]
    token, size, out_fixed, out_size = (
        whole(prices[key], key) for key in ("token", "size", "out_fixed", "out_size")
    )
    prompts, ends = sorted({i for i, _, _ in kinds}), sorted({i + o for i, o, _ in kinds})
    shortest, longest = prompts[0], ends[-1] - 1
    idle = token + size * shortest
    require(size >= 0 and idle >= 0, "prices: idling would earn")
    capacity = instance.capacity
    most = min(sum(c for _, _, c in kinds), capacity // shortest, instance.running or capacity)
    given = evidence["potential"]
    top = len(given) - 1
    require(1 <= top <= most, "potential: wrong number of lists")
    wide = top < most  # the last list stands for `top` active requests and more
    d0, p0 = instance.d0, instance.p0
    plain = units(alpha + (min(d0, p0) if instance.preemption else d0))
    mixed, pure_cost = units(alpha + d0 + p0), units(alpha + p0)
    rho = units(max(0, beta - instance.d1))
    in_fixed, in_size = -rho - out_fixed, rho - out_size
    evictions = instance.preemption and longest > shortest
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
    empty = [FAR] * width
    admitted, pure = empty, empty
    for k in range(1, top + 1):
        first, last = ranges[k]
        row, several = potential[k], wide and k == top
        admitted_below, admitted, pure_below, pure = admitted, empty[:], pure, empty[:]
        # Where from one request more leads here: the list below and, if it stands for several, itself.
        sources = [(potential[k - 1], admitted_below, pure_below)] + [(row, admitted, pure)] * several
        for below, _, _ in sources * evictions:
            lowest(below, row, first, last, shortest + 1, longest, in_fixed, in_size, "a refill")
        while True:
            before = (admitted[:], pure[:])
            for below, admitted_from, pure_from in sources:
                for source in (below, pure_from) * evictions:
                    fixed, slope = in_fixed - in_size - token + size, in_size - size
                    lowest(source, pure, first, last, shortest + 2, longest + 1, fixed, slope, None)
                for prompt in prompts:
                    for source in (below, admitted_from):
                        lowest(source, admitted, first, last, prompt, prompt, 0, 0, None)
                    for source in (below, pure_from):
                        fixed = -token - size * prompt
                        lowest(source, pure, first, last, prompt + 1, prompt + 1, fixed, 0, None)
            if not several or before == (admitted, pure):
                break
        earned = max(token * k, token * most) if several else token * k
        least = FAR
        for u in range(first, last + 1):
            require(pure[u] == FAR or row[u] <= pure[u] + pure_cost, "potential: a prefill batch earns")
            if u > first and row[u] < FAR:
                require(row[u - 1] <= row[u] + idle, "potential: idling earns")
            if u <= capacity and u + k <= last:
                cost = min(row[u] + plain, admitted[u] + mixed)
                cost = cost if cost == FAR else cost - earned - size * u
                least = min(least, cost) if several else cost  # more than k requests grow by more
                require(row[u + k] <= least, "potential: a batch earns")
            elif several and u > capacity + k:
                require(row[u] <= least, "potential: a batch earns")
        for other in (k - 1, k) if several else (k - 1,):
            # Steps to fewer requests are steps to more on the mirrored lists.
            first, last = (width - 1 - u for u in reversed(ranges[other]))
            source, target = row[::-1], potential[other][::-1]
            for end in ends:
                lowest(source, target, first, last, end, end, 0, 0, "finishing")
            if evictions:
                low, high = shortest + 1, longest
                lowest(source, target, first, last, low, high, out_fixed, out_size, "an eviction")
    tokens = sum(o * c for _, o, c in kinds)
    area = sum(c * (i * o + o * (o - 1) // 2) for i, o, c in kinds)
    spread = instance.chunked and not instance.exact
    work = token_work(instance, kinds, beta)
    work += instance.p1 * sum(c * (i if spread else i * i) for i, _, c in kinds)
    ticks = work + Fraction(token * tokens + size * area) / Fraction(2) ** exponent
    return ticks / instance.scale


def lowest(
    source: list[float], target: list[float], first: int, last: int, low: int, high: int,
    fixed: int, slope: int, step: str | None,
) -> None:  # fmt: skip
    """Lower target[u] to the least source[u - s] + fixed + slope * s for s in low..high.

    Where `step` names what that costs, reject if there is anything to lower.
    """
    queue: deque[int] = deque()
    fed = max(0, first - high)
    for u in range(first, last + 1):
        while fed <= u - low:
            if source[fed] < FAR:
                value = source[fed] - slope * fed
                while queue and source[queue[-1]] - slope * queue[-1] >= value:
                    queue.pop()
                queue.append(fed)
            fed += 1
        while queue and queue[0] < u - high:
            queue.popleft()
        if queue:
            value = source[queue[0]] + fixed + slope * (u - queue[0])
            require(step is None or target[u] <= value, f"potential: {step} earns")
            target[u] = min(target[u], value)


# --- command line -------------------------------------------------------------------------------


def load(path: Path) -> Any:
    """Read a JSON file with exact decimals; ``.gz`` is decompressed."""
    data = gzip.decompress(path.read_bytes()) if path.name.endswith(".gz") else path.read_bytes()
    return json.loads(data.decode(), parse_float=str)


def main(arguments: list[str]) -> int:
    """Check the certificate named on the command line."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    profiles: Path | None = Path(__file__).parent / "profiles"
    if "--profiles" in arguments[:-1]:
        at = arguments.index("--profiles")
        profiles = Path(arguments[at + 1])
        arguments = arguments[:at] + arguments[at + 2 :]
    if len(arguments) != 2 or arguments[0].startswith("-"):
        sys.stderr.write("usage: certificate_checker.py INSTANCE CERTIFICATE [--profiles DIR]\n")
        return 2
    try:
        instance, certificate = (load(Path(name)) for name in arguments)
        bound = check(instance, certificate, profiles)
    except Rejected as problem:
        sys.stderr.write(f"rejected: {problem}\n")
        return 1
    except (OSError, ValueError, EOFError, RecursionError, MemoryError, zlib.error) as error:
        sys.stderr.write(f"cannot be read: {error}\n")
        return 2
    sys.stdout.write(
        f"certified: {instance['name']}: makespan >= {float(bound)!r} s ({certificate['source']})\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
