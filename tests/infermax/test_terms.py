"""Classes, weights and service levels: what they mean for an instance, its file, its hash and its types."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import pytest

from infermax_opt import api
from infermax_opt.core.errors import InputError
from infermax_opt.files.certificates import certificate_to_json
from infermax_opt.files.json import to_json_text
from infermax_opt.infermax.bounds import closed_form_bounds
from infermax_opt.infermax.certificates import CERTIFICATION
from infermax_opt.infermax.data.formats import instance_from_json, instance_to_json
from infermax_opt.infermax.data.instance import Instance, RequestClass, RequestGroup, ServiceLevel, System
from infermax_opt.infermax.data.requests import PLAIN
from tests.infermax.tiny import tiny

COST = tiny(1).cost
RT = RequestClass("rt", 3, {"ttft": "0.5", "tpot": "0.05"})


def made(*groups: RequestGroup, classes: tuple[RequestClass, ...] = (RT,)) -> Instance:
    return Instance("terms", groups, System(99, 99, 99), COST, classes=classes)


def test_old_files_mean_what_they_meant() -> None:
    """Hash of an instance written down before there were classes."""
    old = Instance("old", (RequestGroup("r", 4, 3, "0.5", 2), RequestGroup("s", 2, 1)), System(9, 9, 9), COST)
    assert old.sha256 == "6c5cd674efb1a422b5987b20347411e7787f04edf91af8627a0703f77623c5a5"
    assert old.requests[0].terms is PLAIN
    assert "classes" not in instance_to_json(old)
    assert set(instance_to_json(old)["requests"][1]) == {"id", "input_tokens", "output_tokens", "arrival"}


def test_a_request_has_its_own_values_before_those_of_its_class() -> None:
    own = RequestGroup("a", 2, 2, class_name="rt", weight="0.5", slo={"tpot": 1, "e2e": 7})
    instance = made(own, RequestGroup("b", 2, 2, class_name="rt"), RequestGroup("c", 2, 2, class_name="be"))
    a, b, c = (request.terms for request in instance.requests)
    assert (a.weight, a.slo) == (Fraction(1, 2), ServiceLevel(Fraction(1, 2), Fraction(1), Fraction(7)))
    assert (b.weight, b.slo) == (3, ServiceLevel(Fraction(1, 2), Fraction(1, 20)))
    assert (c.class_name, c.weight, c.slo) == ("be", 1, ServiceLevel())


def test_the_hash_is_of_the_meaning() -> None:
    by_class = made(RequestGroup("a", 2, 2, class_name="rt"), RequestGroup("b", 2, 2))
    spelled = RequestGroup("a", 2, 2, class_name="rt", weight=3, slo={"ttft": "0.5", "tpot": "0.05"})
    assert made(spelled, RequestGroup("b", 2, 2), classes=()).sha256 == by_class.sha256
    plain = made(RequestGroup("a", 2, 2, weight=1, slo={}), RequestGroup("b", 2, 2))
    assert plain.sha256 == made(RequestGroup("a", 2, 2), RequestGroup("b", 2, 2), classes=()).sha256
    variants = [
        spelled,
        RequestGroup("a", 2, 2),
        replace(spelled, class_name=None),
        replace(spelled, class_name="None"),
        replace(spelled, weight=2),
        replace(spelled, slo={"tpot": "0.5", "ttft": "0.05"}),
        replace(spelled, slo={"ttft": "0.5"}),
        replace(spelled, predicted_output_tokens=3),
        RequestGroup("a", 2, 2, predicted_output_tokens=3),
    ]
    assert len({made(one, classes=()).sha256 for one in variants}) == len(variants)


def test_files_keep_all_of_it() -> None:
    group = RequestGroup("a", 2, 2, "0.5", 3, "rt", "0.25", {"e2e": 4}, predicted_output_tokens=9)
    instance = made(group, RequestGroup("b", 2, 2, class_name="be"))
    again = instance_from_json(json.loads(to_json_text(instance_to_json(instance))))
    assert again == instance
    assert again.sha256 == instance.sha256
    assert again.requests[2].predicted_output_tokens == 9


def test_types_tell_apart_what_objectives_may() -> None:
    one = RequestGroup("a", 2, 2, count=2)
    others = [replace(one, id="b", class_name="x"), replace(one, id="c", weight=2)]
    others += [replace(one, id="d", slo={"e2e": 1}), replace(one, id="e", weight=1, count=1)]
    instance = made(one, *others)
    assert [kind.members for kind in instance.types] == [(0, 1, 8), (2, 3), (4, 5), (6, 7)]


def test_certificates_are_of_instances_with_terms_too() -> None:
    """The checker, which reads instances by itself, has the same hash."""
    group = RequestGroup("a", 2, 2, "0.5", 3, "rt", slo={"e2e": "0.1"}, predicted_output_tokens=9)
    instance = made(group, RequestGroup("b", 2, 3, weight=2), RequestGroup("c", 2, 3, class_name="be"))
    lower = closed_form_bounds(instance)[0]
    written = json.loads(to_json_text(certificate_to_json(instance, lower, CERTIFICATION)))
    assert CERTIFICATION.check(instance, written) == lower.value
    assert api.verify(instance, api.solve(instance, time_limit=0.5)).ok


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"weight": 0}, "weight"),
        ({"weight": "-2"}, "weight"),
        ({"weight": float("nan")}, "weight"),
        ({"slo": {"ttft": -1}}, "slo.ttft"),
        ({"slo": {"latency": 1}}, "slo.latency"),
        ({"slo": 3}, "slo"),
        ({"slo": ServiceLevel(e2e=Fraction(-1))}, "slo.e2e"),
        ({"class_name": ""}, "class"),
        ({"class_name": 4}, "class"),
        ({"predicted_output_tokens": 0}, "predicted_output_tokens"),
    ],
)
def test_wrong_values_name_their_field(wrong: dict[str, object], field: str) -> None:
    with pytest.raises(InputError) as caught:
        RequestGroup("a", 2, 2, **wrong)  # type: ignore[arg-type]
    assert caught.value.field == field


def test_a_class_is_there_once() -> None:
    with pytest.raises(InputError, match="twice"):
        made(RequestGroup("a", 2, 2), classes=(RT, RT))
