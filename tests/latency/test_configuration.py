"""GPUs of a worker (eq 6) against direct computations."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infermax_opt.core.errors import InputError
from infermax_opt.infermax.data.profiles import load_profile
from infermax_opt.latency.configuration import Demand, Option, configure, demand_of
from infermax_opt.latency.options import chosen_profiles, options_of_profiles, options_of_samples
from infermax_opt.latency.profiles import decode_seconds
from infermax_opt.latency.samples import Samples, read_samples

lengths = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 30)), min_size=1, max_size=6)
EQUAL = demand_of([(1024, 256)])


@given(lengths)
def test_demand_is_the_mean_over_decode_iterations(requests: list[tuple[int, int]]) -> None:
    # After its n-th decode iteration a request of I and O holds I + n tokens, n = 1 .. O - 1.
    after = [i + n for i, o in requests for n in range(1, o)]
    if not after:
        with pytest.raises(InputError, match="has 2 output tokens or more"):
            demand_of(requests)
        return
    found = demand_of(iter(requests))
    assert found.held == Fraction(sum(after), len(after))
    assert found.context == Fraction(sum(tokens - 1 for tokens in after), len(after))
    assert found.longest == max(i + o - 1 for i, o in requests)
    assert found.longest_prompt == max(i for i, _ in requests)
    assert found.input_tokens * found.requests == sum(i for i, _ in requests)


def test_eq_6_by_hand() -> None:
    # 1000 tokens of KV, 10 a request: 100 requests; an iteration of b takes b/1000 + 0.02 s.
    line = (Fraction(0), Fraction("0.001"), Fraction("0.02"))
    demand = Demand(1, Fraction(5), Fraction(10), Fraction(10), 5, 14)
    option = Option("hand", "", 2, Fraction(1000), (Fraction(1), Fraction(0)), (line,))
    (choice,) = configure([option], demand, "0.2").choices
    assert (choice.kv_batch, choice.kv_seconds) == (100, Fraction("0.12"))
    assert choice.kv_rate == Fraction(100) / (2 * Fraction("0.12"))
    assert choice.slo_batch == 180
    assert choice.slo_rate == Fraction(180) / (2 * Fraction("0.2"))
    assert (choice.rate, choice.binds) == (choice.kv_rate, "KV")
    (choice,) = configure([option], demand, "0.05").choices
    assert (choice.slo_batch, choice.binds) == (30, "ATGT")
    assert choice.rate == Fraction(30) / (2 * Fraction("0.05"))


def rate(option: Option, batch: Fraction, demand: Demand) -> Fraction:
    return batch / (option.gpus * option.seconds(batch, demand.context))


positive = st.integers(1, 1000).map(lambda n: Fraction(n, 1000))
lines = st.lists(st.tuples(positive, positive, positive), min_size=1, max_size=3).map(tuple)


@given(lines, st.integers(1, 8), st.integers(1, 2000), lengths, positive)
@settings(max_examples=100)
def test_the_less_of_both_terms_is_the_smaller_batch(
    decode: tuple[tuple[Fraction, Fraction, Fraction], ...],
    gpus: int,
    capacity: int,
    requests: list[tuple[int, int]],
    scale: Fraction,
) -> None:
    demand = demand_of([*requests, (5, 5)])
    option = Option("any", "", gpus, Fraction(capacity), (Fraction(1), Fraction(2)), decode)
    atgt = scale * 200
    found = configure([option], demand, atgt)
    (choice,) = found.choices
    if choice.problem is not None:
        assert found.best is None
        assert capacity < demand.longest + 2 or option.seconds(1, demand.context) > atgt
        return
    assert choice.kv_batch is not None
    assert choice.slo_batch is not None
    assert option.seconds(choice.slo_batch, demand.context) == atgt
    batch = min(choice.kv_batch, choice.slo_batch)
    assert choice.rate == rate(option, batch, demand)
    # Whatever else holds both limits is no faster.
    for share in (Fraction(1, 3), Fraction(9, 10)):
        assert rate(option, batch * share, demand) <= choice.rate


def test_profiles_take_what_the_profile_says() -> None:
    names = chosen_profiles(["llama-3.1-70b_h100", "llama-3.1-70b_a100_tp4"])
    assert names == ("llama-3.1-70b_h100_tp4", "llama-3.1-70b_h100_tp8", "llama-3.1-70b_a100_tp4")
    assert chosen_profiles(["llama-3.1-70b_h100_hinge", "llama-3.1-70b_h100_tp8_hinge"]) == (
        "llama-3.1-70b_h100_tp4_hinge",
        "llama-3.1-70b_h100_tp8_hinge",
    )
    for name in (*names, "llama-3.1-70b_h200_tp2_hinge"):
        (option,) = options_of_profiles([name], EQUAL)
        profile = load_profile(name)
        for batch in (1, 64, 600):
            context = EQUAL.context * batch
            assert option.seconds(batch, EQUAL.context) == decode_seconds(profile.cost, int(context), batch)
        (choice,) = configure([option], EQUAL, "0.06").choices
        assert choice.kv_batch == Fraction(profile.kv_capacity) / (1024 + 128)


def test_the_best_of_the_shipped_70b_profiles() -> None:
    options = options_of_profiles(chosen_profiles(["llama-3.1-70b_h100"]), EQUAL)
    found = configure(reversed(list(options)), EQUAL, "0.05")  # type: ignore[arg-type]
    assert [c.option.gpus for c in found.choices] == [4, 8]
    assert [c.binds for c in found.choices] == ["KV", "ATGT"]
    assert found.best is found.choices[0]
    # A limit that four GPUs cannot meet leaves eight.
    tight = configure(options, EQUAL, "0.014")
    assert tight.best is tight.choices[1]
    assert tight.choices[0].problem == "c3 of 0.0145973 s is not below the ATGT limit of 0.014 s"
    none = configure(options, EQUAL, "0.009")
    assert none.best is None
    # So does a prompt that takes too long.
    long = demand_of([(4096, 256)])
    slow = configure(options_of_profiles(chosen_profiles(["llama-3.1-70b_h100"]), long), long, 1, "0.2")
    assert slow.choices[0].problem == (
        "the longest prompt, 4096 tokens, takes 0.29799 s; the TTFT limit is 0.2 s"
    )
    assert slow.best is slow.choices[1]


@pytest.mark.parametrize(
    ("requests", "problem"),
    [
        ([(600_000, 2)], "the longest request needs 600001 of KV; there is 513115"),
        ([(500_000, 2)], None),
    ],
)
def test_requests_that_never_fit_exclude(requests: list[tuple[int, int]], problem: str | None) -> None:
    demand = demand_of(requests)
    options = options_of_profiles(["llama-3.1-70b_h100_tp4"], demand)
    assert configure(options, demand, "0.1").choices[0].problem == problem


def test_a_request_alone_may_miss_the_limit() -> None:
    demand = demand_of([(500_000, 2)])
    options = options_of_profiles(["llama-3.1-70b_h100_tp4"], demand)
    (choice,) = configure(options, demand, "0.02").choices
    assert choice.problem is not None
    assert choice.problem.startswith("a request alone takes 0.02388")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["llama-3.1-70b_h100", "llama-3.1-8b_h100"], "8b_h100 of Llama-3.1-8B; a worker serves one model"),
        (["llama-3.1-8b_h100", "llama-3.1-8b_h100_hinge"], "are both of h100_sxm; they leave no choice"),
        (["llama-3.1-70b"], "'llama-3.1-70b' is no profile; there are llama-2-7b_a100"),
    ],
)
def test_profiles_that_are_no_choice(names: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        options_of_profiles(chosen_profiles(names), EQUAL)


def test_nothing_to_choose_from() -> None:
    with pytest.raises(InputError, match="options: there is nothing to choose from"):
        configure([], EQUAL, 1)
    options = options_of_profiles(["llama-3.1-8b_h100"], EQUAL)
    with pytest.raises(InputError, match="atgt: 0 is not above 0"):
        configure(options, EQUAL, 0)
    with pytest.raises(InputError, match="ttft: 'x' is not a decimal number"):
        configure(options, EQUAL, 1, "x")
    free = Option("free", "", 1, Fraction(9999), (Fraction(1), Fraction(0)), ((Fraction(0),) * 3,))
    with pytest.raises(InputError, match="free: a request takes no KV or no time"):
        configure([free], EQUAL, 1)
    slow = Option("slow", "", 1, Fraction(9999), (Fraction(1), Fraction(0)), ((Fraction(1),) * 3,))
    with pytest.raises(InputError, match="slow: the time of a prefill is not known"):
        configure([slow], EQUAL, 9999, 1)


# --- measured samples ---------------------------------------------------------------------------

SAMPLES = """kind,tokens,kv,input_tokens,context_tokens,batch_size,gpus,seconds
kv,100,1,,,,,
kv,300,3,,,,,
prefill,,,100,,,2,0.02
prefill,,,300,,,2,0.04
decode,,,,200,2,2,0.0222
decode,,,,600,2,2,0.0226
decode,,,,400,4,2,0.0244
compute,,,,,,1,0.041
compute,,,,,,2,0.021
compute,,,,,,4,0.011
comm,,,,,,2,0.004
comm,,,,,,4,0.006
"""


@pytest.fixture
def samples(tmp_path: Path) -> Samples:
    path = tmp_path / "samples.csv"
    path.write_text(SAMPLES)
    return read_samples(path)


def test_samples_are_scaled_by_eq_5(samples: Samples) -> None:
    # kv = tokens / 100; t_d = 1e-6 context + 1e-3 batch + 0.02 on 2 GPUs, of which 0.004 is
    # communication; computing takes 0.04 / N + 0.001, communication 0.008 (N - 1) / N.
    demand = demand_of([(200, 100)])
    options, fits = options_of_samples(samples, demand, Fraction(10), Fraction(12))
    assert [fit.kind for fit in fits] == ["kv", "decode", "compute", "comm", "prefill"]
    assert [option.gpus for option in options] == [1, 2, 4]
    one, two, four = options
    assert (one.kv_capacity, two.kv_capacity, four.kv_capacity) == (-2, 8, 28)
    k2, c2, c3 = Fraction("1e-6"), Fraction("1e-3"), Fraction("0.02")
    assert two.decode == ((k2, c2, c3),)
    share = Fraction("0.011") / Fraction("0.021")
    comm = (Fraction("0.004"), Fraction("0.006"))
    assert four.decode == ((k2 * share, c2 * share, (c3 - comm[0]) * share + comm[1]),)
    assert two.prompt_seconds == Fraction("0.01") + 200 * Fraction("0.0001")
    assert four.prompt_seconds == two.prompt_seconds * share
    found = configure(options, demand, "0.03", "0.05")
    assert found.choices[0].problem == "the model leaves -2 of the GPUs' memory for KV"
    assert found.choices[1].kv_batch == 8 / Fraction("2.5")
    assert found.best is not None
    # Other numbers than the measured ones.
    options, _ = options_of_samples(samples, demand, Fraction(10), Fraction(12), (8, 3))
    assert [option.gpus for option in options] == [3, 8]
    assert options[1].decode[0][1] == c2 * Fraction("0.006") / Fraction("0.021")


def test_table_3_of_the_paper_as_far_as_memory_tells(samples: Samples) -> None:
    # Llama-2-70B, 140 GB: two A100 80GB at least, and not four V100 32GB.
    demand = demand_of([(200, 100)])
    for memory, fitting in ((80, [2, 4]), (32, [])):
        options, _ = options_of_samples(samples, demand, Fraction(memory), Fraction(140), (1, 2, 4))
        assert [o.gpus for o in options if o.kv_capacity > 0] == fitting


@pytest.mark.parametrize(
    ("drop", "gpus", "message"),
    [
        ("kv", (), "holds no row of kind 'kv', which eq 1 needs"),
        ("decode", (), "holds no row of kind 'decode' with a batch size above 1"),
        ("compute", (4,), "holds no row of kind 'compute', which eq 5 needs"),
        ("none", (0,), "gpus: 0 is not between 1 and 10000"),
    ],
)
def test_samples_that_do_not_make_options(
    tmp_path: Path, drop: str, gpus: tuple[int, ...], message: str
) -> None:
    path = tmp_path / "samples.csv"
    path.write_text("\n".join(row for row in SAMPLES.splitlines() if not row.startswith(f"{drop},")))
    with pytest.raises(InputError, match=message):
        options_of_samples(read_samples(path), EQUAL, Fraction(10), Fraction(1), gpus)


def test_communication_beyond_the_overhead(tmp_path: Path) -> None:
    path = tmp_path / "samples.csv"
    path.write_text(SAMPLES.replace("comm,,,,,,2,0.004", "comm,,,,,,2,0.4").replace("4,0.006", "4,0.6"))
    with pytest.raises(InputError, match=r"0\.4 s are communication on 2 GPUs, above the c3 of 0\.02 s"):
        options_of_samples(read_samples(path), EQUAL, Fraction(10), Fraction(1))
