"""Pages that stand elsewhere in the checkout, and links as they are written for reading in place.

A page that holds nothing but ``<!-- page: ../CHANGELOG.md -->`` is that file. Links of all pages to a
file that is a page of the site become links to the page; other files of the checkout can be
downloaded. In the first page ``<!-- pages without a place -->`` stands for the pages that no table of
contents names.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

STANDS_FOR = re.compile(r"\s*<!-- page: (\S+) -->\s*")
PLACELESS = "<!-- pages without a place -->"
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")


def page_of(docs: Path) -> dict[Path, Path]:
    """Files outside the docs, and the page that each is on."""
    found = {}
    for page in docs.rglob("*.md"):
        match = STANDS_FOR.fullmatch(page.read_text(encoding="utf-8"))
        if match:
            found[(page.parent / match[1]).resolve()] = page
    found[docs.parent / "README.md"] = docs / "index.md"
    return found


def relinked(text: str, source: Path, page: Path, pages: dict[Path, Path]) -> str:
    """Text of `source` with its links as `page` needs them."""

    def link(match: re.Match[str]) -> str:
        target = (source.parent / match[2]).resolve()
        if "://" in match[2] or match[2].startswith("mailto:") or not target.exists():
            return match[0]
        target = pages.get(target, target)
        return f"{match[1]}{os.path.relpath(target, page.parent)}{match[3] or ''}{match[4]}"

    return LINK.sub(link, text)


def read_source(app: Sphinx, name: str, source: list[str]) -> None:
    """Put the file in the place of the line that names it, and mend links."""
    page = Path(app.env.doc2path(name))
    if page.suffix != ".md":
        return
    docs = Path(app.srcdir)
    if PLACELESS in source[0]:
        known = set(source[0].split())
        rest = sorted(page for page in app.env.found_docs if page not in known and page != name)
        source[0] = source[0].replace(PLACELESS, "\n".join(rest))
    pages = page_of(docs)
    file, text = page, source[0]
    match = STANDS_FOR.fullmatch(text)
    if match:
        file = (page.parent / match[1]).resolve()
        app.env.note_dependency(str(file))
        text = file.read_text(encoding="utf-8")
    source[0] = relinked(text, file, page, pages)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the reader."""
    app.connect("source-read", read_source)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
