"""Requests in waves: those of similar output length together, as many as fit into the KV cache.

A wave prefills its requests one after another, then decodes all of them together until the longest is done.
It never evicts, so its schedules are valid whatever the policy of the instance allows.
"""

from collections.abc import Iterator

from infermax_opt import Batch, Instance, Request, Schedule


def waves(instance: Instance) -> Schedule:
    """Schedule an instance in waves; the one function that the entry point names."""
    system, batches, wave, held = instance.system, list[Batch](), list[Request](), 0
    most = min(system.max_batch_tokens, system.max_running or system.max_batch_tokens)
    for request in sorted(instance.requests, key=lambda some: (some.arrival, some.output_tokens)):
        held += system.held(request.peak_kv)  # the most that it ever caches
        if wave and (held > system.kv_capacity or len(wave) == most):
            batches += _served(wave, system.prefill_budget)
            wave, held = [], system.held(request.peak_kv)
        wave.append(request)
    return Schedule(instance.name, (*batches, *_served(wave, system.prefill_budget)))


def _served(wave: list[Request], budget: int) -> Iterator[Batch]:
    start = max(request.arrival for request in wave)
    for request in wave:
        full = (request.input_tokens - 1) // budget  # chunks before the last, which makes the first token
        if full:
            yield Batch({request.id: budget}, start=start, repeat=full)
        yield Batch({request.id: request.input_tokens - full * budget}, start=start)
    longest = max(request.output_tokens for request in wave)
    if longest > 1:
        yield Batch(decode_all=True, repeat=longest - 1)
