"""What requests are promised: weights, service levels, and which may be left out."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from infermax_opt.checking.fields import MAX_WHOLE, Field
from infermax_opt.checking.meaning import Meaning

#: Weight of a request, and its limits of TTFT, TPOT and end-to-end latency, in seconds.
Promise = tuple[Fraction, Any, Any, Any]
#: That of a request of which nothing is said.
PLAIN: Promise = (Fraction(1), None, None, None)
#: All that an entry of ``requests`` holds which says nothing of what it is promised, and is one request.
PLAIN_KEYS = {"id", "input_tokens", "output_tokens", "arrival"}


def read_terms(entry: Field, classes: Field) -> tuple[list[object], Promise]:
    """What an entry of ``requests`` says besides lengths and arrival, as it is hashed; its weight and limits.

    Parameters
    ----------
    entry : Field
    classes : Field
        Defaults by class.
    """
    name = entry["class"].text() if "class" in entry else ""
    places = [entry, *([classes[name]] if name in classes else [])]  # what comes first counts
    weight = next((some["weight"].number() for some in places if "weight" in some), Fraction(1))
    slos = [some["slo"] for some in places if "slo" in some]
    limits = [next((s[key].number() for s in slos if key in s), None) for key in ("ttft", "tpot", "e2e")]
    optional = next((some["optional"].flag() for some in places if "optional" in some), False)
    plain = not name and weight == 1 and limits == [None] * 3 and not optional
    terms: list[object] = [] if plain else [name, weight, *limits]
    if optional:
        terms.append("optional")
    if "predicted_output_tokens" in entry:
        terms += ["predicted", entry["predicted_output_tokens"].whole(1)]
    return terms, (weight, limits[0], limits[1], limits[2])


def read_plain(value: Any) -> tuple[str, int, int, Fraction] | None:
    """Name, lengths and arrival of an entry that holds these alone, all of them in order.

    None says nothing of an entry: it is read value by value then.  So is each of a file, where arrivals are
    texts.  Of a million most are plain, and a field for each of their values takes several times as long.
    """
    if type(value) is not dict or value.keys() != PLAIN_KEYS:
        return None
    name, i, o, arrival = value["id"], value["input_tokens"], value["output_tokens"], value["arrival"]
    if type(name) is not str or not name.isascii() or type(i) is not int or type(o) is not int:
        return None
    if not (1 <= i <= MAX_WHOLE and 1 <= o <= MAX_WHOLE):
        return None
    if type(arrival) is not Fraction or arrival.numerator < 0:
        return None
    return name, i, o, arrival


def read_release(given: Field, meaning: Meaning) -> str:
    """The class of a closed loop, which is hashed."""
    name = given["class"].text()
    meaning.feed("release", name, given["batch"].whole(1))
    return name
