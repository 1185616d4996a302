"""Stand-alone checker of lower-bound certificates: one file, standard library only, exact numbers.

    python checker.py INSTANCE CERTIFICATE [--profiles DIR]

recomputes the bound and trusts nothing else.  Exit code 0: it holds; 1: rejected; 2: a file (``.gz``
or not) cannot be read.  Format: `infermax_opt.files.certificates`; proofs: `infermax_opt.infermax.bounds`.
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
from collections import Counter, deque
from fractions import Fraction
from itertools import accumulate, chain, groupby, product
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
    require(type(value) is not bool and NUMBER.fullmatch(str(value)) is not None, f"{name} is no number")
    return Fraction(str(value))


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
        limits = ("kv_capacity", "max_batch_tokens", "max_prefill_tokens")
        self.capacity, self.batch_tokens, self.prefill_tokens = (whole(system[key], key, 1) for key in limits)
        self.running = None if (most := system.get("max_running")) is None else whole(most, "max_running", 1)
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

    def since(self, time: Fraction = Fraction(0)) -> list[tuple[int, int, int]]:
        """Input tokens, output tokens and number of the requests that arrive at `time` or later."""
        return [(i, o, count) for (i, o, arrival), count in self.kinds.items() if arrival >= time]

    def token_work(self, kinds: list[tuple[int, int, int]], beta: int) -> int:
        """Least work but for the attention of the prompts, in ticks."""
        d1 = min(self.d1, beta) if self.preemption else self.d1
        return sum(c * (beta * (i + o - 1) + d1 * (o - 1) * (2 * i + o - 2) // 2) for i, o, c in kinds)

    def squares(self, kinds: list[tuple[int, int, int]], limit: int = 10**18) -> int:
        """Least attention work of the prompts in so many batches at most, in ticks."""
        return self.p1 * sum(c * max(i, i * i // (limit - o + 1 if self.spread else 1)) for i, o, c in kinds)

    def presence(self, alpha: int, beta: int, unit: Fraction, young: bool = False) -> list[int]:
        """Batches without first tokens, with them, and with them alone; rho; in units."""
        d0, p0, either = self.d0, self.p0, min(self.d0, self.p0)
        costs = [either] * 3 if young else [either if self.preemption else d0, d0 + p0, p0]
        return [math.floor(cost * unit) for cost in [*(alpha + c for c in costs), max(0, beta - self.d1)]]


def check(instance_data: Any, certificate: Any, profiles: Path | None = None) -> Fraction:
    """Return the bound in seconds that the certificate proves for the instance, or raise Rejected."""
    try:
        instance = Instance(instance_data, profiles)
        body = {key: value for key, value in certificate.items() if key != "sha256"}
        text = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
        expected = {"schema": "infermax-opt/certificate/1", "sha256": hashlib.sha256(text).hexdigest()}
        expected |= {"instance": instance_data["name"], "instance_sha256": instance.sha256}
        for key, value in {**expected, "objective": instance_data["objective"]}.items():
            require(certificate[key] == value, f"{key} is not {value}")
        require(type(certificate["source"]) is str, "source is no text")
        require(rates(certificate["cost"]) == instance.cost, "is for another cost model")
        piece = instance.pieces[whole((evidence := certificate["evidence"])["piece"], "piece", 0)]
        proofs = {p.__name__.replace("_", "-"): p for p in (closed_form, occupancy, state_flow, lagrangian)}
        exponent = min(4096, whole(evidence.get("exponent", 0), "exponent", -4096))  # of units in a tick
        proved = proofs[evidence["kind"]](instance, evidence, *piece, Fraction(2) ** exponent)
        claimed = number(certificate["lower_bound"], "lower_bound")
        require(claimed <= proved, f"claims {float(claimed)!r}, only {float(proved)!r} is proved")
        return claimed
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise Rejected(f"is malformed: {type(error).__name__} {error}") from None


def closed_form(instance: Instance, evidence: Any, alpha: int, beta: int, _: Fraction) -> Fraction:
    """Work, attention constants and a least number of batches."""
    kinds = instance.since(since := number(evidence["since"], "since"))
    require(since >= 0 and len(kinds) > 0, "since: no request arrives then or later")
    alone = 0 if instance.chunked else sum(c for i, _, c in kinds if 2 * i > instance.budget)
    prefill = max(alone, -(-sum(i * c for i, _, c in kinds) // instance.budget))
    later, longest = sum((o - 1) * c for _, o, c in kinds), max(o for _, o, _ in kinds)
    decode = 0 if instance.preemption else max(longest - 1, -(-later // instance.batch_tokens))
    slack, least = max(0, beta - instance.d1) * instance.capacity, min(instance.p0, instance.d0)
    refills = 2 * instance.d0 if slack >= 2 * instance.d0 else 0  # of it, for decode presence
    horizon = (slack - refills) // max(1, alpha + least) if instance.preemption else FAR
    batches = max(prefill, count_batches(instance, kinds, evidence, prefill + decode, horizon))
    presence = instance.d0 * decode + least * max(0, batches - prefill - decode)
    area = sum(c * ((o - 1) * i + o * (o - 1) // 2) for i, o, c in kinds)
    if not instance.preemption or slack >= 2 * instance.d0:
        others = max(0, batches - prefill - -(-area // instance.capacity))
        presence = max(presence, instance.d0 * area // instance.capacity + least * others)
    work = instance.token_work(kinds, beta) + (0 if instance.spread else instance.squares(kinds))
    if instance.spread and evidence["reference"] is not None:
        reference = whole(evidence["reference"], "reference", max(batches, longest))
        spread = [(instance.p1 * i * i * c, reference - o + 1) for i, o, c in kinds]
        require(sum(-(-s // q**2) for s, q in spread) <= alpha, "reference: saves more than alpha")
        work += sum(s // q + (reference - batches) * (s // q**2) for s, q in spread)
    return since + Fraction(alpha * batches + instance.p0 * prefill + presence + work, instance.scale)


def count_batches(instance: Instance, kinds: Any, evidence: Any, phases: int, horizon: Any) -> Any:
    """Least number of batches by the named argument."""
    if (alone := (argument := evidence["argument"]) == "longest request") or argument == "prefill tail":
        ordered = sorted(kinds, key=lambda kind: -kind[1])
        prompts = (i for i, _, _ in ordered) if alone else accumulate(i * c for i, _, c in ordered)
        return max(-(-p // instance.budget) + o - 1 for p, (_, o, _) in zip(prompts, ordered, strict=True))
    if limit := {"token budget": instance.batch_tokens, "running limit": instance.running}.get(argument):
        return -(-sum(((i - 1) * (argument == "token budget") + o) * c for i, o, c in kinds) // limit)
    if argument == "KV age":
        steps, room = Counter[int](), instance.capacity * sum(c for _, _, c in kinds)
        for i, o, c in kinds:
            steps.update({i: c, i + o: -c})
        many = volume = waste = 0
        for x in range(min(steps), min(max(steps), 10**7)):  # tokens by KV size, in ever later batches
            many, p = many + steps[x], volume // room
            waste += many * min(p, horizon) + max(0, many - ((p + 1) * room - volume) // x) * (p < horizon)
            volume += many * x
        return (volume + waste + (not instance.preemption) * (instance.capacity - 1)) // instance.capacity
    if argument == "separate phases" and not (instance.preemption or instance.hybrid):
        return phases
    require(argument in ("KV area", "KV slots"), "argument: unknown")
    size, capacity = instance.block, instance.capacity // instance.block
    cut = whole(evidence["cut"], "cut", 0)

    def above(level: int) -> tuple[int, int]:  # tokens of more than `level` blocks: number, blocks
        spans = [(min(i + o, max(i, level * size + 1)) - 1, i + o - 1, c) for i, o, c in kinds]
        upto = [(x, x // size, c) for first, last, c in spans for x, c in ((first, -c), (last, c))]  # 1 .. x
        return sum(c * x for x, _, c in upto), sum(c * (k + 1) * (2 * x - k * size) // 2 for x, k, c in upto)

    if argument == "KV slots":
        return -(-above(cut - 1)[0] // (capacity // cut))  # division by zero: cut out of range
    require(cut <= capacity // 2, "cut: is above half of the capacity")
    (huge, huge_volume), (big, _) = above(capacity - cut), above(capacity // 2)
    others = above(max(0, cut - 1))[1] - huge_volume  # from the cut up to huge: none beside a huge one
    return max(big, huge - (-others // capacity))


def occupancy(instance: Instance, evidence: Any, alpha: int, beta: int, unit: Fraction) -> Fraction:
    """No step of the occupancy graph earns more than it costs, by the potentials."""
    kinds, capacity = instance.since(), instance.capacity
    prices, given = evidence["prices"], evidence["potential"]
    token, size, *out = (prices[name] for name in ("token", "size", "out_fixed", "out_size"))
    numbers = [token, size, *out, *prices["first"], *prices["finish"]]
    require(all(type(v) is int for v in numbers), "prices: no whole number")
    young = whole(evidence["young"], "young", 0)
    old = [(i + min(young, o - 1), o - min(young, o - 1), c) for i, o, c in kinds]
    prompts, ends = sorted({i for i, _, _ in old}), sorted({i + o for i, o, _ in old})
    starts = dict(zip(prompts, prices["first"], strict=True))
    finishes = dict(zip(ends, prices["finish"], strict=True))
    shortest, longest = prompts[0], ends[-1] - 1
    require(size >= 0 and (idle := token + size * shortest) >= 0, "prices: idling would earn")
    most = min(sum(c for _, _, c in kinds), capacity // shortest, instance.running or capacity)
    wide = (top := len(given) - 1) < most  # the last list stands for `top` active requests and more
    require(1 <= top <= most, "potential: wrong number of lists")
    plain, mixed, pure_cost, rho = instance.presence(alpha, beta, unit, young > 0)
    back, refilled = (-rho - out[0], rho - out[1]), (shortest + 1, longest)
    evictions = instance.preemption and longest > shortest
    grown, made = (shortest + 2, longest + 1), (back[0] - back[1] - token + size, back[1] - size)
    joins: list[Any] = [(0, refilled, back, "a refill"), (2, grown, made, None)] * evictions
    joins += [(1, (i, i), (-pay, 0), None) for i, pay in starts.items()]
    joins += [(2, (i + 1, i + 1), (-pay - token - size * i, 0), None) for i, pay in starts.items()]
    leaves = [((end, end), (-pay, 0)) for end, pay in finishes.items()] + [(refilled, out)] * evictions
    lasts = [min(k * ends[-1], capacity + k) for k in range(top)]
    lasts += [capacity + most if wide else min(top * ends[-1], capacity + top)]
    require((width := max(lasts) + 1) * len(given) <= 10**8, "potential: too large")
    ranges = [(k * shortest, last) for k, last in enumerate(lasts)]
    require([len(v) for v in given] == [b - a + 1 for a, b in ranges], "potential: wrong length of a list")
    require(all(v is None or type(v) is int for v in chain(*given)), "potential: no whole number")
    rows = zip(ranges, ([FAR if v is None else v for v in values] for values in given), strict=True)
    potential = [[FAR] * first + row + [FAR] * (width - last - 1) for (first, last), row in rows]
    require(potential[0][0] < FAR, "potential: the empty state has none")
    layers = [potential[0], [FAR] * width, [FAR] * width]
    for k in range(1, top + 1):
        (first, last), several, before = ranges[k], wide and k == top, None
        below, layers = layers, [potential[k], [FAR] * width, [FAR] * width]
        while before != layers:  # all steps lead to more tokens, so this ends
            before = [layer[:] for layer in layers] if several else layers  # once where none starts here
            for origins, (layer, *join) in product([below, layers] if several else [below], joins):
                for origin in {0, layer}:
                    lowest(origins[origin], layers[layer], ranges[k], *join)
        row, admitted, pure = layers  # between batches, in one with first tokens, in one without decodes
        earned, least = max(token * k, token * most) if several else token * k, FAR
        for u in range(first, last + 1):
            require(row[u] <= pure[u] + pure_cost, "potential: a prefill batch earns")
            require(u == first or row[u - 1] <= row[u] + idle, "potential: idling earns")
            total = min(row[u] + plain, admitted[u] + mixed) - earned - size * u if u <= capacity else FAR
            least = min(least, total) if several else total  # more than k requests grow by more
            require(u + k > last or row[u + k] <= least, "potential: a batch earns")
        for other in (k - 1, k) if several else (k - 1,):
            span = [width - 1 - u for u in reversed(ranges[other])]  # steps to more on the mirrored lists
            for reach, cost in leaves:
                lowest(row[::-1], potential[other][::-1], span, reach, cost, "finishing or an eviction")
    area = sum(c * (i * o + o * (o - 1) // 2) for i, o, c in old)
    earned = Fraction(size * area + sum(c * (token * o + starts[i] + finishes[i + o]) for i, o, c in old))
    return (instance.token_work(kinds, beta) + instance.squares(kinds) + earned / unit) / instance.scale


def lowest(source: Any, target: Any, span: Any, reach: Any, cost: Any, step: str | None) -> None:
    """Lower target[u], u in span, to the least source[u - s] + fixed + slope * s; reject a named step."""
    (first, last), (low, high), (fixed, slope) = span, reach, cost  # s in low .. high
    queue = deque[tuple[Any, int]]()
    for new in range(max(0, first - high), last - low + 1):
        key = source[new] - slope * new
        while queue and queue[-1][0] >= key:
            queue.pop()
        queue.append((key, new))
        if queue[0][1] < (u := new + low) - high:
            queue.popleft()
        if u >= first:
            value = queue[0][0] + fixed + slope * u
            require(step is None or target[u] <= value, f"potential: {step} earns")
            target[u] = min(target[u], value)


def state_flow(instance: Instance, evidence: Any, alpha: int, beta: int, unit: Fraction) -> Fraction:
    """No step among the states of requests in memory earns more than it costs, by the potentials."""
    given, first, out = evidence["potential"], evidence["prices"]["first"], evidence["prices"]["out"]
    kinds = [(*k, sum(c for *_, c in same)) for k, same in groupby(sorted(instance.since()), lambda k: k[:2])]
    most = min(sum(c for _, _, c in kinds), instance.capacity // kinds[0][0], instance.running or FAR)
    require(sum(o for _, o, _ in kinds) < len(given) <= 10**7 // most, "potential: too many states")
    require([len(pays) for pays in out] == [o - 1 for _, o, _ in kinds], "prices: wrong length of a list")
    require(all(type(v) is int for v in chain(first, *out, given[:1])), "prices: no whole number")
    require(all(v is None or type(v) is int for v in given), "potential: no whole number")
    plain, mixed, pure, rho = instance.presence(alpha, beta, unit)
    elements = [(k, n, i + n, c, n == o) for k, (i, o, c) in enumerate(kinds) for n in range(o + 1)]
    leave = [v for pays in out for v in (FAR, *(pay if instance.preemption else FAR for pay in pays), 0)]
    refill = [FAR if v == FAR or e[4] else rho * (e[2] - 1) - v for e, v in zip(elements, leave, strict=True)]
    enter = [refill[x - 1] if n > 1 else -first[k] for x, (k, n, *_) in enumerate(elements)]  # a batch
    states: list[tuple[int, ...]] = [()]  # elements by number, in order; small states first
    for state in states:
        free = instance.capacity - sum(elements[x][2] - 1 for x in state)
        for x in range(state[-1] if state else 0, len(elements) if len(state) < most else 0):
            k, _, s, count, _ = elements[x]
            if s - 1 <= free and (len(state) < count or elements[state[-count]][0] != k):
                states.append((*state, x))
        require(len(states) <= len(given), "potential: too few states")
    between = {state: FAR if v is None else v for state, v in zip(states, given, strict=True)}
    admitted, alone = dict.fromkeys(states, FAR), dict.fromkeys(states, FAR)
    for state, here in between.items():
        for x in set(state):
            (_, n, _, _, last), at = elements[x], state.index(x)
            rest, idle = state[:at] + state[at + 1 :], (*state[:at], x - 1, *state[at + 1 :])
            layer = alone if n else admitted
            layer[state] = min(layer[state], min(between[rest], layer[rest]) + enter[x])
            require(here <= between[rest] + refill[x], "potential: a refill earns")
            require(between[rest] <= here + leave[x], "potential: finishing or an eviction earns")
            require(n == 0 or last or between[idle] <= here, "potential: idling earns")
        require(here <= alone[state] + pure, "potential: a prefill batch earns")
        after = tuple(x + 1 for x in state if not elements[x][4])  # no state if there is no room
        least = min(here + plain, admitted[state] + mixed)
        require(len(after) < len(state) or between.get(after, -FAR) <= least, "potential: a batch earns")
    earned = Fraction(sum(c * pay for (_, _, c), pay in zip(kinds, first, strict=True)))
    return (instance.token_work(kinds, beta) + instance.squares(kinds) + earned / unit) / instance.scale


def lagrangian(instance: Instance, evidence: Any, alpha: int, beta: int, unit: Fraction) -> Fraction:
    """Cheapest paths of all kinds under lists of prices, for each number of batches."""
    kinds, block = instance.since(), instance.block
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
    sums = chain([(10**18, max(least, horizon + 1) * batch)], enumerate(best, start=1))
    total = min(Fraction(cost) / unit + instance.squares(kinds, j) for j, cost in sums if j >= least)
    prefill = -(-sum(i * c for i, _, c in kinds) // instance.budget)
    return (total + instance.token_work(kinds, beta) + (instance.p0 - theta) * prefill) / instance.scale


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
            out = [0, *map(min, out[1:], held)] if instance.preemption else out
            done, held = min(done, reached.pop()), [*reached, FAR]
            settled = after == (after := (done, held, out))  # more batches at this price change nothing
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
    parser.add_argument("--profiles", type=Path, default=Path(__file__).parent / "data" / "profiles")
    options = parser.parse_args(arguments)
    try:
        bound = check(instance := load(options.instance), load(options.certificate), options.profiles)
    except (Rejected, OSError, ValueError, EOFError, RecursionError, MemoryError, zlib.error) as problem:
        sys.stderr.write(f"{'rejected' if isinstance(problem, Rejected) else 'cannot be read'}: {problem}\n")
        return 1 if isinstance(problem, Rejected) else 2
    sys.stdout.write(f"certified: {instance['name']}: makespan >= {float(bound)!r} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
