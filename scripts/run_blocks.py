"""Run the code of the documents: python scripts/run_blocks.py [--jobs N] [PAGE...].

Blocks marked ``sh`` and ``python`` of a page run as they stand, in their order, in one folder of its own
with the instances at hand. Blocks marked ``console`` are for reading. The Python blocks of a page share
their names; one that begins with a comment such as ``# my.py`` is that file, too. What fails is told with
page and line.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^```(\w*)\s*$")
FILE = re.compile(r"# ([\w-]+\.py)$", re.MULTILINE)
#: A page that takes longer has no place in every run, s.
TIMEOUT = 600


class Block(NamedTuple):
    """A block of code: its kind, the line of the page that it begins at, and its text."""

    kind: str
    line: int
    text: str


def blocks(page: Path) -> list[Block]:
    """Blocks of a page that run."""
    found, kind, start, lines = [], None, 0, list[str]()
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = FENCE.match(line)
        if kind is None and line.startswith("```"):
            kind, start, lines = fence[1] if fence else "", number + 1, []
        elif line == "```":
            if kind in ("sh", "python"):
                found.append(Block(str(kind), start, "\n".join(lines) + "\n"))
            kind = None
        else:
            lines.append(line)
    return found


def pages() -> list[Path]:
    """Every page that holds code to run."""
    named = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples" / "README.md"]
    return [page for page in (*named, *sorted((ROOT / "docs").rglob("*.md"))) if blocks(page)]


def furnish(folder: Path) -> None:
    """Put what the pages read into the folder: copies of instances, links to code."""
    archive = ROOT / "instances" / "best-known"
    shutil.copytree(
        ROOT / "instances",
        folder / "instances",
        ignore=lambda path, names: ["best-known"] if Path(path) == archive.parent else [],
    )
    (folder / "instances" / "best-known").symlink_to(archive)
    for name in ("scripts", "examples", "infermax_opt", "docs"):
        (folder / name).symlink_to(ROOT / name)


def run_here(page: Path) -> int:
    """Run the blocks of a page in the current folder; 1 after a line that says what failed."""
    # A module that others can look up, as dataclasses do.
    module = sys.modules["page"] = ModuleType("page")
    names: dict[str, Any] = module.__dict__
    for block in blocks(page):
        # Empty lines in front: lines are those of the page.
        text = "\n" * (block.line - 1) + block.text
        try:
            if block.kind == "sh":
                run_shell(page, block, text)
            else:
                named = FILE.match(block.text)
                if named:
                    Path(named[1]).write_text(block.text, encoding="utf-8")
                exec(compile(text, str(page), "exec"), names)
        except subprocess.CalledProcessError as error:
            print(f"{page}: the block of line {block.line} ended with exit code {error.returncode}")
            return 1
        except Exception as error:
            lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)]
            where = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
            line = max(
                (n for n, f in zip(lines, where, strict=True) if f == str(page) and n), default=block.line
            )
            print(f"{page}:{line}: {type(error).__name__}: {error}")
            return 1
    return 0


def run_shell(page: Path, block: Block, text: str) -> None:
    """Run a block of shell; what fails is named with its line."""
    # On the first line of the script, which is empty or the fence: no block begins there.
    trap = f"trap 'echo \"{page}:$LINENO: failed\"' ERR; "
    script = Path(f".block-{block.line}.sh")
    script.write_text(trap + text, encoding="utf-8")
    sys.stdout.flush()
    subprocess.run(["bash", "-euo", "pipefail", str(script)], check=True, stderr=subprocess.STDOUT)
    script.unlink()


def run_apart(page: Path) -> tuple[Path, int, float, str]:
    """Run a page in a process and a folder of its own."""
    started = time.monotonic()
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "MPLBACKEND": "Agg",
    }
    with tempfile.TemporaryDirectory() as folder:
        furnish(Path(folder))
        command = [sys.executable, str(Path(__file__).resolve()), "--here", str(page)]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                timeout=TIMEOUT,
                capture_output=True,
                text=True,
                check=False,
            )
            code, said = done.returncode, done.stdout + done.stderr
        except subprocess.TimeoutExpired:
            code, said = 1, f"{page}: takes longer than {TIMEOUT} s\n"
    return page, code, time.monotonic() - started, said


def main() -> int:
    """Run all pages, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--jobs", type=int, default=2, help="pages at a time")
    parser.add_argument("--here", action="store_true", help="run one page in this folder")
    options = parser.parse_args()
    if options.here:
        with contextlib.suppress(BrokenPipeError):
            return run_here(options.pages[0])
    failed, started = 0, time.monotonic()
    chosen = [page.resolve() for page in options.pages] or pages()
    with ThreadPoolExecutor(max(1, options.jobs)) as pool:
        for page, code, seconds, said in pool.map(run_apart, chosen):
            print(f"{page.relative_to(ROOT)}: {'failed' if code else 'ran'}, {seconds:.1f} s")
            if code:
                failed += 1
                print(said[-4000:])
    print(f"{len(chosen) - failed} pages ran, {failed} failed, {time.monotonic() - started:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
