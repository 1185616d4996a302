"""Schedulers of Algorithm 1: each turns an instance into a valid schedule."""

from __future__ import annotations

from infermax_opt.infermax.schedulers.algorithm1 import Options, Order, schedule

__all__ = ["Options", "Order", "schedule"]
