"""The laws of the house that can be read off the source."""

from __future__ import annotations

import ast
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

import networkx
import pytest

import infermax_opt
from tests.support import ROOT

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
        elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):  # no expression holds one
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


# --- who may import whom --------------------------------------------------------------------------

#: Floors, lowest first: nobody imports from a floor above, and no room from another of its own floor.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("checking", "core"),
    ("files",),
    ("engines",),
    ("foreign", "simple"),
    ("infermax", "makespan", "pipelining", "placement"),
    ("iteration", "latency"),
    ("cluster", "fleet"),
    ("api",),
    ("gaps", "table"),
    ("cli",),
)
#: Rooms within each wing, and the rooms of the same wing that each may import.
WINGS: dict[str, dict[str, str]] = {
    "infermax": {
        "data": "",
        "replay": "data",
        "bounds": "data",
        "checker": "",
        "certificates": "checker data",
        "verify": "band bounds certificates data replay",
        "schedulers": "data replay simulator",
        "planners": "bounds data replay schedulers",
        "simulator": "data replay",
        "heuristics": "data planners schedulers simulator",
        "formulation": "bounds data replay",
        "exact": "bounds data formulation replay",
        "bound_process": "bounds certificates data",
        "solve": "bound_process data exact formulation planners replay",
        "solve_band": "data replay solve",
        "columns": "data replay",
        "importing": "data",
        "plot": "data replay",
        "attribution": "bounds data replay",
        "band": "data replay",
        "scoring": "attribution band data replay",
        "rehearsal": "bounds data exact heuristics planners replay",
        "problem": "bounds certificates columns data exact formulation heuristics importing plot "
        "rehearsal replay scoring solve solve_band verify",
    },
    "makespan": {
        "data": "",
        "replay": "data",
        "machines": "",
        "bounds": "data machines",
        "checker": "",
        "certificates": "checker data",
        "verify": "bounds certificates data replay",
        "anneal": "data",
        "methods": "data machines",
        "exact": "bounds data machines replay",
        "solve": "anneal data exact methods replay",
        "columns": "data replay",
        "importing": "data",
        "plot": "data replay",
        "rehearsal": "anneal bounds data exact machines",
        "problem": "bounds certificates columns data exact importing methods plot rehearsal replay solve "
        "verify",
    },
    "placement": {
        "data": "",
        "replay": "data",
        "bounds": "data replay",
        "verify": "bounds data replay",
        "heuristics": "data replay",
        "exact": "bounds data replay",
        "solve": "bounds data exact heuristics replay",
        "columns": "data replay",
        "plot": "data replay",
        "rehearsal": "bounds data heuristics",
        "problem": "columns data exact heuristics plot rehearsal replay solve verify",
    },
    "iteration": {
        "data": "",
        "bounds": "data",
        "replay": "bounds data",
        "checker": "",
        "certificates": "checker data",
        "verify": "bounds certificates data replay",
        "heuristics": "bounds data",
        "exact": "bounds data replay",
        "solve": "bounds data exact replay",
        "columns": "data heuristics replay",
        "plot": "data replay",
        "problem": "bounds certificates columns data exact heuristics plot replay solve verify",
    },
    "pipelining": {
        "data": "",
        "replay": "data",
        "bounds": "data",
        "checker": "",
        "certificates": "checker data",
        "verify": "bounds certificates data replay",
        "heuristics": "bounds data",
        "exact": "bounds data",
        "solve": "bounds data exact heuristics replay",
        "columns": "data heuristics replay",
        "importing": "data",
        "plot": "data replay",
        "rehearsal": "bounds data heuristics",
        "problem": "bounds certificates columns data exact heuristics importing plot rehearsal replay solve "
        "verify",
    },
    "cluster": {
        "data": "",
        "replay": "data",
        "bounds": "data replay",
        "exhaustive": "data replay",
        "verify": "bounds data exhaustive replay",
        "policies": "data replay",
        "heartbeat": "data policies replay",
        "series": "bounds data policies replay",
        "simulation": "data policies replay",
        "prefill": "data series",
        "forecast": "",
        "report": "forecast series",
        "report_requests": "replay report",
        "plot": "report series",
        "solve": "data replay series",
        "importing": "data heartbeat",
        "problem": "bounds data importing policies replay solve verify",
    },
}
#: Rooms of the two wings that have no problem, so no verifier and no formulations.
PLAIN_WINGS: dict[str, dict[str, str]] = {
    "fleet": {
        "checker": "",
        "machine": "checker",
        "machine_types": "",
        "question": "checker machine",
        "apart": "checker machine machine_types question",
        "bounds": "apart checker machine question",
        "replay": "question",
        "decode": "",
        "fewest": "",
        "routing": "decode question",
        "dispatch": "question routing",
        "upper": "fewest question replay routing",
        "exact": "question replay upper",
        "planned": "bounds dispatch fewest question replay routing upper",
        "planned_windows": "dispatch fewest planned question replay",
        "scaling": "bounds checker question replay routing upper",
        "autoscaling": "bounds planned planned_windows question replay routing scaling upper",
        "mix": "bounds exact question replay routing",
        "sustains": "bounds checker planned question upper",
        "split": "apart bounds checker decode fewest question replay routing",
        "plan_row": "autoscaling bounds exact machine_types planned question scaling split upper",
        "plan": "apart autoscaling bounds exact machine_types plan_row planned question scaling split upper",
        "sweep": "machine_types mix plan plan_row planned question sustains",
        "rehearsal": "dispatch question routing",
        "prices": "",
        "figures": "",
        "report": "autoscaling figures machine_types mix plan_row split sustains sweep",
        "report_text": "autoscaling figures machine_types mix plan_row report split sustains sweep",
        "page_words": "figures",
        "page": "figures page_words",
        "plan_files": "page plan_row report sweep",
    },
    "latency": {
        "_least_squares": "",
        "cells": "",
        "samples": "cells",
        "fit": "_least_squares samples",
        "calibration": "fit samples",
        "profiles": "calibration fit samples",
        "workers": "profiles",
        "configuration": "",
        "options": "calibration configuration fit profiles samples",
        "choosing": "configuration fit options samples",
        "report": "calibration configuration fit profiles",
        "batches": "_least_squares cells fit report",
    },
}
ROOMS = {**WINGS, **PLAIN_WINGS}
#: Commands that are about one wing, or list what it ships; no other names a wing.
OF_ONE_WING = (
    "batches",
    "completion",
    "latency",
    "listings",
    "plan",
    "plan_files",
    "simulate",
    "stream_options",
    "workers",
)
MODELS = "infermax_opt.models"
#: Rooms of a wing that its formulations may import.
SEEN_BY_MODELS = ("data", "bounds", "replay", "formulation")
#: Rooms that make schedules without proof.
GUESSES = ("schedulers", "simulator", "planners", "heuristics", "policies", "anneal", "methods")


