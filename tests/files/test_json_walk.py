"""JSON of any size is walked through, and what is no JSON is said."""

from __future__ import annotations

import json
import math
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from infermax_opt.core.errors import InputError
from infermax_opt.files.json_walk import JsonWalk, json_events
from infermax_opt.files.streams import open_text, utf8_pieces


def walk(folder: Path, text: str | bytes) -> JsonWalk:
    path = folder / "x.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return JsonWalk(path)


def whole(folder: Path, text: str | bytes) -> list[Any]:
    found = walk(folder, text)
    return [found.value() for _ in found.documents()]


def fails(folder: Path, text: str | bytes) -> str:
    with pytest.raises(InputError) as caught:
        whole(folder, text)
    line = str(caught.value)
    assert "\n" not in line
    return line.removeprefix(str(folder / "x.json") + ": ")


def test_values_are_what_the_whole_file_gives(tmp_path: Path) -> None:
    text = '{"a": [1, -0.5, 1e3, null, true, "\\u00e4\\n"], "b": {"c": {}}, "d": []} [7]\n"x"'
    assert whole(tmp_path, text) == [
        {"a": [1, Decimal("-0.5"), Decimal(1000), None, True, "ä\n"], "b": {"c": {}}, "d": []}, [7], "x",
    ]  # fmt: skip


def test_what_the_body_leaves_unread_is_passed_over(tmp_path: Path) -> None:
    found = walk(
        tmp_path, '{"long": [[1, {"a": [2]}], 3], "items": [{"x": 1, "y": [1]}, {"x": 2}], "z": {"k": 5}}'
    )
    seen = []
    for _ in found.documents():
        for key in found.members():
            if key == "items":
                for _ in found.items():
                    for inner in found.members():
                        if inner == "x":
                            seen.append((found.place, found.scalar()))
    assert seen == [("items[0].x", 1), ("items[1].x", 2)]
    found = walk(tmp_path, '{"items": [{"x": 1, "y": [1]}]}')
    assert [found.value(("y",)) for _ in found.documents()] == [{"items": [{"x": 1}]}]


def test_constants_of_python_in_pieces_of_any_size() -> None:
    rng = random.Random(3)
    for _ in range(200):
        values = [
            rng.choice(
                [
                    math.nan,
                    math.inf,
                    -math.inf,
                    1.5,
                    "NaN",
                    "".join(rng.choice('aN"\\Nif -') for _ in range(9)),
                ]
            )
            for _ in range(12)
        ]
        data = json.dumps(values).encode()
        found = []
        for size in (1, 2, 5, 1000):
            events = json_events(data[k : k + size] for k in range(0, len(data), size))
            found.append([value for event, value in events if event in ("number", "string")])
        assert found[0] == found[1] == found[2] == found[3]
        shown = [str(value).removeprefix("\0") for value in found[0]]
        wanted = [str(value) for value in values]
        names = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
        for text, value, given in zip(shown, values, wanted, strict=True):
            assert text == (names.get(given, given) if isinstance(value, float) else given)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ('{"a": [1, 2', "a[1]: is not JSON: it ends in the middle of a value"),
        ('{"a": 1, "a": 2}', "a: is given twice"),
        ('{"b": {"a": 1, "a": 2}}', "b.a: is given twice"),
        ('{"a": [1, }', "is not JSON: parse error"),
        ('{"a": nan}', "is not JSON: lexical error"),
        ("[" + "9" * 5000 + "]", "thousands of digits"),
        ("[1e99999999999999999999]", "thousands of digits"),
        ("[" * 5000, "nested too deeply"),
        ('["a\nb"]', "is not JSON: lexical error"),
        (b'["\xff"]', "is not UTF-8 text (byte 2)"),
    ],
)
def test_faults_are_one_line(tmp_path: Path, text: str | bytes, words: str) -> None:
    assert words in fails(tmp_path, text)


def test_faults_of_characters_across_pieces(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"\xef\xbb\xbf" + b"a" * (2**20 - 4) + "ä".encode() + b"\nb\xc3")
    with pytest.raises(InputError, match=rf"is not UTF-8 text \(byte {2**20 + 3}\)"):
        list(utf8_pieces(path))
    path.write_bytes(b"\xef\xbb\xbfa\r\nb")
    assert list(open_text(path, "")) == ["a\r\n", "b"]


@pytest.mark.parametrize("text", ["5", "{} 5", "[1]\n2.5"])
def test_a_number_at_the_very_end_is_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file.json"
    path.write_text(text)
    walk = JsonWalk(path)
    *_, last = [walk.value() for _ in walk.documents()]
    assert last == Decimal(text.split()[-1])
