"""The machine between two batches: what a batch would do, which rules it breaks, and doing it.

The replay of a schedule and the `Simulator` of schedulers under way both run on this, so that they cannot
differ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

from infermax_opt.infermax.data.cost import BatchFeatures, prefill_work
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Batch
from infermax_opt.infermax.replay.rules import Rule, Violation
from infermax_opt.infermax.replay.state import State

__all__ = ["Machine", "Step"]


class Step(NamedTuple):
    """What a batch would do.

    Attributes
    ----------
    evicted : collection of int
        Requests whose KV is dropped.
    chosen : mapping of int to int
        Tokens that each request named in the batch processes.
    rest : collection of int
        Requests in decode that the batch does not name, where all decode.
    features : BatchFeatures
    prefill_tokens, refill_tokens : int
        Tokens of those that do not decode, and of those among them that were evicted before.
    kv, running : int
        KV tokens held and requests that hold some after the batch, those included that it finishes.
    faults : list of Violation
        What is wrong with it; a faulty decision is left out of all the other fields.
    """

    evicted: Collection[int]
    chosen: Mapping[int, int]
    rest: Collection[int]
    features: BatchFeatures
    prefill_tokens: int
    refill_tokens: int
    kv: int
    running: int
    faults: list[Violation]


class Machine:
    """Progress of the requests of an instance, which batches change.

    Attributes
    ----------
    state : State
    position : int
        Of the batch to come, from 0.
    in_decode : dict
        Its keys are the requests in decode.
    first, last : list of int, one per request
        Position of the batch that generated the first and the last token; -1 if none has.
    was_evicted : list of bool, one per request
    evictions, refill_tokens : int
        So far.
    fruitful : int
        Position of the last batch that generated a token; -1 if none has.
    """

    def __init__(self, instance: Instance):
        self.instance = instance
        self.state = State(instance)
        self.position = 0
        self.in_decode: dict[int, None] = {}
        self.first = [-1] * len(instance.requests)
        self.last = [-1] * len(instance.requests)
        self.was_evicted = [False] * len(instance.requests)
        self.evictions = 0
        self.refill_tokens = 0
        self.fruitful = -1
        self._decode_kv = 0  # cached by those in decode

    def growth(self, requests: Collection[int]) -> int:
        """KV tokens that one token more of each of these takes, in whole blocks."""
        block = self.instance.system.block_size
        if block == 1:
            return len(requests)
        cached = self.state.cached
        return block * sum(1 for i in requests if cached[i] % block == 0)

    # --- what a batch would do --------------------------------------------------------------------

    def examine(self, batch: Batch, opens: bool = True) -> Step:
        """What a batch would do as the next one; nothing happens yet.

        Parameters
        ----------
        batch : Batch
            `repeat` and `start` are left aside.
        opens : bool
            Whether its evictions belong to it: a repetition has none.
        """
        state, in_decode, held = self.state, self.in_decode, self.instance.system.held
        exact = self.instance.cost.exact_attention
        faults: list[Violation] = []
        evicted = self._evicted(batch.evict, faults) if opens and batch.evict else ()
        chosen = self._chosen(batch.tokens, evicted, faults) if batch.tokens else {}
        tokens = decodes = decode_kv = prefills = prefill_tokens = refill_tokens = work = behind = 0
        kv, running = state.held, state.running
        for i in evicted:
            kv -= held(state.cached[i])
            running -= 1
        for i, count in chosen.items():
            cached = state.cached[i]
            tokens += count
            kv += held(cached + count) - held(cached)
            running += cached == 0
            if i in in_decode:
                decodes += 1
                decode_kv += cached
            else:
                prefills += 1
                behind += cached
                prefill_tokens += count
                work += prefill_work(exact, count, cached)
                if self.was_evicted[i]:
                    refill_tokens += count
        rest: Collection[int] = ()
        if batch.decode_all:
            rest, read = self._unnamed(batch.tokens, evicted)
            tokens += len(rest)
            decodes += len(rest)
            decode_kv += read
            kv += self.growth(rest)
        features = BatchFeatures(tokens, decodes, decode_kv, prefills, work, behind)
        step = Step(evicted, chosen, rest, features, prefill_tokens, refill_tokens, kv, running, faults)
        self._check_limits(step)
        return step

    def _unnamed(self, named: Mapping[str, int], evicted: Collection[int]) -> tuple[Collection[int], int]:
        """Requests in decode that a batch neither names nor evicts, and the tokens that they read."""
        in_decode, index, cached = self.in_decode, self.instance.index, self.state.cached
        if not named and not evicted:  # as most batches are
            return in_decode, self._decode_kv
        out = {i for i in evicted if i in in_decode}
        out.update(i for i in map(index.get, named) if i in in_decode)
        if not out:
            return in_decode, self._decode_kv
        return [i for i in in_decode if i not in out], self._decode_kv - sum(cached[i] for i in out)

    def _fault(
        self,
        rule: Rule,
        message: str,
        request: str | None = None,
        value: int | Fraction | None = None,
        limit: int | Fraction | None = None,
    ) -> Violation:
        return Violation(rule, self.position + 1, request, value, limit, message)

    def _evicted(self, names: Iterable[str], faults: list[Violation]) -> dict[int, None]:
        """Those of the named requests that can be evicted, in this order, as keys."""
        evicted: dict[int, None] = {}
        for name in names:
            i = self.instance.index.get(name)
            if i is None:
                faults.append(self._fault(Rule.UNKNOWN_REQUEST, "is evicted but not in the instance", name))
            elif not self.instance.policy.preemption:
                faults.append(self._fault(Rule.PREEMPTION, "is evicted though preemption is off", name))
            elif i in evicted:
                faults.append(self._fault(Rule.EVICTION, "is evicted twice in one batch", name))
            elif self.state.cached[i] == 0:
                faults.append(self._fault(Rule.EVICTION, "is evicted but holds no KV", name, 0, 1))
            else:
                evicted[i] = None
        return evicted

    def _chosen(
        self, named: Mapping[str, int], evicted: Collection[int], faults: list[Violation]
    ) -> dict[int, int]:
        """Those of the named requests that can process their tokens, with these."""
        state, index = self.state, self.instance.index
        chosen: dict[int, int] = {}
        for name, tokens in named.items():
            i = index.get(name)
            if i is None:
                faults.append(self._fault(Rule.UNKNOWN_REQUEST, "is processed but not in the instance", name))
                continue
            missing = state.missing(i)
            if state.finished(i):
                message = "is processed after its last token"
                faults.append(self._fault(Rule.FINISHED, message, name, tokens, 0))
            elif i in evicted:
                message = "is evicted and processed in one batch"
                faults.append(self._fault(Rule.EVICTION, message, name, tokens, 0))
            elif not 1 <= tokens <= missing:
                message = f"processes {tokens} tokens of {missing} missing"
                faults.append(self._fault(Rule.TOKENS, message, name, tokens, missing))
            else:
                chosen[i] = tokens
                if tokens < missing and not self.instance.policy.chunked_prefill:
                    message = f"processes {tokens} of {missing} missing tokens though chunked prefill is off"
                    faults.append(self._fault(Rule.CHUNKED_PREFILL, message, name, tokens, missing))
        return chosen

    def _check_limits(self, step: Step) -> None:
        """Add what is wrong with a batch as a whole to its faults."""
        system, features = self.instance.system, step.features
        if features.decodes and features.prefills and not self.instance.policy.hybrid_batching:
            message = (
                f"holds {features.decodes} decoding and {features.prefills} prefilling requests "
                "though hybrid batching is off"
            )
            step.faults.append(self._fault(Rule.HYBRID_BATCHING, message))
        most_running = system.max_running
        if (
            features.tokens <= system.max_batch_tokens
            and step.prefill_tokens <= system.max_prefill_tokens
            and step.kv <= system.kv_capacity
            and (most_running is None or step.running <= most_running)
        ):
            return
        for rule, what, value, limit in (
            (Rule.MAX_BATCH_TOKENS, "tokens processed", features.tokens, system.max_batch_tokens),
            (Rule.MAX_PREFILL_TOKENS, "prefill tokens", step.prefill_tokens, system.max_prefill_tokens),
            (Rule.KV_CAPACITY, "KV tokens held", step.kv, system.kv_capacity),
            (Rule.MAX_RUNNING, "requests holding KV", step.running, most_running),
        ):
            if limit is not None and value > limit:
                message = f"{value} {what}; the limit is {limit}"
                step.faults.append(self._fault(rule, message, None, value, limit))

    # --- doing it ---------------------------------------------------------------------------------

    def run(self, step: Step) -> list[int]:
        """Do what `examine` said of the next batch; return the requests that it finished."""
        state, in_decode = self.state, self.in_decode
        cached, generated, output = state.cached, state.generated, state.output
        done: list[int] = []
        if step.features.decodes:
            self.fruitful = self.position
        for i in step.evicted:
            self._leave_decode(i)
            state.set_cached(i, 0)
            self.was_evicted[i] = True
        # Before those that are named, who may enter decode by this very batch.
        for i in step.rest:
            cached[i] += 1
            generated[i] += 1
            if generated[i] == output[i]:
                done.append(i)
        self._decode_kv += len(step.rest)
        for i, tokens in step.chosen.items():
            self._leave_decode(i)
            generates = tokens == state.missing(i)
            cached[i] += tokens
            if generates:
                if generated[i] == 0:
                    self.first[i] = self.position
                self.fruitful = self.position
                generated[i] += 1
                if generated[i] == output[i]:
                    done.append(i)
            # Also a refill that stopped one token short leaves a decode step.
            if generates or state.decoding(i):
                in_decode[i] = None
                self._decode_kv += cached[i]
        state.held, state.running = step.kv, step.running
        for i in done:
            self.last[i] = self.position
            self._leave_decode(i)
            state.set_cached(i, 0)
        self.evictions += len(step.evicted)
        self.refill_tokens += step.refill_tokens
        self.position += 1
        return done

    def _leave_decode(self, i: int) -> None:
        if i in self.in_decode:
            del self.in_decode[i]
            self._decode_kv -= self.state.cached[i]
