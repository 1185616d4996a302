"""What other packages add, found through entry points; one that fails is named in a line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint

from infermax_opt.core.errors import InputError

__all__ = ["blaming"]


@contextmanager
def blaming(point: EntryPoint) -> Iterator[None]:
    """Load and call in this block what an entry point names.

    Raises
    ------
    InputError
        Naming the package, if that fails in any way but with an error of this kind.
    """
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:
        package = point.dist.name if point.dist else "a package"
        text = f"{point.value} of {package} failed: {type(error).__name__}: {error}"
        raise InputError(text, field=point.name, source=point.group) from error
