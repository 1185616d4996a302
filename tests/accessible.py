"""What a page has to have for those who do not see it, use no mouse, or see little contrast.

No checker of accessibility comes with the tests: these are the rules of WCAG 2.2 AA that can be read off the
source of such pages.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser

__all__ = ["check_page", "contrast", "palettes"]

#: Elements that have no end.
VOID = {"meta", "br", "hr", "img", "link", "input"}
#: Least contrast of text, and of lines and marks of charts, to what is behind them.
TEXT, MARKS = 4.5, 3.0
#: Colours that stand on others: of text and of marks.
ON = [("text", "ground", TEXT), ("soft", "ground", TEXT), ("link", "ground", TEXT), ("text", "head", TEXT),
      ("lower", "ground", MARKS), ("upper", "ground", MARKS)]  # fmt: skip


class _Rules(HTMLParser):
    """Reads a page; `faults` is what is wrong with it."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []
        self.open: list[tuple[str, dict[str, str | None]]] = []
        self.levels: list[int] = []
        self.seen: list[str] = []
        self.ids: list[str] = []
        self.labels: set[str] = set()
        self.inputs: list[dict[str, str | None]] = []
        self.texts: dict[str, str] = {}
        self.tables: list[set[str]] = []
        self.links = ""

    def fail(self, text: str) -> None:
        line, _ = self.getpos()
        self.faults.append(f"line {line}: {text}")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.seen.append(tag)
        if tag == "html" and not known.get("lang"):
            self.fail("html has no lang")
        if tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
            level = int(tag[1])
            if level > (self.levels[-1] if self.levels else 0) + 1:
                self.fail(f"{tag} leaves out a level of headings")
            self.levels.append(level)
        if tag == "svg":
            self.tables.append({"svg"})
            if known.get("role") != "img" or not known.get("aria-label"):
                self.fail("svg is no img with a label")
        if tag == "table":
            self.tables.append(set())
        if tag in ("caption", "title") and self.tables:
            self.tables[-1].add(tag)
        if tag == "th" and known.get("scope") not in ("col", "row"):
            self.fail("th has no scope")
        if tag == "img" and "alt" not in known:
            self.fail("img has no alt")
        if tag in ("input", "select", "textarea") and known.get("type") != "hidden":
            self.inputs.append(known)
        if tag == "label" and known.get("for"):
            self.labels.add(str(known["for"]))
        if known.get("id"):
            self.ids.append(str(known["id"]))
        self.check_focus(tag, known)
        if tag not in VOID:
            self.open.append((tag, known))
        if tag == "a":
            self.links = ""

    def check_focus(self, tag: str, known: dict[str, str | None]) -> None:
        """What can be reached by keys, in the order of the page, has a name and a role."""
        place = known.get("tabindex")
        if place is not None and int(place) > 0:
            self.fail(f"{tag} has tabindex {place}")
        if place == "0" and not (known.get("role") and known.get("aria-label")):
            self.fail(f"{tag} can be reached and has no role or name")

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open[-1][0] != tag:
            self.fail(f"{tag} ends where {self.open[-1][0] if self.open else 'nothing'} is open")
            return
        self.open.pop()
        if tag == "a" and not self.links.strip():
            self.fail("a link has no text")
        if tag == "svg" and "title" not in self.tables.pop():
            self.fail("svg has no title")
        if tag == "table" and "caption" not in self.tables.pop():
            self.fail("table has no caption")

    def handle_data(self, data: str) -> None:
        self.links += data
        for tag, _ in () if any(tag == "svg" for tag, _ in self.open) else self.open[-1:]:
            self.texts[tag] = self.texts.get(tag, "") + data

    def done(self) -> list[str]:
        """All faults, those of the whole page included."""
        for tag in ("title", "h1", "main"):
            if self.seen.count(tag) < 1 or (tag != "main" and not self.texts.get(tag, "").strip()):
                self.faults.append(f"no {tag}")
        if self.seen.count("h1") > 1:
            self.faults.append("several h1")
        if len(set(self.ids)) < len(self.ids):
            self.faults.append("an id is there twice")
        for known in self.inputs:
            if not known.get("aria-label") and known.get("id") not in self.labels:
                self.faults.append("an input has no label")
        return self.faults


def palettes(text: str) -> list[dict[str, str]]:
    """The colours of each mode of a page, by name: light, dark, printed."""
    found = []
    for block in re.findall(r":root\s*\{([^}]*)\}", text):
        found.append(dict(re.findall(r"--(\w+):\s*(#[0-9a-fA-F]{3,6})", block)))
    return found


def contrast(one: str, other: str) -> float:
    """Contrast of two colours as WCAG 2 defines it, 1 to 21."""
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[k : k + 2], 16) / 255 for k in (0, 2, 4)]
    red, green, blue = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def check_page(text: str) -> list[str]:
    """What is wrong with a page; nothing where it keeps all rules."""
    rules = _Rules()
    rules.feed(text)
    rules.close()
    faults = rules.done()
    modes = palettes(text)
    faults += [] if len(modes) == 3 else [f"{len(modes)} palettes, not light, dark and printed"]
    for k, mode in enumerate(modes):
        for front, ground, least in ON:
            found = contrast(mode[front], mode[ground])
            if found < least:
                faults.append(f"palette {k}: {front} on {ground} has a contrast of {found:.2f}")
    return faults
