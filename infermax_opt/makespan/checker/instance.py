"""The instance: levels, rounds and requests in whole ticks, and its hash."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from typing import Any

from infermax_opt.checking.fields import Field, shown
from infermax_opt.checking.limits import MAX_RATES, MAX_REQUESTS
from infermax_opt.checking.meaning import Meaning
from infermax_opt.checking.work import Work

#: Most tokens of a prompt, an output or a level, and most clients.
MAX_TOKENS = 10**9


def read_levels(prefill: Field) -> list[tuple[int, Fraction]]:
    """Tokens and seconds of the levels as they are written, fewest tokens first."""
    levels = prefill["levels"].items()
    if not 1 <= len(levels) <= MAX_RATES:
        prefill["levels"].fail(f"holds {len(levels)} levels, not 1 to {MAX_RATES}")
    if "overhead" in prefill:
        fixed, each = prefill["overhead"].decimal(), prefill["token"].decimal()
        sizes = [level.whole(1, MAX_TOKENS) for level in levels]
        pairs = [(tokens, fixed + each * tokens) for tokens in sizes]
    else:
        rows = [level.items(2) for level in levels]
        pairs = [(tokens.whole(1, MAX_TOKENS), time.decimal()) for tokens, time in rows]
    return sorted(pairs, key=lambda pair: (pair[0], -pair[1]))


def read_decode(decode: Field) -> list[Fraction]:
    """Seconds of a round, and those that each client adds."""
    return [decode[key].decimal() for key in ("overhead", "token")]


class Instance:
    """What the bounds need of an instance file; times in whole ticks.

    Raises `Rejected` where the file is no instance.
    """

    def __init__(self, data: Any):
        top, self.work = Field(data, "instance"), Work()
        for key, value in (("schema", "infermax-opt/instance/1"), ("problem", "makespan")):
            if top[key].value != value:
                top[key].fail(f"{shown(top[key].value)} is not {value!r}")
        self.clients, pairs = top["clients"].whole(1, MAX_TOKENS), read_levels(top["prefill"])
        decode = read_decode(top["decode"])
        self.cost = pairs, decode
        lap = decode[0] + decode[1] * self.clients
        if lap <= 0:
            top["decode"].fail("a round takes no time")
        self.scale = math.lcm(lap.denominator, *(time.denominator for _, time in pairs))
        self.round = int(lap * self.scale)
        useful: list[tuple[int, int]] = []  # levels that no larger one beats
        for tokens, time in reversed(pairs):
            if not useful or time * self.scale < useful[-1][1]:
                useful.append((tokens, int(time * self.scale)))
        self.levels = useful[::-1]
        self._read_requests(top)

    def _read_requests(self, top: Field) -> None:
        """Outputs by length, all prompts together, and the hash of the instance."""
        meaning, (pairs, decode) = Meaning(), self.cost
        meaning.feed("infermax-opt/instance/1", "makespan", top["name"].text(), self.clients)
        meaning.feed(*decode)
        meaning.feed(*(value for pair in pairs for value in pair))
        self.outputs, self.prompts, self.requests = Counter[int](), 0, 0
        for entry in top["requests"].items():
            i = entry["input_tokens"].whole(1, self.levels[-1][0])  # no prompt exceeds every level
            o = entry["output_tokens"].whole(1, MAX_TOKENS)
            key = "estimated_output_tokens"
            times = meaning.feed_requests(entry, i, o, entry[key].whole(1, MAX_TOKENS) if key in entry else o)
            self.outputs[o] += times
            self.prompts += i * times
            self.requests += times
            if self.requests > MAX_REQUESTS:
                top["requests"].fail(f"more than {MAX_REQUESTS} requests in all")
        if self.requests == 0:
            top["requests"].fail("holds no request")
        self.sha256 = meaning.hexdigest()
        self.tokens = sum(o * number for o, number in self.outputs.items())
