"""Checker of certificates of lower bounds: standard library only, one kind of proof a module."""

from __future__ import annotations

from infermax_opt.checking.errors import Rejected, Unusable
from infermax_opt.iteration.checker.certificate import check

__all__ = ["Rejected", "Unusable", "check"]
