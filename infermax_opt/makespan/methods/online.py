"""Online methods: which request a free client serves next, and when to prefill.

One loop with switches (sections III-B, IV-C and V of the paper), round by round:

- *Queues.*  With an assignment each client has its own requests (eqs 26-30), longest first as far as is
  known; without one all clients share a queue, in the instance's order.
- *Sorting and online preemption* (Algorithm 1): a client whose own queue is empty takes the longest
  request that waits for the client with the most tokens waiting.
- *Prefill first*: as soon as a client is free and a request waits for it, the machine prefills.
- *Prefill or decode* (eqs 41-43): C_p is the time of the prefill stage that would start now.  C_d is the
  decode time that has been waited for: T^d times the tokens that the free clients could have generated
  since the latest prefill stage, one a round each.  The machine prefills once C_d exceeds C_p.  T^d is a
  client's share of a round, as T^d |J| is a round in section III-B.  The paper's sums leave open which
  tokens w counts; this reading grows with the clients that wait and with time, as the rule needs.

Methods know only estimated output lengths; a request ends when its true length is reached.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from infermax_opt.core.errors import InputError
from infermax_opt.makespan.data.instance import MakespanInstance
from infermax_opt.makespan.data.schedule import Bin, MakespanSchedule

__all__ = ["OnlineOptions", "OnlineRun", "run_online"]


@dataclass(frozen=True)
class OnlineOptions:
    """Switches of the loop.

    Parameters
    ----------
    assignment : sequence of int or None
        Client of each request, from 1; None: one common queue.
    preempt : bool
        Free clients take over what waits for others (Algorithm 1); needs an assignment.
    lagrangian : bool
        Prefill once C_d exceeds C_p (eqs 41-43), not as soon as possible.
    """

    assignment: Sequence[int] | None = None
    preempt: bool = False
    lagrangian: bool = False


@dataclass(frozen=True)
class OnlineRun:
    """A schedule, and the seconds that each decision (prefill or decode, and of what) took."""

    schedule: MakespanSchedule
    decision_seconds: list[float]


def run_online(instance: MakespanInstance, options: OnlineOptions) -> OnlineRun:
    """Run an online method.

    Raises
    ------
    InputError
        If the assignment does not name a client for every request.
    """
    waiting = _Waiting(instance, options)
    return _OnlineState(instance, options, waiting).run()


class _Waiting:
    """Requests that no client has taken yet."""

    def __init__(self, instance: MakespanInstance, options: OnlineOptions):
        self.requests = instance.requests
        self.preempt = options.preempt and options.assignment is not None
        self.common: deque[int] | None = None
        self.own: list[deque[int]] = []
        if options.assignment is None:
            self.common = deque(range(len(self.requests)))
            return
        clients = list(options.assignment)
        if len(clients) != len(self.requests) or not all(1 <= j <= instance.clients for j in clients):
            problem = f"does not name a client from 1 to {instance.clients} for each request"
            raise InputError(problem, field="assignment")
        self.own = [deque() for _ in range(instance.clients + 1)]
        for k in sorted(range(len(clients)), key=lambda k: (-self.tokens(k), k)):
            self.own[clients[k]].append(k)
        self.left = [sum(map(self.tokens, queue)) for queue in self.own]
        #: Clients by tokens that wait for them, most first; entries of the past are skipped.
        self.busiest = [(-tokens, j) for j, tokens in enumerate(self.left)]
        heapq.heapify(self.busiest)

    def tokens(self, k: int) -> int:
        """Input and estimated output tokens."""
        return self.requests[k].input_tokens + self.requests[k].estimated_output_tokens

    def take(self, client: int) -> int | None:
        """The next request of a free client."""
        if self.common is not None:
            return self.common.popleft() if self.common else None
        giver = client
        if not self.own[client]:
            if not self.preempt:
                return None
            while self.busiest and -self.busiest[0][0] != self.left[self.busiest[0][1]]:
                heapq.heappop(self.busiest)
            if not self.busiest or self.busiest[0][0] == 0:
                return None
            giver = self.busiest[0][1]
        k = self.own[giver].popleft()
        self.left[giver] -= self.tokens(k)
        heapq.heappush(self.busiest, (-self.left[giver], giver))
        return k


class _OnlineState:
    """State of the machine."""

    def __init__(self, instance: MakespanInstance, options: OnlineOptions, waiting: _Waiting):
        self.instance, self.options, self.waiting = instance, options, waiting
        #: (Round in which it ends, client) of what is under way, soonest first.
        self.ends: list[tuple[int, int]] = []
        self.free: list[int] = list(range(1, instance.clients + 1))
        #: Requests that free clients have taken, in the order in which they did.
        self.taken: dict[int, int] = {}
        #: Rounds since the start, tokens that free clients could have generated since the latest prefill.
        self.now = self.lost = 0
        self.bins: list[tuple[dict[str, int], int]] = []

    def run(self) -> OnlineRun:
        """Serve all requests."""
        seconds = []
        while True:
            began = time.perf_counter()
            self.take()
            stage = self.stage()
            prefill = bool(stage) and (not self.ends or self.due(stage))
            if prefill:
                self.start(stage)
            seconds.append(time.perf_counter() - began)
            if not prefill:
                if not self.ends:
                    break
                self.decode(stage)
        schedule = MakespanSchedule(
            self.instance.name, [Bin(started, rounds) for started, rounds in self.bins]
        )
        return OnlineRun(schedule, seconds)

    def take(self) -> None:
        """Let free clients take requests."""
        still = []
        for client in self.free:
            k = self.waiting.take(client)
            if k is None:
                still.append(client)
            else:
                self.taken[client] = k
        self.free = still

    def stage(self) -> list[int]:
        """Clients that a prefill stage would serve now, as many as its largest level takes."""
        most, tokens = self.instance.level_ticks[-1][0], 0
        chosen = []
        for client, k in self.taken.items():
            some = self.instance.requests[k].input_tokens
            if tokens + some <= most:
                tokens += some
                chosen.append(client)
        return chosen

    def due(self, stage: list[int]) -> bool:
        """Whether to prefill, rather than decode another round."""
        return not self.options.lagrangian or self.rounds_until_due(stage) == 0

    def rounds_until_due(self, stage: list[int]) -> int:
        """Rounds after which C_d exceeds C_p, if nothing else happens."""
        requests = self.instance.requests
        prefill = self.instance.prefill_ticks(sum(requests[self.taken[j]].input_tokens for j in stage))
        if prefill is None:
            raise AssertionError("a stage exceeds the largest level")
        missing = prefill * self.instance.clients // self.instance.round_ticks + 1 - self.lost
        return max(0, -(-missing // len(self.taken)))

    def start(self, stage: list[int]) -> None:
        """Run a prefill stage."""
        requests = self.instance.requests
        started = {}
        for client in stage:
            k = self.taken.pop(client)
            started[requests[k].id] = client
            heapq.heappush(self.ends, (self.now + requests[k].output_tokens, client))
        self.bins.append((started, 0))
        self.lost = 0

    def decode(self, stage: list[int]) -> None:
        """Run decode rounds, until a client is free or it is time to prefill."""
        rounds = self.ends[0][0] - self.now
        if stage:
            rounds = min(rounds, max(1, self.rounds_until_due(stage)))
        self.now += rounds
        self.lost += rounds * len(self.taken)
        self.bins[-1] = (self.bins[-1][0], self.bins[-1][1] + rounds)
        while self.ends and self.ends[0][0] == self.now:
            self.free.append(heapq.heappop(self.ends)[1])
