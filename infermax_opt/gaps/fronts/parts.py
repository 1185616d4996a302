"""What shows that a front is true, as files: its schedules, and the certificates of its half-planes."""

from __future__ import annotations

import os

from infermax_opt.files.instances import write_schedule
from infermax_opt.files.proofs import made_folder, write_proof
from infermax_opt.gaps.fronts.trace import Front

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
    place = made_folder(folder)
    for number, point in enumerate(front.points, 1):
        write_schedule(point.schedule, place / f"point-{number}.json.gz")
    for number, plane in enumerate(front.half_planes, 1):
        write_proof(plane.instance, plane.bound, place, f"half-plane-{number}")
