"""What can be wrong with a certificate: one fault each, and the class of reason for which it is rejected."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

#: How little is too much of a claim.
HAIR = Fraction(1, 10**40)

#: Classes of reasons, in words.
REASONS = {
    "claim": "the evidence is sound and proves less than is claimed",
    "evidence": "the evidence breaks a condition of its proof",
    "malformed": "a field is missing, or is not what the format says, or not for this instance",
    "kind": "the evidence is of no kind that the objective of the instance has",
    "digest": "the certificate's own sha256 is of another text",
    "instance": "the certificate is for another instance",
    "question": "the certificate holds another question than its hash, or than the one that is asked for",
    "objective": "the certificate is for another objective",
    "cost": "the certificate is for another cost model",
    "work": "checking would take more than the limit",
    "unusable": "the instance is at fault",
    "json": "a file is not JSON: its text, its encoding, a number that is not finite, no object",
    "duplicate-key": "an object of a file has a key twice",
    "depth": "a file is nested too deeply",
    "gzip": "a file is not a complete gzip file",
    "size": "a file is larger than it may be",
}


class Fault(NamedTuple):
    """A changed certificate, signed anew but for faults of the signature itself."""

    name: str
    reason: str
    certificate: dict[str, Any]
    signed: bool = True


def changed(value: dict[str, Any], path: str, new: Any) -> dict[str, Any]:
    """A copy with another value at a dotted path; without it where that is `...`; a function changes it.

    Parameters
    ----------
    value : dict
    path : str
        Numbers are places of lists.
    new : Any
    """
    made = copy.deepcopy(value)
    *parents, last = (int(key) if key.lstrip("-").isdigit() else key for key in path.split("."))
    inner: Any = made
    for key in parents:
        inner = inner[key]
    if new is ...:
        del inner[last]
    else:
        inner[last] = new(inner[last]) if callable(new) else new
    return made


def up(by: int) -> Callable[[int], int]:
    """A number that is so much larger."""
    return lambda value: value + by


def double(values: list[Any]) -> list[Any]:
    """A list with its first value twice."""
    return [values[0], *values]


def priced(trees: list[Any], price: int) -> list[Any]:
    """Trees with that price at every place."""
    return [[[*entry[:2], *[price] * len(entry[2:])] for entry in tree] for tree in trees]


#: Faults of each kind of evidence: name, reason, where, and what stands there instead.
OF_EVIDENCE: dict[str, tuple[tuple[str, str, str, Any], ...]] = {
    "closed-form": (("argument-unknown", "malformed", "argument", "magic"),),
    "kv-area": (
        ("cut-too-large", "malformed", "cut", 10**6),
        ("since-after-all", "evidence", "since", "99"),
        ("since-below-0", "evidence", "since", "-1"),
    ),
    "kv-releases": (
        ("price-of-0", "claim", "cut", 0),
        ("price-that-proves-less", "claim", "cut", lambda price: 4 * price),
        ("price-beyond-what-evictions-cost", "malformed", "cut", 10**12),
        ("price-below-0", "malformed", "cut", -1),
    ),
    "kv-beginning": (
        ("memory-free-to-the-end", "claim", "cut.kv.8", 0),
        ("memory-dearer", "claim", "cut.kv.8", up(10**7)),
        ("price-of-0", "claim", "cut.price", 0),
        ("price-beyond-what-evictions-cost", "malformed", "cut.price", 10**12),
        ("price-below-0", "evidence", "cut.kv.0", -1),
        ("more-batches-than-tokens", "evidence", "cut.kv", [0] * 10),
        ("no-prices", "malformed", "cut", 7),
    ),
    "state-flow": (
        ("price-raised", "evidence", "prices.first.0", up(10**12)),
        ("potential-raised", "evidence", "potential.1", up(10**12)),
        ("potential-of-the-empty-state-null", "evidence", "potential.0", None),
        ("potential-missing", "evidence", "potential.-1", ...),
        ("potential-too-many", "evidence", "potential", lambda row: [*row, row[-1]]),
        ("potential-lowered", "evidence", "potential.1", up(-(10**12))),
        ("last-potential-raised", "evidence", "potential.-1", 10**12),
        ("last-potential-lowered", "evidence", "potential.-1", -(10**12)),
        ("eviction-price-lowered", "evidence", "prices.out.0.0", up(-(10**12))),
        ("eviction-price-raised", "evidence", "prices.out.0.0", up(10**12)),
    ),
    "levels": (
        ("worth-raised", "evidence", "prices.worth.0", up(10**6)),
        ("worth-below-idling", "evidence", "prices.worth.1", 65),
        ("worth-of-the-lowest-level-below-idling", "evidence", "prices.worth.0", 98),
        ("worth-missing", "malformed", "prices.worth.-1", ...),
        ("idle-too-much", "malformed", "prices.idle", 10**9),
        ("leaving-earns", "evidence", "potential.1", up(10**6)),
        ("block-earns", "evidence", "potential.4", up(10**6)),
        ("last-potential-lowered", "evidence", "potential.-1", up(-(10**6))),
        ("potential-of-the-empty-state-null", "evidence", "potential.0", None),
        ("potential-missing", "evidence", "potential.-1", ...),
        ("potential-too-many", "evidence", "potential", lambda row: [*row, row[-1]]),
        ("width-narrower", "malformed", "width", 1),
        ("width-wider-than-outputs", "malformed", "width", 4),
    ),
    "narrow-levels": (
        ("worth-raised", "evidence", "prices.worth.2", up(10**6)),
        ("worth-of-the-lowest-level-below-idling", "evidence", "prices.worth.0", 17),
    ),
    "levels-in-full": (
        ("worth-raised-by-a-unit", "evidence", "prices.worth.1", up(1)),
        ("decodes-alone-earn", "evidence", "potential.7", up(1)),
        ("not-in-full", "malformed", "full", False),
    ),
    "count-branching": (
        ("price-below-0", "malformed", "trees.0.nodes.0.decoded.0", -1),
        ("prices-missing", "malformed", "trees.0.nodes.0.held.-1", ...),
        ("price-of-no-split", "malformed", "trees.1.nodes.-1.splits", lambda row: [*row, 0]),
        ("batches-one-fewer-than-prices", "malformed", "trees.0.batches", up(1)),
        ("batches-fewer-than-before", "malformed", "trees.-1.batches", 3),
        ("side-missing", "evidence", "trees.1.nodes.-1", ...),
        ("side-too-many", "evidence", "trees.0.nodes", lambda nodes: nodes * 2),
        ("box-of-no-kind", "malformed", "trees.1.nodes.0.0", 0),
        ("box-of-another-kind", "malformed", "trees.1.nodes.0.0", 128),
        ("box-after-the-last-batch", "malformed", "trees.1.nodes.0.2", up(1)),
        ("box-of-no-tokens", "malformed", "trees.1.nodes.0.3", 0),
        ("divisor-0", "malformed", "divisors.0", 0),
    ),
    "occupancy": (
        ("token-price-raised", "evidence", "prices.token", up(10**12)),
        ("finish-price-raised", "evidence", "prices.finish.0", up(10**12)),
        ("potential-lowered", "evidence", "potential.1.0", up(-(10**12))),
        ("list-missing", "evidence", "potential", lambda lists: lists[:1]),
        ("list-too-many", "evidence", "potential", lambda lists: [*lists, *[lists[-1]] * 9]),
        ("potential-of-the-empty-state-null", "evidence", "potential.0", lambda row: [None, *row[1:]]),
        ("eviction-price-lowered", "evidence", "prices.out_fixed", up(-(10**12))),
        ("first-price-raised", "evidence", "prices.first.0", up(10**12)),
        ("idling-earns", "evidence", "prices.size", -(10**9)),
    ),
    "occupancy-at-prices-of-memory": (
        ("price-of-kv-raised", "evidence", "memory.kv.1", 1),
        ("price-of-kv-below-0", "evidence", "memory.kv.0", -1),
        ("price-of-kv-a-text", "malformed", "memory.kv.0", "0"),
        ("no-batches", "evidence", "memory.kv", []),
        ("too-many-batches", "evidence", "memory.kv", lambda kv: [*kv, *[0] * 9]),
        ("active-requests-count-more", "evidence", "memory.active", up(1)),
        ("tokens-count-more", "evidence", "memory.size", up(1)),
        ("potential-raised", "evidence", "potential.0.0", up(1)),
        ("worth-missing", "malformed", "memory.active", ...),
        ("two-ways", "evidence", "ends", [0, 0]),
    ),
    "occupancy-with-pairs": (
        ("price-raised", "evidence", "prices.pairs", up(10**6)),
        ("price-lowered", "evidence", "prices.pairs", up(-(10**6))),
        ("price-missing", "evidence", "prices.pairs", ...),
        ("price-below-0", "malformed", "prices.pairs", -1),
        ("potential-raised", "evidence", "potential.2.3", up(1)),
    ),
    "lagrangian": (
        ("price-below-0", "evidence", "prices.0.0.0", -1),
        ("too-few-batches", "evidence", "prices", [[[1, 1]]]),
        ("lists-of-different-lengths", "evidence", "prices", lambda lists: [*lists, [[1, 99]]]),
        ("theta-too-large", "malformed", "theta", 10**9),
    ),
    "lagrangian-with-tokens": (
        ("price-below-0", "evidence", "tokens.0.0.0", -1),
        ("price-a-text", "malformed", "tokens.0.0.0", "1"),
        ("prices-that-prove-less", "claim", "tokens.0.0.0", lambda price: 10**4 * price),
        ("none-that-prove-less", "claim", "tokens", [[[0, 8]]] * 2),
        ("fewer-lists", "evidence", "tokens", lambda lists: lists[:1]),
        ("fewer-batches", "evidence", "tokens", [[[0, 7]]] * 2),
    ),
    "filling": (
        ("level-too-high", "evidence", "cells.0.1", lambda level: 4 * level + 4),
        ("level-below-0", "evidence", "cells.-1.1", -1),
        ("ends-do-not-rise", "evidence", "cells", double),
        ("end-after-the-makespan", "evidence", "cells", lambda cells: [*cells, [10**9, 0]]),
        ("more-left-than-there-is", "evidence", "cells.0.1", lambda level: level * 9 // 8),
        ("levels-do-not-fall", "evidence", "cells.0.1", 0),
        ("slots-without-a-limit", "evidence", "by_slots", True),
    ),
    "ramp": (
        ("fewer-batches-that-prove-less", "claim", "batches", 1),
        ("more-batches-than-there-are", "malformed", "batches", 5),
        ("batches-below-0", "malformed", "batches", -1),
        ("piece-that-proves-less", "claim", "piece", 1),
        ("share-that-proves-less", "claim", "share", lambda share: share // 2),
        ("share-above-1", "malformed", "share", 1001),
    ),
    "running": (
        ("piece-that-proves-less", "claim", "piece", 1),
        ("no-piece", "malformed", "piece", 2),
        ("piece-below-0", "malformed", "piece", -1),
    ),
    "knee": (
        ("no-knee", "evidence", "flat", 1),
        ("flat-is-no-piece", "malformed", "flat", 2),
        ("share-that-proves-less", "claim", "share", 300),
        ("share-above-1", "malformed", "share", 1001),
        ("kv-that-proves-less", "claim", "kv", 1000),
        ("kv-below-0", "malformed", "kv", -1),
        ("refills-that-prove-less", "claim", "refills", 50),
        ("more-than-all", "malformed", "prompts", 101),
        ("more-batches-than-there-are", "malformed", "batches", 10**4),
        ("batches-that-prove-less", "claim", "batches", 1),
    ),
    "apart": (
        ("alone-is-no-piece", "malformed", "alone", 2),
        ("share-above-1", "malformed", "share", 1001),
        ("share-that-proves-less", "claim", "share", 0),
    ),
    "progress": (
        ("level-above-unfinished", "evidence", "levels.0.1", lambda level: level * 2),
        ("ends-do-not-rise", "evidence", "levels", double),
    ),
    "waves": (
        ("layer-higher-than-the-work", "evidence", "work.0.1", lambda height: height * 4),
        ("price-not-covered", "evidence", "work.0.3.-1.1", lambda price: price * 4),
    ),
    "interaction": (
        ("ends-do-not-rise", "evidence", "cells", double),
        ("root-below-0", "evidence", "cells.0.1", -1),
        ("theta-above-1", "malformed", "theta", 1025),
    ),
    "lingering": (
        ("stays-that-prove-less", "claim", "stays.0", lambda stay: 10 * stay + 10**15),
        ("stay-below-0", "evidence", "stays.0", -1),
        ("stay-missing", "malformed", "stays.-1", ...),
        ("no-groups", "malformed", "groups", 0),
    ),
    "lingering-by-shares": (
        ("stays-that-prove-less", "claim", "stays.0", lambda stay: 10 * stay + 10**15),
        ("share-above-theta", "evidence", "shares.0", 2**10),
        ("share-of-0", "evidence", "shares.0", 0),
        ("share-missing", "malformed", "shares.-1", ...),
    ),
    "deferral": (
        ("roots-that-prove-less", "claim", "cells.-1.1", lambda root: root + 10**6),
        ("stay-below-1", "evidence", "stays.0", 0),
        ("share-above-1", "evidence", "shares.0", 2**10 + 1),
        ("weight-below-0", "evidence", "weights.0.0", -1),
        ("weight-missing", "malformed", "weights.0", lambda row: row[:-1]),
        ("level-at-which-waiting-pays", "evidence", "levels.0.0.0", 15),
        ("ages-that-fall", "evidence", "ages", [60, 50]),
        ("age-without-weights", "malformed", "ages", [60, 70]),
        ("level-of-no-cell", "evidence", "levels.0.0.1", 0),
        ("no-groups", "malformed", "groups", 0),
    ),
    "mutual": (
        ("share-above-1", "evidence", "pairs.1.1", 2**16 + 1),
        ("share-below-0", "evidence", "pairs.1.1", -1),
        ("shares-above-1-of-two-pairs", "evidence", "pairs.2.1", 2**16),
        ("pair-twice", "evidence", "pairs.2", lambda row: [1, 0, 0, 1, 0, 0]),
        ("pair-with-itself", "evidence", "pairs.1.0", 0),
        ("no-triples", "evidence", "pairs.1", lambda row: row[:-1]),
        ("row-missing", "malformed", "pairs.-1", ...),
    ),
    "pace": (
        ("roots-that-prove-less", "claim", "cells.0.1", lambda root: root + 2**14),
        ("member-below-0", "evidence", "members.0.0", -1),
        ("own-missing", "malformed", "own.-1", ...),
    ),
    "pace-at-moments": (
        ("roots-that-prove-less", "claim", "cells.0.1", lambda root: root + 2**14),
        ("rewards-for-prompts", "claim", "spot", False),
        ("spot-that-is-no-flag", "malformed", "spot", 1),
        ("followed-less-far", "claim", "followed.0.1.1", 1),
        ("member-that-is-none", "evidence", "followed.0.0.0", 4),
        ("member-below-0", "evidence", "followed.0.0.0", -1),
        ("followed-missing", "malformed", "followed.-1", ...),
    ),
    "pace-with-kv": (
        ("prices-that-prove-less", "claim", "cells.0.2", lambda rent: rent + 2**26),
        ("price-below-0", "evidence", "cells.0.2", -1),
        ("base-below-0", "evidence", "bases.0.1", -1),
        ("base-missing", "malformed", "bases.0.-1", ...),
        ("no-parts", "malformed", "parts", 0),
        ("other-parts", "malformed", "parts", 1),
    ),
    "overload": (
        ("level-above-its-price", "evidence", "cells.0.2", lambda level: level * 2),
        ("price-below-0", "evidence", "cells.0", lambda cell: [cell[0], -1, 0]),
        ("ends-do-not-rise", "evidence", "cells", double),
        ("no-groups", "malformed", "groups", 0),
        ("too-many-levels", "evidence", "cells", lambda _: [[k, 2**40, k] for k in range(1, 70)]),
    ),
    "backwards": (
        ("leave-too-short", "evidence", "leave", [0]),
        ("leave-does-not-rise", "evidence", "leave", double),
        ("price-out-of-range", "evidence", "prices.0", 10**30),
        ("no-unit", "malformed", "unit", 0),
    ),
    "attainment": (
        ("shares-above-1", "evidence", "cells.0.2", 2**25),
        ("price-below-0", "evidence", "cells.0.1", -1),
        ("ends-do-not-rise", "evidence", "cells", double),
        ("share-of-no-cell", "evidence", "shares.0", [0, 0, 0, 0]),
        ("share-below-0", "evidence", "shares.0", [0, -1]),
        ("first-cell-below-0", "evidence", "shares.0", [-1, 0]),
        ("exponent-below-0", "evidence", "exponent", -64),
        ("shares-missing", "malformed", "shares.-1", ...),
    ),
    "rank": (
        ("limit-raised", "evidence", "limit", "1000"),
        ("price-lowered-to-0", "evidence", "cells.0.1", 0),
    ),
    "crowds": (
        ("limit-raised", "evidence", "limit", "60"),
        ("crowd-missing", "evidence", "crowds.-1", ...),
        ("crowd-twice", "malformed", "crowds", double),
        ("crowd-of-others", "evidence", "crowds.1.first", 2),
        ("crowd-beyond-the-last", "malformed", "crowds.1.first", 6),
        ("exponent-below-0", "malformed", "crowds.0.exponent", -1),
        ("shares-above-1", "evidence", "crowds.0.cells.0.2", 1),
        ("price-lowered-to-0", "evidence", "crowds.0.cells.0.1", 0),
    ),
    "on-time": (
        ("limit-raised", "evidence", "limit", "2.5"),
        ("limit-below-0", "evidence", "limit", "-1"),
        ("limit-missing", "malformed", "limit", ...),
        ("piece-unknown", "malformed", "piece", 2),
    ),
    "limits": (("metric-without-a-limit", "malformed", "metric", "mean_ttft"),),
    "parts": (
        ("metric-twice", "evidence", "parts", double),
        ("metric-of-no-weight", "malformed", "parts.1.metric", "p99_ttft"),
        ("part-missing", "claim", "parts.1", ...),
    ),
    "branching": (
        ("tree-missing", "evidence", "trees.-1", ...),
        ("tree-too-many", "evidence", "trees", lambda trees: [*trees, trees[-1]]),
        ("entry-too-many", "evidence", "trees.0", lambda tree: [*tree, tree[-1]]),
        ("kept-twice", "evidence", "kept", lambda kept: [*kept, kept[0]] if kept else ["a", "a"]),
        ("tree-empty", "evidence", "trees.0", []),
        ("prices-below-0", "malformed", "trees", lambda trees: priced(trees, -1)),
        ("prices-of-0", "evidence", "trees", lambda trees: priced(trees, 0)),
        ("value-lowered", "evidence", "value", lambda value: value // 2),
        ("request-unknown", "malformed", "kept", lambda kept: [*kept, "nobody"]),
        ("no-ticks", "malformed", "ticks", 0),
    ),
    "arc-lengths": (
        ("argument-unknown", "malformed", "argument", "magic"),
        ("argument-that-proves-less", "claim", "argument", "paper eq 32"),
    ),
    "hats": (
        ("weight-below-0", "malformed", "counts", [[1, "-1"]]),
        ("height-of-0", "malformed", "counts", [[0, "1"]]),
        ("weight-of-a-list", "malformed", "counts", [[1, ["1"]]]),
        ("hats-missing", "claim", "hats", []),
    ),
    "prices": (
        ("lengths-do-not-rise", "evidence", "sizes", lambda sizes: sizes[::-1]),
        ("price-below-0", "evidence", "prices.0", -1),
        ("scale-of-0", "malformed", "scale", "0"),
        ("price-missing", "malformed", "prices.-1", ...),
        ("price-lowered", "claim", "prices.-1", 0),
    ),
}  # fmt: skip
OF_EVIDENCE["missed"] = OF_EVIDENCE["attainment"]
#: Of potentials on the instance `arrivals`: changes that break one condition and no other.
ONE_STEP: dict[str, tuple[tuple[str, str, str, Any], ...]] = {
    "occupancy": (
        ("prefill-batch-earns", "evidence", "potential.0.0", up(-(10**6))),
        ("idling-earns", "evidence", "prices.token", up(-(10**6))),
        ("batch-earns", "evidence", "potential.2.0", up(-(10**11))),
        ("finish-earns", "evidence", "potential.1.1", up(10**6)),
    ),
    "state-flow": (
        ("prefill-batch-earns", "evidence", "potential.24", up(10**6)),
        ("idling-earns", "evidence", "potential.11", up(10**9)),
        ("batch-earns", "evidence", "potential.8", up(-(10**10))),
        ("finish-earns", "evidence", "potential.26", up(-(10**9))),
    ),
}
#: Faults of any certificate.
OF_ENVELOPE: tuple[tuple[str, str, str, Any], ...] = (
    ("schema-unknown", "malformed", "schema", "infermax-opt/certificate/2"),
    ("bound-missing", "malformed", "lower_bound", ...),
    ("bound-over-0", "malformed", "lower_bound", "1/0"),
    ("bound-true", "malformed", "lower_bound", True),
    ("bound-of-61-digits", "malformed", "lower_bound", "9" * 61),
    ("evidence-missing", "malformed", "evidence", ...),
    ("evidence-a-list", "malformed", "evidence", []),
    ("kind-missing", "malformed", "evidence.kind", ...),
    ("source-a-number", "malformed", "source", 7),
    ("cost-missing", "malformed", "cost", ...),
    ("name-of-another-instance", "instance", "instance", "another"),
    ("hash-of-another-instance", "instance", "instance_sha256", "0" * 64),
    ("another-objective", "objective", "objective", "max_tpot"),
)
#: How the cost model of each problem is another one.
OTHER_COST = {
    "infermax": ("cost.batch.0.0", "2"),
    "iteration": ("cost.decode.0", "2"),
    "makespan": ("cost.decode.overhead", "2"),
    "pipelining": ("cost.capacity", 7),
}


def of_claim(certificate: dict[str, Any]) -> Fault:
    """A claim that is too large by a hair."""
    more = str(Fraction(certificate["lower_bound"]) + HAIR)
    return Fault("claim-raised-by-a-hair", "claim", changed(certificate, "lower_bound", more))


def of_evidence(
    table: dict[str, tuple[tuple[str, str, str, Any], ...]], kind: str, certificate: dict[str, Any]
) -> Iterator[Fault]:
    """Faults of evidence, which claims 0, so that nothing but the fault is there to reject it.

    Parameters
    ----------
    table : dict
        Faults by kind.
    kind : str
        As `scripts.vectors.accepted` names it.
    certificate : dict
    """
    for name, reason, path, new in table.get(kind, ()):
        wrong = changed(certificate, f"evidence.{path}", new)
        yield Fault(name, reason, wrong if reason == "claim" else {**wrong, "lower_bound": "0"})


def of_envelope(problem: str, certificate: dict[str, Any]) -> Iterator[Fault]:
    """Faults of what surrounds the evidence.

    Parameters
    ----------
    problem : str
    certificate : dict
    """
    for name, reason, path, new in OF_ENVELOPE:
        yield Fault(name, reason, changed(certificate, path, new))
    path, new = OTHER_COST[problem]
    yield Fault("another-cost-model", "cost", changed(certificate, path, new))
    yield Fault("kind-unknown", "kind", changed(certificate, "evidence.kind", "magic"))
    yield Fault("sha256-of-another-text", "digest", {**certificate, "source": "another"}, signed=False)
    yield Fault("sha256-missing", "digest", changed(certificate, "sha256", ...), signed=False)
