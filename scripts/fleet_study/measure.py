"""Machines that a workload needs: bounds, every routing policy, two pools, and Aladdin's own placement."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import ceil

from infermax_opt.cluster.data.stream import Stream
from infermax_opt.cluster.policies.by_name import make_policy
from infermax_opt.cluster.replay.replay import replay_stream
from infermax_opt.fleet.apart import ApartQuestion
from infermax_opt.fleet.bounds.pooled import pooled_bound
from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.fleet.replay import replay_fleet
from infermax_opt.fleet.split import split_plan
from infermax_opt.fleet.upper import SCHEDULERS, fewest_machines, policy_machines
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.data.objective import Objective
from infermax_opt.infermax.data.profiles import load_profile
from infermax_opt.infermax.schedulers.algorithm1 import schedule
from infermax_opt.infermax.schedulers.presets import preset
from scripts.aladdin_study.tables import Row
from scripts.aladdin_study.workload import Workload as Drawn

__all__ = ["BATCH", "MODELS", "SHARE", "Workload", "question_of", "rows_of"]

#: Cost profile of each model, and bytes of the KV of a token in 16 bits.
MODELS = {"13b": ("opt-13b_a100", 819_200), "70b": ("llama-3.1-70b_a100_tp4", 327_680)}
#: Bytes a second between two machines.
BANDWIDTH = 25 * 10**9
#: Of the requests, that keep their limits; tokens of a batch; scheduler of policies by themselves.
SHARE, BATCH, SCHEDULER = Fraction(99, 100), 2048, "sarathi"


@dataclass(frozen=True)
class Workload:
    """Requests of a number of seconds; ``rate``: arrivals per second."""

    model: str
    rate: int
    seed: int
    seconds: int

    def stream(self) -> Stream:
        """Draw it as the study of Aladdin does."""
        return Drawn("mixed", self.model, self.rate, self.seed, self.seconds).stream()


def question_of(workload: Workload, stream: Stream, *, from_heartbeat: bool = False) -> FleetQuestion:
    """How many machines keep the limits of the stream, counted from arrival.

    Parameters
    ----------
    workload : Workload
    stream : Stream
    from_heartbeat : bool
        Requests are there only at the next heartbeat; the wait for it counts.
    """
    profile = load_profile(MODELS[workload.model][0])
    groups = []
    for r in stream.requests:
        wait = (
            ceil(r.arrival / stream.heartbeat) * stream.heartbeat - r.arrival
            if from_heartbeat
            else Fraction(0)
        )
        slo = {"ttft": max(Fraction(0), stream.slo.ttft - wait), "tpot": stream.slo.atgt}
        groups.append(RequestGroup(r.id, r.input_tokens, r.output_tokens, r.arrival + wait, slo=slo))
    system = System(profile.capacity, BATCH, BATCH)
    instance = Instance(stream.name, tuple(groups), system, profile.cost, Policy(), Objective.of("missed"))
    return FleetQuestion(instance, SHARE)


def rows_of(workload: Workload) -> Iterator[Row]:
    """All rows of a workload."""
    stream = workload.stream()
    question = question_of(workload, stream)

    def row(name: str, machines: int | None, good: int | None = None, pools: str = "") -> Row:
        share = "" if good is None else f"{100 * good / question.size:.2f}"
        return {
            "model": workload.model, "rate": str(workload.rate), "seed": str(workload.seed),
            "requests": str(question.size), "name": name, "attainment_percent": share,
            "machines": "" if machines is None else str(machines), "prefill + decode": pools,
        }  # fmt: skip

    bound = pooled_bound(question)
    yield row("proved", bound.machines)
    least = bound.machines or 1
    found = fewest_machines(question, least, schedulers=SCHEDULERS)
    if found is not None:
        yield row("found", found.machines, len(found.replay.good))
    for name, machines in policy_machines(question, least, SCHEDULER).items():
        yield row(name, machines)
    profile = load_profile(MODELS[workload.model][0])
    transfer = Fraction(MODELS[workload.model][1], BANDWIDTH)
    pools = ApartQuestion(question, question.workload.system, profile.cost, transfer)
    *_, apart = split_plan(pools, SCHEDULERS)
    yield row("pools, proved", apart.lower, None, f"{apart.prefill.machines} + {apart.decode.machines}")
    if apart.found is not None:
        both = f"{apart.found.prefill} + {apart.found.decode}"
        yield row("pools, found", apart.found.machines, len(apart.found.good), both)
    beats = question_of(workload, stream, from_heartbeat=True)
    for policy in ("aladdin", "look-ahead"):
        routes = list(replay_stream(stream, make_policy(policy, seed=0)).worker)
        done = replay_fleet(beats, routes, partial(schedule, options=preset(SCHEDULER)))
        yield row(f"{policy}, placed", len(set(routes)), len(done.good))
