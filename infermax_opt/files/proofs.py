"""What shows that a bound holds, as two files in a folder: the instance, and the certificate."""

from __future__ import annotations

import os
from pathlib import Path

from infermax_opt.core.errors import InputError
from infermax_opt.core.registry import problem_of
from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.core.values import AnyInstance
from infermax_opt.files.certificates import write_certificate
from infermax_opt.files.instances import write_instance
from infermax_opt.files.json import STANDARD

__all__ = ["made_folder", "write_proof"]


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


def write_proof(instance: AnyInstance, lower: LowerBound, folder: Path, name: str) -> None:
    """Write ``NAME.instance.json.gz`` and ``NAME.certificate.json.gz``, if the bound has a certificate.

    Parameters
    ----------
    instance : instance
        That the bound is for.
    lower : LowerBound
    folder : Path
    name : str

    Raises
    ------
    InputError
        If a file cannot be written.
    """
    certification = problem_of(instance).certification
    if lower.proof is Proof.CERTIFICATE and lower.evidence is not None and certification is not None:
        write_instance(instance, folder / f"{name}.instance.json.gz")
        write_certificate(instance, lower, folder / f"{name}.certificate.json.gz", certification)
