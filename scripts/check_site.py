"""Check a built site: every link within it leads somewhere, and no page loads anything from elsewhere.

python scripts/check_site.py build/docs
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: What a browser fetches by itself.
LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href", "object": "data"}


class Page(HTMLParser):
    """Anchors, links and loads of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what the tag names."""
        values = {name: value for name, value in attrs if value is not None}
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in LOADS and LOADS[tag] in values:
            self.loads.append(values[LOADS[tag]])


def faults(site: Path) -> list[str]:
    """A line for each dead link, and for each thing that comes from elsewhere."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site)
        found += [f"{name}: loads {load}" for load in page.loads if urlsplit(load).netloc]
        for link in (*page.links, *page.loads):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                found.append(f"{name}: {link} does not exist")
            elif parts.fragment and target.suffix == ".html" and not anchored(pages, target, parts.fragment):
                found.append(f"{name}: {link} has no such place")
    for style in sorted(site.rglob("*.css")):
        text = style.read_text(encoding="utf-8").replace(" ", "")
        if any(f"{start}{quote}http" in text for start in ("url(", "@import") for quote in ("", "'", '"')):
            found.append(f"{style.relative_to(site)}: loads from elsewhere")
    return found


def anchored(pages: dict[Path, Page], target: Path, fragment: str) -> bool:
    """Whether a page of the site has the place."""
    page = next((page for path, page in pages.items() if path.resolve() == target), None)
    return page is not None and unquote(fragment) in page.anchors


def main() -> int:
    """Print what is wrong; 1 if anything is."""
    site = Path(sys.argv[1])
    if not (site / "index.html").exists():
        print(f"{site}: no site here")
        return 1
    found = faults(site)
    print("\n".join(found) or f"{site}: all links lead somewhere, nothing is loaded from elsewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
