"""A problem of its own: every request is prefilled on one machine, then decoded on another.

Each machine serves one request at a time, both in the same order, which is what a schedule decides.
The last decode shall end as early as possible: a flow shop with two machines, for which Johnson's rule
(1954) is optimal.  Where a real problem would have a folder, this one has a section.
"""

from __future__ import annotations

import enum
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any, ClassVar

from infermax_opt.core.checks import Meaning, checked_decimal, checked_ids, checked_text
from infermax_opt.core.columns import SHARED, Columns, RowKind, nearest, own
from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import decimal_text
from infermax_opt.core.problem import Heuristic, Problem
from infermax_opt.core.result import Claim, LowerBound, Proof
from infermax_opt.core.suite import Case
from infermax_opt.core.truth import ROUNDING, Finding, Truth, best_of, found_by_enumerating
from infermax_opt.core.values import SHARE
from infermax_opt.core.verification import BaseVerification
from infermax_opt.files.fields import INSTANCE_SCHEMA, SCHEDULE_SCHEMA, Fields
from infermax_opt.files.json import under

__all__ = ["Order", "Tandem", "TandemMetrics", "TandemProblem", "TandemRequest"]

#: Requests of the largest instance whose orders are all enumerated: 5,040 orders.
MOST_ENUMERATED = 7


# --- data ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TandemRequest:
    """A request, with its times on the two machines in seconds."""

    id: str
    prefill: Fraction
    decode: Fraction

    def __post_init__(self) -> None:
        checked_text(self.id, "id")
        for name in ("prefill", "decode"):
            object.__setattr__(self, name, checked_decimal(getattr(self, name), name))
        if not self.decode:
            raise InputError("0 is no time; it must be more", field="decode")


@dataclass(frozen=True)
class Tandem:
    """An instance."""

    unit: ClassVar[tuple[str, str]] = ("s", "s")
    objective_name: ClassVar[str] = "makespan"

    name: str
    requests: tuple[TandemRequest, ...]

    def __post_init__(self) -> None:
        checked_text(self.name, "name")
        if not self.requests:
            raise InputError("holds no request; at least 1 is needed", field="requests")
        checked_ids([request.id] for request in self.requests)

    @property
    def sha256(self) -> str:
        """Hash of the meaning."""
        meaning = Meaning("tandem", self.name)
        for request in self.requests:
            meaning.feed(request.id, request.prefill, request.decode)
        return meaning.hexdigest()


@dataclass(frozen=True)
class Order:
    """A schedule: ids in the order in which both machines serve them."""

    instance: str
    order: tuple[str, ...]


# --- replay -------------------------------------------------------------------------------------


class Rule(enum.Enum):
    """The rule that a schedule can break."""

    ONCE = "once"


@dataclass(frozen=True)
class Violation:
    """A request that is served too often or not at all."""

    rule: Rule
    request: str
    served: int

    def __str__(self) -> str:
        return f"request {self.request!r}: {self.rule.value}: is served {self.served} times"


@dataclass(frozen=True)
class TandemMetrics:
    """Metrics of a valid schedule."""

    definitions: ClassVar[Mapping[str, str]] = {
        "makespan": "end of the last decode, s",
        "decode_use": "share of that time in which the decode machine works",
    }
    units: ClassVar[Mapping[str, str]] = {"makespan": "s", "decode_use": SHARE}

    makespan: Fraction
    decode_use: Fraction

    def items(self) -> list[tuple[str, Fraction | int | None]]:
        """Name and value of every metric."""
        return [("makespan", self.makespan), ("decode_use", self.decode_use)]


def broken(instance: Tandem, schedule: Order) -> tuple[Violation, ...]:
    """Requests of the instance that are not served once, and others that are served."""
    served = Counter(schedule.order)
    wanted = {request.id for request in instance.requests}
    names = sorted(name for name in wanted | served.keys() if served[name] != (name in wanted))
    return tuple(Violation(Rule.ONCE, name, served[name]) for name in names)


def decode_starts(requests: Sequence[TandemRequest]) -> list[Fraction]:
    """When the decode of each request starts if they are served in this order: the one clock."""
    prefilled = decoded = Fraction(0)
    starts = []
    for request in requests:
        prefilled += request.prefill
        starts.append(max(prefilled, decoded))
        decoded = starts[-1] + request.decode
    return starts


