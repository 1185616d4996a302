"""A checker written from docs/checkers.md alone: what the page says is enough to judge the vectors."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT

FOLDER = ROOT / "instances" / "vectors"
#: Those of the page are about an instance; others hold their question.
VECTORS = [v for v in json.loads((FOLDER / "index.json").read_text())["vectors"] if "instance" in v]
V = "infermax-opt/instance/1"


def read(path: Path) -> Any:
    """JSON with every number that has a point or an exponent as its text."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return json.loads(data.decode("utf-8-sig"), parse_float=str)


# --- the hash of an instance ----------------------------------------------------------------------


def ids(entry: dict[str, Any]) -> list[str]:
    if "count" not in entry:
        return [entry["id"]]
    return [f"{entry['id']}.{k}" for k in range(1, entry["count"] + 1)]


def number(value: Any) -> Fraction:
    return Fraction(str(value))


def infermax_lines(of: dict[str, Any]) -> Iterator[list[Any]]:
    system, policy, cost = of["system"], of["policy"], of["cost"]
    yield [V, of["problem"], of["name"]]
    yield [system[key] for key in ("kv_capacity", "max_batch_tokens", "max_prefill_tokens")]
    yield [system.get("max_running"), system.get("block_size", 1)]
    yield [policy[key] for key in ("hybrid_batching", "chunked_prefill", "preemption")]
    yield [cost["attention"], *(number(v) for pair in cost["batch"] for v in pair)]
    yield [number(v) for key in ("decode", "prefill") for v in cost[key]]
    if any(number(v) for v in cost.get("mixed", ())):
        yield ["mixed", *map(number, cost["mixed"])]
    if number(cost.get("prefix", 0)):
        yield ["prefix", number(cost["prefix"])]
    aim = of["objective"]
    if isinstance(aim, str):
        yield [aim, "makespan" if aim == "throughput" else aim, 1]
    elif "at_most" in aim:
        yield ["at_most", *(x for name, v in sorted(aim["at_most"].items()) for x in (name, number(v)))]
    else:
        order = ("makespan", "mean_e2e", "missed")  # of METRICS, those that the vectors weigh
        yield [None, *(x for name in order if name in aim for x in (name, number(aim[name])))]
    if "horizon" in of:
        yield ["horizon", number(of["horizon"])]
    for entry in of["requests"]:
        slo, terms = entry.get("slo", {}), []
        if slo or "weight" in entry or entry.get("optional"):
            limits = [number(slo[key]) if key in slo else None for key in ("ttft", "tpot", "e2e")]
            terms = ["", number(entry.get("weight", 1)), *limits]
        terms += ["optional"] if entry.get("optional") else []
        lengths = entry["input_tokens"], entry["output_tokens"], number(entry.get("arrival", 0))
        yield from ([one, *lengths, *terms] for one in ids(entry))


def makespan_lines(of: dict[str, Any]) -> Iterator[list[Any]]:
    yield [V, "makespan", of["name"], of["clients"]]
    yield [number(of["decode"][key]) for key in ("overhead", "token")]
    yield [x for pair in makespan_levels(of) for x in pair]
    for entry in of["requests"]:
        lengths = entry["input_tokens"], entry["output_tokens"]
        estimate = entry.get("estimated_output_tokens", entry["output_tokens"])
        yield from ([one, *lengths, estimate] for one in ids(entry))


def makespan_levels(of: dict[str, Any]) -> list[tuple[int, Fraction]]:
    prefill = of["prefill"]
    if "overhead" in prefill:
        fixed, each = number(prefill["overhead"]), number(prefill["token"])
        return sorted((tokens, fixed + each * tokens) for tokens in prefill["levels"])
    return sorted(((t, number(v)) for t, v in prefill["levels"]), key=lambda pair: (pair[0], -pair[1]))


def iteration_lines(of: dict[str, Any]) -> Iterator[list[Any]]:
    machine = of["machine"]
    cost, product = machine["cost"], machine["cost"]["attention"] == "product"
    yield [V, "iteration", of["name"], of["objective"], machine["batch"], machine["blocks"]]
    limits = [number(machine[key]) for key in ("t_avg", "ttft", "tpot")]
    yield [*limits, machine.get("group") or 0, int(product)]
    yield [number(v) for pair in cost["batch"] for v in pair]
    mixed = cost.get("mixed", [0, 0])
    pairs = [number(v) for pair in (cost["decode"], cost["prefill"], mixed) for v in pair]
    yield [*pairs, "exact" if product else cost["attention"]]
    swap = machine.get("swap")
    yield ["none"] if swap is None else ["swap", *map(number, swap)]
    for entry in of["requests"]:
        prefills, real_time = entry["phase"] == "prefill", entry["class"] == "rt"
        worth = number(entry.get("weight" if real_time else "value", int(not real_time)))
        shape = entry.get("input", entry["context"] if prefills else 1), entry["context"]
        blocks = entry.get("new_blocks", 0), entry.get("host_blocks", 0)
        rest = [*shape, number(entry.get("waited", 0)), *blocks, worth, entry.get("group", 1)]
        yield from ([one, int(real_time), int(prefills), *rest] for one in ids(entry))


