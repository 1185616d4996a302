"""How a checker says that a proof, an instance or a file is not what it should be."""

from __future__ import annotations


class Rejected(Exception):
    """The certificate does not prove its bound; the text says why."""


class Unusable(Rejected):
    """The instance, not the certificate, is at fault."""


class Unreadable(Exception):
    """A file that is not what it should be; the text names it and says why."""


def require(condition: bool, problem: str) -> None:
    """Reject unless the condition holds."""
    if not condition:
        raise Rejected(problem)
