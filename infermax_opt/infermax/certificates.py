"""Certificates of InferMax bounds: what their evidence holds, and how they are checked.

``cost`` repeats the cost model of the instance.  Where coefficients are intervals, the certificate is that of
the instance with their low ends: cost and hash are those of the fastest machine, and the checker reads these
ends.  Evidence of the kind

- ``closed-form`` names the argument for the number of batches (``argument``, with its ``cut`` for
  KV area, slots, spacing and releases; of KV beginning its ``price`` and ``kv``, prices of memory in the
  first batches), the affine ``piece``, the arrival ``since`` which counts (seconds), and J0 of the
  spread squares (``reference``): see `infermax_opt.infermax.bounds.closed_form`;
- ``occupancy`` holds the affine ``piece``, the ``exponent`` (a tick of the instance's cost model
  is 2**exponent units), the number ``young`` of first tokens left out, the ``potential`` in units, a
  list for each number of active requests, and the ``prices`` in units: ``token`` and ``size`` (what a
  generated token earns, fixed and for each token of KV), ``out_fixed`` and ``out_size`` (the eviction's
  share of the cost of recomputing, likewise), maybe ``pairs`` (what a batch pays for each pair of requests,
  and who leaves is paid back), and the lists ``first`` and ``finish`` (what a first token
  and a finish earn besides, for each size of prompts, the ``young`` tokens included, and of finished
  requests, smallest first); ``ends``, where it is there, are the numbers of first and last batches that are
  walked one by one: see `infermax_opt.infermax.bounds.occupancy`;
- ``state-flow`` holds the ``piece``, the ``exponent``, the ``potential`` in units, one for each state (null
  where none is reached), and the ``prices`` in units: ``first``, a number for each kind, and ``out``, a list
  for each kind, for n = 1 ... O-1.  Kinds are sorted by I, then O, elements (kind, n) likewise; a state is
  the sorted list of its elements, and states are sorted by their number of elements, then element by
  element: see `infermax_opt.infermax.bounds.state_flow`;
- ``levels`` holds the ``piece``, the ``exponent``, the ``width`` of levels in tokens, the ``potential`` in
  units, one for each state (null where none is reached), and the ``prices`` in units: ``worth``, a number for
  each level, lowest first, and ``idle``, what a request earns that makes no token in a batch.  A state is the
  sorted list of levels of the requests in memory; states are sorted as above: see
  `infermax_opt.infermax.bounds.levels`;
- ``count-branching`` holds the ``piece``, the ``exponent``, the ``divisors`` of KV in blocks, and ``trees``,
  fewest batches first: each has its number of ``batches`` and ``nodes``, each before its two sides.  A list
  [kinds, first batch, last batch, fewest tokens, most tokens, limit] is a branching on what is in that box:
  at most the limit, or more.  Other nodes are leaves, with prices in units: ``held``, a list for each
  divisor, ``decoded``, ``prefilled`` and ``prompts``, a number for each batch, and ``splits``, one for each
  branching above: see `infermax_opt.infermax.bounds.branching`;
- ``lagrangian`` holds the ``piece``, the ``exponent``, ``theta`` (the presence that every batch pays,
  in ticks) and ``prices``: lists of runs [units for a block of KV, number of batches], each list for
  the same number of batches: see `infermax_opt.infermax.bounds.lagrangian`;
- ``filling`` holds the ``piece``, ``by_slots`` (whether a token's size is one slot of R_max, not KV), the
  ``exponent`` (levels in units of 2**-exponent) and ``cells``, a list of [end, level]: steps of time in
  ticks, and the share of the memory that is left in each at least, which falls: see
  `infermax_opt.infermax.bounds.filling`;
- ``ramp`` holds the ``piece`` and the number of ``batches`` in which memory is looked at while it fills: see
  `infermax_opt.infermax.bounds.ramp`;
- ``running`` holds the ``piece`` alone: see `infermax_opt.infermax.bounds.running`;
- ``backwards`` holds the ``piece`` (0), the ``unit`` (units of a round), the holds d at which requests
  ``leave``, rising (each request takes the first that is I - 1 or more), and the ``prices`` in units, one
  for all requests of the same I, O and arrival, in order of their first appearance; ``exits``, where parts
  leave for a price, has a list for each hold but the first: what it costs in round 1, 2, ... (0 beyond): see
  `infermax_opt.infermax.bounds.backwards`.

Certificates of the mean end-to-end latency are of these kinds:

- ``occupancy``, ``ends`` left out, and ``state-flow`` as above, read as payments of the requests in the
  order in which they finish: see `infermax_opt.infermax.bounds.finishing_order`;
- ``progress`` holds the ``piece``, the ``exponent`` (levels are in units of 2**-exponent roots of a tick),
  ``by_slots`` (whether a token's size is one slot, not KV) and ``levels``, a list of [end, level]: cells of a
  clock of masses: see `infermax_opt.infermax.bounds.progress`;
- ``interaction`` holds the ``piece``, ``theta`` (in units of 2**-10) and ``cells``, a list of [end, root]:
  cells of time in ticks, and roots in units of 2**-12: see `infermax_opt.infermax.bounds.interaction`;
- ``lingering`` holds the ``piece``, ``theta`` and ``cells`` as before, the ``unit`` of roots of work in units
  of 2**-12, the number of ``groups`` of later tokens, and ``stays``, for all requests of the same I, O and
  arrival, in order of their first appearance, for how many ticks each is expected to stay.  With ``shares``,
  for each of these how much of its latency counts by uses, in units of 2**-10, ``theta`` or less, stays end
  within cells; without, all shares are ``theta``, and only whole cells count: see
  `infermax_opt.infermax.bounds.lingering`;
- ``deferral`` holds the ``piece``, the number of ``groups`` of later tokens, ``cells`` as before, ``ages``
  in ticks, and, for all requests of the same I, O and arrival, in order of their first appearance:
  ``stays``, for how many ticks each is expected to stay; ``shares``, how much of its wait for the first
  token it counts itself, in units of 2**-10; ``weights``, whole numbers, one for each tenth of its stay and
  five more, by which it has a part of the waits of others, and as many from each age of these on;
  ``levels``, a list of [root, cells] from the cell of its arrival on, roots of g / (1 - share) in units of
  2**-4: see `infermax_opt.infermax.bounds.deferral`;
- ``mutual`` holds the ``piece`` and ``pairs``: for each request by arrival, I and O, three numbers for each
  of its pairs with an earlier one: how many requests before it that one is, and the shares of a' that it
  and that one pay, in units of 2**-16: see `infermax_opt.infermax.bounds.mutual`;
- ``pace`` holds the ``piece``, ``cells``, a list of [end, r, v], ``own``, a number q for all requests of the
  same I, O and arrival, in order of their first appearance, ``parts``, in how many later tokens are cut,
  ``bases``, for each of these requests a list of k, one for its prompt and one for each part, and
  ``members``, a list of multiples of [k, q]; ends in ticks, v in units of 2**-24, all others of 2**-12.
  Without ``bases`` each k is 1, there is one part, and cells are [end, r]: see
  `infermax_opt.infermax.bounds.pace`;
- ``overload`` holds the ``piece``, the ``exponent``, the number of ``groups`` of later tokens and of groups
  of tokens of a prompt, ``parts`` (0 or missing: prompts count whole), and ``cells``, a list of [end, price,
  level]: cells of time in ticks, prices in units of 2**-12, levels as above: see
  `infermax_opt.infermax.bounds.overload`.

Certificates of missed service levels are of one kind:

- ``attainment`` holds the ``piece``, the ``exponent``, the number of ``groups`` of later tokens; ``cells``, a
  list of [end, price, kv, tokens, requests]: cells of time in ticks, prices in units of 2**-exponent of a
  weight for a tick, and shares of a batch's fixed cost paid for what is scarce; and ``shares``, a list of
  [first cell, share, ...] for all requests of the same I, O, arrival, weight and limits, in order of their
  first appearance; shares are in units of 2**-24: see `infermax_opt.infermax.bounds.attainment`.

Those of percentiles and maxima of TTFT and end-to-end latency are of the kind ``rank``: the same with a
``limit`` in seconds, which every request is promised: see `infermax_opt.infermax.bounds.ranks`.  Or they are
of the kind ``crowds``, which holds the ``piece``, the ``limit``, and a list of ``crowds``: each has its
``first`` request by arrival and lengths, and, for it and those after it, the rest of what ``attainment``
holds: see `infermax_opt.infermax.bounds.crowds`.  Those of the TTFT may also be of the kind ``on-time``,
which holds the ``piece`` and the ``limit``: see `infermax_opt.infermax.bounds.on_time`.

Evidence for limits names the one ``metric`` that it is about.  That of a weighted sum is of the kind
``parts``: a list of evidence of makespan, mean end-to-end latency and `missed`, each with its ``metric``:
see `infermax_opt.infermax.bounds.parts`.

`infermax_opt.infermax.checker` checks them and trusts nothing else.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from infermax_opt.core.certification import CertificateRejected, Certification
from infermax_opt.infermax.data.formats import cost_to_json, instance_to_json
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.intervals import fastest

__all__ = ["CERTIFICATION", "InferMaxCertification"]


class InferMaxCertification(Certification[Instance]):
    """How bounds of InferMax instances are certified; see `infermax_opt.core.certification.Certification`."""

    def cost(self, instance: Instance) -> dict[str, Any]:
        """The cost model, spelled out."""
        return cost_to_json(instance.cost)

    def sha256(self, instance: Instance) -> str:
        """Of a machine that is known within limits only, that of the fastest: a bound is about that one."""
        return fastest(instance).sha256

    def check(self, instance: Instance, certificate: object) -> Fraction:
        """Bound that a certificate proves, in seconds; raises `CertificateRejected`."""
        from infermax_opt.infermax import checker

        # As the checker would read it from a file, but that its fractions need not be text; cost spelled out.
        shown = {**instance_to_json(fastest(instance)), "cost": cost_to_json(instance.cost)}
        try:
            return checker.check(shown, certificate)
        except checker.Rejected as problem:
            raise CertificateRejected(f"certificate rejected: {problem}") from None


CERTIFICATION = InferMaxCertification()
