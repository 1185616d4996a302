"""The one-file checkers are current, and parts that cannot be one file are refused."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from scripts.assemble_checkers import Refused, assemble, main, problems
from tests.support import ROOT

#: Parts of a checker that can be one file, by their names.
PARTS = {
    "checking/errors": '"""Errors."""\n\nclass Rejected(Exception):\n    """No."""\n',
    "toy/checker/proof": '"""Proof: toy."""\n\nimport math\n\n'
    "from infermax_opt.checking.errors import Rejected\n\n"
    'TWO = 2\n\n\ndef prove():\n    """Proof."""\n    raise Rejected(math.sqrt(TWO))\n',
    "toy/checker/command": '"""Checker of toys."""\n\nimport sys\n\n'
    "from infermax_opt.toy.checker.proof import prove\n\n\n"
    'def main():\n    """Run."""\n    return prove()\n\n\nif __name__ == "__main__":\n    sys.exit(main())\n',
}


def written(root: Path, **changed: str) -> Path:
    """The parts in a folder, some of them with more text."""
    for name, text in PARTS.items():
        path = root / "infermax_opt" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + changed.get(path.stem, ""))
    return root


def test_the_files_are_current(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert problems() == ["fleet", "infermax", "iteration", "makespan", "pipelining"]
    assert main(["--check"]) == 0
    assert {path.name for path in (ROOT / "scripts" / "checkers").iterdir() if path.suffix == ".py"} == {
        f"check_{problem}.py" for problem in problems()
    }
    assert main([str(tmp_path)]) == 0
    for problem in problems():
        (made,) = tmp_path.glob(f"check_{problem}.py")
        assert made.read_bytes() == (ROOT / "scripts" / "checkers" / made.name).read_bytes()
    (tmp_path / "check_makespan.py").write_text("changed")
    assert main([str(tmp_path), "--check"]) == 1
    assert capsys.readouterr().err == "check_makespan.py: is not current; run `make checkers`\n"


def test_a_file_holds_every_part_whole_and_once() -> None:
    unused = {
        "meaning": ["fleet"],  # of instances, of which its certificates name none
        "in_turn": [name for name in problems() if name not in ("fleet", "infermax")],  # of prompts
    }
    for problem in problems():
        text = assemble(problem)
        nodes = [ast.unparse(node) for node in ast.parse(text).body]
        folders = (ROOT / "infermax_opt" / "checking", ROOT / "infermax_opt" / problem / "checker")
        for path in (path for folder in folders for path in folder.glob("*.py")):
            tree = ast.parse(path.read_text())
            parts = [
                ast.unparse(node) for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)
            ]
            used = f"# --- infermax_opt/{path.relative_to(ROOT / 'infermax_opt')} " in text
            left_out = path.stem in ("__init__", "__main__", "main", "profiles")
            assert used or left_out or problem in unused.get(path.stem, []), path
            assert [nodes.count(part) for part in parts] == [used] * len(parts), path


def test_parts_become_one_file(tmp_path: Path) -> None:
    text = assemble("toy", written(tmp_path))
    names = [node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    assert names == ["Rejected", "prove", "main"]
    assert "from infermax_opt" not in text
    assert text.count("import math") == text.count("import sys") == 1
    assert "# Proof: toy." in text
    assert text == assemble("toy", tmp_path)


@pytest.mark.parametrize(
    ("part", "more", "why"),
    [
        ("proof", "\n\nclass Rejected:\n    pass\n", "Rejected is of infermax_opt.checking.errors, too"),
        ("proof", "\nmain = 1\n", "main is of infermax_opt.toy.checker.proof, too"),
        ("proof", "\nsys = 1\n", "sys is of sys, too"),
        ("proof", "\nfor prove.x in (1,):\n    max = 1\n", "max hides a builtin"),
        ("errors", "\nimport os\n", "an import stands below other code"),
        ("errors", "\ndef f():\n    import os\n", "an import stands inside other code"),
        ("proof", '\n__name__ == "__main__"\n', "more than one part runs as a program"),
    ],
)
def test_what_would_mean_something_else_is_refused(tmp_path: Path, part: str, more: str, why: str) -> None:
    with pytest.raises(Refused, match=why):
        assemble("toy", written(tmp_path, **{part: more}))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("import numpy", "imports numpy"),
        ("import os as operating", "under another name"),
        ("from math import *", "under another name"),
        ("from infermax_opt.core.exact import to_fraction", "imports infermax_opt.core.exact"),
        ("from infermax_opt.other.checker.proof import prove", "imports infermax_opt.other.checker.proof"),
        ("from infermax_opt.toy.checker.command import main", "imports itself around a corner"),
        (
            "from infermax_opt.checking.errors import Unusable",
            "Unusable is not of infermax_opt.checking.errors",
        ),
        ("from cmath import sys", "sys is "),
    ],
)
def test_imports_from_elsewhere_are_refused(tmp_path: Path, line: str, why: str) -> None:
    root = written(tmp_path)
    path = root / "infermax_opt" / "toy" / "checker" / "proof.py"
    path.write_text(path.read_text().replace("import math\n", f"import math\n{line}\n"))
    with pytest.raises(Refused, match=why):
        assemble("toy", root)
