"""Certificates: accepted as written, rejected when altered, never a traceback."""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import gzip
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from infermax_opt.api import check_certificate, write_certificate
from infermax_opt.cli.main import cli
from infermax_opt.core.certification import CertificateRejected
from infermax_opt.core.errors import InputError
from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds import closed_form_bounds
from infermax_opt.infermax.bounds.apart import apart_bound
from infermax_opt.infermax.bounds.beginning import beginning_bound
from infermax_opt.infermax.bounds.branching import branching_bound
from infermax_opt.infermax.bounds.occupancy import occupancy_bound
from infermax_opt.infermax.bounds.ramp import ramp_bound
from infermax_opt.infermax.bounds.running import running_bound
from infermax_opt.infermax.bounds.searched import searched_bounds
from infermax_opt.infermax.checker import Rejected, check
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.formats import (
    cost_to_json,
    instance_from_json,
    instance_to_json,
    write_instance,
)
from infermax_opt.infermax.data.instance import Instance, Objective, Policy, RequestGroup, System
from infermax_opt.infermax.exact.staged import staged_search
from tests.campaign import one_in, size
from tests.infermax.occupancy_adversary import signed
from tests.judged import judged_here
from tests.support import ROOT, certificate_to_json, check_evidence, few, one_file, stand_alone

CHECKER = stand_alone("infermax")
#: The file that stands alone, as a module: what it judges, the package's parts judge, too.
certificate_checker = one_file("infermax")
#: One of so many alterations is tried in every run, of all kinds: places have unlike numbers of them.
SHARE = 13
COST = CostModel([("1", "0.1"), ("0.5", "0.2")], ("0.25", "0.05"), ("0.3", "0.02"))


def instance(name: str) -> Instance:
    """Small instances that have every argument between them."""
    two = (RequestGroup("a", 2, 3, count=2), RequestGroup("b", 3, 2, Fraction("1.5")))
    sizes = (RequestGroup("a", 2, 3, count=2), RequestGroup("b", 4, 4))
    rigid = Policy(hybrid_batching=False, chunked_prefill=False, preemption=False)
    made = {
        "offline": Instance("offline", (RequestGroup("r", 2, 3, count=3),), System(8, 50, 50, 2), COST),
        "arrivals": Instance("arrivals", two, System(9, 6, 5, 2), COST),
        "separate": Instance("separate", two[:1], System(8, 5, 4), COST, rigid),
        "blocks": Instance("blocks", two, System(12, 50, 50, None, 2), COST, Policy(preemption=False)),
        "throughput": Instance("throughput", two[:1], System(8, 50, 50), COST, Policy(), "throughput"),  # type: ignore[arg-type]
        "sizes": Instance("sizes", sizes, System(8, 50, 50), COST, Policy(preemption=False)),
        "exact": Instance("exact", two, System(7, 4, 4), replace(COST, attention="exact")),  # type: ignore[arg-type]
    }
    made["beginning"] = replace(
        made["offline"], name="beginning", groups=(RequestGroup("r", 1, 5, count=2),),
        system=System(8, 50, 50), policy=Policy(preemption=False),
    )  # fmt: skip
    return made[name]


NAMES = ("offline", "arrivals", "separate", "blocks", "throughput", "exact", "beginning")


@functools.cache
def bounds(of: Instance) -> list[LowerBound]:
    searched = list(searched_bounds(of))
    searched.sort(key=lambda bound: bound.source)
    slow = [] if ramp_bound(of) is None else ["ramp"]
    slow += [] if running_bound(of) is None else ["running requests"]
    apart = [] if apart_bound(of) is None else ["apart"]
    late = [] if of.offline else ["filling"]
    begun = [] if beginning_bound(of) is None else ["KV beginning"]
    sources = [*begun, "Lagrangian", *apart, *late, "knee", "occupancy", *slow, "state flow"]
    equal = len({(kind.input_tokens, kind.output_tokens) for kind in of.types}) == 1
    assert [bound.source for bound in searched if bound.source != "count branching"] == sources
    assert equal or len(searched) == len(sources)
    if len(searched) == len(sources):  # none better than those before
        branched = branching_bound(of, stop=few(40))
        searched += [branched] if branched is not None else []
    return [*closed_form_bounds(of), *searched]


def named(of: Instance, source: str) -> LowerBound:
    (found,) = (bound for bound in bounds(of) if bound.source == source)
    return found


def shown(of: Instance) -> dict[str, Any]:
    """The instance as its file reads, the cost model spelled out."""
    value = {**instance_to_json(of), "cost": cost_to_json(of.cost)}
    loaded: dict[str, Any] = json.loads(json.dumps(value, default=lambda number: str(float(number))))
    return loaded


def certificate(of: Instance, bound: LowerBound) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(json.dumps(certificate_to_json(of, bound)))
    return value