def makespan(requests: Sequence[TandemRequest]) -> Fraction:
    """End of the last decode."""
    return decode_starts(requests)[-1] + requests[-1].decode


def in_order(instance: Tandem, schedule: Order) -> list[TandemRequest]:
    """The requests as a valid schedule serves them."""
    by_id = {request.id: request for request in instance.requests}
    return [by_id[name] for name in schedule.order]


# --- bounds and heuristics ----------------------------------------------------------------------


def closed_forms(instance: Tandem) -> Iterator[LowerBound]:
    """Three arguments; the proof of each is its `reason`."""
    first = [request.prefill for request in instance.requests]
    last = [request.decode for request in instance.requests]
    found = {
        "prefill machine": (sum(first) + min(last), "after the last prefill comes at least one decode"),
        "decode machine": (min(first) + sum(last), "before the first decode comes at least one prefill"),
        "one request": (max(map(sum, zip(first, last, strict=True))), "a request is not decoded before"),
    }
    for source, (value, reason) in found.items():
        yield LowerBound(Fraction(value), source, Proof.CLOSED_FORM, reason=reason)


def johnson(instance: Tandem) -> list[TandemRequest]:
    """Those that prefill faster than they decode, by rising prefill; then the others, by falling decode."""
    early = [some for some in instance.requests if some.prefill <= some.decode]
    late = [some for some in instance.requests if some.prefill > some.decode]
    return [*sorted(early, key=lambda some: some.prefill), *sorted(late, key=lambda some: -some.decode)]


RULES: Mapping[str, Callable[[Tandem], Sequence[TandemRequest]]] = {
    "as-given": lambda instance: instance.requests,
    "johnson": johnson,
}


# --- suite and columns --------------------------------------------------------------------------


def generate(requests: int, seed: int) -> Tandem:
    """A random instance: tenths of a second to two seconds on each machine."""
    draw = random.Random(seed)
    times = [[Fraction(draw.randint(1, 20), 10) for _ in range(2)] for _ in range(requests)]
    return Tandem(
        f"tandem-{requests}-s{seed}", tuple(TandemRequest(f"r{k}", *pair) for k, pair in enumerate(times, 1))
    )


def cases(data: Path | None) -> list[Case]:
    """Instances that are enumerated, and larger ones."""
    sizes = [(requests, seed) for requests in (5, 50) for seed in (0, 1)]
    return [Case(f"tandem-{size}-s{seed}", partial(generate, size, seed)) for size, seed in sizes]


ROW_KIND = RowKind(
    schema="tandem/row/1",
    fields=("decode_use",),
    decimals=frozenset({"decode_use"}),
    cells=lambda instance, result: {"decode_use": nearest(result.metrics.decode_use)},
    columns=Columns({**SHARED.csv, "decode_use": own("decode_use")}, SHARED.markdown),
)


# --- the problem --------------------------------------------------------------------------------


