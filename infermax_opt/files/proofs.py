"""What shows that a bound holds, as two files in a folder: the instance, and the certificate."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from infermax_opt.core.errors import InputError
from infermax_opt.core.registry import problem_of
from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.core.values import AnyInstance
from infermax_opt.files.certificates import write_certificate
from infermax_opt.files.instances import write_instance
from infermax_opt.files.json import STANDARD

__all__ = ["check_folder", "made_folder", "write_proof"]


def made_folder(folder: str | os.PathLike[str]) -> Path:
    """The folder, made where there is none.

    Raises
    ------
    InputError
        If it cannot be made, or is to be standard output.
    """
    if os.fspath(folder) == STANDARD:
        raise InputError("is standard output, no folder", source=STANDARD)
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror or error}", source=os.fspath(folder)) from None
    return place


def check_folder(folder: str | os.PathLike[str]) -> None:
    """Find out before the work that files can be written into a folder, and leave none that was not there.

    Raises
    ------
    InputError
        If it cannot be made or written into, or is to be standard output.
    """
    place = Path(folder)
    new = [some for some in (place, *place.parents) if not os.path.lexists(some)]
    try:
        made_folder(folder)
        try:
            with tempfile.TemporaryFile(dir=place):
                pass
        except OSError as error:
            problem = f"cannot be written into: {error.strerror or error}"
            raise InputError(problem, source=os.fspath(folder)) from None
    finally:
        for some in new:
            with suppress(OSError):
                some.rmdir()


def write_proof(instance: AnyInstance, lower: LowerBound, folder: str | os.PathLike[str], name: str) -> bool:
    """Write ``NAME.instance.json.gz`` and ``NAME.certificate.json.gz``, if the bound has a certificate.

    Parameters
    ----------
    instance : instance
        That the bound is for.
    lower : LowerBound
    folder : path
        Made where there is none.
    name : str

    Returns
    -------
    bool
        Whether there is a certificate.

    Raises
    ------
    InputError
        If a file cannot be written.
    """
    certification = problem_of(instance).certification
    if lower.proof is not Proof.CERTIFICATE or lower.evidence is None or certification is None:
        return False
    place = made_folder(folder)
    write_instance(instance, place / f"{name}.instance.json.gz")
    write_certificate(instance, lower, place / f"{name}.certificate.json.gz", certification)
    return True
