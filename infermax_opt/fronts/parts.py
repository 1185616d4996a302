"""What shows that a front is true, as files: its schedules, and the certificates of its half-planes."""

from __future__ import annotations

import os
from pathlib import Path

from infermax_opt.core.errors import InputError
from infermax_opt.core.registry import problem_of
from infermax_opt.core.result import Proof
from infermax_opt.files.certificates import write_certificate
from infermax_opt.files.instances import write_instance, write_schedule
from infermax_opt.fronts.trace import Front

__all__ = ["write_parts"]


def write_parts(front: Front, folder: str | os.PathLike[str]) -> None:
    """Write ``point-1.json.gz``, ..., and for each certified half-plane its instance and certificate.

    Parameters
    ----------
    front : Front
    folder : path
        Made where there is none.

    Raises
    ------
    InputError
        If a file cannot be written.
    """
    place, certification = Path(folder), problem_of(front.instance).certification
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(error.strerror or str(error), source=os.fspath(folder)) from None
    for number, point in enumerate(front.points, 1):
        write_schedule(point.schedule, place / f"point-{number}.json.gz")
    for number, plane in enumerate(front.half_planes, 1):
        if plane.bound.proof is Proof.CERTIFICATE and certification is not None:
            write_instance(plane.instance, place / f"half-plane-{number}.instance.json.gz")
            name = f"half-plane-{number}.certificate.json.gz"
            write_certificate(plane.instance, plane.bound, place / name, certification)
