"""The laws of the house that can be read off the source."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import infermax_opt

from .support import ROOT

PACKAGE = ROOT / "infermax_opt"
HEAVY = ("pyomo", "ortools", "highspy", "numba", "matplotlib", "numpy", "scipy", "pandas")


def modules() -> dict[str, Path]:
    """Every module of the installed package, by its dotted name."""
    found = {}
    for base, name in ((PACKAGE, "infermax_opt"), (ROOT / "models", "infermax_opt.models")):
        for path in sorted(base.rglob("*.py")):
            parts = [name, *path.relative_to(base).with_suffix("").parts]
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


MODULES = modules()


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(MODULES[name].read_text(encoding="utf-8"))


def typing_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def imports_in(node: ast.AST) -> set[str]:
    """Modules imported anywhere below `node`, in functions too, for type checking not."""
    found: set[str] = set()
    for child in ast.iter_child_nodes(node):
        if typing_only(child):
            continue
        if isinstance(child, ast.Import):
            found.update(alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "relative import"
            base = child.module or ""
            inner = {f"{base}.{alias.name}" for alias in child.names}
            found.update((inner & MODULES.keys()) or {base})
        else:
            found |= imports_in(child)
    return found


@cache
def direct(name: str) -> frozenset[str]:
    """Modules that `name` imports, packages above them included (Python runs those too)."""
    found = set()
    for module in imports_in(tree(name)):
        parts = module.split(".")
        found.update(".".join(parts[:k]) for k in range(1, len(parts) + 1))
    # The package itself imports on demand only; `test_lazy` sees to that.
    return frozenset(found - {"infermax_opt"})


def reached(name: str) -> set[str]:
    """All modules imported by `name`, at any distance."""
    seen: set[str] = set()
    todo = [name]
    while todo:
        for module in direct(todo.pop()):
            if module not in seen:
                seen.add(module)
                if module in MODULES:
                    todo.append(module)
    return seen


def under(names: set[str], *roots: str) -> list[str]:
    return sorted(n for n in names if any(n == r or n.startswith(f"{r}.") for r in roots))


SCHEDULERS, MODELS, SOLVERS = (
    f"infermax_opt.{part}" for part in ("infermax.schedulers", "models", "infermax.exact")
)


def test_the_verifier_vouches_alone() -> None:
    seen = reached("infermax_opt.infermax.verify")
    assert "infermax_opt.infermax.bounds" in seen
    forbidden = (
        SCHEDULERS,
        MODELS,
        SOLVERS,
        "infermax_opt.infermax.formulation",
        "pyomo",
    )
    assert under(seen, *forbidden, "infermax_opt.api", "ortools", "highspy") == []


@pytest.mark.parametrize(
    ("part", "others"),
    [
        (SCHEDULERS, (MODELS, SOLVERS, "infermax_opt.infermax.formulation")),
        (MODELS, (SCHEDULERS, SOLVERS)),
        (SOLVERS, (SCHEDULERS, MODELS)),
    ],
)
def test_parts_that_never_import_each_other(part: str, others: tuple[str, ...]) -> None:
    members = under(set(MODULES), part)
    assert members
    for name in members:
        assert under(reached(name), *others) == [], name


def test_models_are_found_through_entry_points_only() -> None:
    for name in MODULES:
        if not name.startswith(MODELS):
            assert under(set(direct(name)), MODELS) == [], name


def test_one_place_computes_batch_times() -> None:
    users = {
        name
        for name in MODULES
        if "batch_time" in {n.id for n in ast.walk(tree(name)) if isinstance(n, ast.Name)}
    }
    for name in users - {"infermax_opt.infermax.data.cost"}:
        imported = [
            node for node in ast.walk(tree(name))
            if isinstance(node, ast.ImportFrom) and node.module == "infermax_opt.infermax.data.cost"
        ]  # fmt: skip
        assert any(alias.name == "batch_time" for node in imported for alias in node.names), name


def test_no_prints_and_no_pickles() -> None:
    for name in MODULES:
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("print", "eval", "exec", "input"), f"{name}:{node.lineno}"
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
                assert not names & {"pickle", "marshal", "shelve"}, f"{name}:{node.lineno}"


def test_lazy() -> None:
    code = (
        "import sys, time\n"
        "before = time.perf_counter()\n"
        "import infermax_opt\n"
        "print(time.perf_counter() - before)\n"
        f"print([name for name in {HEAVY} if name in sys.modules])\n"
        "import infermax_opt.cli.main\n"
        f"print([name for name in {HEAVY} if name in sys.modules])\n"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in "123"
    ]
    outputs = [run.stdout.splitlines() for run in runs]
    assert min(float(lines[0]) for lines in outputs) < 0.1
    assert {tuple(lines[1:]) for lines in outputs} == {("[]", "[]")}


def test_the_import_command_loads_no_solver(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,5,5\n")
    code = (
        "import sys\n"
        "from infermax_opt.cli.main import cli\n"
        f"try: cli(['import', {str(trace)!r}, '--format', 'vidur', '-o', {str(tmp_path / 'i.json')!r}])\n"
        "except SystemExit as stop: assert stop.code == 0, stop.code\n"
        "heavy = ('pyomo', 'ortools', 'highspy', 'numba', 'matplotlib', 'numpy')\n"
        "assert not [name for name in heavy if name in sys.modules]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_public_names_load_and_are_typed() -> None:
    for name in infermax_opt.__all__:
        assert getattr(infermax_opt, name) is not None
    assert set(infermax_opt.__all__) <= set(dir(infermax_opt))
    listed = {n for names in infermax_opt._HOMES.values() for n in names} | {"__version__"}
    assert listed == set(infermax_opt.__all__)
    (checked,) = [node for node in tree("infermax_opt").body if typing_only(node)]
    typed = {
        alias.name for node in ast.walk(checked) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert typed | {"__version__"} == set(infermax_opt.__all__)
    with pytest.raises(AttributeError, match="no attribute 'abacus'"):
        infermax_opt.abacus  # noqa: B018


def test_entry_points_resolve() -> None:
    points = entry_points(group="infermax_opt.models")
    assert {"csp", "flow"} <= {point.name for point in points}
    for point in points:
        assert callable(point.load())
    (script,) = [p for p in entry_points(group="console_scripts") if p.name == "infermax-opt"]
    assert callable(script.load())


def test_every_folder_of_modules_is_packaged() -> None:
    packages = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    folders = {name for name, path in MODULES.items() if path.name == "__init__.py"}
    assert packages == folders