def cases() -> Iterator[tuple[Instance, LowerBound]]:
    for name in NAMES:
        of = instance(name)
        for bound in bounds(of):
            yield of, bound


# --- what is accepted ---------------------------------------------------------------------------


def test_every_argument_has_certificates() -> None:
    seen = set()
    for of, bound in cases():
        assert bound.evidence is not None
        seen.add(bound.evidence.get("argument"))
        seen.add(bound.source)
        assert check(shown(of), certificate(of, bound)) == bound.value
        assert check_evidence(of, bound) == bound.value
    assert seen - {None} == {
        "longest request", "prefill tail", "token budget", "KV area", "KV slots", "running limit",
        "separate phases", "arrivals", "KV age", "occupancy", "state flow", "Lagrangian", "filling", "ramp",
        "knee", "apart", "count branching", "KV spacing", "KV releases", "KV beginning", "running requests",
    }  # fmt: skip


def test_a_smaller_claim_is_accepted_and_a_larger_one_is_not() -> None:
    for of, bound in cases():
        less = replace(bound, value=bound.value * Fraction(99, 100))
        assert check(shown(of), certificate(of, less)) == less.value
        for more in (bound.value + Fraction(1, 10**40), bound.value * 2):
            with pytest.raises(Rejected, match="claims"):
                check(shown(of), certificate(of, replace(bound, value=more)))


@pytest.mark.parametrize("ending", ["json", "json.gz"])
def test_through_files(tmp_path: Path, ending: str) -> None:
    for number, (of, bound) in enumerate(cases()):
        path = tmp_path / f"{number}.{ending}"
        write_certificate(of, bound, path)
        assert check_certificate(of, path) == bound.value
        if ending.endswith("gz"):
            assert json.loads(gzip.decompress(path.read_bytes()))["source"] == bound.source


def test_no_certificate_without_evidence(tmp_path: Path) -> None:
    trust = LowerBound(Fraction(1), "some solver", Proof.SOLVER)
    with pytest.raises(InputError, match="no certificates"):
        write_certificate(instance("offline"), trust, tmp_path / "c.json")


# --- the stand-alone file -----------------------------------------------------------------------


CHECKERS = tuple(stand_alone(problem) for problem in ("infermax", "makespan", "pipelining"))
#: Lines of code (no blank line, comment or docstring) of a proof, lines of a function, and its branches.
MOST_LINES, MOST_LONG, MOST_BRANCHES = 120, 80, 12
BRANCHES = (
    ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler, ast.comprehension, ast.BoolOp, ast.Match
)  # fmt: skip


def sections(source: str) -> dict[str, tuple[str, int]]:
    """First line of prose and lines of code in each section, by its heading."""
    prose = set[int]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            prose.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    found: dict[str, tuple[str, int]] = {}
    heading, lines = "", source.splitlines()
    for number, line in enumerate(lines, 1):
        if line.startswith("# --- "):
            heading = line.strip("# -")
            found[heading] = (lines[number], 0)
        elif heading and line.strip() and not line.strip().startswith("#") and number not in prose:
            found[heading] = (found[heading][0], found[heading][1] + 1)
    return found


@pytest.mark.parametrize("checker", CHECKERS, ids=lambda path: path.stem)
def test_a_checker_is_one_file_of_the_standard_library_with_short_proofs(checker: Path) -> None:
    source = checker.read_text()
    proofs = {
        name: lines
        for name, (about, lines) in sections(source).items()
        if about.startswith(("# Proof", "# Tool of the"))
    }
    assert len(proofs) >= 2
    assert max(proofs.values()) <= MOST_LINES, proofs
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            assert ast.get_docstring(node) or node.name.startswith("_"), node.name
            assert (node.end_lineno or 0) - node.lineno < MOST_LONG, node.name
            branches = sum(isinstance(inner, BRANCHES) for inner in ast.walk(node))
            assert branches <= MOST_BRANCHES, (node.name, branches)
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names = [node.module or ""]
        for name in names:
            assert name.partition(".")[0] in sys.stdlib_module_names


def run(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *map(str, command)], cwd=cwd, capture_output=True, text=True, timeout=20, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode in (0, 1, 2)
    return done


