"""Schedulers that are asked before each batch, and the simulator that they are shown."""

from infermax_opt.infermax.simulator.request import RequestView
from infermax_opt.infermax.simulator.run import BatchScheduler, asked_for_batches, is_clairvoyant, simulate
from infermax_opt.infermax.simulator.simulator import BrokenRule, Simulator

__all__ = [
    "BatchScheduler",
    "BrokenRule",
    "RequestView",
    "Simulator",
    "asked_for_batches",
    "is_clairvoyant",
    "simulate",
]
