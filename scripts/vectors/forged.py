"""Certificates that nobody would make: too long to check, or evidence that is not for such an instance.

Each is whole and claims 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from infermax_opt.infermax.checker import instance as infermax
from infermax_opt.makespan.checker import instance as makespan
from infermax_opt.pipelining.checker import instance as pipelining

COST = {"batch": [["1", "0.1"]], "decode": ["0", "0"], "prefill": ["0", "0"], "attention": "square"}


def certificate(of: dict[str, Any], sha256: str, objective: str, cost: Any, evidence: Any) -> dict[str, Any]:
    """A certificate of 0.

    Parameters
    ----------
    of : dict
        The instance.
    sha256 : str
        Its hash.
    objective : str
    cost : Any
    evidence : Any
    """
    return {
        "schema": "infermax-opt/certificate/1", "instance": of["name"], "instance_sha256": sha256,
        "objective": objective, "cost": cost, "lower_bound": "0", "source": "adversary", "evidence": evidence,
    }  # fmt: skip


def head(problem: str) -> dict[str, Any]:
    """What every instance begins with."""
    return {"schema": "infermax-opt/instance/1", "problem": problem, "name": "endless"}


def too_much_work() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Name, instance and certificate of each."""
    system = {"kv_capacity": 10**6, "max_batch_tokens": 10**6, "max_prefill_tokens": 10**6}
    policy = {"hybrid_batching": True, "chunked_prefill": True, "preemption": True}
    requests = [{"id": "r", "input_tokens": 1, "output_tokens": 10**5, "count": 10**6}]
    of = {
        **head("infermax"), "system": system, "policy": policy, "cost": COST, "objective": "makespan",
        "requests": requests,
    }  # fmt: skip
    sha256 = infermax.Instance(of, None).sha256
    evidence: dict[str, Any] = {"kind": "lagrangian", "piece": 0, "exponent": 0, "theta": 0}
    evidence["prices"] = [[[k, 10**6]] for k in range(12)]
    yield "prices-without-end", of, certificate(of, sha256, "makespan", COST, evidence)
    cost = {"prefill": {"levels": [[1, "1"], [1000, "2"]]}, "decode": {"overhead": "1", "token": "0"}}
    requests = [{"id": "r", "input_tokens": 1000, "output_tokens": 1, "count": 10**4}]
    of = {**head("makespan"), "clients": 2, **cost, "requests": requests}
    evidence = {"kind": "closed-form", "argument": "stages"}
    yield "cover-without-end", of, certificate(of, makespan.Instance(of).sha256, "makespan", cost, evidence)

    reservation = {"capacity": 10**8, "block_size": 1, "buffer": "0"}
    of = {**head("pipelining"), **reservation, "requests": [{"id": "r", "length": 5}]}
    evidence = {"kind": "prices", "unit": 1, "scale": "1", "sizes": [1, 2], "prices": [1, 2]}
    sha256 = pipelining.Instance(of).sha256
    yield "cells-without-end", of, certificate(of, sha256, "capacity_per_token", reservation, evidence)


def unsuitable() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Name, instance and certificate of proofs that do not hold for their instance."""
    rounds = {"batch": [["1", "0"]], "decode": ["0", "0"], "prefill": ["0", "0"], "attention": "square"}
    good: dict[str, Any] = {
        **head("infermax"), "cost": rounds, "objective": "mean_e2e",
        "system": {"kv_capacity": 6, "max_batch_tokens": 50, "max_prefill_tokens": 50},
        "policy": {"hybrid_batching": True, "chunked_prefill": False, "preemption": False},
        "requests": [{"id": "r", "input_tokens": 2, "output_tokens": 2, "count": 3}],
    }  # fmt: skip
    evidence = {"kind": "backwards", "piece": 0, "unit": 1, "leave": [1], "prices": [2]}
    wrong: dict[str, dict[str, Any]] = {
        "tokens-take-time": {"cost": COST},
        "evictions": {"policy": {**good["policy"], "preemption": True}},
        "blocks": {"system": {**good["system"], "block_size": 2}},
        "arrival-within-a-round": {"requests": [{**good["requests"][0], "arrival": "0.5"}]},
    }
    for name, change in wrong.items():
        of = {**good, **change}
        sha256 = infermax.Instance(of, None).sha256
        yield f"rounds-with-{name}", of, certificate(of, sha256, "mean_e2e", of["cost"], evidence)

    cost = {"prefill": {"levels": [[1, "1"], [10, "20"]]}, "decode": {"overhead": "1", "token": "0"}}
    of = {**head("makespan"), "clients": 2, **cost}
    of["requests"] = [{"id": "r", "input_tokens": 5, "output_tokens": 3, "count": 4}]
    evidence = {"kind": "closed-form", "argument": "paper eq 32"}
    sha256 = makespan.Instance(of).sha256
    yield "smaller-level-with-a-better-rate", of, certificate(of, sha256, "makespan", cost, evidence)

    of = {**head("pipelining"), "capacity": 4, "requests": [{"id": "r", "length": 5}]}
    reservation = {"capacity": 4}
    evidence = {"kind": "prices", "unit": 1, "scale": "1", "sizes": [1], "prices": [1]}
    sha256 = pipelining.Instance(of).sha256
    yield "no-request-fits", of, certificate(of, sha256, "capacity_per_token", reservation, evidence)