def room(name: str) -> tuple[str, str]:
    """Floor's room of a module, and the room within its wing (or nothing)."""
    parts = name.split(".")[1:]
    head = parts[0] if parts else ""
    return head, parts[1] if head in ROOMS and len(parts) > 1 else ""


def own(names: Iterable[str]) -> list[str]:
    """Modules of this package in a room, the package itself and its entry point apart."""
    found = (name for name in names if name.startswith("infermax_opt."))
    return sorted(name for name in found if name != "infermax_opt.__main__")


@cache
def imported(name: str) -> tuple[str, ...]:
    """Modules that a module imports itself, without the packages above them."""
    return tuple(own(imports_in(tree(name)) - {"infermax_opt"}))


def test_every_room_has_its_floor() -> None:
    rooms = {room(name)[0] for name in own(MODULES) if not name.startswith(MODELS)}
    assert rooms == {name for floor in FLOORS for name in floor}
    for wing, table in ROOMS.items():
        inside = {room(name)[1] for name in own(MODULES) if room(name)[0] == wing} - {""}
        assert inside == set(table), wing


def test_nobody_imports_from_a_floor_above() -> None:
    level = {name: k for k, floor in enumerate(FLOORS) for name in floor}
    for name in own(MODULES):
        here = room(name)[0]
        for other in imported(name):
            there = room(other)[0]
            if MODELS.endswith(here) or here == there:
                continue
            assert not other.startswith(MODELS), f"{name} imports a formulation by name: {other}"
            assert level[there] < level[here], f"{name} imports {other}"


def test_commands_name_no_wing_unless_they_are_about_it() -> None:
    named = {name for name in under(set(MODULES), "infermax_opt.cli") for other in imported(name)
             if room(other)[0] in ROOMS}  # fmt: skip
    assert named == {f"infermax_opt.cli.{name}" for name in OF_ONE_WING}


def test_models_see_a_wing_and_what_is_below() -> None:
    for name in under(set(MODULES), MODELS):
        for other in imported(name):
            assert room(other)[0] in (*FLOORS[0], *WINGS, "models"), f"{name} imports {other}"
            assert room(other)[1] in ("", *SEEN_BY_MODELS), f"{name} imports {other}"


