"""How the bounds of a problem are certified: what a problem with certificates provides."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Protocol, TypeVar

from infermax_opt.core.errors import InputError
from infermax_opt.core.values import AnyInstance

__all__ = ["CertificateRejected", "Certification"]

#: An instance, which is only taken.
I_contra = TypeVar("I_contra", bound=AnyInstance, contravariant=True)


class CertificateRejected(InputError):
    """A certificate that does not prove its bound for this instance."""


class Certification(Protocol[I_contra]):
    """How the bounds of a problem are certified."""

    def cost(self, instance: I_contra) -> Mapping[str, Any]:
        """What a certificate says of the machine, so that the checker can tell another one."""
        ...

    def sha256(self, instance: I_contra) -> str:
        """Hash of the instance that a certificate is made out for."""
        return instance.sha256

    def check(self, instance: I_contra, certificate: object) -> Fraction:
        """Bound that a certificate proves, in the unit of the objective.

        Raises
        ------
        CertificateRejected
            If it does not prove what it claims; the text says why.
        """
        ...
