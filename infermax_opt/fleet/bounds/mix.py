r"""The price of a mix: what machines of several types cost at least, whatever routes and schedules.

n_t machines of type t cost p_t an hour each; every request runs on one machine.

*Each type.* Take windows w with weights l_w for type t, and let P_t(i) be what request i is charged in them,
and R_t the sum of l_w |w|.  By `infermax_opt.fleet.bounds.pooled` the good requests on machines of type t are
charged at most n_t R_t together; a request that type t can never serve in time is never good there.

*Cuts.* Let v_t >= 0 be weights of types.  Then

    sum over good i of min over t of v_t P_t(i)  <=  sum over t of v_t R_t n_t,

as a good request is charged where it runs.  Whoever is good, the left side is at least the sum of the
ceil(q n) smallest minima L(v), over requests that some type serves in time.  And as one request has to be
good, there is a machine.

*Price.* So every fleet keeps all cuts in whole numbers n_t, and costs no less than the cheapest one that
does: an integer program with a variable for each type, solved exactly.  QED.

The weights v are found by cutting planes.  At the cheapest mix so far, L(v) - sum of v_t R_t n_t is concave
in v and piecewise linear; its maximum over weights that sum to 1 (with each R_t scaled to 1) gives the next
cut, if it is above 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from infermax_opt.checking.fields import Field
from infermax_opt.checking.work import Work
from infermax_opt.core.linear import quiet_solver
from infermax_opt.fleet.bounds.pooled import ANY_STEPS, GROUPS, WEIGHT_BITS
from infermax_opt.fleet.bounds.windows import best_windows
from infermax_opt.fleet.checker.certificate import least_price
from infermax_opt.fleet.checker.mix import MIX_SCHEMA, Cut, Cuts, charges, cheapest, cut_of
from infermax_opt.fleet.checker.needs import needs_of
from infermax_opt.fleet.checker.question import joint_hash, read_question
from infermax_opt.fleet.checker.windows import NEVER
from infermax_opt.fleet.machine import machine_of, machine_to_json
from infermax_opt.fleet.question import FleetQuestion

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

__all__ = ["MixBound", "mix_bound"]

#: Cuts, and steps to find each, at most.
CUTS, STEPS = 60, 60
#: Bits of the largest weight of a cut.
BITS = 30
#: Share of a machine by which a cut has to be broken.
BROKEN = 1e-7


@dataclass(frozen=True)
class MixBound:
    """Least price of a mix, proved.

    Attributes
    ----------
    price : Fraction or None
        Of an hour; None: no mix is enough.
    certificate : dict
        For `infermax_opt.fleet.checker.mix`.
    shares : list of list of float or None
        Of each type and request, in the order of the first question's `everyone`: of a machine that the
        request takes there at least; None: never in time.
    cuts : Cuts
    """

    price: Fraction | None
    certificate: dict[str, Any]
    shares: list[list[float | None]]
    cuts: Cuts


def mix_bound(questions: Sequence[FleetQuestion], prices: Sequence[Fraction]) -> MixBound:
    """The bound of one question asked of several types.

    Parameters
    ----------
    questions : sequence of FleetQuestion
        The same requests on each type, whichever of them fit there.
    prices : sequence of Fraction
        Of an hour of each type.
    """
    import numpy as np

    certificate = _certificate(questions, prices)
    given = Field(certificate, "certificate")
    asked = read_question(given, Work(ANY_STEPS))
    must, charged = asked.must, [charges(kind, asked) for kind in given["types"].items()]
    rooms, paid = [room for room, _ in charged], [some for _, some in charged]
    shares = _shares(charged)
    table = np.array([[np.inf if p is None else p for p in some] for some in shares])
    cuts = [Cut((1,) * len(questions), 1)]
    if np.isfinite(table).any(axis=0).sum() >= must:
        for weights in _weights(table, tuple(prices), cuts, must):
            whole = _whole(weights, rooms)
            cut = cut_of(whole, rooms, paid, must)
            if cut is None or not cut.least or cut in cuts:
                break
            cuts.append(cut)
            certificate["cuts"].append(whole)
    proved = least_price(certificate, ANY_STEPS)
    certificate["price"] = str(proved)
    least = None if proved == NEVER else Fraction(proved)
    return MixBound(least, certificate, shares, Cuts(tuple(prices), cuts))


def _shares(charged: Sequence[tuple[int, list[int | None]]]) -> list[list[float | None]]:
    """What requests pay, in machines of each type."""
    return [[None if p is None else p / max(1, room) for p in some] for room, some in charged]


def _weights(table: Floats, prices: tuple[Fraction, ...], cuts: list[Cut], must: int) -> Iterator[Floats]:
    """Weights whose cut the cheapest mix breaks, as long as there are any; the cuts grow meanwhile.

    Parameters
    ----------
    table : array
        Shares of a machine by type and request.
    prices : tuple of Fraction
    cuts : list of Cut
    must : int
        Requests that have to be good.
    """
    import numpy as np

    for _ in range(CUTS):
        _, mix = cheapest(Cuts(prices, cuts))
        weights = None if mix is None else _separated(table, np.array(mix, float), must)
        if weights is None:
            return
        yield weights


def _whole(weights: Floats, rooms: Sequence[int]) -> list[int]:
    """Whole weights of types for shares of a machine that are weighed so."""
    scaled = [Fraction(float(w)) / max(1, room) for w, room in zip(weights, rooms, strict=True)]
    top = max(scaled)
    return [int(some / top * 2**BITS) for some in scaled]


def _separated(table: Floats, mix: Floats, must: int) -> Floats | None:
    """Weights of types whose cut the mix breaks most, by Kelley's cutting planes; None if there are none."""
    import highspy
    import numpy as np

    kinds, served = len(mix), np.isfinite(table)
    solver = quiet_solver()
    for _ in range(kinds):
        solver.addCol(0.0, 0.0, 1.0, 0, [], [])
    solver.addCol(1.0, -highspy.kHighsInf, float(len(table[0])) * 1e3, 0, [], [])
    solver.changeObjectiveSense(highspy.ObjSense.kMaximize)
    everyone = list(range(kinds))
    solver.addRow(1.0, 1.0, kinds, everyone, [1.0] * kinds)
    weights, best, chosen = np.full(kinds, 1.0 / kinds), BROKEN, None
    for _ in range(STEPS):
        weighed = np.where(served, np.where(served, table, 0.0) * weights[:, None], np.inf)
        kind = np.argmin(weighed, axis=0)
        least = np.min(weighed, axis=0)
        good = np.argsort(least, kind="stable")[:must]
        value = float(least[good].sum() - weights @ mix)
        if value > best:
            best, chosen = value, weights
        slope = np.bincount(kind[good], table[kind[good], good], minlength=kinds) - mix
        solver.addRow(-highspy.kHighsInf, 0.0, kinds + 1, [*everyone, kinds], [*(-slope), 1.0])
        solver.run()
        found = np.array(solver.getSolution().col_value)
        if found[kinds] <= best + 1e-9 * max(1.0, best):
            break
        weights = np.clip(found[:kinds], 0, 1)
    return chosen


