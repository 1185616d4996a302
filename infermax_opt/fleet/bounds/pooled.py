r"""The pooled bound: machines that any routing and any schedules need for a share of service levels.

Let n requests run on m equal machines, each request on one of them, and let at least ceil(q n) be *good*:
keep all their limits.  Routing and schedules may know everything in advance; who is not good may be left
out.

*Needs.* A good request that arrives at a does its prompt between a and E, and its later tokens, taken in
groups, each between a + first + (what the tokens before the group take at least) and D - (what those after
it take at least).  Here D = a + min(e2e, ttft + tpot (O - 1)), E = min(a + ttft, D - later), `first` and
`later` are what prompt and later tokens take at least with a machine to themselves.  A later token takes
the time of a batch that decodes it, or of one that ends a refill of all s tokens cached after it: at least
alpha + beta + min(d0 + d1 (s - 1), p0 + beta (s - 1)), the latter only with preemption.  The batches of one
request follow each other, so all of this lies in batches that begin and end within the need.  Who breaks a
limit even so is never good.

*Cost.* Fix an affine piece.  What a batch of one machine takes is at least what its good requests are
charged:

* beta for each token they process, d1 for each token that a decode reads, p1 for the attention work of a
  prompt;
* p0 c / P for c tokens of a prompt, as a batch holds at most P;
* alpha is shared by one thing of which a batch has at most so much: the KV tokens s that a request holds
  after the batch that makes a token, s / M; or tokens, c / C; or requests that hold KV, 1 / R; or by the pace
  of requests, below;
* d0 s / M for each later token, if nothing is ever evicted.

A token that ends a refill is charged as if it had been decoded.  Its chunks process s tokens, all after the
token before, so beta s <= what they cost; beta + min(d1, beta) (s - 1) is no more than that.  If (beta -
d1) M >= 2 d0, then beta s >= beta + d1 (s - 1) + d0 s / M too, as s <= 2 (s - 1): the share of d0 may be
charged with evictions.  So in every window of time the needs that lie within it, of the good requests of one
machine, cost at most its length; those of all machines together at most m times that.

*Pace.* Let a stretch j of a good request, its prompt or successive later tokens, be done in n_j batches at
least, which take T_j together at most: for later tokens, min(tpot (O - 1), D - a - first) less what the
tokens of the request beside the stretch take at least; for the prompt, E - a.  Charge the work x of each of
these batches by the first two points, without p0; a batch takes K more than all work of it, which is at
least K_j = alpha + p0 for a prompt, K_j = alpha + d0 for later tokens, with preemption alpha + min(d0, p0),
as a batch that makes one decodes or ends a refill.  Let t be what a batch takes, and L the sum of prices
l_j >= 0 a second of the stretches that it works on; of a request it works on one.  Then, by Cauchy and
Schwarz, with sums over these stretches,

    t (1 + L)  >=  (K + sum x_j) (1 + L)  >=  sum x_j + K L + 2 sqrt(K L sum x_j)
               >=  sum of x_j + K_j l_j + 2 sqrt(K_j l_j x_j).

Over the batches of a window, t adds up to what machines are busy, and t l_j to at most l_j T_j for each
stretch that lies within.  So these machines are busy for at least the sum over stretches of

    W_j + 2 sqrt(K_j l_j) R_j - l_j (T_j - n_j K_j),

where W_j is its work, and R_j the sum of the roots of its work in each batch.  The best price makes this
W_j + K_j R_j^2 / (T_j - n_j K_j): batches of duration T / n do no more than T / n - K of work each.  Work
that is done in several batches, as in a refill, has larger roots.  The work of later tokens rises by the same
from each to the next, and the root is concave, so R_j is at least the mean of the first and last root times
their number; for a prompt R_j^2 >= W_j.  All later tokens may be one stretch, if the window holds them; then
one price is paid for all, which is more than for parts.

*Weights.* Let windows w have weights l_w >= 0, and let F_i(w) be the cost of the needs of request i in w.
Then

    sum over good i of sum over w of l_w F_i(w)  <=  m sum over w of l_w |w|.

Whoever is good, the left side is at least the sum of the ceil(q n) smallest values among all requests that
are not lost; one that no machine can hold is lost.  So m is at least that sum over the right factor, rounded
up; and there is no m if fewer than ceil(q n) requests can ever be good.  Each window may take a piece, and
what shares alpha, of its own.  QED.

Which requests miss their limits is thus the choice of an adversary who sees the weights.  The best weights
are the dual of the linear program of who misses what share (`infermax_opt.fleet.bounds.windows`); any are
valid.

What it does not see: that prompts slow down who decodes beside them (they pay for their work, but nothing
for the time of others), that batches hold whole requests, and that a machine cannot share its work with
another one.  It is loose where prompts are much of the work and limits of the TPOT close to the time of a
batch, or m is small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from infermax_opt.checking.work import Exhausted
from infermax_opt.fleet.bounds.attainment import ANY_STEPS, batches_of_too_few
from infermax_opt.fleet.bounds.in_turn import machines_too_few
from infermax_opt.fleet.bounds.priced import prices_of_too_few
from infermax_opt.fleet.bounds.windows import Weighted, best_windows
from infermax_opt.fleet.checker.certificate import least_machines
from infermax_opt.fleet.checker.needs import needs_of
from infermax_opt.fleet.checker.pooled import POOLED_SCHEMA, prompt_needs
from infermax_opt.fleet.checker.windows import NEVER
from infermax_opt.fleet.machine import machine_of, machine_to_json
from infermax_opt.fleet.question import FleetQuestion

__all__ = [
    "ANY_STEPS",
    "ARGUMENTS",
    "GROUPS",
    "MachineBound",
    "evidence",
    "pooled_bound",
    "pooled_bounds",
    "settled",
]

#: Stretches into which the later tokens of a request are divided.
GROUPS = 4
#: Part of known machines that windows have to prove before they are rounded, or prices are not tried.
NEAR = 0.75
#: Keys of what a certificate may hold beside windows.
ARGUMENTS = "in_turn", "attainment", "prices"
#: Bits of the largest weight of a window.
WEIGHT_BITS = 40


@dataclass(frozen=True)
class MachineBound:
    """Fewest machines, proved.

    Attributes
    ----------
    machines : int or None
        None: no number of machines is enough.
    certificate : dict
        For `infermax_opt.fleet.checker.pooled`.
    lost : tuple of int
        Places of the requests that never keep their limits, whatever serves them.
    relaxed : float
        The bound by windows before it was rounded up, about.
    certified : bool
        A checker has the time for the certificate.
    missed : tuple of tuple of int
        Guesses of whom to refuse: places of other requests that miss their limits, in parts at least, where
        the bound by windows without horizons is least, and where the bound by all windows is.
    """

    machines: int | None
    certificate: dict[str, Any]
    lost: tuple[int, ...]
    relaxed: float
    certified: bool = True
    missed: tuple[tuple[int, ...], ...] = ()


def pooled_bound(question: FleetQuestion) -> MachineBound:
    """The pooled bound of a question, recomputed exactly by the checker."""
    *_, best = pooled_bounds(question)
    return best


def pooled_bounds(
    question: FleetQuestion, tell: Callable[[str], None] | None = None
) -> Iterator[MachineBound]:
    """The pooled bound by windows, and the better ones of other arguments, which take longer.

    Parameters
    ----------
    question : FleetQuestion
    tell : callable, optional
        Takes lines of progress between the programs of prices of time.
    """
    machine, requests = machine_of(question.workload), question.workload.requests
    found = [
        needs_of(machine, r.arrival, (r.input_tokens, r.output_tokens), slo.limits, GROUPS)
        for r, slo in zip(requests, question.levels, strict=True)
    ]
    lost = tuple(i for i, needs in enumerate(found) if needs is None)
    relaxed, windows, missed = 0.0, list[Weighted](), list[list[int]]()
    if len(lost) <= question.spare:
        prompts, spared = [r.input_tokens for r in requests], question.spare - len(lost)
        relaxed, windows, missed = best_windows(machine, prompts, found, spared)
    certificate = {
        "schema": POOLED_SCHEMA,
        "machine": machine_to_json(machine),
        "question": question.sha256,
        **evidence(question, windows),
    }
    needs_on = partial(prompt_needs, machine)

    def near(known: int) -> bool:
        return relaxed > NEAR * known

    def batches(known: int) -> dict[str, Any] | None:
        return batches_of_too_few(question, certificate, known, tell) if near(known) else None

    def prices(known: int) -> dict[str, Any] | None:
        asked = question.asked
        return prices_of_too_few(machine, asked, question.may_miss, known, tell) if near(known) else None

    in_turn = partial(machines_too_few, certificate, machine, needs_on)
    found_by: tuple[Callable[[int], dict[str, Any] | None], ...] = in_turn, batches, prices
    arguments = dict(zip(ARGUMENTS, found_by, strict=True))
    guesses = tuple(map(tuple, missed))
    for proved, certified in settled(certificate, least_machines, arguments):
        least = None if proved == NEVER else int(proved)
        yield MachineBound(least, dict(certificate), lost, relaxed, certified, guesses)


def settled(
    certificate: dict[str, Any],
    least: Callable[..., int | str],
    arguments: Mapping[str, Callable[[int], dict[str, Any] | None]],
) -> Iterator[tuple[int | str, bool]]:
    """What it proves, which becomes its claim, and whether a checker has the time for it; ever more.

    Windows come first. Other arguments are kept where they prove more than all before; then windows are left
    out if both take a checker too long.

    Parameters
    ----------
    certificate : dict
        Its evidence and claim are changed.
    least : callable
        The checker: certificate, and steps where these have another limit.
    arguments : mapping of str to callable
        By the key of each argument: evidence that more machines are needed than so many; None if there is
        none.
    """
    proved, certified = _by_windows(certificate, least)
    yield proved, certified
    for key, too_few in arguments.items():
        found = None if proved == NEVER else too_few(int(proved))
        for windows in (certificate["windows"], list[Any]()) if found is not None else ():
            more = {**certificate, "windows": windows, key: found}
            try:
                known = least(more)
            except Exhausted:
                continue
            if int(known) > int(proved):
                certificate.update(more, machines=known)
                proved = known
                yield proved, True
            break


def _by_windows(certificate: dict[str, Any], least: Callable[..., int | str]) -> tuple[int | str, bool]:
    """What it proves, which becomes its claim, and whether a checker has the time for it.

    Windows of little weight are left out where a checker would not take the time for all; then later tokens
    are taken as one stretch.  Of more requests than a checker takes even so all is kept.
    """
    for smaller in _smaller(certificate):
        try:
            proved = least(smaller)
        except Exhausted:
            continue
        certificate.update(smaller, machines=proved)
        return proved, True
    certificate["machines"] = proved = least(certificate, ANY_STEPS)
    return proved, False


def _smaller(certificate: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The certificate, and others that take less time each, but prove less."""
    heaviest = sorted(certificate["windows"], key=lambda window: (window[0] - window[1]) * window[2])
    for groups in dict.fromkeys((certificate["groups"], 1)):
        yield {**certificate, "groups": groups}
        count = len(heaviest) // 2
        while count:
            yield {**certificate, "groups": groups, "windows": heaviest[:count]}
            count //= 2


def evidence(question: FleetQuestion, windows: list[Weighted]) -> dict[str, Any]:
    """What a certificate says of requests and windows; what it claims is open."""
    top = max((weight for *_, weight in windows), default=1.0)
    scaled = [
        [begin, end, int(weight / top * 2**WEIGHT_BITS), piece, kind]
        for begin, end, piece, kind, weight in windows
    ]
    return {
        "machines": None,
        "groups": GROUPS,
        "windows": [window for window in scaled if window[2]],
        **question.to_json(),
    }
