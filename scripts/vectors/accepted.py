"""Small instances and a certificate of each kind of proof.

Bounds that are searched come with more evidence than a vector needs.  Some evidence is therefore written
here: coarser, and true all the same, as a checker takes any prices.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import infermax_opt as imx
from infermax_opt.checking.fields import Field
from infermax_opt.core.registry import problem_of
from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.core.values import AnyInstance
from infermax_opt.files.certificates import certificate_to_json, exact_text
from infermax_opt.infermax.checker import instance as checked
from infermax_opt.infermax.checker.certificate import prove
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.formats import cost_to_json, instance_to_json
from infermax_opt.infermax.data.instance import (
    Instance,
    Objective,
    Policy,
    RequestGroup,
    ServiceLevel,
    System,
)
from infermax_opt.makespan.data.generate import gsm8k_like

#: Seconds for the bounds of an instance, which take less.
SECONDS = 30.0
COST = CostModel([("1", "0.1"), ("0.5", "0.2")], ("0.25", "0.05"), ("0.3", "0.02"))
ROUNDS = CostModel([("1", "0")], ("0", "0"), ("0", "0"))
TWO = (RequestGroup("a", 2, 3, count=2), RequestGroup("b", 3, 2, Fraction("1.5")))
RIGID = Policy(hybrid_batching=False, chunked_prefill=False, preemption=False)
PAIR = (("a", 2, 20), ("b", 3, 16))
KEPT = Policy(hybrid_batching=True, chunked_prefill=False, preemption=False)


class Accepted(NamedTuple):
    """A certificate that proves its bound; `kind` names the proof in file names."""

    instance: AnyInstance
    kind: str
    certificate: dict[str, Any]


# --- instances of InferMax --------------------------------------------------------------------------


def offline() -> Instance:
    """Equal requests, at most two of them at a time; a name that is hashed as escapes."""
    return Instance("offline-\u00e9", (RequestGroup("r", 2, 3, count=3),), System(8, 50, 50, 2), COST)


def arrivals(objective: str = "makespan") -> Instance:
    """Two kinds of requests, one of which comes later."""
    return Instance("arrivals", TWO, System(8, 5, 4, 2), COST, objective=Objective.of(objective))


def roomy() -> Instance:
    """Batches of few tokens, which fill memory slowly."""
    return Instance("roomy", (RequestGroup("r", 4, 2, count=4),), System(10, 3, 3), COST)


def places() -> Instance:
    """Prompts that are in several chunks for their attention, where two requests may run."""
    dear = CostModel(COST.batch, COST.decode, ("0.3", "0.25"))
    return Instance("places", (RequestGroup("r", 7, 3, count=4),), System(40, 20, 20, 2), dear)


def turns() -> Instance:
    """Requests that take turns in little memory, which takes more than a batch up to the knee to fill."""
    return Instance("turns", (RequestGroup("r", 8, 3, count=6),), System(11, 20, 20), COST)


def shared() -> Instance:
    """Long outputs that fill memory between releases, and short ones, of which a release says little."""
    groups = RequestGroup("a", 1, 9, count=3), RequestGroup("b", 2, 1, count=4)
    dear = CostModel([("1", "9")], ("0.25", "0.05"), ("0.3", "0.02"))
    return Instance("shared", groups, System(12, 20, 20), dear)


def beside() -> Instance:
    """Requests that cost more where prompts and decodes share a batch."""
    mixed = CostModel(COST.batch, COST.decode, COST.prefill, mixed=("0.25", "0.125"), prefix="0.0625")
    return Instance("beside", TWO, System(20, 8, 8), mixed, KEPT)


def rigid() -> Instance:
    """Prefill and decode apart, and nobody evicted."""
    return Instance("rigid", TWO, System(9, 5, 4), COST, RIGID)


def rounds() -> Instance:
    """Batches that take the same time, and little KV."""
    groups = RequestGroup("a", 1, 4, count=3), RequestGroup("b", 2, 2, count=2)
    aim = Objective.of("mean_e2e")
    return Instance("rounds", groups, System(6, 50, 50), ROUNDS, KEPT, objective=aim)


def visit() -> Instance:
    """Three that decode for long, and a prompt that comes meanwhile."""
    groups = RequestGroup("a", 1, 9, count=3), RequestGroup("b", 5, 2, 3)
    cost = CostModel([("1", "0.2")], ("0.25", "0.05"), ("0", "0"))
    return Instance("visit", groups, System(60, 9, 9), cost, KEPT, objective=Objective.of("mean_e2e"))


def refills() -> Instance:
    """Requests on little memory; a refill in chunks is dearer than a decode, but while little is cached."""
    groups = RequestGroup("a", 1, 9, count=3), RequestGroup("b", 5, 2, 3), RequestGroup("c", 2, 6, 4)
    cost = CostModel([("1", "0.2")], ("0.25", "0.05"), ("0", "0.01"))
    return Instance("refills", groups, System(16, 9, 9), cost, objective=Objective.of("mean_e2e"))


def late(objective: Any = "missed") -> Instance:
    """Service levels that cannot all be kept."""
    groups = (
        RequestGroup("r", 2, 3, count=6, slo=ServiceLevel(e2e=Fraction(6))),
        RequestGroup("s", 3, 2, count=2, weight="2", slo=ServiceLevel(ttft=Fraction(3))),
    )
    aim = Objective.of(objective)
    return Instance("late", groups, System(12, 20, 20, 3), COST, objective=aim)


def optional(objective: str) -> Instance:
    """More optional requests than there is time for."""
    groups = RequestGroup("m", 2, 2), RequestGroup("r", 2, 3, count=6, optional=True)
    aim = Objective.of(objective)
    return Instance("optional", groups, System(12, 20, 20, 3), COST, objective=aim, horizon="7")


def crowd() -> Instance:
    """Twelve equal requests on a machine that holds three of them."""
    aim = Objective.of("p50_e2e")
    return Instance("crowd", (RequestGroup("r", 6, 6, count=12),), System(40, 50, 50, 3), COST, objective=aim)


def waves() -> Instance:
    """Four equal requests, memory for two of them."""
    groups = (RequestGroup("r", 2, 2, count=4),)
    return Instance("waves", groups, System(6, 8, 8), COST, KEPT, objective=Objective.of("mean_e2e"))


def close() -> Instance:
    """Prompts that come so close together that not all can be on time."""
    groups = tuple(RequestGroup(f"r{k}", 3 + k % 3, 2, Fraction(k, 2)) for k in range(5))
    aim = Objective.of("p50_ttft")
    return Instance("close", groups, System(40, 6, 6), COST, objective=aim)


def far() -> Instance:
    """Two pairs of requests far from each other, each of which cannot both be on time, and short ones."""
    pairs = [RequestGroup(f"{name}{k}", i, o, 60 * k) for k in range(2) for name, i, o in PAIR]
    groups = (RequestGroup("s", 1, 1, 1, count=8), *pairs)
    aim = Objective.of("p90_e2e")
    return Instance("far", groups, System(80, 50, 50), COST, KEPT, objective=aim)


# --- evidence that is written here ------------------------------------------------------------------

MISSED = {
    "kind": "attainment", "piece": 0, "exponent": 16, "groups": 2,
    "cells": [[600, 504, 4194304, 0, 8388608]], "shares": [[0, 0], [0, 1048576]],
}  # fmt: skip
UNSERVED = {
    "kind": "attainment", "piece": 0, "exponent": 16, "groups": 2,
    "cells": [[700, 356, 0, 0, 8388608], [1000, 16, 0, 4194304, 8388608]], "shares": [[0, 524288, 524288]],
}  # fmt: skip
RANK = {
    "kind": "rank", "limit": "14", "piece": 0, "exponent": 16, "groups": 2,
    "cells": [[1400, 118, 1048576, 4194304, 4194304]], "shares": [[0, 524288]],
}  # fmt: skip
LEVELS = {
    "kind": "levels", "piece": 0, "exponent": 12, "width": 2,
    "prices": {"worth": [511988, 511929], "idle": 33},
    "potential": [0, -511905, 166, -1023834, -491309, 166],
}  # fmt: skip
#: Levels of one token, onto which requests may return late.
NARROW = {
    "kind": "levels", "piece": 1, "exponent": 13, "width": 1,
    "prices": {"worth": [307179, 307182, 307186], "idle": 9},
    "potential": [0, -614326, -307108, 106, -1228694, -880504, -573286, -614294, -266104, 106],
}  # fmt: skip
#: Levels of one token where each batch is charged in full.
FULL = {
    "kind": "levels", "piece": 0, "exponent": 6, "width": 1, "full": True,
    "prices": {"worth": [4159, 2881, 5120]},
    "potential": [0, -8000, -3871, 0, -16000, -11871, -8000, -8000, -3871, 0],
}  # fmt: skip
#: Prices of memory in the first three batches, at which each request gains 4 units, and nothing else.
MEMORY = {
    "kind": "occupancy", "piece": 0, "exponent": 26, "young": 0,
    "prices": {"token": 0, "size": 0, "out_fixed": 0, "out_size": 0, "first": [0], "finish": [0]},
    "potential": [[25165823980], [25165823980] * 4, [25165823980] * 7],
    "memory": {"kv": [0, 0, 1], "active": 3, "size": 1},
}  # fmt: skip
#: Memory that is free at first.
BEGUN = {
    "kind": "closed-form", "argument": "KV beginning", "since": "0", "piece": 0, "reference": 16,
    "cut": {"price": 1300000, "kv": [0, 0, 0, 0, 0, 0, 1500000, 2900000, 3900000]},
}  # fmt: skip
#: A price of pairs.
PAIRED = {
    "kind": "occupancy", "piece": 0, "exponent": 20, "young": 0,
    "prices": {
        "token": 51117567, "size": 6160322, "out_fixed": -76283141, "out_size": 4063191, "pairs": 8126382,
        "first": [-63438214], "finish": [49806861],
    },
    "potential": [
        [0], [76284509, 64094936, 60031904, 49809710],
        [246938544, 191626715, 136314886, 141295678, 136315045, 135136672, 123995717],
    ],
}  # fmt: skip
#: Prices of tokens, decodes among them; each list is for other numbers of batches.
TOKENS = {
    "kind": "lagrangian", "piece": 0, "exponent": 27, "theta": 0,
    "prices": [[[0, 8]], [[0, 6], [15768938609, 1], [0, 1]]],
    "tokens": [[[2944029, 7], [0, 1]], [[80522432364, 6], [80522458112, 1], [0, 1]]],
}  # fmt: skip
#: A tree of three batches, which are too few, and one of four with a branching.
BRANCHED = {
    "kind": "count-branching", "piece": 0, "exponent": 26, "divisors": [1, 2, 3],
    "trees": [
        {
            "batches": 3,
            "nodes": [
                {
                    "held": [[0, 0, 22906219615573], [0, 0, 0], [0, 0, 0]],
                    "decoded": [0, 0, 251658240], "prefilled": [41943040, 0, 0],
                    "prompts": [0, 0, 0], "splits": [],
                },
            ],
        },
        {
            "batches": 4,
            "nodes": [
                [32, 1, 4, 1, 1, 1],
                {
                    "held": [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 45814158895787, 0]],
                    "decoded": [0, 0, 0, 0], "prefilled": [11453288065707, 11453288065707, 0, 11453288065707],
                    "prompts": [0, 0, 0, 0], "splits": [91625968981333],
                },
                {
                    "held": [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 167772160, 0]],
                    "decoded": [0, 209715200, 209715200, 209715200], "prefilled": [0, 0, 0, 0],
                    "prompts": [0, 0, 0, 0], "splits": [2013265920],
                },
            ],
        },
    ],
}  # fmt: skip
ON_TIME = {"kind": "on-time", "piece": 1, "limit": "2.1"}
#: What the longer one of a pair pays in the time that it has.
HALF = {"exponent": 20, "groups": 2, "shares": [[0, 2**24], [0]]}
CROWDS = {
    "kind": "crowds", "limit": "40", "piece": 0,
    "crowds": [
        {"first": 0, **HALF, "cells": [[4000, 262, 0, 0, 0]]},
        {
            "first": 3, **HALF, "shares": [[1, 2**24], [0]],
            "cells": [[6000, 0, 0, 0, 0], [10000, 262, 0, 0, 0]],
        },
    ],
}  # fmt: skip
#: Prices of time alone, as certificates had them before KV had a price.
PACE = {
    "kind": "pace", "piece": 0,
    "cells": [[160, 4094], [320, 4122], [480, 4122], [640, 0], [800, 1]],
    "members": [
        *([k, 4096] for k in (5325, 4710, 4301, 4096, 3891, 3686, 3277, 2867, 2253, 1638, 819)), [4096, 0],
    ],
    "own": [3857, 3969],
}  # fmt: skip

#: Prompts pay the price of their moment, and few members are followed.
SPOT = {
    "kind": "pace", "piece": 0, "parts": 2, "spot": True,
    "cells": [
        [29, 5644, 0], [59, 5254, 0], [89, 4833, 0], [119, 4372, 0], [149, 3856, 0], [179, 3420, 0],
        [209, 2634, 0], [240, 1478, 0],
    ],
    "members": [[4096, 4096], [4096, 2867], [4096, 0], [2458, 4096]],
    "own": [5644, 3420],
    "bases": [[0, 4096, 4096], [0, 4096]],
    "followed": [[[0, 8], [2, 9]], [[0, 3], [2, 4]]],
}  # fmt: skip

#: The same share of all latencies.
LINGERING = {
    "kind": "lingering", "piece": 0, "theta": 819, "unit": 0, "groups": 8,
    "cells": [[100, 0], [200, 982], [300, 982], [400, 982], [500, 0], [600, 4910]],
    "stays": [452, 327],
}  # fmt: skip
#: Who decodes for long has a part of the wait of the prompt that comes meanwhile.
DEFERRAL = {
    "kind": "deferral", "piece": 0, "groups": 2,
    "cells": [
        [48, 11688], [96, 11747], [144, 11715], [192, 13635], [240, 14088], [288, 13721], [336, 13636],
        [384, 13586], [432, 7954], [480, 917],
    ],
    "ages": [194],
    "stays": [33317, 4918],
    "shares": [761, 641],
    "weights": [
        [10, 1, 0, 1, 3, 0, 1, 3, 1, 1, 10, 1, 10, 10, 3, 0, 0, 0, 10, 1, 1, 3, 3, 10, 3, 0, 3, 0, 3, 0],
        [0, 10, 3, 10, 3, 0, 3, 3, 10, 3, 0, 3, 10, 10, 10, 10, 10, 10, 0, 0, 1, 1, 10, 10, 1, 3, 1, 1, 3, 0],
    ],
    "levels": [[[30, 7], [18, 3]], [[26, 5], [17, 5]]],
}  # fmt: skip
#: Overload for `refills`: ticks are hundredths of a second.
OVERLOAD = {
    "kind": "overload", "piece": 0, "exponent": 20, "groups": 4, "parts": 3,
    "cells": [
        [365, 15584, 14317349], [731, 15250, 14317349], [1097, 11868, 14317349], [1463, 9350, 14317349],
        [1829, 7272, 13256072], [2196, 5194, 11363687], [2562, 3116, 9019368], [2928, 1038, 5260675],
    ],
}  # fmt: skip
#: Cells that are left of evidence that has many.
FEW = 6


def certificate(instance: AnyInstance, value: Fraction, source: str, evidence: Any) -> dict[str, Any]:
    """The certificate of a value.

    Parameters
    ----------
    instance : AnyInstance
    value : Fraction
    source : str
    evidence : Any
        As its file has it.
    """
    lower = LowerBound(value, source, Proof.CLOSED_FORM, evidence=evidence)
    return certificate_to_json(instance, lower, problem_of(instance).require_certification())


def proved(instance: Instance, evidence: dict[str, Any]) -> Fraction:
    """What evidence proves, as the checker computes it."""
    spelled = {**instance_to_json(instance), "cost": cost_to_json(instance.cost)}
    read = json.loads(json.dumps(spelled, default=exact_text))
    return prove(checked.Instance(read, None), Field(evidence, "evidence"))


#: Kinds of proof that are of other instances than the first one, where each change proves less.
OTHERS = ("ramp", "running", "knee", "kv-releases", "kv-beginning")

# --- certificates -----------------------------------------------------------------------------------


def searched(instance: AnyInstance) -> Iterator[Accepted]:
    """The first certificate of each kind, and of each closed form, among the bounds of an instance."""
    certification, seen = problem_of(instance).require_certification(), set[str]()
    for lower in imx.bound(instance, time_limit=SECONDS):
        if lower.evidence is not None:
            name = str(lower.evidence.get("argument", lower.evidence["kind"])).replace(" ", "-").lower()
            if name not in seen:
                seen.add(name)
                yield Accepted(instance, name, certificate_to_json(instance, lower, certification))


def of_infermax() -> Iterator[Accepted]:
    """Of every kind of proof of every objective that has certificates."""
    yield from (some for some in searched(offline()) if some.kind not in OTHERS)
    yield written(offline(), "levels", LEVELS)
    yield written(offline(), "narrow-levels", NARROW)
    yield written(offline(), "levels-in-full", FULL)
    yield written(offline(), "occupancy-at-prices-of-memory", MEMORY)
    yield written(offline(), "occupancy-with-pairs", PAIRED)
    yield written(offline(), "count-branching", BRANCHED)
    makespan = {some.kind: some for some in searched(arrivals())}
    yield from (makespan[kind] for kind in ("lagrangian", "state-flow", "occupancy"))
    yield from (some for some in searched(roomy()) if some.kind == "ramp")
    yield from (some for some in searched(places()) if some.kind == "running")
    yield from (some for some in searched(turns()) if some.kind == "knee")
    yield from (some for some in searched(beside()) if some.kind == "apart")
    yield from (some for some in searched(shared()) if some.kind == "kv-releases")
    yield written(shared(), "kv-beginning", BEGUN)
    yield written(roomy(), "lagrangian-with-tokens", TOKENS)
    for some in searched(rigid()):
        if some.kind in ("separate-phases", "filling"):
            yield coarse(some) if some.kind == "filling" else some
    mean = arrivals("mean_e2e")
    for some in searched(mean):
        if some.kind == "pace":
            yield coarse(some._replace(kind="pace-with-kv"))
        elif some.kind == "lingering":
            yield coarse(some._replace(kind="lingering-by-shares"))
        elif some.kind != "deferral":
            yield coarse(some) if some.kind in ("interaction", "progress") else some
    yield written(mean, "lingering", LINGERING)
    yield written(visit(), "deferral", DEFERRAL)
    yield written(refills(), "overload-of-refills", OVERLOAD)
    yield written(mean, "pace", PACE)
    yield written(mean, "pace-at-moments", SPOT)
    yield from (some for some in searched(rounds()) if some.kind == "backwards")
    yield from (some for some in searched(waves()) if some.kind == "waves")
    yield written(late(), "missed", MISSED)
    yield written(optional("unserved"), "unserved", UNSERVED)
    yield written(optional("unserved_tokens"), "unserved-tokens", UNSERVED)
    yield written(crowd(), "rank", RANK)
    yield written(far(), "crowds", CROWDS)
    yield written(close(), "on-time", ON_TIME)
    limits = replace(arrivals(), objective=Objective.of({"at_most": {"makespan": "3", "mean_e2e": "2"}}))
    yield written(limits, "limits", {**makespan["state-flow"].certificate["evidence"], "metric": "makespan"})
    weights = late({"missed": "1", "makespan": "0.1", "mean_e2e": "0.5"})
    parts = [{**MISSED, "metric": "missed"}, {**longest(weights), "metric": "makespan"}]
    yield written(weights, "parts", {"kind": "parts", "parts": parts})


def coarse(fine: Accepted) -> Accepted:
    """The same with few cells, each with the level of its end, which proves somewhat less."""
    assert isinstance(fine.instance, Instance)
    evidence = dict(fine.certificate["evidence"])
    key = "cells" if "cells" in evidence else "levels"
    step = -(-len(evidence[key]) // FEW)
    evidence[key] = evidence[key][step - 1 :: step]
    return written(fine.instance, fine.kind, evidence)


def longest(instance: Instance) -> dict[str, Any]:
    """Evidence of the makespan by the longest request, which needs no search."""
    alone = replace(instance, objective=Objective.of("makespan"))
    (some,) = (some for some in searched(alone) if some.kind == "longest-request")
    evidence: dict[str, Any] = some.certificate["evidence"]
    return evidence


def written(instance: Instance, kind: str, evidence: dict[str, Any]) -> Accepted:
    """A certificate of evidence that is at hand.

    Parameters
    ----------
    instance : Instance
    kind : str
        In its name.
    evidence : dict
    """
    value = proved(instance, evidence)
    return Accepted(instance, kind, certificate(instance, value, kind, evidence))


def of_others() -> Iterator[Accepted]:
    """Of the wings beside it, from shipped instances and a small one of clients."""
    yield from searched(gsm8k_like(seed=0, requests=6, clients=2))
    for name in ("iteration-toy", "pipelining-small"):
        yield from searched(imx.read_instance(f"instances/{name}.json"))
