"""Pages for a browser: one HTML file that loads nothing, in light and dark, on paper and on a phone.

All text is escaped.  Charts are pictures of `infermax_opt.files.charts`; behind each stands its table.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any
from urllib.parse import quote

from infermax_opt.files.text import UNKNOWN, printable

__all__ = [
    "Markup",
    "cell",
    "definitions",
    "escaped",
    "figure",
    "file_link",
    "grid",
    "link",
    "page",
    "paragraph",
    "section",
    "table",
]

#: Blue and vermillion of Okabe and Ito's palette; text keeps a contrast of 4.5 to its ground in both modes.
CSS = """
:root { color-scheme: light dark; --ground: #fff; --text: #1b1b1b; --soft: #555; --line: #c9c9c9;
  --lower: #0072b2; --upper: #b34700; --band: #0072b2; --head: #f1f3f5; --link: #005a9c; }
@media (prefers-color-scheme: dark) { :root { --ground: #121417; --text: #ececec; --soft: #b4b4b4;
  --line: #44484d; --lower: #56b4e9; --upper: #ffa94d; --band: #56b4e9; --head: #1e2226; --link: #8cc4ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1rem; background: var(--ground); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { font-size: 1.25rem; margin-top: 2rem; }
a { color: var(--link); }
.answer { border-left: .3rem solid var(--lower); padding: .2rem 1rem; font-size: 1.1rem; }
ul.answer { padding-left: 2rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr));
  gap: 1.5rem; }
figure { margin: 0; max-width: 26rem; } figcaption { font-weight: 600; margin-bottom: .3rem; }
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--text); font: 12px system-ui, sans-serif; paint-order: stroke;
  stroke: var(--ground); stroke-width: 3px; }
svg .soft { fill: var(--soft); } svg .axis { stroke: var(--text); } svg .grid { stroke: var(--line); }
svg .band { fill: var(--band); opacity: .2; } svg .span { stroke: var(--soft); stroke-width: 3; }
svg .lower { stroke: var(--lower); fill: none; stroke-width: 2; }
svg .upper { stroke: var(--upper); fill: none; stroke-width: 2; stroke-dasharray: 5 3; }
svg circle { fill: var(--lower); } svg rect.mark { fill: var(--upper); }
details { margin: .5rem 0; } summary { cursor: pointer; color: var(--link); }
.scroll { overflow-x: auto; } .scroll:focus { outline: 2px solid var(--link); }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); padding: .3rem 0; }
th, td { border: 1px solid var(--line); padding: .25rem .5rem; text-align: right; }
th { background: var(--head); } th[scope=row], td.text { text-align: left; }
dt { font-weight: 600; } dd { margin: 0 0 .5rem 1rem; }
@media print { :root { color-scheme: light; --ground: #fff; --text: #000; --soft: #444; --line: #bbb;
  --lower: #0072b2; --upper: #b34700; --band: #0072b2; --head: #eee; --link: #000; }
  body { max-width: none; padding: 0; font-size: 10pt; } figure, tr { break-inside: avoid; }
  details::details-content { content-visibility: visible; height: auto; } summary { list-style: none; }
  .scroll { overflow: visible; } table { font-size: 8pt; } }
"""
#: Nothing may be loaded, whatever a text holds.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def escaped(text: object) -> str:
    """A text as HTML."""
    return escape(printable(text))


def cell(value: Any) -> str:
    """A value as people read it; None is unknown."""
    if value is None:
        return UNKNOWN
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def paragraph(text: object, kind: str | None = None) -> str:
    """A paragraph, of a class of the style if `kind` names one."""
    shown = "" if kind is None else f' class="{escaped(kind)}"'
    return f"<p{shown}>{escaped(text)}</p>"


def link(path: str, text: object) -> str:
    """A link to a file beside the page; a path with forward slashes, never an address."""
    name = path if path.startswith("/") else f"./{path}"
    return f'<a href="{escape(quote(name))}">{escaped(text)}</a>'


def file_link(path: str, folder: str) -> Markup:
    """A link from a page in a folder to a file."""
    place = os.path.relpath(path, folder).replace(os.sep, "/")
    return Markup(link(place, os.path.basename(path)))


def definitions(pairs: Iterable[tuple[object, object]]) -> str:
    """Terms with their meaning."""
    rows = (f"<dt>{escaped(term)}</dt><dd>{escaped(meaning)}</dd>" for term, meaning in pairs)
    return f"<dl>{''.join(rows)}</dl>"


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table; the first cell of a row names it.

    Parameters
    ----------
    caption : str
    head : sequence of str
        Names of the columns.
    rows : iterable of sequence
        Values; a text that is HTML already is a `Markup`.
    """
    names = "".join(f'<th scope="col">{escaped(name)}</th>' for name in head)
    lines = []
    for first, *rest in rows:
        cells = "".join(_data(value) for value in rest)
        lines.append(f'<tr><th scope="row">{_inner(first)}</th>{cells}</tr>')
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escaped(caption)}"><table>'
        f"<caption>{escaped(caption)}</caption><thead><tr>{names}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


class Markup(str):
    """A text that is HTML already."""


def _inner(value: Any) -> str:
    return str(value) if isinstance(value, Markup) else escaped(cell(value))


def _data(value: Any) -> str:
    kind = ' class="text"' if isinstance(value, str) else ""
    return f"<td{kind}>{_inner(value)}</td>"


def figure(caption: str, picture: str, behind: str) -> str:
    """A chart with the table behind it.

    Parameters
    ----------
    caption : str
    picture, behind : str
        Chart and table as HTML.
    """
    return (
        f"<figure><figcaption>{escaped(caption)}</figcaption>{picture}"
        f"<details><summary>Table: {escaped(caption)}</summary>{behind}</details></figure>"
    )


def grid(parts: Sequence[str]) -> str:
    """Charts beside each other where there is room."""
    return f'<div class="charts">{"".join(parts)}</div>'


def section(title: str, *parts: str) -> str:
    """A part of a page under its heading."""
    return f"<section><h2>{escaped(title)}</h2>{''.join(parts)}</section>"


def page(title: str, *parts: str) -> str:
    """A whole page: a title, and what stands below it as HTML."""
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escaped(title)}</title><style>{CSS}</style></head>"
        f"<body><header><h1>{escaped(title)}</h1></header><main>\n{body}\n</main></body></html>\n"
    )
