"""Exact replay of a makespan schedule: times, idle clients, and every rule that it breaks.

The rules are those of section III of the paper:

- all requests are served, each on one client, and prefilled in exactly one stage (eqs 15, 17, 18);
- a client serves one request at a time, from its prefill until its last token, and at most one in
  a decode stage (eqs 9, 12, 16): the next one starts in a later bin;
- once it has generated a token, a request decodes in every stage of one round or more until it is done
  (eq 10; the model would let it keep its client and generate nothing: read strictly, that is a gap);
- the input tokens of a prefill stage fit a level (eqs 5 to 7), and the cheapest one is paid;
- a request generates at most one token in a round (eq 8).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from fractions import Fraction

from infermax_opt.makespan.data.instance import MakespanInstance
from infermax_opt.makespan.data.schedule import Bin, MakespanSchedule

__all__ = ["BinReplay", "BinRule", "BinViolation", "replay_bins", "replay_valid"]


class BinRule(enum.Enum):
    """Rules that a schedule can break."""

    UNKNOWN_REQUEST = "unknown_request"
    UNKNOWN_CLIENT = "unknown_client"
    PREFILLED_TWICE = "prefilled_twice"
    CLIENT_BUSY = "client_busy"
    LEVEL = "level"
    NOT_UNDER_WAY = "not_under_way"
    TOKENS = "tokens"
    GAP = "gap"
    COMPLETION = "completion"


@dataclass(frozen=True, slots=True)
class BinViolation:
    """One broken rule, in the bin of that number (from 1; None: the whole schedule)."""

    rule: BinRule
    bin: int | None
    request: str | None
    message: str

    def __str__(self) -> str:
        place = "schedule" if self.bin is None else f"bin {self.bin}"
        who = "" if self.request is None else f", request {self.request!r}"
        return f"{place}{who}: {self.rule.value}: {self.message}"


@dataclass(frozen=True)
class BinReplay:
    """What a schedule does, exactly.  Times are integers in ticks of 1 / `ticks_per_second` s.

    Attributes
    ----------
    violations : tuple of BinViolation
        Empty for a valid schedule.
    prefill_ticks, decode_ticks : list of int, one per bin
        Lengths of the stages.
    client : list of int, one per request
        Client that serves it, from 1; 0 if none does.
    first_bin, last_bin : list of int, one per request
        Positions, from 0, of the bins in which it is prefilled and done; -1 if never.
    generated : list of int, one per request
        Tokens.
    busy_ticks : list of int, one per client
        Time of the prefill stages in which the client prefills, and of the rounds in which it decodes.
    """

    violations: tuple[BinViolation, ...]
    ticks_per_second: int
    prefill_ticks: list[int]
    decode_ticks: list[int]
    client: list[int]
    first_bin: list[int]
    last_bin: list[int]
    generated: list[int]
    busy_ticks: list[int]

    @property
    def valid(self) -> bool:
        """Whether no rule is broken."""
        return not self.violations

    @property
    def makespan(self) -> Fraction:
        """Seconds from the first prefill stage to the end of the last decode stage."""
        return Fraction(sum(self.prefill_ticks) + sum(self.decode_ticks), self.ticks_per_second)

    @property
    def utilisation(self) -> Fraction:
        """Share of all clients' time in which they prefill or decode a request of theirs."""
        total = len(self.busy_ticks) * self.makespan * self.ticks_per_second
        return sum(self.busy_ticks) / total if total else Fraction(0)

    @property
    def idle_seconds(self) -> list[Fraction]:
        """Per client: time in which it does neither ("bubbles")."""
        busy = (Fraction(ticks, self.ticks_per_second) for ticks in self.busy_ticks)
        return [self.makespan - some for some in busy]

    @property
    def tokens_per_second(self) -> Fraction:
        """Generated tokens over the makespan."""
        return sum(self.generated) / self.makespan if self.makespan else Fraction(0)


def replay_bins(instance: MakespanInstance, schedule: MakespanSchedule) -> BinReplay:
    """Replay a schedule.

    Parameters
    ----------
    instance : MakespanInstance
    schedule : MakespanSchedule

    Returns
    -------
    BinReplay
        Violations as data.  What breaks a rule is left out of the replay: a request that cannot
        start does not, tokens that cannot be generated are not.
    """
    run = _ReplayState(instance)
    for position, some in enumerate(schedule.bins):
        run.bin(position, some)
    for k, request in enumerate(instance.requests):
        if run.last_bin[k] < 0:
            made = f"ends after {run.generated[k]} of {request.output_tokens} output tokens"
            problem = "is never prefilled" if run.first_bin[k] < 0 else made
            run.report(BinRule.COMPLETION, None, request.id, problem)
    return BinReplay(
        tuple(run.violations), instance.ticks_per_second, run.prefill_ticks, run.decode_ticks,
        run.client, run.first_bin, run.last_bin, run.generated, run.busy_ticks[1:],
    )  # fmt: skip


