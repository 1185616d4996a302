"""The checker reads an instance from the package's own values as from a file, plain entries and others."""

from __future__ import annotations

import copy
import json
from fractions import Fraction
from typing import Any

import pytest

from infermax_opt.files.certificates import exact_text
from infermax_opt.infermax.checker.instance import Instance
from infermax_opt.infermax.checker.terms import read_plain
from tests.support import ROOT

PLAIN = {"id": "r1", "input_tokens": 3, "output_tokens": 2, "arrival": Fraction(1, 8)}


def base(*requests: Any) -> dict[str, Any]:
    """An instance with these requests."""
    text = (ROOT / "instances" / "toy.json").read_text()
    return {**json.loads(text, parse_float=str), "requests": [*requests]}


def written(value: Any) -> Any:
    """A value with its fractions as text, as in a file."""
    if isinstance(value, dict):
        return {key: written(item) for key, item in value.items()}
    if isinstance(value, list):
        return [written(item) for item in value]
    return exact_text(value) if isinstance(value, Fraction) else value


def test_values_and_text_are_read_alike() -> None:
    """Whether a request is plain or not, twice there, or late."""
    more = [
        PLAIN,
        {**PLAIN, "id": "r2", "arrival": Fraction(0)},
        {**PLAIN, "id": "r3"},
        {**PLAIN, "id": "r4", "weight": Fraction(1, 4)},
        {**PLAIN, "id": "r\u00e9"},
        {"id": "r6", "input_tokens": 3, "output_tokens": 2, "count": 3},
        {**PLAIN, "id": "r7", "arrival": Fraction(10**30 + 1, 10**9)},
    ]
    given = base(*more)
    own, file = Instance(given, None), Instance(written(given), None)
    assert read_plain(PLAIN)
    assert not read_plain(written(PLAIN))
    assert own.sha256 == file.sha256
    assert own.kinds == file.kinds
    assert list(own.kinds) == list(file.kinds)
    assert own.entries == file.entries


@pytest.mark.parametrize(
    "change",
    [
        {"id": 7},
        {"id": "\ud800"},
        {"input_tokens": 0},
        {"input_tokens": 10**18 + 1},
        {"output_tokens": True},
        {"output_tokens": Fraction(3, 2)},
        {"arrival": Fraction(-1, 8)},
        {"arrival": True},
        {"arrival": None},
        {"count": 10**6 + 1},
        {"weight": "x"},
    ],
    ids=str,
)
def test_what_is_not_in_order_is_not_plain(change: dict[str, Any]) -> None:
    """It is read value by value, which says what is wrong."""
    entry = {**copy.deepcopy(PLAIN), **change}
    assert read_plain(entry) is None
    with pytest.raises(Exception, match=next(iter(change))) as found:
        Instance(base(PLAIN, entry), None)
    assert type(found.value).__name__ in {"Rejected", "Unusable"}
    assert "requests[1]" in str(found.value)