class TandemProblem(Problem[Tandem, Order, TandemMetrics]):
    """What the entry point names: all that the rest of the house sees."""

    name = "tandem"
    about = "requests through a prefill machine and then a decode machine"
    instance = Tandem
    schedule = Order
    metrics = TandemMetrics
    decisions = "order"
    heuristic = "rule"
    heuristics_title = "rules"

    def instance_from_json(self, value: object) -> Tandem:
        """Build an instance from parsed JSON."""
        top = Fields(value, "", ["schema", "problem", "name", "requests"])
        top.schema(INSTANCE_SCHEMA)
        requests = []
        for index, item in enumerate(top.items("requests")):
            some = Fields(item, f"requests[{index}]", ["id", "prefill", "decode"])
            with under(some.path):
                requests.append(TandemRequest(**some.values))
        return Tandem(top.text("name"), tuple(requests))

    def instance_to_json(self, instance: Tandem) -> dict[str, Any]:
        """Return the JSON value of an instance."""
        requests = [
            {"id": some.id, "prefill": decimal_text(some.prefill), "decode": decimal_text(some.decode)}
            for some in instance.requests
        ]
        return {
            "schema": INSTANCE_SCHEMA, "problem": self.name, "name": instance.name, "requests": requests
        }  # fmt: skip

    def schedule_from_json(self, value: object, path: str) -> Order:
        """Build a schedule from parsed JSON."""
        top = Fields(value, path, ["schema", "instance", "order"])
        top.schema(SCHEDULE_SCHEMA)
        for index, name in enumerate(top.items("order")):
            checked_text(name, f"{top.at('order')}[{index}]")
        return Order(top.text("instance"), tuple(top.items("order")))

    def schedule_to_json(self, schedule: Order) -> dict[str, Any]:
        """Return the JSON value of a schedule."""
        return {"schema": SCHEDULE_SCHEMA, "instance": schedule.instance, "order": list(schedule.order)}

    def verify(
        self, instance: Tandem, schedule: Order | None, subject: Order | Claim
    ) -> BaseVerification[Violation, TandemMetrics]:
        """Replay a schedule; decide what is claimed of a small instance by trying every order."""
        violations = broken(instance, schedule) if schedule else ()
        metrics = None
        if schedule and not violations:
            end = makespan(in_order(instance, schedule))
            busy = sum((some.decode for some in instance.requests), Fraction(0))
            metrics = TandemMetrics(end, busy / end)

        def confirm(lower: Fraction) -> Finding:
            count = len(instance.requests)
            if count > MOST_ENUMERATED:
                return found_by_enumerating(None, f"{count} requests; up to {MOST_ENUMERATED} are enumerated")
            # A rounding below, so that a bound written as a double is not refuted for that.
            least = lower * (1 - ROUNDING)
            holds = all(makespan(order) >= least for order in permutations(instance.requests))
            return found_by_enumerating(holds, "")

        truth = Truth(
            instance=instance,
            violations=violations,
            metrics=metrics,
            objective=metrics.makespan if metrics else None,
            closed_form=lambda source: best_of(closed_forms(instance), source),
            confirm=confirm,
            trivial=lambda: makespan(instance.requests),
        )
        return BaseVerification.of(subject, truth)

    def bounds(self, instance: Tandem, *, stop: Callable[[], bool] | None = None) -> Iterator[LowerBound]:
        """Closed forms only, so there is nothing to stop."""
        yield from closed_forms(instance)

    def heuristics(self) -> Sequence[str]:
        """Names of the rules."""
        return tuple(RULES)

    def run_heuristic(self, instance: Tandem, name: str) -> Heuristic[Order]:
        """Order the requests by a rule."""
        if name not in RULES:
            return super().run_heuristic(instance, name)  # raises, and names the rules
        return Heuristic(Order(instance.name, tuple(some.id for some in RULES[name](instance))))

    def plot(self, instance: Tandem, subject: Order | Claim, path: str | os.PathLike[str]) -> None:
        """Draw what the two machines do over time."""
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        from infermax_opt.files.figure import COLOURS, STYLE, Phase, bound_words, save_figure
        from infermax_opt.files.text import printable, seconds

        schedule = subject.schedule if isinstance(subject, Claim) else subject
        if not isinstance(schedule, Order):
            raise InputError("holds no schedule to draw", field="schedule")
        requests = in_order(instance, schedule)
        words = [printable(instance.name), f"makespan {seconds(makespan(requests))}"]
        words += bound_words(instance, subject) if isinstance(subject, Claim) else []
        now = 0.0
        with rc_context(STYLE):
            figure = Figure(figsize=(11, 3), layout="constrained")
            axes = figure.subplots()
            for some, start in zip(requests, decode_starts(requests), strict=True):
                prefill, decode = float(some.prefill), float(some.decode)
                axes.barh("prefill", prefill, left=now, color=COLOURS[Phase.PREFILL], edgecolor="white")
                axes.barh("decode", decode, left=float(start), color=COLOURS[Phase.DECODE], edgecolor="white")
                now += prefill
            axes.set_xlabel("time (s)")
            figure.suptitle(", ".join(words), fontsize=11, parse_math=False)
            save_figure(figure, path)

    @property
    def row_kind(self) -> RowKind:
        """How much the decode machine is used."""
        return ROW_KIND

    def suites(self) -> Mapping[str, Callable[[Path | None], Sequence[Case]]]:
        """Random instances."""
        return {self.name: cases}