def replay_valid(instance: MakespanInstance, schedule: MakespanSchedule, most: int) -> BinReplay:
    """Replay a schedule that a model of so many bins has to hold.

    Parameters
    ----------
    instance : MakespanInstance
    schedule : MakespanSchedule
    most : int
        Bins of the model.

    Raises
    ------
    ValueError
        If the schedule is not valid, or has too many bins.
    """
    found = replay_bins(instance, schedule)
    if not found.valid:
        raise ValueError(f"the schedule is not valid: {found.violations[0]}")
    if len(schedule.bins) > most:
        raise ValueError(f"{len(schedule.bins)} bins; the model has {most}")
    return found


class _ReplayState:
    """State of a replay."""

    def __init__(self, instance: MakespanInstance):
        n = len(instance.requests)
        self.instance = instance
        self.violations: list[BinViolation] = []
        self.prefill_ticks: list[int] = []
        self.decode_ticks: list[int] = []
        self.client, self.first_bin, self.last_bin = [0] * n, [-1] * n, [-1] * n
        self.generated = [0] * n
        self.busy_ticks = [0] * (instance.clients + 1)
        #: Request under way on each client that serves one.
        self.serving: dict[int, int] = {}

    def report(self, rule: BinRule, position: int | None, request: str | None, message: str) -> None:
        self.violations.append(
            BinViolation(rule, None if position is None else position + 1, request, message)
        )

    def bin(self, position: int, some: Bin) -> None:
        """Replay one bin."""
        tokens = 0
        started: list[int] = []
        for name, client in some.prefill.items():
            k = self.start(position, name, client)
            if k is not None:
                tokens += self.instance.requests[k].input_tokens
                started.append(client)
        ticks = self.instance.prefill_ticks(tokens)
        if ticks is None:
            most, ticks = self.instance.level_ticks[-1]
            problem = f"{tokens} input tokens exceed the largest prefill level of {most}"
            self.report(BinRule.LEVEL, position, None, problem)
        for client in started:
            self.busy_ticks[client] += ticks
        self.prefill_ticks.append(ticks)
        self.decode_ticks.append(some.rounds * self.instance.round_ticks)
        self.decode(position, some)

    def start(self, position: int, name: str, client: int) -> int | None:
        """Start a request; its number, or None if it breaks a rule."""
        k = self.instance.index.get(name)
        if k is None:
            self.report(BinRule.UNKNOWN_REQUEST, position, name, "is not in the instance")
        elif not 1 <= client <= self.instance.clients:
            problem = f"client {client} is not between 1 and {self.instance.clients}"
            self.report(BinRule.UNKNOWN_CLIENT, position, name, problem)
        elif self.first_bin[k] >= 0:
            problem = f"was prefilled in bin {self.first_bin[k] + 1} already"
            self.report(BinRule.PREFILLED_TWICE, position, name, problem)
        elif client in self.serving:
            other = self.instance.requests[self.serving[client]].id
            self.report(BinRule.CLIENT_BUSY, position, name, f"client {client} still serves {other!r}")
        else:
            self.serving[client] = k
            self.client[k], self.first_bin[k] = client, position
            return k
        return None

    def decode(self, position: int, some: Bin) -> None:
        """Replay the decode stage."""
        requests = self.instance.requests
        under_way = {requests[k].id for k in self.serving.values()}
        for name in some.decode:
            if name not in under_way:
                known = "is not under way" if name in self.instance.index else "is not in the instance"
                rule = BinRule.NOT_UNDER_WAY if name in self.instance.index else BinRule.UNKNOWN_REQUEST
                self.report(rule, position, name, known)
        for client, k in list(self.serving.items()):
            name, left = requests[k].id, requests[k].output_tokens - self.generated[k]
            most = min(some.rounds, left)
            made = some.tokens(name, left)
            if made > most:
                problem = f"{made} tokens, of {left} left, in {some.rounds} rounds"
                self.report(BinRule.TOKENS, position, name, problem)
                made = most
            if made == 0 and some.rounds > 0 and self.generated[k] > 0:
                self.report(BinRule.GAP, position, name, f"generates nothing in {some.rounds} rounds")
            self.generated[k] += made
            self.busy_ticks[client] += made * self.instance.round_ticks
            if made == left:
                self.last_bin[k] = position
                del self.serving[client]
