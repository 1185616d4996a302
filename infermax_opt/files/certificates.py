"""Certificates: what a stand-alone checker needs to recompute a lower bound.

A certificate is a JSON object::

    {"schema": "infermax-opt/certificate/1",
     "instance": NAME, "instance_sha256": ..., "objective": "makespan",
     "cost": {"batch": ..., "decode": ..., "prefill": ..., "attention": ...},
     "lower_bound": "seconds, exact: a decimal or a fraction p/q",
     "source": NAME OF THE BOUND, "evidence": {"kind": ..., ...}, "sha256": ...}

``sha256`` is the hash of the rest as JSON with sorted keys and no spaces.  What ``cost`` and ``evidence``
hold is the problem's own: see `infermax_opt.infermax.certificates` and `infermax_opt.makespan.certificates`.
A problem without a `infermax_opt.core.certification.Certification` has no certificates; the verifier
recomputes its bounds.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from infermax_opt.core.certification import Certification
from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import decimal_text, is_finite_decimal
from infermax_opt.core.result import Claim, LowerBound
from infermax_opt.core.values import AnyInstance
from infermax_opt.files.fields import shown
from infermax_opt.files.json import load_json
from infermax_opt.files.writing import dump_json

__all__ = [
    "CERTIFICATE_SCHEMA",
    "certificate_to_json",
    "certified_bound",
    "check_certificate",
    "check_evidence",
    "exact_text",
    "write_certificate",
]

CERTIFICATE_SCHEMA = "infermax-opt/certificate/1"


def certificate_to_json(
    instance: AnyInstance, lower: LowerBound, certification: Certification[Any]
) -> dict[str, Any]:
    """Return the certificate of a bound as a JSON value.

    Parameters
    ----------
    instance : AnyInstance
    lower : LowerBound
    certification : Certification
        Of the instance's problem.

    Raises
    ------
    InputError
        If there are no certificates for such a bound.
    """
    if lower.evidence is None:
        raise InputError(f"there are no certificates for the bound {lower.source!r}", field="lower")
    certificate = {
        "schema": CERTIFICATE_SCHEMA,
        "instance": instance.name,
        "instance_sha256": certification.sha256(instance),
        "objective": instance.objective_name,
        "cost": dict(certification.cost(instance)),
        "lower_bound": exact_text(lower.value),
        "source": lower.source,
        "evidence": _spelled(lower.evidence),
    }
    return {**certificate, "sha256": _digest(certificate)}


def _spelled(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """Evidence with its fractions as text, those of its parts, too."""

    def told(value: Any) -> Any:
        if isinstance(value, Mapping):
            return _spelled(value)
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], Mapping):
            return [_spelled(part) for part in value]
        return exact_text(value) if isinstance(value, Fraction) else value

    return {key: told(value) for key, value in evidence.items()}


def exact_text(value: Fraction) -> str:
    """A fraction as an exact decimal where it ends, else as p/q."""
    if is_finite_decimal(value):
        text = decimal_text(value)
        if Fraction(text) == value:
            return text
    return f"{value.numerator}/{value.denominator}"


def _digest(certificate: dict[str, Any]) -> str:
    text = json.dumps(certificate, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def write_certificate(
    instance: AnyInstance, lower: LowerBound, path: str | os.PathLike[str], certification: Certification[Any]
) -> None:
    """Write the certificate of a bound.

    Parameters
    ----------
    instance : AnyInstance
    lower : LowerBound
    path : path
        Written whole or not at all; ``.gz`` is compressed.
    certification : Certification
        Of the instance's problem.

    Raises
    ------
    InputError
        If there are no certificates for such a bound, or the file cannot be written.
    """
    dump_json(certificate_to_json(instance, lower, certification), path)


def check_certificate(
    instance: AnyInstance, path: str | os.PathLike[str], certification: Certification[Any]
) -> Fraction:
    """Check a certificate file against an instance.

    Parameters
    ----------
    instance : AnyInstance
    path : path
    certification : Certification
        Of the instance's problem.

    Returns
    -------
    Fraction
        The bound that it proves, in the unit of the objective.

    Raises
    ------
    InputError
        If the file cannot be read.
    CertificateRejected
        If it does not prove what it claims; the problem says why.
    """
    certificate = load_json(path)
    try:
        if not isinstance(certificate, dict):
            raise InputError(f"{shown(certificate)} is not an object")
        return certification.check(instance, certificate)
    except InputError as error:
        raise error.within(os.fspath(path)) from None


def check_evidence(instance: AnyInstance, lower: LowerBound, certification: Certification[Any]) -> Fraction:
    """Check the certificate of a bound that was not written to a file; as `check_certificate`.

    Parameters
    ----------
    instance : AnyInstance
    lower : LowerBound
        One with evidence.
    certification : Certification
        Of the instance's problem.
    """
    return certification.check(instance, certificate_to_json(instance, lower, certification))


def certified_bound(
    instance: AnyInstance, claim: Claim, certification: Certification[Any]
) -> Fraction | None:
    """Bound that the certificate of a claim proves; None if the claim names none.

    Parameters
    ----------
    instance : AnyInstance
    claim : Claim
    certification : Certification
        Of the instance's problem.

    Raises
    ------
    InputError
        As `check_certificate`.
    """
    if claim.evidence is not None:
        return check_evidence(instance, claim.evidence, certification)
    if claim.certificate is None:
        return None
    return check_certificate(instance, claim.certificate, certification)