def _certificate(questions: Sequence[FleetQuestion], prices: Sequence[Fraction]) -> dict[str, Any]:
    """The certificate, without cuts and what it proves."""
    question = questions[0]
    everyone = question.everyone
    kinds = []
    for asked, price in zip(questions, prices, strict=True):
        machine = machine_of(asked.workload)
        needs = [
            needs_of(machine, r.arrival, (r.input_tokens, r.output_tokens), r.terms.slo.limits, GROUPS)
            for r in everyone
        ]
        spared = max(0, question.may_miss - needs.count(None))
        _, windows, _ = best_windows(machine, [r.input_tokens for r in everyone], needs, spared)
        top = max((weight for *_, weight in windows), default=1.0)
        kept = [[*some, int(weight / top * 2**WEIGHT_BITS)] for *some, weight in windows]
        kinds.append(
            {
                "price": str(price),
                "machine": machine_to_json(machine),
                "question": asked.sha256,
                "windows": [[b, e, weight, piece, kind] for b, e, piece, kind, weight in kept if weight],
            }
        )
    return {
        "schema": MIX_SCHEMA,
        "price": None,
        "question": joint_hash([*(asked.sha256 for asked in questions), *map(str, prices)]),
        "groups": GROUPS,
        "cuts": [],
        "types": kinds,
        **question.to_json(),
    }
