"""Values that are formed when they are asked for."""

from __future__ import annotations

from infermax_opt.core.measured import Formed


def test_a_value_is_formed_once_and_only_if_it_is_asked_for() -> None:
    asked: list[str] = []

    def form(name: str) -> int:
        asked.append(name)
        return len(name)

    found = Formed({"a": lambda: form("a"), "bc": lambda: form("bc")})
    assert list(found) == ["a", "bc"]
    assert len(found) == 2
    assert "bc" not in asked
    assert (found["bc"], found["bc"], found.get("d")) == (2, 2, None)
    assert asked == ["bc"]
    assert found == {"a": 1, "bc": 2}
    assert repr(found) == "{'a': 1, 'bc': 2}"