def test_rooms_of_a_wing_keep_to_the_table() -> None:
    for name in own(MODULES):
        wing, here = room(name)
        if wing in ROOMS and here:
            for other in imported(name):
                inside = room(other)[0] == wing and room(other)[1] not in ("", here)
                assert not inside or room(other)[1] in ROOMS[wing][here].split(), f"{name} imports {other}"


def test_the_table_has_no_cycle() -> None:
    graph = networkx.DiGraph()
    for wing, table in ROOMS.items():
        for here, others in table.items():
            graph.add_edges_from((f"{wing}.{here}", f"{wing}.{other}") for other in others.split())
    assert networkx.is_directed_acyclic_graph(graph)


def test_no_module_imports_itself_around_a_corner() -> None:
    graph = networkx.DiGraph()
    for name in own(MODULES):
        graph.add_edges_from((name, other) for other in imported(name) if other in MODULES)
    # To list cycles takes seconds, to see that there is none does not.
    assert networkx.is_directed_acyclic_graph(graph) or list(networkx.simple_cycles(graph)) == []


@pytest.mark.parametrize("wing", list(WINGS))
def test_the_verifier_vouches_alone(wing: str) -> None:
    seen = reached(f"infermax_opt.{wing}.verify")
    assert under(seen, f"infermax_opt.{wing}.bounds")
    floors = ("api", "engines", "models", "table", "cli", "core.problem")
    rooms = ("exact", "solve", "problem", *GUESSES)
    forbidden = [f"infermax_opt.{name}" for name in floors]
    forbidden += [f"infermax_opt.{other}.{part}" for other in WINGS for part in rooms]
    assert under(seen, *forbidden, "pyomo", "ortools", "highspy") == []


def test_heuristics_and_exact_never_import_each_other() -> None:
    for wing in WINGS:
        guesses = [f"infermax_opt.{wing}.{part}" for part in GUESSES]
        for name in under(set(MODULES), *guesses):
            assert under(reached(name), f"infermax_opt.{wing}.exact") == [], name
        for name in under(set(MODULES), f"infermax_opt.{wing}.exact"):
            assert under(reached(name), *guesses) == [], name


def test_scripts_see_the_api_of_the_package() -> None:
    """Studies may look into wings for what they study, but never into the command line."""
    for path in sorted((ROOT / "scripts").rglob("*.py")):
        for name in imports_in(ast.parse(path.read_text(encoding="utf-8"))):
            assert not name.startswith("infermax_opt.cli"), path


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


