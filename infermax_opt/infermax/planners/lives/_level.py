"""What lives cost in steps of several batches, and the compiled search over them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.data.cost import prefill_work
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.planners.lives import _kernel
from infermax_opt.infermax.planners.lives._kernel import Level

__all__ = ["enter_whole", "kernel", "level_of"]


def _prompt_budget(instance: Instance) -> int:
    """Prefill tokens that fit into a batch beside decodes of all other requests."""
    system = instance.system
    return min(system.max_prefill_tokens, system.max_batch_tokens - len(instance.requests))


def enter_whole(instance: Instance) -> bool:
    """Whether all that a request may lose fits into a batch, beside decodes of all others."""
    budget = _prompt_budget(instance)
    return all(r.input_tokens + r.output_tokens - 1 <= budget for r in instance.requests)


def level_of(instance: Instance, span: int) -> tuple[Level, Any]:
    """What lives cost in steps of so many batches; the kind of each request."""
    import numpy as np

    system, unit, exact = instance.system, instance.cost.floats, instance.cost.exact_attention
    ends = [-(-kind.output_tokens // span) for kind in instance.types]
    size, prompt = np.zeros((2, len(ends), max(ends)), np.int64)
    reads, attends = np.zeros((2, len(ends), max(ends)))
    kinds = np.zeros(len(instance.requests), np.int64)
    for k, kind in enumerate(instance.types):
        kinds[list(kind.members)] = k
        for n in range(ends[k]):
            done, after = n * span, min(kind.output_tokens, (n + 1) * span)
            cached = kind.input_tokens + done
            size[k, n] = system.held(kind.input_tokens + after - 1)
            prompt[k, n] = cached
            reads[k, n] = unit.d1 * (after - done) * (cached - 1 + (after - done - 1) / 2)
            later = unit.d1 * (after - done - 1) * (cached + (after - done - 2) / 2)
            attends[k, n] = unit.p1 * prefill_work(exact, cached, 0) + later
    running = len(kinds) if system.max_running is None else min(len(kinds), system.max_running)
    level = Level(
        np.array(ends, np.int64), size, prompt, reads, attends, span, system.kv_capacity, running,
        _prompt_budget(instance), int(instance.policy.preemption), np.array(unit.alpha), np.array(unit.beta),
        unit.d0, unit.p0,
    )  # fmt: skip
    return level, kinds


@functools.cache
def kernel() -> Callable[..., Any]:
    """The compiled `anneal`."""
    found: Callable[..., Any] = compiled(_kernel.anneal, _kernel.HELPERS, helpers_allocate=False)
    return found
