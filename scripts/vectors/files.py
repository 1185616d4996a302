"""Files that cannot be read, and instances that cannot be used, with all else about them as it should be."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from scripts.vectors.faults import changed

#: Levels of brackets that no reader of JSON follows by recursion.
DEEP = 100_000
#: Most MiB of a file where a vector says so, and a size above it.
SMALL_MIB = 1
LARGE = 2**20 + 2**12
#: Values of a file above the limit.
MANY = 10**7 + 1


class Raw(NamedTuple):
    """A file as it stands, and why it is refused."""

    name: str
    reason: str
    data: bytes
    max_size: int | None = None


def packed(data: bytes) -> bytes:
    """Compressed, the same at any time."""
    return gzip.compress(data, mtime=0)


def unreadable(certificate: dict[str, Any]) -> Iterator[Raw]:
    """Files in the place of a certificate."""
    text = json.dumps(certificate, indent=1)
    whole = text.encode()
    twice = text.replace('"lower_bound":', '"lower_bound": "0",\n "lower_bound":', 1).encode()
    inside = text.replace('"kind":', '"kind": "magic",\n  "kind":', 1).encode()
    yield Raw("key-twice.json", "duplicate-key", twice)
    yield Raw("key-twice-inside.json", "duplicate-key", inside)
    yield Raw("ends-early.json", "json", whole[: len(whole) // 2])
    yield Raw("comma-at-the-end.json", "json", whole.rstrip(b"}\n") + b",}")
    yield Raw("two-values.json", "json", whole + b"{}")
    yield Raw("empty.json", "json", b"")
    yield Raw("a-list.json", "json", b"[" + whole + b"]")
    yield Raw("nan.json", "json", changed_text(certificate, "NaN"))
    yield Raw("infinity.json", "json", changed_text(certificate, "-Infinity"))
    yield Raw("latin-1.json", "json", json.dumps({"name": "\u00e9"}, ensure_ascii=False).encode("latin-1"))
    yield Raw("deep.json.gz", "depth", packed(b"[" * DEEP + b"]" * DEEP))
    yield Raw("deep-objects.json.gz", "depth", packed(b'{"a":' * DEEP + b"0" + b"}" * DEEP))
    yield Raw("many-values.json.gz", "size", packed(b"[" + b"0," * MANY + b"0]"))
    yield Raw("large.json.gz", "size", packed(whole + b" " * LARGE), SMALL_MIB)
    yield Raw("cut.json.gz", "gzip", packed(whole)[:-20])
    yield Raw("changed-inside.json.gz", "gzip", packed(whole)[:-8] + b"\0" * 8)
    yield Raw("no-gzip.json.gz", "gzip", whole)


def changed_text(certificate: dict[str, Any], word: str) -> bytes:
    """The certificate with a word that is no JSON for its bound."""
    return json.dumps({**certificate, "lower_bound": "WORD"}).replace('"WORD"', word).encode()


def unusable(instance: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Instances of InferMax that are none, by the names of their files."""
    request = "requests.0"
    yield "schema-unknown", changed(instance, "schema", "infermax-opt/instance/2")
    yield "requests-missing", changed(instance, "requests", ...)
    yield "requests-none", changed(instance, "requests", [])
    yield "too-many-requests", changed(instance, f"{request}.count", 10**6 + 1)
    yield "output-of-0", changed(instance, f"{request}.output_tokens", 0)
    yield "output-of-a-half", changed(instance, f"{request}.output_tokens", "2.5")
    yield "arrival-below-0", changed(instance, f"{request}.arrival", "-1")
    yield "capacity-true", changed(instance, "system.kv_capacity", True)
    yield "cost-below-0", changed(instance, "cost", {**instance["cost"], "decode": ["-1", "0"]})
    yield "profile-outside-its-folder", changed(instance, "cost", {"profile": "../profile"})
    yield "objective-a-number", changed(instance, "objective", 7)
