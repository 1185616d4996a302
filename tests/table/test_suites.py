"""The suites: what is in them, and that it never changes unnoticed."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from infermax_opt.core.errors import InputError
from infermax_opt.infermax.data.cost import Attention
from infermax_opt.infermax.data.formats import read_instance
from infermax_opt.infermax.data.instance import Instance, Policy, System
from infermax_opt.infermax.data.suites import DATA, csp_case
from infermax_opt.table.suites import Case, Suite, get_suite, suite_names
from tests.support import ROOT, shared_data

TRACES = shared_data("data")


@cache
def built(suite: str, *only: str) -> list[Instance]:
    return [case.build() for case in get_suite(suite).select(only)]


def test_names() -> None:
    assert suite_names() == (
        "paper-csp", "paper-b32", "paper-b1024", "mixes", "azure", "latency", "online", "tails", "attainment",
        "vllm-runs", "mcsf", "bros",
        "ecoserve", "iteration", "makespan", "pipelining", "placement",
    )  # fmt: skip
    counts = {name: len(get_suite(name).cases) for name in suite_names()}
    assert counts == {
        "paper-csp": 22,
        "paper-b32": 210,
        "paper-b1024": 210,
        "mixes": 70,
        "azure": 4,
        "latency": 105,
        "online": 8,
        "tails": 4,
        "attainment": 5,
        "vllm-runs": 6,
        "mcsf": 400,
        "bros": 6,
        "ecoserve": 12,
        "iteration": 21,
        "makespan": 24,
        "pipelining": 12,
        "placement": 60,
    }
    names = [case.name for name in suite_names() for case in get_suite(name).cases]
    assert len(set(names)) == len(names)


def test_a_case_is_named_like_its_instance() -> None:
    for suite in suite_names():
        if suite not in ("azure", "online", "tails", "attainment", "vllm-runs"):
            for case, instance in zip(get_suite(suite).cases, built(suite), strict=True):
                assert instance.name == case.name


def test_paper_csp_is_what_is_shipped() -> None:
    shipped = {}
    for path in (ROOT / "instances" / "paper-csp").glob("*.json"):
        instance = read_instance(path)
        shipped[instance.name] = instance
    assert shipped == {instance.name: instance for instance in built("paper-csp")}
    assert len(shipped) == 22
    assert csp_case(64, chunked=False).system.kv_capacity == 128


@pytest.mark.parametrize("count", [32, 1024])
def test_grids(count: int) -> None:
    instances = built(f"paper-b{count}")
    for prefill in (4096, 512):
        cells = [i for i in instances if i.system.max_prefill_tokens == prefill]
        assert all(cell.name.endswith(f"-p{prefill}") for cell in cells)
        assert Counter(c.system.kv_capacity for c in cells) == {100: 9, 1000: 24, 10_000: 36, 100_000: 36}
        assert len(cells) == 105
    for instance in instances:
        (kind,) = instance.types
        assert len(kind.members) == count
        assert {kind.input_tokens, kind.output_tokens} <= {1, 8, 32, 128, 512, 1024}
        assert instance.system.max_batch_tokens == 4096
        assert instance.system.max_running is None
        assert instance.policy == Policy(True, True, True)
        assert instance.cost.attention is Attention.EXACT
        assert instance.offline
    name = f"b{count}-i8-o32-m1000-p512"
    (cell,) = built(f"paper-b{count}", name)
    assert cell.system == System(1000, 4096, 512)
    assert (cell.types[0].input_tokens, cell.types[0].output_tokens) == (8, 32)


def test_mixes() -> None:
    instances = {instance.name: instance for instance in built("mixes")}
    short, long = {8, 16}, {512, 1024}
    sets = {
        "siso": (short, short),
        "silo": (short, long),
        "liso": (long, short),
        "lilo": (long, long),
        "all": (short | long, short | long),
    }
    for kind, (inputs, outputs) in sets.items():
        for capacity in (10_000, 100_000):
            for power in range(4, 11):
                instance = instances.pop(f"mix-{kind}-b{2**power}-m{capacity}")
                assert len(instance.requests) == 2**power
                assert instance.system == System(capacity, 4096, 4096)
                assert {r.input_tokens for r in instance.requests} <= inputs
                assert {r.output_tokens for r in instance.requests} <= outputs
        # Uniform: each length takes its share of 1024 draws (five standard deviations).
        counts = Counter(r.input_tokens for r in instance.requests)
        assert counts.keys() == inputs
        share = 1024 / len(inputs)
        assert all(abs(n - share) < 5 * (share * (1 - 1 / len(inputs))) ** 0.5 for n in counts.values())
    assert not instances


def test_mixes_are_the_same_everywhere() -> None:
    """Recorded once; another draw would be another suite under the same name."""
    instance, larger = built("mixes", "mix-all-b16-m10000", "mix-all-b32-m10000")
    lengths = [(r.input_tokens, r.output_tokens) for r in instance.requests]
    assert lengths == [
        (8, 1024), (16, 8), (512, 1024), (16, 8), (1024, 1024), (8, 8), (8, 16), (1024, 8),
        (1024, 8), (8, 8), (16, 16), (8, 16), (1024, 1024), (512, 8), (8, 16), (16, 8),
    ]  # fmt: skip
    assert [(r.input_tokens, r.output_tokens) for r in larger.requests][:16] == lengths
    assert instance.sha256 == built("mixes", "mix-all-b16-m10000")[0].sha256


@pytest.mark.skipif(TRACES is None, reason="the Azure traces are not here: see INFERMAX_OPT_DATA")
def test_azure() -> None:
    suite = get_suite("azure", TRACES)
    code, conv, code_window, conv_window = (case.build() for case in suite.cases)
    assert [len(i.requests) for i in (code, conv, conv_window)] == [8819, 19366, 3118]
    assert code.name == "azure-code-offline"
    assert conv_window.name == "azure-conv-10min"
    for instance in (code, conv, code_window, conv_window):
        assert instance.system == System(467_295, 4096, 4096)
        assert instance.cost.profile == "llama-3.1-8b_h100"
    assert code.offline
    assert conv.offline
    assert 0 < max(r.arrival for r in code_window.requests) < 600


def test_missing_traces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(DATA, raising=False)
    with pytest.raises(
        InputError, match=r"AzureLLMInferenceTrace_code\.csv .* --data or in INFERMAX_OPT_DATA"
    ):
        get_suite("azure").cases[0].build()
    monkeypatch.setenv(DATA, str(tmp_path))
    with pytest.raises(InputError, match=r"holds no AzureLLMInferenceTrace_conv\.csv") as caught:
        get_suite("azure").cases[1].build()
    assert caught.value.source == str(tmp_path)


def test_selection() -> None:
    suite = get_suite("paper-csp")
    assert suite.select() == suite.cases
    assert [c.name for c in suite.select(["csp-i4-*", "*-i2-o4-b4"])] == [
        "csp-i2-o4-b4", "csp-i4-o4-b4", "csp-i4-o4-b4-chunked",
    ]  # fmt: skip
    assert [c.name for c in suite.select(["*-chunked"], 1)] == ["csp-i1-o4-b4-chunked"]
    with pytest.raises(InputError, match="'x' matches no row of 'paper-csp'; rows are named like 'csp-i1-"):
        suite.select(["*", "x"])


def test_wrong_suites() -> None:
    with pytest.raises(InputError, match="no suite 'paper'; there are paper-csp, paper-b32"):
        get_suite("paper")
    case = get_suite("paper-csp").cases[0]
    with pytest.raises(InputError, match="two cases share a name"):
        Suite("mine", (case, case))
    for name in ("", "../x", "a/b", ".hidden", "a b"):
        with pytest.raises(InputError, match="is not a name"):
            Case(name, case.build)