@pytest.mark.parametrize("isolated", [(), ("-I", "-S")])
def test_a_copy_of_the_checker_runs_anywhere(tmp_path: Path, isolated: tuple[str, ...]) -> None:
    copied = Path(shutil.copy(CHECKER, tmp_path / "checker.py"))
    of = instance("arrivals")
    write_instance(of, tmp_path / "instance.json.gz")
    # Some proofs, or every one once; that the copy starts needs one of them.
    for number, bound in enumerate(one_in(3, bounds(of)) if isolated else bounds(of)[:1]):
        write_certificate(of, bound, tmp_path / "good.json.gz")
        done = run(*isolated, copied, "instance.json.gz", "good.json.gz", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "certified" in done.stdout
        if number == 0:
            more = replace(bound, value=bound.value + 1)
            write_certificate(of, more, tmp_path / "bad.json")
            done = run(*isolated, copied, "instance.json.gz", "bad.json", cwd=tmp_path)
            assert done.returncode == 1
            assert "rejected" in done.stderr


def test_the_script_runs_from_another_directory(tmp_path: Path) -> None:
    of = instance("offline")
    write_instance(of, tmp_path / "i.json")
    write_certificate(of, named(of, "occupancy"), tmp_path / "c.json")
    script = ROOT / "scripts" / "check_certificate.py"
    assert run("-I", "-S", script, "i.json", "c.json", cwd=tmp_path).returncode == 0
    assert run("-I", "-S", script, "c.json", "i.json", cwd=tmp_path).returncode in (1, 2)
    alone = run("-I", "-S", script, "i.json", cwd=tmp_path)
    # One file alone is taken for a certificate that holds its question.
    assert (alone.returncode, "schema" in alone.stderr) == (1, True)
    assert run("-I", "-S", script, "i.json", "missing.json", cwd=tmp_path).returncode == 2


def test_profiles(tmp_path: Path) -> None:
    raw = {**shown(instance("offline")), "cost": {"profile": "llama-2-7b_a100"}}
    (tmp_path / "i.json").write_text(json.dumps(raw))
    of = instance_from_json(raw)
    write_certificate(of, closed_form_bounds(of)[0], tmp_path / "c.json")
    assert run("-I", "-S", CHECKER, "i.json", "c.json", cwd=tmp_path).returncode == 0
    copied = shutil.copy(CHECKER, tmp_path / "checker.py")
    assert run("-I", "-S", copied, "i.json", "c.json", cwd=tmp_path).returncode == 2
    folder = ROOT / "infermax_opt" / "infermax" / "data" / "profiles"
    done = run("-I", "-S", copied, "i.json", "c.json", "--profiles", folder, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in ("../llama-2-7b_a100", "nowhere", "", 7, None, "..", "a/b"):
        (tmp_path / "i.json").write_text(json.dumps({**raw, "cost": {"profile": name}}))
        assert run("-I", "-S", CHECKER, "i.json", "c.json", cwd=tmp_path).returncode in (1, 2)


def test_command_line(tmp_path: Path) -> None:
    of = instance("offline")
    write_instance(of, tmp_path / "i.json")
    write_certificate(of, named(of, "occupancy"), tmp_path / "c.json")
    good = CliRunner().invoke(cli, ["check", str(tmp_path / "i.json"), str(tmp_path / "c.json")])
    assert good.exit_code == 0, good.output
    write_instance(instance("blocks"), tmp_path / "other.json")
    bad = CliRunner().invoke(cli, ["check", str(tmp_path / "other.json"), str(tmp_path / "c.json")])
    assert bad.exit_code != 0


def test_a_certificate_for_another_objective_says_so(tmp_path: Path) -> None:
    of = instance("offline")
    write_instance(of, tmp_path / "i.json")
    other = replace(of, objective=Objective.of("mean_e2e"))
    bound = next(iter(searched_bounds(other)))
    write_certificate(other, bound, tmp_path / "c.json")
    told = "is for the objective 'mean_e2e'; the instance's is 'makespan'"
    done = run("-I", "-S", CHECKER, "i.json", "c.json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, f"rejected: {told}\n")
    with pytest.raises(CertificateRejected, match=told):
        check_certificate(of, tmp_path / "c.json")


def test_the_best_bound_with_a_certificate_is_written(tmp_path: Path) -> None:
    lone = Instance("lone", (RequestGroup("r", 5, 3),), System(8, 50, 50), COST)
    case = replace(lone, objective=Objective.of("mean_e2e"))
    found = closed_form_bounds(case)
    assert found[0].evidence is None
    write_instance(case, tmp_path / "i.json")
    files = [str(tmp_path / name) for name in ("i.json", "c.json")]
    done = CliRunner().invoke(cli, ["bound", files[0], "--certificate", files[1]])
    assert done.exit_code == 0, done.output
    source = json.loads((tmp_path / "c.json").read_text())["source"]
    (line,) = done.stderr.splitlines()
    assert (
        line
        == f"infermax-opt: {files[1]}: the best bound, 'alone', has no certificate; this is of {source!r}"
    )
    assert CliRunner().invoke(cli, ["check", *files]).exit_code == 0


# --- mutations ----------------------------------------------------------------------------------


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to everything in a JSON value."""
    yield path
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in pairs:
            yield from leaves(item, (*path, key))


def mutants(value: Any, rich: bool = True) -> Iterator[Any]:
    """Copies that differ in one place."""
    for path in leaves(value):
        if not path:
            continue
        old = value
        for key in path:
            old = old[key]
        odd: list[Any] = [None, -1, 0, 1, 10**9, "x", True, [], {}, "1e999999", "NaN", "1/0", "-1/3", 0.5]
        odd += [10**18, -(10**18), 10**400, "9" * 5000, "1e99", [[[]]], {"a": {}}, float("inf"), "\ud800"]
        new = odd if rich else [None, 0, "x"]
        if isinstance(old, int) and not isinstance(old, bool):
            new = [*new, old + 1, old - 1, -old, old * 2, old + 1000, old - 1000]
        if isinstance(old, str):
            try:
                exact = Fraction(old)
                new = [*new, *(str(x) for x in (exact + 1, exact * 2, exact / 2, -exact))]
            except (ValueError, ZeroDivisionError):
                new = [*new, old + "x", old[:-1]]
        if isinstance(old, bool):
            new = [*new, not old]
        if isinstance(old, list):
            new = [*new, old[:-1], [*old, old[-1]] if old else [0], old[::-1], old[1:], old * 2]
            swaps = range(len(old) - 1 if rich else 0)
            new += [[*old[:k], old[k + 1], old[k], *old[k + 2 :]] for k in swaps]
        if isinstance(old, dict):
            new = [*new, list(old), list(old.values()), dict.fromkeys(old)]
        for replacement in new:
            if path[-1] == "count" and replacement == 10**9:
                continue  # has its own test
            if replacement == old and type(replacement) is type(old):
                continue
            mutant, inner = opened(value, path)
            inner[path[-1]] = replacement
            yield mutant
        mutant, inner = opened(value, path)
        del inner[path[-1]]
        yield mutant


def opened(value: Any, path: tuple[Any, ...]) -> tuple[Any, Any]:
    """A copy that shares all with `value` but what is on the way to a path, and what holds the path's end."""
    made = inner = copy.copy(value)
    for key in path[:-1]:
        inner[key] = copy.copy(inner[key])
        inner = inner[key]
    return made, inner


@pytest.mark.parametrize("name", NAMES)
def test_altered_certificates_are_rejected(name: str) -> None:
    of = instance(name)
    given = shown(of)
    for bound in bounds(of):
        original = certificate(of, bound)
        rich = bound.source not in ("occupancy", "state flow", "Lagrangian") or name == "offline"
        for mutant in one_in(SHARE, mutants(original, rich)):
            with pytest.raises(Rejected):
                check(given, mutant)
    assert given == shown(of)


def judged(of: dict[str, Any], given: Any, checker: Any = certificate_checker) -> Fraction | None:
    """What a checker takes as proved; None where it rejects, in one line and in words of its own."""
    problem = ""
    try:
        return checker.check(of, given)  # type: ignore[no-any-return]
    except checker.Rejected as rejection:
        problem = str(rejection)
    assert problem.count("\n") == 0
    assert "beyond words" not in problem, problem
    return None


@pytest.mark.parametrize("name", NAMES)
def test_signed_alterations_prove_no_more_than_is_true(name: str) -> None:
    """Whoever alters a certificate can compute its hash, too; the optimum is the judge."""
    of = instance(name)
    best = staged_search(of).upper
    assert best is not None
    given = shown(of)
    accepted = rejected = 0
    for bound in bounds(of):
        original = certificate(of, bound)
        rich = bound.source not in ("occupancy", "state flow", "Lagrangian") or name == "offline"
        for number, mutant in enumerate(one_in(SHARE, mutants(original, rich))):
            # Its claim as it is, and a false one.
            for claim in (mutant.get("lower_bound"), str(best + Fraction(1, 10**9)))[
                : 2 if number % 5 == 0 else 1
            ]:
                proved = judged(given, signed({**mutant, "lower_bound": claim}))
                rejected, accepted = rejected + (proved is None), accepted + (proved is not None)
                assert proved is None or proved <= best
    assert given == shown(of)
    assert rejected > size(200 // SHARE, 200)
    assert accepted > 0  # a smaller claim, a looser potential, another name of the source


@pytest.mark.parametrize("field", ["token", "size", "out_fixed", "out_size"])
def test_prices_cannot_be_raised(field: str) -> None:
    of = instance("offline")
    best = staged_search(of).upper
    bound = named(of, "occupancy")
    assert best is not None
    original = certificate(of, bound)
    for factor, change in itertools.product((1, -1, 2), (10**k for k in range(12))):
        mutant = copy.deepcopy(original)
        mutant["evidence"]["prices"][field] += factor * change
        for claim in (str(bound.value), str(bound.value + Fraction(1, 10**6)), str(best * 2)):
            mutant["lower_bound"] = claim
            with contextlib.suppress(Rejected):
                assert check(shown(of), signed(mutant)) <= best


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("field", ["first", "finish"])
def test_starts_and_finishes_earn_what_they_pay(field: str, index: int) -> None:
    """Less proves exactly so much less; more, as soon as it would prove what is not true, nothing."""
    of = instance("sizes")
    best = staged_search(of).upper
    bound = occupancy_bound(of, ends=False)
    assert best is not None
    assert bound is not None
    original = certificate(of, bound)
    units = Fraction(2) ** original["evidence"]["exponent"] * of.cost.ticks_per_second
    worth = (of.groups[index].count or 1) / units
    refused = 0
    for power in range(16):
        mutant = copy.deepcopy(original)
        mutant["evidence"]["prices"][field][index] -= 10**power
        less = bound.value - worth * 10**power
        if less >= 0:
            mutant["lower_bound"] = f"{less.numerator}/{less.denominator}"
            assert check(shown(of), signed(mutant)) == less
        mutant["lower_bound"] = certificate(of, bound)["lower_bound"]
        with pytest.raises(Rejected, match="claims"):
            check(shown(of), signed(mutant))
        mutant["evidence"]["prices"][field][index] += 2 * 10**power
        more = bound.value + worth * 10**power
        mutant["lower_bound"] = f"{more.numerator}/{more.denominator}"
        if more > best:
            with pytest.raises(Rejected, match="potential"):
                check(shown(of), signed(mutant))
            refused += 1
        else:
            with contextlib.suppress(Rejected):
                check(shown(of), signed(mutant))
    assert refused > 3


@pytest.mark.parametrize("field", ["first", "finish"])
def test_starts_and_finishes_earn_whole_numbers_one_for_each_size(field: str) -> None:
    of = instance("sizes")
    original = {
        **certificate(of, named(of, "occupancy")),
        "lower_bound": "0",
    }  # smaller prices prove this, too
    a, b = original["evidence"]["prices"][field]
    accepted = copy.deepcopy(original)
    accepted["evidence"]["prices"][field] = [a - 1, b - 2]
    assert check(shown(of), signed(accepted)) == 0
    faults: list[Any] = [
        [a], [b], [a, b, b], [a, b, 0], [a, a, b], {str(a - 1): 0, str(b - 2): 0}, [a, b - 0.5], [a - 0.5, b],
        [[a, b]], [a, [b]], [a, f"{2 * b - 1}/2"], [a, None], [None, b], f"{a} {b}", [a, f"{b},"],
        None, 0, True, "00", "", {}, {"0": 0, "1": 0}, [], [0], [0, 0, 0], [[0, 0]],
        [0, None], [None, 0], [0, True], [False, 0], [0, 0.5], [0, "1/2"], [0, "x"], [0, ""], [0, []],
        [0, {}], [0, "NaN"], [0, "1e999"], [0, "1e-1"], [0, "9" * 61], [0, "1/0"], [0, "Infinity"],
        [0, 10**4000], [10**4000] * 2, [-(10**4000)] * 2, ["-1e99", "1e99"],
    ]  # fmt: skip
    for fault in faults:
        mutant = copy.deepcopy(original)
        mutant["evidence"]["prices"][field] = fault
        with pytest.raises(Rejected):
            check(shown(of), signed(mutant))
    del original["evidence"]["prices"][field]
    with pytest.raises(Rejected, match="malformed"):
        check(shown(of), signed(original))


def test_every_potential_matters() -> None:
    """Raising or lowering a potential far, or calling its state unreached, breaks a step."""
    of = instance("offline")
    original = certificate(of, named(of, "occupancy"))
    kept = 0
    for k, values in enumerate(original["evidence"]["potential"]):
        for u, value in enumerate(values):
            if value is None:
                continue
            for new in (value + 10**15, value - 10**15):
                mutant = copy.deepcopy(original)
                mutant["evidence"]["potential"][k][u] = new
                with pytest.raises(Rejected):
                    check(shown(of), signed(mutant))
            mutant = copy.deepcopy(original)
            mutant["evidence"]["potential"][k][u] = None
            try:
                check(shown(of), signed(mutant))
                kept += 1
            except Rejected:
                pass
    assert kept == 0


@pytest.mark.parametrize("name", ["offline", "sizes"])
@pytest.mark.parametrize("field", ["first", "out"])
def test_prices_of_states_cannot_be_raised(field: str, name: str) -> None:
    """Lower first prices prove exactly so much less; no change proves what is not true."""
    of = instance(name)
    best = staged_search(of).upper
    bound = named(of, "state flow")
    assert best is not None
    assert bound.value <= best
    original = certificate(of, bound)
    units = Fraction(2) ** original["evidence"]["exponent"] * of.cost.ticks_per_second
    places = [
        path
        for path in leaves(original["evidence"]["prices"][field])
        if path and (field == "first" or path[1:])
    ]
    refused = 0
    for path, power, sign in itertools.product(places, range(16), (1, -1)):
        mutant = copy.deepcopy(original)
        inner = mutant["evidence"]["prices"][field]
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] += sign * 10**power
        more = Fraction(0)
        if field == "first":
            more = sign * 10**power * (of.groups[path[0]].count or 1) / units
        for claim in (bound.value + more, bound.value + abs(more) + Fraction(1, 10**20), best * 2):
            mutant["lower_bound"] = f"{claim.numerator}/{claim.denominator}"
            try:
                proved = check(shown(of), signed(mutant))
            except Rejected:
                refused += 1
                assert not (field == "first" and sign < 0 and 0 <= claim <= bound.value + more)
                continue
            assert proved <= best
    assert refused > 3


@pytest.mark.parametrize("name", ["offline", "sizes", "exact"])
def test_every_potential_of_a_state_matters(name: str) -> None:
    """Raised far, lowered far, or called unreached: some step breaks."""
    of = instance(name)
    original = certificate(of, named(of, "state flow"))
    refused = 0
    for index, value in enumerate(original["evidence"]["potential"]):
        if value is None:
            continue
        for new in (None, value + 10**15, value - 10**15):
            mutant = copy.deepcopy(original)
            mutant["evidence"]["potential"][index] = new
            with pytest.raises(Rejected):
                check(shown(of), signed(mutant))
            refused += 1
    assert refused > 20


@pytest.mark.parametrize("name", ["offline", "sizes"])
def test_malformed_states_are_rejected(name: str) -> None:
    of = instance(name)
    original = {**certificate(of, named(of, "state flow")), "lower_bound": "0"}
    assert check(shown(of), signed(original)) == 0
    values, prices = original["evidence"]["potential"], original["evidence"]["prices"]
    first, out = prices["first"], prices["out"]
    potentials: list[Any] = [
        None, 0, "", [], {}, [None], [0], values[:-1], [*values, 0], [*values, None], [None, *values[1:]],
        [float(values[0]), *values[1:]], [True, *values[1:]], [*values[:-1], 0.5], [*values[:-1], "0"],
        [*values[:-1], False], [*values[:-1], [0]], values * 1000, {str(k): v for k, v in enumerate(values)},
    ]  # fmt: skip
    firsts: list[Any] = [
        None, 0, "0", "", [], {}, first[:-1], [*first, 0], [*first[:-1], None], [*first[:-1], 0.5],
        [*first[:-1], True], [*first[:-1], "0"], [*first[:-1], [0]], [*first[:-1], 10**4000],
        {str(k): v for k, v in enumerate(first)}, [*first[:-1], float("inf")], [*first[:-1], float("nan")],
    ]  # fmt: skip
    last = out[-1]
    outs: list[Any] = [
        None, 0, "", [], {}, out[:-1], [*out, []], [*out, 0], last, [*out[:-1], last[:-1]],
        [*out[:-1], [*last, 0]], [*out[:-1], [*last[:-1], None]], [*out[:-1], [*last[:-1], 0.5]],
        [*out[:-1], [*last[:-1], False]], [*out[:-1], [*last[:-1], "0"]], [*out[:-1], None],
        [*out[:-1], "0" * len(last)], [*out[:-1], [*last[:-1], float("inf")]],
        [*out[:-1], {str(k): v for k, v in enumerate(last)}],
    ]  # fmt: skip
    evidences = [{**original["evidence"], "potential": fault} for fault in potentials]
    evidences += [{**original["evidence"], "prices": {**prices, "first": fault}} for fault in firsts]
    evidences += [{**original["evidence"], "prices": {**prices, "out": fault}} for fault in outs]
    evidences += [
        {key: value for key, value in original["evidence"].items() if key != "potential"},
        {**original["evidence"], "prices": {"first": first}},
        {**original["evidence"], "prices": {"out": out}},
        {**original["evidence"], "prices": [first, out]},
        {**original["evidence"], "kind": "state_flow"},
    ]
    for evidence in evidences:
        with pytest.raises(Rejected):
            check(shown(of), signed({**original, "evidence": evidence}))


@pytest.mark.parametrize("size", [1, 1000, 10**6])
def test_too_many_states_are_rejected_soon(size: int) -> None:
    """Neither states nor elements are listed beyond what the certificate has potentials for."""
    crowd = Instance("crowd", (RequestGroup("r", 5, 20, count=200),), System(10_000, 5000, 5000), COST)
    base = certificate(crowd, closed_form_bounds(crowd)[0])
    evidence = {"kind": "state-flow", "piece": 0, "exponent": 0, "prices": {"first": [0], "out": [[0] * 19]}}
    forged = signed({**base, "evidence": {**evidence, "potential": [0] * size}})
    with pytest.raises(Rejected, match="potential"):
        check(shown(crowd), forged)
    raw = shown(crowd)
    raw["requests"][0]["output_tokens"] = raw["system"]["kv_capacity"] = 10**15
    forged["instance_sha256"] = certificate_checker.Instance(raw, None).sha256
    with pytest.raises(Rejected, match="potential"):
        check(raw, signed(forged))


@pytest.mark.parametrize("name", NAMES)
def test_altered_instances_are_rejected(name: str) -> None:
    of = instance(name)
    original = certificate(of, closed_form_bounds(of)[0])
    searched = [certificate(of, named(of, source)) for source in ("occupancy", "state flow")]
    for mutant in one_in(SHARE, mutants(shown(of))):
        for given in (original, *searched):
            try:
                check(mutant, given)
            except Rejected:
                continue
            # Nothing that counts was changed.
            assert instance_from_json(mutant).sha256 == of.sha256


@pytest.mark.parametrize("name", NAMES)
def test_certificates_made_out_for_an_altered_instance(name: str) -> None:
    """The evidence of one instance, signed for another: accepted only where it is true."""
    of = instance(name)
    originals = [certificate(of, bound) for bound in bounds(of)]
    best: dict[str, Fraction] = {}
    accepted = 0
    for mutant in one_in(SHARE, mutants(shown(of))):
        try:
            other = instance_from_json(mutant)
        except InputError:
            continue
        if not other.objective.is_makespan or other.system.kv_capacity > 60:
            continue
        if sum(r.input_tokens + r.output_tokens for r in other.requests) > 40:
            continue
        given = shown(other)
        for original in originals:
            forged = {
                **original,
                "instance": other.name,
                "instance_sha256": other.sha256,
                "cost": cost_to_json(other.cost),
                "objective": str(other.objective),
            }
            forged = signed(json.loads(json.dumps(forged)))
            try:
                proved = check(given, forged)
            except Rejected:
                continue
            if other.sha256 not in best:
                upper = staged_search(other).upper
                assert upper is not None
                best[other.sha256] = upper
            assert proved <= best[other.sha256], mutant
            accepted += 1
    assert accepted > 0


# --- malformed input ----------------------------------------------------------------------------


def write_bad(folder: Path) -> dict[str, Path]:
    of = instance("offline")
    good = certificate(of, named(of, "occupancy"))
    text = json.dumps(good)
    broken = bytearray(gzip.compress(text.encode()))
    broken[len(broken) // 2] ^= 0xFF
    broken[15] ^= 0xFF
    contents: dict[str, bytes | str] = {
        "empty.json": "",
        "text.json": "hello",
        "cut.json": text[: len(text) // 2],
        "list.json": "[]",
        "number.json": "7",
        "null.json": "null",
        "nothing.json": "{}",
        "nan.json": text[:-1] + ', "more": NaN}',
        "infinite.json": text.replace('"lower_bound": "', '"lower_bound": Infinity, "was": "'),
        "huge.json": text[:-1] + ', "more": ' + "9" * 10_000 + "}",
        "deep.json": "[" * 200_000,
        "deeper.json": text[:-1] + ', "more": ' + '{"a":' * 900 + "1" + "}" * 901,
        "bytes.json": b"\xff\xfe\x00",
        "surrogate.json": text.replace('"occupancy"', '"\\ud800"', 1),
        "broken.json.gz": bytes(broken),
        "cut.json.gz": gzip.compress(text.encode())[:-20],
        "plain.json.gz": text,
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    more: dict[str, dict[str, Any]] = {
        "no source.json": {key: value for key, value in good.items() if key != "source"},
        "half source.json": {**good, "source": "\ud800"},
        "list source.json": {**good, "source": [[[]]]},
        "number.source.json": {**good, "source": 7},
        "1e999999.json": {**good, "lower_bound": "1e999999"},
        "1e99.json": {**good, "lower_bound": "1e99"},
        "ratio.json": {**good, "lower_bound": "9" * 599 + "/1"},
        "zero.json": {**good, "lower_bound": "1/0"},
        "kind.json": {**good, "evidence": {**good["evidence"], "kind": []}},
        "potentials.json": {**good, "evidence": {**good["evidence"], "potential": None}},
        "nulls.json": {**good, "evidence": {**good["evidence"], "potential": [[None]] * 4}},
        "floats.json": {**good, "evidence": {**good["evidence"], "potential": [[0.0]] * 4}},
        "exponent.json": {**good, "evidence": {**good["evidence"], "exponent": 10**9}},
    }
    for name, value in more.items():
        (folder / name).write_text(json.dumps(signed(value)))
    return {path.name: path for path in sorted(folder.iterdir())}


def test_malformed_certificates_are_reported(tmp_path: Path) -> None:
    of = instance("offline")
    write_instance(of, tmp_path / "instance.json")
    folder = tmp_path / "bad"
    folder.mkdir()
    for name, path in write_bad(folder).items():
        done = judged_here("infermax", tmp_path / "instance.json", path)
        if "source" not in name:
            assert done.returncode in (1, 2), name
        try:
            check_certificate(of, path)
        except InputError:
            pass
        else:
            assert "source" in name, name


def test_malformed_instances_are_reported(tmp_path: Path) -> None:
    of = instance("offline")
    bound = named(of, "occupancy")
    write_certificate(of, bound, tmp_path / "c.json")
    raw = shown(of)
    request = raw["requests"][0]
    wrongs: list[Any] = [
        [], None, 7, {}, {**raw, "requests": []}, {**raw, "requests": None},
        {**raw, "requests": [{**request, "count": -1}]},
        {**raw, "requests": [{**request, "count": 10**18}]},
        {**raw, "requests": [{**request, "input_tokens": "1e99"}]},
        {**raw, "requests": [{**request, "output_tokens": -3}]},
        {**raw, "requests": [{**request, "arrival": "1e999999"}]},
        {**raw, "system": {**raw["system"], "kv_capacity": "1e60"}},
        {**raw, "system": {**raw["system"], "block_size": 10**30}},
        {**raw, "cost": {**raw["cost"], "batch": []}},
        {**raw, "cost": {**raw["cost"], "batch": [["-1", "0"]]}},
        {**raw, "cost": {**raw["cost"], "decode": ["0"]}},
        {**raw, "objective": ["makespan"]}, {**raw, "objective": "mean_ttft"},
        {**raw, "policy": {}}, {**raw, "name": {"a": [1]}}, {**raw, "name": "\ud800"},
    ]  # fmt: skip
    for number, wrong in enumerate(wrongs):
        path = tmp_path / f"i{number}.json"
        path.write_text(json.dumps(wrong))
        assert judged_here("infermax", path, tmp_path / "c.json").returncode in (1, 2), number
        with pytest.raises(Rejected):
            check(wrong, certificate(of, bound))


def test_potentials_of_absurd_size_do_not_exhaust_memory() -> None:
    """Lists as long as the certificate says are never made before their lengths were checked."""
    wide = Instance("wide", (RequestGroup("r", 1, 10**9 - 1),), System(10**9, 50, 50), COST)
    base = certificate(wide, closed_form_bounds(wide)[0])
    evidence = {
        "kind": "occupancy",
        "piece": 0,
        "exponent": 0,
        "young": 0,
        "prices": {"token": 0, "size": 0, "out_fixed": 0, "out_size": 0, "first": [0], "finish": [0]},
        "potential": [[0], [0]],
    }
    raw = shown(wide)
    raw["system"]["kv_capacity"] = 10**15
    raw["requests"][0]["output_tokens"] = 10**15
    forged = {**base, "evidence": evidence}
    forged["instance_sha256"] = certificate_checker.Instance(raw, None).sha256
    with pytest.raises(Rejected, match="potential"):
        check(raw, signed(forged))
    for times in (10**7, 10**15):
        priced = {"kind": "lagrangian", "piece": 0, "exponent": 0, "theta": 0, "prices": [[[0, times]]]}
        with pytest.raises(Rejected, match="prices"):
            check(raw, signed({**forged, "evidence": priced}))


@pytest.mark.parametrize("depth", [500, 5_000, 50_000])
def test_deep_nesting_is_rejected(depth: int) -> None:
    nested: list[Any] = []
    for _ in range(depth):
        nested = [nested]
    of = instance("offline")
    original = certificate(of, named(of, "occupancy"))
    for wrong in (
        {**original, "evidence": {**original["evidence"], "potential": nested}},
        {**original, "source": nested},
        {**original, "lower_bound": nested},
    ):
        with pytest.raises((Rejected, CertificateRejected)):
            check(shown(of), wrong)
    for key in ("name", "requests", "objective", "system"):
        with pytest.raises(Rejected):
            check({**shown(of), key: nested}, original)


def test_the_environment_does_not_matter(tmp_path: Path) -> None:
    """Text beyond ASCII in a terminal that shows none."""
    of = replace(instance("offline"), name="größe-日本")
    write_instance(of, tmp_path / "i.json")
    write_certificate(of, closed_form_bounds(of)[0], tmp_path / "c.json")
    done = subprocess.run(
        [sys.executable, "-S", str(CHECKER), "i.json", "c.json"],
        cwd=tmp_path, capture_output=True, timeout=60, check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
