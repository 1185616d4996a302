"""Check a built site: links lead somewhere, nothing is fetched, functions have types, pictures have words.

Of notebooks, which run as the site is built: pictures and tables show themselves, and no file is left.

python scripts/check_site.py build/docs docs/notebooks
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: What a browser fetches by itself.
LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href", "object": "data"}
#: A picture says in at least so many words what it shows.
WORDS = 2
#: Parameters without a type: marks of which ones are positional or named.
MARKS = ("*", "/")


class Page(HTMLParser):
    """Anchors, links, loads, parameters of functions and pictures without words of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.parameters: list[str] = []
        self.mute: list[str] = []
        self.tables = 0
        self._described = self._inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what the tag names."""
        values = {name: value for name, value in attrs if value is not None}
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in LOADS and LOADS[tag] in values:
            self.loads.append(values[LOADS[tag]])
        if tag == "img" and len(values.get("alt", "").split()) < WORDS:
            self.mute.append(values.get("src", ""))
        self.tables += tag == "table"
        kinds = values.get("class", "").split()
        if tag == "dl" and "py" in kinds:
            self._described = "function" in kinds
        if tag == "em" and "sig-param" in kinds and self._described:
            self._inside = True
            self.parameters.append("")

    def handle_data(self, data: str) -> None:
        """Note what a parameter says."""
        if self._inside:
            self.parameters[-1] += data

    def handle_endtag(self, tag: str) -> None:
        """Note where a parameter ends."""
        if tag == "em":
            self._inside = False


def faults(site: Path) -> list[str]:
    """A line for each dead link, thing from elsewhere, parameter without a type, picture without words."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site)
        found += [f"{name}: loads {load}" for load in page.loads if urlsplit(load).netloc]
        found += [f"{name}: the picture {source} does not say what it shows" for source in page.mute]
        bare = [text for text in page.parameters if ":" not in text and text not in MARKS]
        found += [f"{name}: the parameter {text} has no type" for text in bare]
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


def silent(site: Path, notebooks: Path) -> list[str]:
    """A line for each notebook that shows not all of its pictures, or no table, and each file left behind."""
    found = []
    for source in sorted(notebooks.iterdir()):
        if source.suffix != ".md":
            found.append(f"{source}: left behind by a notebook")
            continue
        page = Page((site / notebooks.name / source.stem).with_suffix(".html").read_text(encoding="utf-8"))
        shown = sum("/_images/" in load for load in page.loads)
        drawn = source.read_text(encoding="utf-8").count(".plot_")
        if not shown == drawn > 0:
            found.append(f"{source}: draws {drawn}, shows {shown} pictures")
        if not page.tables:
            found.append(f"{source}: no table shows itself")
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
    found = faults(site) + [line for folder in sys.argv[2:] for line in silent(site, Path(folder))]
    print(
        "\n".join(found)
        or f"{site}: all links lead somewhere, nothing is loaded from elsewhere, all functions have types, "
        "all pictures say what they show"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
