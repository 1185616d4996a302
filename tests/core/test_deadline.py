"""A moment by which a search has to end."""

from __future__ import annotations

import math

from infermax_opt.core.deadline import Deadline, time_left


def test_a_moment_is_past_once_its_seconds_are_over() -> None:
    assert Deadline(-1)()
    assert Deadline(-1).left() < 0
    assert not Deadline(100)()
    assert 90 < time_left(Deadline(100)) <= 100


def test_without_seconds_it_never_comes() -> None:
    assert not Deadline(None)()
    assert time_left(Deadline(None)) == math.inf


def test_of_anything_else_it_is_not_known_how_long_it_is_until_it_stops() -> None:
    assert time_left(lambda: True) == math.inf
