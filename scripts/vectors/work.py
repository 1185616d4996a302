"""Certificates that would take too long to check: each is whole, and must be rejected within seconds."""

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
