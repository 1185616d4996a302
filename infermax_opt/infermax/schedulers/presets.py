"""The schedulers of InferMax's Table 1 and appendix A.3, and others of Algorithm 1, by name.

A name is a preset, of the paper's optionally with ``_ef`` for the eviction-free variant, optionally
``@r64`` to limit the running requests: ``sarathi``, ``vllm_ef``, ``rank_output_ef@r128``.

What each may know, beside prompts and arrivals of requests that have arrived:

============== ===============================================================================================
rank_output    output tokens
``*_ef``       output tokens, to reserve the peak; without evictions every scheduler has to
sorted_f       output tokens (M. Wang, Y. Ye, Z. Zhou, arXiv 2508.06133)
srpt           predicted output tokens
deadline       service levels, the cost model, and predicted output tokens of those that have any
the others     nothing
============== ===============================================================================================

None knows a request before it arrives.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from infermax_opt.core.checks import MAX_TOKENS
from infermax_opt.core.errors import InputError
from infermax_opt.infermax.schedulers.algorithm1 import Options, Order

__all__ = ["ABOUT", "AIMED", "PRESETS", "preset"]

_TABLE = {
    "vllm": Options(Order.PREFILL, hybrid=False, chunked=False, prefill_tokens=4096),
    "vllm_hy": Options(Order.PREFILL, hybrid=True, chunked=False, prefill_tokens=4096),
    "sarathi": Options(Order.DECODE, hybrid=True, chunked=True, prefill_tokens=512),
    "sarathi_pc": Options(Order.DECODE, hybrid=True, chunked=True, prefill_tokens=4096),
    "sarathi_nocp": Options(Order.DECODE, hybrid=True, chunked=False, prefill_tokens=4096),
    "sarathi_nohy": Options(Order.DECODE, hybrid=False, chunked=False, prefill_tokens=4096),
    "rank_input": Options(Order.RANK_INPUT, hybrid=True, chunked=True, prefill_tokens=4096),
    "rank_output": Options(Order.RANK_OUTPUT, hybrid=True, chunked=True, prefill_tokens=4096),
    "rank_org": Options(Order.RANK_ORIGINAL, hybrid=True, chunked=True, prefill_tokens=4096),
}

PRESETS: dict[str, Options] = {
    name + suffix: replace(options, eviction_free=bool(suffix))
    for name, options in _TABLE.items()
    for suffix in ("", "_ef")
}
"""Presets that take every instance: those of the paper and their eviction-free variants, and others."""
PRESETS["vllm_v1"] = Options(Order.RUNNING, hybrid=True, chunked=True, prefill_tokens=MAX_TOKENS, resume=True)
PRESETS["sorted_f"] = Options(
    Order.QUALITY, hybrid=True, chunked=True, prefill_tokens=1024, eviction_free=True
)

AIMED: dict[str, Options] = {
    "srpt": Options(Order.REMAINING, hybrid=True, chunked=True, prefill_tokens=1024),
    "deadline": Options(Order.LATEST, hybrid=True, chunked=True, prefill_tokens=512),
}
"""Presets that go by what a request may lack: predicted output tokens, or a service level."""

ABOUT: dict[str, str] = {
    "vllm_v1": "vLLM since 0.8: who runs goes on; the last admitted makes room, and waits in front",
    "sorted_f": "Sorted-F: batches by sum of outputs / size^2; knows the output tokens of who has arrived",
    "srpt": "fewest remaining output tokens first, by predicted_output_tokens, which all requests need",
    "deadline": "who can keep a service level first, by latest start; needs an slo, uses predictions",
    "bros": "BROS: requests with an slo by slack, best-effort ones beside; who is late freezes nobody",
    "bros-literal": "BROS as its paper has it: one late request stops all others",
    "fcfs": "first come first served, prompts whole, also in a closed loop",
    "rr": "classes alternate from batch to batch, first come first served inside",
    "first-tokens": "shortest prompt first; who has a first token makes room, and decodes when nobody waits",
    "slack": "who can keep a service level first, others in what is left; who has missed one comes last",
    "slack-known": "slack, told all outputs: where there is no time for all, those with most work come last",
}
"""What the names of some do not say."""


def preset(name: str, others: Iterable[str] = (), field: str = "scheduler") -> Options:
    """Options of the scheduler called `name`.

    Parameters
    ----------
    name : str
    others : iterable of str
        Names of schedulers that are no presets, for the message.
    field : str
        Whose value the name is.

    Raises
    ------
    InputError
        If there is no such scheduler; the message names the choices.
    """
    base, at, suffix = name.partition("@")
    options = PRESETS.get(base) or AIMED.get(base)
    if options is None:
        choices = ", ".join([*PRESETS, *AIMED, *others])
        raise InputError(
            f"no scheduler {name!r}; choose from {choices} (presets also with @rN for at most N running)",
            field=field,
        )
    if not at:
        return options
    match = re.fullmatch(r"r(\d{1,10})", suffix, re.ASCII)
    if match is None or not 1 <= int(match[1]) <= MAX_TOKENS:
        raise InputError(
            f"{name!r}: after @ comes r and a limit from 1 to {MAX_TOKENS}, as in {base}@r64",
            field=field,
        )
    return replace(options, max_running=int(match[1]))
