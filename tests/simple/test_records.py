"""Records: what an annotation lets in, and their files."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest

from infermax_opt.core.errors import InputError
from infermax_opt.simple import InstanceRecord, Record
from infermax_opt.simple.json import record_from_json, record_to_json


@dataclass(frozen=True)
class Leg(Record):
    tokens: int
    seconds: Fraction | None = None
    stops: int = 1


@dataclass(frozen=True)
class Trip(Record):
    id: str
    legs: tuple[Leg, ...]
    tags: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Plan(InstanceRecord):
    problem = "plan"
    objective_name = "seconds"
    requests: tuple[Trip, ...]


VALUE: dict[str, Any] = {
    "id": "a",
    "legs": [{"tokens": 3, "seconds": "0.25", "stops": 2}, {"tokens": 0, "stops": 1}],
    "tags": ["x"],
}


def test_a_record_is_read_and_written_back() -> None:
    trip = record_from_json(Trip, VALUE, "")
    assert trip == Trip("a", (Leg(3, Fraction(1, 4), 2), Leg(0)), ("x",))
    assert record_from_json(Leg, {"tokens": 1}, "") == Leg(1, None, 1), "what is left out has its default"
    assert record_to_json(trip) == VALUE
    bare = {"id": "a", "legs": []}
    assert record_to_json(record_from_json(Trip, bare, "")) == bare


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"id": ""}, "top.id", "not a non-empty text"),
        ({"id": None}, "top.id", "not a non-empty text"),
        ({"legs": {}}, "top.legs", "{} is not a list"),
        ({"legs": "ab"}, "top.legs", "'ab' is not a list"),
        ({"legs": [5]}, "top.legs[0]", "5 is not an object"),
        ({"legs": [{"tokens": -1}]}, "top.legs[0].tokens", "-1 is not between 0 and"),
        ({"legs": [{"tokens": 1.5}]}, "top.legs[0].tokens", "1.5"),
        ({"legs": [{"tokens": "a"}]}, "top.legs[0].tokens", "'a' is not a whole number"),
        ({"legs": [{"tokens": 1, "seconds": "a"}]}, "top.legs[0].seconds", "'a' is not a decimal number"),
        ({"legs": [{"tokens": True}]}, "top.legs[0].tokens", "True"),
        ({"legs": [{"tokens": 1, "seconds": "-1"}]}, "top.legs[0].seconds", "negative"),
        ({"legs": [{}]}, "top.legs[0].tokens", "is missing"),
        ({"legs": [{"tokens": 1, "more": 1}]}, "top.legs[0].more", "is not a known key"),
        ({"tags": ["x", ""]}, "top.tags[1]", "not a non-empty text"),
    ],
    ids=str,
)
def test_wrong_fields_are_named(change: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(InputError) as error:
        record_from_json(Trip, {**VALUE, **change}, "top")
    assert error.value.field == field
    assert words in error.value.problem


def test_a_head_must_be_there() -> None:
    head = {"schema": "x/1"}
    assert record_from_json(Leg, {"schema": "x/1", "tokens": 1}, "", head) == Leg(1)
    for value, words in (({"tokens": 1}, "is missing"), ({"schema": 2, "tokens": 1}, "2 is not 'x/1'")):
        with pytest.raises(InputError, match=words):
            record_from_json(Leg, value, "", head)


def test_a_record_of_another_kind_is_refused() -> None:
    with pytest.raises(InputError, match="is no Leg"):
        Trip("a", (VALUE,))  # type: ignore[arg-type]


def test_requests_are_some_and_have_names_of_their_own() -> None:
    with pytest.raises(InputError, match="no request"):
        Plan("p", ())
    with pytest.raises(InputError, match="'a' is used twice"):
        Plan("p", (Trip("a", ()), Trip("a", ())))


def test_instances_that_mean_something_else_have_another_hash() -> None:
    legs = (Leg(1), Leg(2))
    plans = [
        Plan("p", (Trip("a", legs),)),
        Plan("q", (Trip("a", legs),)),
        Plan("p", (Trip("a", legs[:1]), Trip("b", legs[1:]))),
        Plan("p", (Trip("a", legs, ()),)),
        Plan("p", (Trip("a", legs, ("None",)),)),
        Plan("p", (Trip("a", (Leg(1), Leg(2, Fraction(1)))),)),
    ]
    assert len({plan.sha256 for plan in plans}) == len(plans)
    assert (
        Plan("p", (Trip("a", (Leg(1, "0.10"),)),)).sha256 == Plan("p", (Trip("a", (Leg(1, "0.1"),)),)).sha256
    )  # type: ignore[arg-type]
