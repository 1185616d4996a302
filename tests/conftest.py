"""The option of the tests."""

from __future__ import annotations

import pytest

from tests import campaign


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--campaign``."""
    about = "random instances and alterations: a fixed part of them (default), or all, which takes hours"
    parser.addoption("--campaign", choices=campaign.SIZES, default=campaign.PART, help=about)


def pytest_configure(config: pytest.Config) -> None:
    """Tell the tests, which ask as they are collected."""
    campaign.choose(config.getoption("--campaign"))