def bound_names(node: ast.stmt) -> Iterator[str]:
    """Names that a statement of a module gives to something."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(part, ast.Name):
                    yield part.id


def test_no_module_gives_a_name_twice() -> None:
    for module in MODULES:
        names = [name for node in tree(module).body for name in bound_names(node)]
        assert sorted(names) == sorted(set(names)), module


def test_checkers_import_the_standard_library_and_each_other_alone() -> None:
    """What a certificate proves rests on these modules: none of the house beside them, and no package."""
    rooms = [name for name in MODULES if name.endswith(".checker")]
    assert len(rooms) >= 5
    for name in under(set(MODULES), "infermax_opt.checking", *rooms):
        own_room = name.rpartition(".checker")[0] + ".checker" if ".checker" in name else ""
        allowed = ("infermax_opt.checking", *([own_room] if own_room else []))
        for module in imports_in(tree(name)):
            standard = module.partition(".")[0] in sys.stdlib_module_names
            assert standard or under({module}, *allowed), f"{name} imports {module}"


def test_lazy() -> None:
    code = (
        "import sys, infermax_opt\n"
        f"print([name for name in {HEAVY} if name in sys.modules])\n"
        "import infermax_opt.cli.main\n"
        f"print([name for name in {HEAVY} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "[]"]


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


def test_bounds_of_a_problem_load_no_other_and_no_verifier() -> None:
    code = (
        "import sys\n"
        "from infermax_opt.cli.main import cli\n"
        f"try: cli(['bound', {str(ROOT / 'instances' / 'toy.json')!r}, '--time-limit', '1e-9', '--json'])\n"
        "except SystemExit as stop: assert stop.code == 0, stop.code\n"
        "print('\\n' + ' '.join(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.splitlines()[-1].split())
    assert under(loaded, "infermax_opt.infermax.bounds.closed_form")
    others = ("checker", "verify", "solve", "heuristics", "exact", "bounds.searched", "replay.plain")
    unused = [f"infermax_opt.infermax.{part}" for part in others]
    unused += [f"infermax_opt.{room}" for room in ("makespan", "placement", "cluster", "core.run")]
    heavy = set(HEAVY) - {"numpy"}
    assert under(loaded, *unused, *heavy, "argparse", "subprocess", "unittest") == []


def test_public_names_load_and_are_typed() -> None:
    for name in infermax_opt.__all__:
        assert getattr(infermax_opt, name) is not None
    assert set(infermax_opt.__all__) <= set(dir(infermax_opt))
    listed = {*infermax_opt._HOME, "__version__"}
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
    kinds = entry_points(group="infermax_opt.problems")
    wings = {"infermax", "iteration", "makespan", "pipelining", "placement", "stream"}
    assert wings <= {point.name for point in kinds}
    for point in (*points, *kinds):
        assert callable(point.load())
    scripts = [p for p in entry_points(group="console_scripts") if p.name.startswith("infermax-opt")]
    assert sorted(script.name for script in scripts) == ["infermax-opt", "infermax-opt-check"]
    assert all(callable(script.load()) for script in scripts)


def test_every_folder_of_modules_is_packaged() -> None:
    packages = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    folders = {name for name, path in MODULES.items() if path.name == "__init__.py"}
    # Its folder holds instances, and no modules.
    assert packages - folders == {"infermax_opt.instances"}
    assert folders <= packages


# --- sizes --------------------------------------------------------------------------------------

#: Most lines and branches of a function that does not say why it is longer.
MOST_LINES, MOST_BRANCHES = 80, 12
#: Words with which the docstring of a kernel says why it stays long.
REASON = "Long on purpose"
#: Most lines of a module.
MOST_MODULE_LINES = 400
#: Modules that may be longer: formulations are tables of contents.
LONG_MODULES = ("infermax_opt.models.infermax_csp", "infermax_opt.models.infermax_flow")
BRANCHES = (ast.If, ast.For, ast.While, ast.Try, ast.IfExp, ast.BoolOp, ast.comprehension, ast.ExceptHandler)


def functions(node: ast.AST, public: bool = True) -> Iterator[tuple[ast.FunctionDef, bool]]:
    """Functions and methods of a module, and whether they are public."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from functions(child, public and not child.name.startswith("_"))
        elif isinstance(child, ast.FunctionDef):
            yield child, public and not child.name.startswith("_")


def all_functions(node: ast.AST) -> list[ast.FunctionDef]:
    """Functions, methods, and functions inside them."""
    return [child for child in ast.walk(node) if isinstance(child, ast.FunctionDef)]


def branches(function: ast.FunctionDef) -> int:
    """Branches of a function itself, those of functions inside it apart."""
    todo, count = list(ast.iter_child_nodes(function)), 0
    while todo:
        node = todo.pop()
        count += isinstance(node, BRANCHES)
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            todo.extend(ast.iter_child_nodes(node))
    return count


def test_branches_of_inner_functions_count_for_these() -> None:
    inner = "if x:\n            pass\n        " * 13
    (outer,) = ast.parse(f"def f(x):\n    def g():\n        {inner}\n    return x").body
    assert isinstance(outer, ast.FunctionDef)
    assert [branches(some) for some in all_functions(outer)] == [0, 13]


def test_functions_are_short_or_say_why() -> None:
    long = [
        f"{name}.{function.name}"
        for name in sorted(MODULES)
        for function in all_functions(tree(name))
        if (function.end_lineno or 0) - function.lineno >= MOST_LINES or branches(function) > MOST_BRANCHES
        if REASON not in (ast.get_docstring(function) or "")
    ]
    assert long == []


def test_modules_are_short() -> None:
    lengths = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in MODULES.items()}
    assert {name for name, length in lengths.items() if length > MOST_MODULE_LINES} <= set(LONG_MODULES)
    assert statistics.median(lengths.values()) <= 150


def test_public_functions_tell_of_their_parameters() -> None:
    for name in own(MODULES):
        for function, public in functions(tree(name)):
            marks = {ast.unparse(mark).partition("(")[0] for mark in function.decorator_list}
            if not public or name.split(".")[-1].startswith("_") or marks & {"click.command", "overload"}:
                continue
            names = [some.arg for some in (*function.args.args, *function.args.kwonlyargs)]
            told = "Parameters\n" in (ast.get_docstring(function) or "")
            short = len([some for some in names if some not in ("self", "cls")]) < 3
            assert told or short, f"{name}.{function.name}"
