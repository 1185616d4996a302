"""Names of requests: numbers where all are, and the same names in either form."""

from __future__ import annotations

import random

import numpy as np
import pytest

from infermax_opt.foreign.names import codes_of, first_twice, is_among, joined_names, listed, names_of

TEXTS = ["0", "7", "07", "-7", "7.0", "", "a", "٣", "9" * 18, "9" * 30, " 7"]


@pytest.mark.parametrize("seed", range(30))
def test_names_stay_what_they_are(seed: int) -> None:
    draw = random.Random(seed)
    parts = [draw.choices(TEXTS[: draw.choice([2, 11])], k=draw.randint(1, 4)) for _ in range(3)]
    for part in parts:
        assert list(map(str, names_of(part).tolist())) == part
    whole = joined_names(list(map(names_of, parts)))
    texts = [text for part in parts for text in part]
    assert list(map(str, whole.tolist())) == texts
    codes = codes_of(whole).tolist()
    assert [a == b for a in codes for b in codes] == [a == b for a in texts for b in texts]


def test_numbers_and_texts_of_the_same_name_are_one() -> None:
    whole = joined_names([names_of([5, -5, 2**62]), names_of([5, "5", "x"]), names_of([2**70])])
    assert whole.tolist() == ["5", "-5", str(2**62), "5", "5", "x", str(2**70)]
    assert names_of([5, -5]).dtype == names_of(["5", "6"]).dtype == np.int64


@pytest.mark.parametrize("seed", range(30))
def test_the_first_place_that_is_as_an_earlier_one(seed: int) -> None:
    draw = random.Random(seed)
    columns = [np.array([draw.randrange(3) for _ in range(seed // 3)], dtype=np.int64) for _ in range(2)]
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    again = next((k for k, row in enumerate(rows) if row in rows[:k]), None)
    found = first_twice(*columns)
    assert (found is None) == (again is None)
    if found is not None:
        assert found[0] == again
        assert rows[found[1]] == rows[found[0]]
        assert found[1] < found[0]


def test_a_message_lists_the_first_names_and_no_long_ones() -> None:
    assert listed(["b", "a"]) == "a, b"
    assert listed(map(str, range(100))).endswith(", ...")
    assert len(listed(["x" * 100])) == 40


@pytest.mark.parametrize("count", [2, 11], ids=["numbers", "texts"])
def test_whether_there_is_a_name(count: int) -> None:
    given = TEXTS[1:count]
    assert [is_among(text, names_of(given)) for text in TEXTS] == [text in given for text in TEXTS]
