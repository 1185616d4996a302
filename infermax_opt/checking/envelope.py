"""What surrounds the evidence of a certificate: its hash, the instance it is for, the bound it claims."""

from __future__ import annotations

import hashlib
import json
import math
from fractions import Fraction
from typing import Any

from infermax_opt.checking.errors import Rejected, require
from infermax_opt.checking.fields import Field, shown


def check_envelope(certificate: Field, data: Any, instance_sha256: str) -> None:
    """The certificate is whole, and made out for this instance and its objective.

    Parameters
    ----------
    certificate : Field
        As parsed.
    data : Any
        The instance, as parsed.
    instance_sha256 : str
        Of the instance.
    """
    if not isinstance(certificate.value, dict):
        certificate.fail(f"{shown(certificate.value)} is not an object")
    body = {key: value for key, value in certificate.value.items() if key != "sha256"}
    try:
        text = json.dumps(body, sort_keys=True, separators=(",", ":"), default=str).encode()
    except (TypeError, ValueError, RecursionError):
        certificate.fail("holds what cannot be hashed, or is nested too deeply")
    expected = {"schema": "infermax-opt/certificate/1", "sha256": hashlib.sha256(text).hexdigest()}
    expected["instance"] = data["name"]
    for key, value in expected.items():
        if certificate[key].value != value:
            certificate[key].fail(f"{shown(certificate[key].value)} is not {shown(value)}")
    # Before the hash of the instance, of which the objective is a part; of weights that says enough.
    objective, own = certificate["objective"].value, data.get("objective", "makespan")
    if isinstance(own, str) and objective != own:
        raise Rejected(f"is for the objective {shown(objective)}; the instance's is {shown(own)}")
    if certificate["instance_sha256"].value != instance_sha256:
        found = shown(certificate["instance_sha256"].value)
        certificate["instance_sha256"].fail(f"{found} is not {shown(instance_sha256)}")
    if not isinstance(certificate["source"].value, str):
        certificate["source"].fail(f"{shown(certificate['source'].value)} is no text")


def compare(certificate: Field, proved: Fraction) -> Fraction:
    """The claim of the certificate, if no more than what is proved."""
    claimed = certificate["lower_bound"].number()
    require(claimed <= proved, f"claims {seconds(claimed)}, only {seconds(proved)} is proved")
    return claimed


def seconds(value: Fraction) -> str:
    """A number of seconds, as far as one can show it, and never more than it is."""
    try:
        number = float(value)
        # The nearest number may be above what was proved.
        return repr(math.nextafter(number, -math.inf) if Fraction(repr(number)) > value else number)
    except OverflowError:
        return f"about 10**{len(str(int(abs(value)))) - 1}"
