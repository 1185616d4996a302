"""Seeded tiny instances whose requests have classes, weights and service levels, for every objective."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

from infermax_opt.infermax.data.instance import Instance, Objective, RequestClass, RequestGroup
from tests.infermax.tiny import tiny
from tests.infermax.waiting import waiting

__all__ = ["droppable", "served"]


def served(seed: int, objective: object, *, arrivals: bool = True) -> Instance:
    """An instance of `waiting`, or of `tiny` without arrivals, with terms of every kind."""
    rng = random.Random(seed)
    base = waiting(seed) if arrivals else tiny(seed)
    names = rng.choice([["a"], ["a", "b"], ["a", "b", None]])
    groups: list[RequestGroup] = []
    for group in base.groups:
        # Requests of one type, too.
        like = groups[-1] if groups and rng.random() < 0.3 else None
        group = replace(
            group,
            class_name=like.class_name if like else rng.choice(names),
            weight=like.weight if like else rng.choice([None, 1, 2, "0.5", 7]),
            slo=like.slo if like else _slo(rng),
        )
        groups.append(group)
    classes = (RequestClass("a", rng.choice([None, 3]), _slo(rng)),) if rng.random() < 0.5 else ()
    return replace(
        base,
        groups=tuple(groups),
        classes=classes,
        objective=Objective.of(objective),  # type: ignore[arg-type]
    )


def droppable(seed: int, objective: object, *, arrivals: bool = True) -> Instance:
    """An instance of `served` some of whose requests may be left unfinished, often with a horizon."""
    base, rng = served(seed, objective, arrivals=arrivals), random.Random(seed)
    horizon = rng.choice([None, Fraction(rng.randint(1, 90), 10)])
    groups = tuple(replace(group, optional=rng.choice([None, True, True, False])) for group in base.groups)
    classes = tuple(replace(known, optional=rng.choice([None, True])) for known in base.classes)
    return replace(base, groups=groups, classes=classes, horizon=horizon)


def _slo(rng: random.Random) -> dict[str, Fraction]:
    """Limits that some schedules keep."""
    most = {"ttft": 40, "tpot": 20, "e2e": 80}
    return {name: Fraction(rng.randint(0, top), 10) for name, top in most.items() if rng.random() < 0.4}
