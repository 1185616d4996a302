"""The hash of what an instance means."""

from __future__ import annotations

import hashlib

from infermax_opt.checking.fields import Field
from infermax_opt.checking.limits import MAX_NAMES, MAX_REQUESTS


class Meaning:
    """Hash of what an instance means: each part with its length before it, a line at a time."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def feed(self, *parts: object) -> None:
        """Add a line."""
        texts = map(str, parts)
        self._digest.update((" ".join([f"{len(text)}:{text}" for text in texts]) + "\n").encode())

    def feed_requests(self, entry: Field, *parts: object) -> int:
        """Add the line of each request of an entry of ``requests``; return how many these are."""
        name = entry["id"].text()
        if "count" not in entry:
            self.feed(name, *parts)
            return 1
        times = entry["count"].whole(1, MAX_REQUESTS)
        if times * len(name) > MAX_NAMES:
            entry["id"].fail(f"{times} names of {len(name)} characters; the most is {MAX_NAMES} in all")
        rest = " ".join(f"{len(str(p))}:{p}" for p in parts)
        for k in range(1, times + 1):
            one = f"{name}.{k}"
            self._digest.update(f"{len(one)}:{one} {rest}\n".encode())
        return times

    def hexdigest(self) -> str:
        """The hash of all lines so far."""
        return self._digest.hexdigest()
