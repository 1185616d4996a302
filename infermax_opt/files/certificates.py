"""Certificates: what a stand-alone checker needs to recompute a lower bound.

A certificate is a JSON object::

    {"schema": "infermax-opt/certificate/1",
     "instance": NAME, "instance_sha256": ..., "objective": "makespan",
     "cost": {"batch": ..., "decode": ..., "prefill": ..., "attention": ...},
     "lower_bound": "seconds, exact: a decimal or a fraction p/q",
     "source": NAME OF THE BOUND, "evidence": {"kind": ..., ...}, "sha256": ...}

``sha256`` is the hash of the rest as JSON with sorted keys and no spaces.  Evidence of the kind

- ``closed-form`` names the argument for the number of batches (``argument``, with its ``cut`` for
  KV area and slots), the affine ``piece``, the arrival ``since`` which counts (seconds), and J0 of the
  spread squares (``reference``): see `infermax_opt.infermax.bounds.closed_form`;
- ``occupancy`` holds the affine ``piece``, the ``exponent`` (a tick of the instance's cost model
  is 2**exponent units), the number ``young`` of first tokens left out, the ``potential`` in units, a
  list for each number of active requests, and the ``prices`` in units: ``token`` and ``size`` (what a
  generated token earns, fixed and for each token of KV), ``out_fixed`` and ``out_size`` (the eviction's
  share of the cost of recomputing, likewise), and the lists ``first`` and ``finish`` (what a first token
  and a finish earn besides, for each size of prompts, the ``young`` tokens included, and of finished
  requests, smallest first): see `infermax_opt.infermax.bounds.occupancy`;
- ``state-flow`` holds the ``piece``, the ``exponent``, the ``potential`` in units, one for each state (null
  where none is reached), and the ``prices`` in units: ``first``, a number for each kind, and ``out``, a list
  for each kind, for n = 1 ... O-1.  Kinds are sorted by I, then O, elements (kind, n) likewise; a state is
  the sorted list of its elements, and states are sorted by their number of elements, then element by
  element: see `infermax_opt.infermax.bounds.state_flow`;
- ``lagrangian`` holds the ``piece``, the ``exponent``, ``theta`` (the presence that every batch pays,
  in ticks) and ``prices``: lists of runs [units for a block of KV, number of batches], each list for
  the same number of batches: see `infermax_opt.infermax.bounds.lagrangian`.

Of a makespan instance, ``cost`` holds the ``prefill`` (``levels``) and ``decode`` of its file, and the
evidence names the ``argument``: see `infermax_opt.makespan.bounds.closed_form`.

`infermax_opt.infermax.checker` checks them, `infermax_opt.makespan.checker` those of makespan
instances; they trust nothing else.  There are none for placements: the verifier recomputes their bounds.
"""

from __future__ import annotations

import hashlib
import json
import os
from fractions import Fraction
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import decimal_text, is_finite_decimal
from infermax_opt.core.problem import AnyInstance, objective_name
from infermax_opt.core.result import LowerBound
from infermax_opt.files.json import dump_json, load_json
from infermax_opt.infermax.data.formats import cost_to_json, instance_to_json
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.makespan.data.formats import makespan_instance_to_json
from infermax_opt.makespan.data.instance import MakespanInstance
from infermax_opt.placement.data.instance import PlacementInstance

__all__ = [
    "CERTIFICATE_SCHEMA",
    "CertificateRejected",
    "certificate_to_json",
    "check_certificate",
    "check_evidence",
    "write_certificate",
]

CERTIFICATE_SCHEMA = "infermax-opt/certificate/1"


class CertificateRejected(InputError):
    """A certificate that does not prove its bound for this instance."""


#: Instances that have certificates.
_Certifiable = Instance | MakespanInstance


def _require_certificates(instance: AnyInstance) -> _Certifiable:
    """The instance, if it has certificates.

    Raises
    ------
    InputError
        If it has none.
    """
    if isinstance(instance, PlacementInstance):
        problem = "closed-form bounds of placements have no certificate file; `verify` recomputes them"
        raise InputError(problem, field="certificate")
    return instance


def certificate_to_json(instance: AnyInstance, lower: LowerBound) -> dict[str, Any]:
    """Return the certificate of a bound as a JSON value.

    Raises
    ------
    InputError
        If there are no certificates for such a bound.
    """
    instance = _require_certificates(instance)
    if lower.evidence is None:
        raise InputError(f"there are no certificates for the bound {lower.source!r}", field="lower")
    certificate = {
        "schema": CERTIFICATE_SCHEMA,
        "instance": instance.name,
        "instance_sha256": instance.sha256,
        "objective": objective_name(instance),
        "cost": _cost(instance),
        "lower_bound": _exact(lower.value),
        "source": lower.source,
        "evidence": {
            key: _exact(value) if isinstance(value, Fraction) else value
            for key, value in lower.evidence.items()
        },
    }
    return {**certificate, "sha256": _digest(certificate)}


def _cost(instance: _Certifiable) -> dict[str, Any]:
    if isinstance(instance, MakespanInstance):
        value = makespan_instance_to_json(instance)
        return {"prefill": value["prefill"], "decode": value["decode"]}
    return cost_to_json(instance.cost)


def _exact(value: Fraction) -> str:
    if is_finite_decimal(value):
        text = decimal_text(value)
        if Fraction(text) == value:
            return text
    return f"{value.numerator}/{value.denominator}"


def _digest(certificate: dict[str, Any]) -> str:
    text = json.dumps(certificate, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def write_certificate(instance: AnyInstance, lower: LowerBound, path: str | os.PathLike[str]) -> None:
    """Write the certificate of a bound."""
    dump_json(certificate_to_json(instance, lower), path)


def check_certificate(instance: AnyInstance, path: str | os.PathLike[str]) -> Fraction:
    """Check a certificate file against an instance.

    Returns
    -------
    Fraction
        The bound that it proves, in seconds.

    Raises
    ------
    InputError
        If the file cannot be read.
    CertificateRejected
        If it does not prove what it claims; the problem says why.
    """
    return _check(instance, load_json(path), os.fspath(path))


def check_evidence(instance: AnyInstance, lower: LowerBound) -> Fraction:
    """Check the certificate of a bound that was not written to a file; as `check_certificate`."""
    return _check(instance, certificate_to_json(instance, lower), None)


def _check(instance: AnyInstance, certificate: Any, source: str | None) -> Fraction:
    from infermax_opt.infermax import checker as certificate_checker
    from infermax_opt.makespan import checker as makespan_checker

    instance = _require_certificates(instance)
    try:
        if isinstance(instance, MakespanInstance):
            return makespan_checker.check(makespan_instance_to_json(instance), certificate)
        # As the checker would read it from a file: numbers as text, the cost model spelled out.
        shown = {**instance_to_json(instance), "cost": cost_to_json(instance.cost)}
        for group in shown["requests"]:
            group["arrival"] = _exact(group["arrival"])
        return certificate_checker.check(shown, certificate)
    except (certificate_checker.Rejected, makespan_checker.Rejected) as problem:
        raise CertificateRejected(f"certificate rejected: {problem}", source=source) from None