def pipelining_lines(of: dict[str, Any]) -> Iterator[list[Any]]:
    yield from ([V, "pipelining"], ["parts", 6], ["str", of["name"]], ["parts", len(of["requests"])])
    for entry in of["requests"]:
        value = entry.get("value")
        yield from (["parts", 3], ["str", entry["id"]], ["int", entry["length"]])
        yield ["NoneType", None] if value is None else ["Fraction", number(value)]
    yield from (["int", of["capacity"]], ["str", of.get("objective", "tokens")])
    yield from (["int", of.get("block_size", 1)], ["Fraction", number(of.get("buffer", 0))])


LINES = {
    "infermax": infermax_lines,
    "makespan": makespan_lines,
    "iteration": iteration_lines,
    "pipelining": pipelining_lines,
}


def digest(lines: Iterator[list[Any]]) -> str:
    text = "".join(" ".join(f"{len(str(p))}:{p}" for p in parts) + "\n" for parts in lines)
    return hashlib.sha256(text.encode()).hexdigest()


# --- what evidence proves -------------------------------------------------------------------------


def hats(of: dict[str, Any], evidence: dict[str, Any]) -> Fraction:
    block, buffer = of.get("block_size", 1), number(of.get("buffer", 0))
    room = of["capacity"] - of["capacity"] % block
    sizes = [block * math.ceil((1 + buffer) * entry["length"] / block) for entry in of["requests"]]
    sizes = [size for size in sizes if size <= room]

    def hat(height: int, size: int) -> int:
        return max(0, min(2 * size - height, height))

    over = [(h, number(w)) for h, w in evidence["hats"]]
    counts = [(h, number(w)) for h, w in evidence["counts"]]
    most = sum(w * (max(0, room - h) + hat(h, max(sizes))) for h, w in over)
    most += sum(w * (room // h) for h, w in counts)
    for size in sizes:
        price = sum(w * hat(h, size) for h, w in over) + sum(w for h, w in counts if h <= size)
        most += max(0, size - price)
    part = math.gcd(*sizes)
    return Fraction(of["capacity"], part * (most // part))


def paper(of: dict[str, Any], evidence: dict[str, Any]) -> Fraction:
    jobs = sorted((e["output_tokens"] for e in of["requests"] for _ in ids(e)), reverse=True)
    clients, tokens = of["clients"], sum(e["input_tokens"] * len(ids(e)) for e in of["requests"])
    ends = [(k, (k - 1) * clients + 1) for k in range(1, -(-len(jobs) // clients) + 1)]
    rounds = max(-(-sum(jobs) // clients), *(sum(jobs[end - k : end]) for k, end in ends))
    lap = number(of["decode"]["overhead"]) + number(of["decode"]["token"]) * clients
    largest, time = makespan_levels(of)[-1]
    return tokens // largest * time + rounds * lap


def closed_form(of: dict[str, Any], evidence: dict[str, Any]) -> Fraction:
    """Of machines without chunks saving attention: `reference` is null, or there are none."""
    system, policy, cost = of["system"], of["policy"], of["cost"]
    scale = math.lcm(
        *(number(v).denominator for p in (*cost["batch"], cost["decode"], cost["prefill"]) for v in p)
    )
    alpha, beta = (int(number(v) * scale) for v in cost["batch"][evidence["piece"]])
    d0, d1, p0, p1 = (int(number(v) * scale) for key in ("decode", "prefill") for v in cost[key])
    kinds = [(e["input_tokens"], e["output_tokens"], len(ids(e))) for e in of["requests"]
             if number(e.get("arrival", 0)) >= number(evidence["since"])]  # fmt: skip
    kv, per_batch = system["kv_capacity"], system["max_batch_tokens"]
    budget, evicts = min(per_batch, system["max_prefill_tokens"]), policy["preemption"]
    spread = policy["chunked_prefill"] and cost["attention"] != "exact"
    alone = 0 if policy["chunked_prefill"] else sum(c for i, _, c in kinds if 2 * i > budget)
    prefill = max(alone, -(-sum(i * c for i, _, c in kinds) // budget))
    longest, later = max(o for _, o, _ in kinds), sum((o - 1) * c for _, o, c in kinds)
    decode = 0 if evicts else max(longest - 1, -(-later // per_batch))
    tokens = Counter(dict.fromkeys(range(1), 0))
    for i, o, c in kinds:
        for k in range(1, o + 1):
            tokens[-(-(i + k - 1) // system.get("block_size", 1))] += c
    room, cut = kv // system.get("block_size", 1), evidence.get("cut")
    argument, so_far, tail = evidence["argument"], 0, 0
    for i, o, c in sorted(kinds, key=lambda kind: -kind[1]):
        so_far += i * c
        tail = max(tail, -(-so_far // budget) + o - 1)
    counts = {
        "longest request": lambda: max(-(-i // budget) + o - 1 for i, o, _ in kinds),
        "prefill tail": lambda: tail,
        "token budget": lambda: -(-sum(c * (i + o - 1) for i, o, c in kinds) // per_batch),
        "running limit": lambda: -(-sum(o * c for _, o, c in kinds) // system["max_running"]),
        "separate phases": lambda: prefill + decode,
        "KV slots": lambda: -(-sum(n for b, n in tokens.items() if b >= cut) // (room // cut)),
        "KV area": lambda: max(
            sum(n for b, n in tokens.items() if b > room // 2),
            sum(n for b, n in tokens.items() if b > room - cut)
            + -(-sum(b * n for b, n in tokens.items() if max(1, cut) <= b <= room - cut) // room),
        ),
    }
    batches = max(prefill, counts[argument]())
    least, slack = min(p0, d0), max(0, beta - d1) * kv
    presence = d0 * decode + least * max(0, batches - prefill - decode)
    if not evicts or slack >= 2 * d0:
        area = sum(c * ((o - 1) * i + o * (o - 1) // 2) for i, o, c in kinds)
        presence = max(presence, d0 * area // kv + least * max(0, batches - prefill - -(-area // kv)))
    each = min(d1, beta) if evicts else d1
    work = sum(c * (beta * (i + o - 1) + each * (o - 1) * (2 * i + o - 2) // 2) for i, o, c in kinds)
    if not spread:
        work += p1 * sum(c * i * i for i, _, c in kinds)
    elif evidence["reference"] is not None:
        r = evidence["reference"]
        parts = [(p1 * i * i * c, r - o + 1) for i, o, c in kinds]
        assert r >= max(batches, longest)
        assert sum(-(-s // q**2) for s, q in parts) <= alpha
        work += sum(s // q + (r - batches) * (s // q**2) for s, q in parts)
    return number(evidence["since"]) + Fraction(alpha * batches + p0 * prefill + presence + work, scale)


#: Proofs that are written here, by problem and kind or argument.
PROOFS = {
    ("pipelining", "hats"): hats,
    ("makespan", "paper eq 32"): paper,
    **{
        ("infermax", name): closed_form
        for name in (
            "longest request", "prefill tail", "token budget", "running limit", "separate phases", "KV slots",
            "KV area",
        )
    },
}  # fmt: skip


@pytest.mark.parametrize(
    "vector", [v for v in VECTORS if v["outcome"] == "accepted"], ids=lambda v: v["certificate"]
)
def test_hashes_are_those_of_the_page(vector: dict[str, Any]) -> None:
    certificate, instance = read(FOLDER / vector["certificate"]), read(FOLDER / vector["instance"])
    body = {key: value for key, value in certificate.items() if key != "sha256"}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    assert hashlib.sha256(text.encode()).hexdigest() == certificate["sha256"]
    assert digest(LINES[vector["problem"]](instance)) == certificate["instance_sha256"]


def test_proofs_are_those_of_the_page() -> None:
    """The claim of each certificate is what the page's formulas come to; a raised one is more."""
    seen = set()
    for vector in VECTORS:
        raised = vector["certificate"].endswith("claim-raised-by-a-hair.json")
        if not raised and (vector["outcome"] != "accepted" or "variants" in vector["certificate"]):
            continue
        certificate, instance = read(FOLDER / vector["certificate"]), read(FOLDER / vector["instance"])
        evidence = certificate["evidence"]
        key = vector["problem"], evidence.get("argument", evidence.get("kind"))
        if key in PROOFS:
            seen.add(key)
            proved = PROOFS[key](instance, evidence)
            assert (number(certificate["lower_bound"]) <= proved) != raised, vector["certificate"]
            assert raised or number(certificate["lower_bound"]) == proved
    assert seen == set(PROOFS)
