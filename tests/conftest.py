"""The option of the tests, their order, what makes them cheaper, and what tests of several rooms need."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import campaign

# Small matrices in several processes at once: threads of the linear algebra would wait for each other.
for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

#: Objects and rounds between collections of garbage: the usual ones make syntax trees take thrice as long.
SELDOM = 50_000, 20, 100
#: Files that take long, the longest first: begun late, one of them would keep a worker busy alone.
LONGEST = tuple(Path(__file__).with_name("longest.txt").read_text(encoding="utf-8").split())


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--campaign``."""
    about = "random instances and alterations: a fixed part of them (default), or all, which takes hours"
    parser.addoption("--campaign", choices=campaign.SIZES, default=campaign.PART, help=about)


def pytest_configure(config: pytest.Config) -> None:
    """Tell the tests, which ask as they are collected; let the garbage collector come seldom."""
    gc.set_threshold(*SELDOM)
    campaign.choose(config.getoption("--campaign"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long come first; the tests of a file stay together, in their order."""
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0].removeprefix("tests/"), len(place)))


def pytest_collection_finish() -> None:
    """Spare the garbage collector all that was collected here, which it would go through again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def hears_ctrl_c() -> Iterator[None]:
    """Programs that a shell starts in the background ignore SIGINT unless told otherwise."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
