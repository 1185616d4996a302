"""Requests in waves: those of similar output length together, as many as fit into the KV cache.

A wave prefills its requests one after another, then decodes all of them together until the longest is done.
It never evicts, so its schedules are valid whatever the policy of the instance allows.
"""

from __future__ import annotations

from collections.abc import Iterator

from infermax_opt import Batch, Instance, Request, Schedule

__all__ = ["waves"]


def waves(instance: Instance) -> Schedule:
    """Schedule an instance in waves; the one function that the entry point names."""
    budget = instance.system.prefill_budget
    batches: list[Batch] = []
    for wave in _split(instance):
        start = max(request.arrival for request in wave)
        for request in wave:
            # The chunks before the last one, which makes the first token.
            full = (request.input_tokens - 1) // budget
            if full:
                batches.append(Batch({request.id: budget}, start=start, repeat=full))
            batches.append(Batch({request.id: request.input_tokens - full * budget}, start=start))
        longest = max(request.output_tokens for request in wave)
        if longest > 1:
            batches.append(Batch(decode_all=True, repeat=longest - 1))
    return Schedule(instance.name, tuple(batches))


def _split(instance: Instance) -> Iterator[list[Request]]:
    """Waves whose requests fit together even when each caches the most that it ever does."""
    system = instance.system
    most = min(system.max_batch_tokens, system.max_running or system.max_batch_tokens)
    wave: list[Request] = []
    held = 0
    for request in sorted(instance.requests, key=lambda some: (some.arrival, some.output_tokens)):
        peak = system.held(request.peak_kv)
        if wave and (held + peak > system.kv_capacity or len(wave) == most):
            yield wave
            wave, held = [], 0
        wave.append(request)
        held += peak
    yield wave
