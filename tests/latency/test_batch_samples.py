"""Measured batches are read from files of three layouts; what is wrong with one is a line."""

from __future__ import annotations

import gzip
from fractions import Fraction
from pathlib import Path

import pytest

from infermax_opt.core.errors import InputError
from infermax_opt.latency.batches.read import read_batches
from infermax_opt.latency.batches.samples import region
from tests.latency.batch_files import HEADER, kernel_tables, vidur_profile


def test_rows_of_whole_batches(tmp_path: Path) -> None:
    path = tmp_path / "batches.csv"
    path.write_text(
        "note,tokens,decode_requests,kv_read,prefill_chunks,seconds\n"
        "x,3,3,600,,0.0171\n"
        "\n"
        "x,768,0,,512@0 256@1024,0.0675\n"
        "x,20,4,9,16@3,1.7e-2\n"
    )
    found = read_batches(path)
    assert found.form == "batches"
    assert not found.kernel_time_only
    assert found.parts == {"batch": found.batches}
    decode, prefill, mixed = found.batches
    assert (decode.tokens, decode.decodes, decode.decode_kv, decode.prefills) == (3, 3, 600, 0)
    assert decode.seconds == Fraction("0.0171")
    assert (prefill.prefills, prefill.square) == (2, 512**2 + 256**2)
    assert prefill.exact == 512**2 + 256 * (2 * 1024 + 256)
    assert (mixed.decode_kv, mixed.exact, mixed.seconds) == (9, 16 * (6 + 16), Fraction("0.017"))
    assert [region(s) for s in found.batches] == ["pure decode", "pure prefill", "mixed"]
    packed = tmp_path / "batches.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read_batches(packed).batches == found.batches


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("3,3,600,,0", "line 2, column 'seconds': '0' is not between 1e-09 and 1e+06"),
        ("3,3,600,,-0.1", "line 2, column 'seconds': '-0.1' is not between"),
        ("3,3,600,,nan", "line 2, column 'seconds': 'nan' is not finite"),
        ("3,3,600,,17 ms", "line 2, column 'seconds': '17 ms' is not a decimal number"),
        ("3,3,600,,", "line 2, column 'seconds': '' is not a decimal number"),
        ("3,-3,600,,0.1", "line 2, column 'decode_requests': '-3' is not a whole number from 0 to"),
        ("0,0,0,,0.1", "line 2, column 'tokens': '0' is not a whole number from 1 to"),
        ("4,3,600,,0.1", "line 2, column 'tokens': 4 is not the sum of 3 decoded and 0 prefilled tokens"),
        ("3,3,2,,0.1", "line 2, column 'kv_read': 2 cannot be what 3 decoding requests read"),
        ("16,0,5,16@0,0.1", "line 2, column 'kv_read': 5 cannot be what 0 decoding requests read"),
        ("16,0,0,16,0.1", "line 2, column 'prefill_chunks': '16' is not CHUNK@PREFIX, such as 512@0"),
        ("16,0,0,16@0;1@2,0.1", "line 2, column 'prefill_chunks': '16@0;1@2' is not CHUNK@PREFIX"),
        ("16,0,0,0@16,0.1", "line 2, column 'prefill_chunks': '0@16' is not CHUNK@PREFIX"),
        (
            "16,0,0,16@99999999999,0.1",
            "line 2, column 'prefill_chunks': '16@99999999999' is not CHUNK@PREFIX",
        ),
        ("3,3,600,0.1", "line 2: has 4 columns; the header has 5"),
    ],
)
def test_rows_that_are_wrong(tmp_path: Path, row: str, message: str) -> None:
    path = tmp_path / "batches.csv"
    path.write_text(HEADER + row + "\n")
    with pytest.raises(InputError) as caught:
        read_batches(path)
    assert str(caught.value).startswith(f"{path}: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; a header line is needed"),
        (HEADER, "holds no sample"),
        ("tokens,seconds\n1,2\n", "line 1, column 'decode_requests': is missing"),
        (HEADER.replace("kv_read", "tokens"), "line 1, column 'tokens': is there twice"),
        (HEADER + '3,3,600,"', "is not CSV"),
    ],
)
def test_files_that_are_wrong(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "batches.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_batches(path)


def test_kernel_tables(tmp_path: Path) -> None:
    found = read_batches(kernel_tables(tmp_path / "kernels"), layers=10)
    assert (found.form, found.kernel_time_only) == ("kernels", True)
    dense = {s.tokens: s.seconds for s in found.parts["dense"]}
    # Ten layers of an operator and two layernorms, an embedding, a head of at most 8 sequences.
    assert dense[4] == Fraction(10 * (108 + 2) + 50 + 40, 10**6)
    assert dense[512] == Fraction(10 * (1124 + 2) + 50 + 80, 10**6)
    mixed = next(s for s in found.batches if (s.tokens, s.decodes, s.decode_kv) == (20, 4, 64))
    attention = next(s for s in found.parts["attention"] if s[:6] == mixed[:6])
    # 20 tokens are a quarter of the way from 16 to 32; 5 sequences, from 4 to 8.
    assert mixed.seconds - attention.seconds == Fraction(10 * (100 + 2 * 20 + 2) + 50 + 50, 10**6)
    assert attention.seconds == 10 * Fraction(4 + Fraction("0.64") + 6 + Fraction("0.0256"), 10**6)
    assert found.notes == ()
    fewer = read_batches(tmp_path / "kernels", layers=10, max_sequences=2)
    assert {s.tokens: s.seconds for s in fewer.parts["dense"]}[512] == dense[512] - Fraction(60, 10**6)


def test_batches_beyond_the_dense_table_count_for_attention_only(tmp_path: Path) -> None:
    folder = kernel_tables(tmp_path / "kernels")
    path = folder / "kernels_dense.csv"
    path.write_text("".join(line for line in path.open() if ",512," not in line and ",256," not in line))
    found = read_batches(folder, layers=1)
    assert max(s.tokens for s in found.batches) <= 128 < max(s.tokens for s in found.parts["attention"])
    left = len(found.parts["attention"]) - len(found.batches)
    assert found.notes[0].startswith(f"{left} of {len(found.parts['attention'])} measured batches have more")


def test_tables_that_are_cut_off_are_said(tmp_path: Path) -> None:
    folder = kernel_tables(tmp_path / "kernels")
    table = folder / "kernels_dense.csv"
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join(lines[:-2]))
    assert any(
        "1 of 10 numbers of tokens are not measured" in note for note in read_batches(folder, layers=1).notes
    )
    table.write_text("".join(line for line in lines if "embedding" not in line))
    assert any(
        "neither embedding nor final_layernorm" in note for note in read_batches(folder, layers=1).notes
    )


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("dense", "proj,5,0", "'time_us': '0' is not between 0.001 and 1e+12"),
        ("dense", "proj,4,7", "'tokens': 4 of layer 'proj' is there twice"),
        ("dense", "other,3,7", "no number of tokens is measured for every layer"),
        ("per_sequence", "lm_head,0.5,7", "'sequences': '0.5' is not a whole number"),
        ("attention", "0,0,0,0,7", "'prefill_chunk': 0 means nothing in the batch"),
        ("attention", "0,5,1,16,7", "'prefill_chunk': 0 means a prefix without a chunk"),
        ("attention", "16,0,1,0,7", "'kv_decode': 0 cannot be the context of 1 requests"),
        ("attention", "16,0,1,16,-7", "'time_us': '-7' is not between"),
    ],
)
def test_kernel_tables_that_are_wrong(tmp_path: Path, name: str, row: str, message: str) -> None:
    folder = kernel_tables(tmp_path / "kernels")
    path = folder / f"kernels_{name}.csv"
    path.write_text(path.read_text() + row + "\n")
    with pytest.raises(InputError) as caught:
        read_batches(folder, layers=1)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


def test_a_folder_without_a_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"kernels_per_sequence\.csv: cannot be read|kernels_dense\.csv: cannot"
    ):
        read_batches(tmp_path, layers=1)
    with pytest.raises(InputError, match="layers: the times are of one layer"):
        read_batches(tmp_path)


def test_profiles_of_vidur(tmp_path: Path) -> None:
    path = vidur_profile(tmp_path / "mlp.csv")
    found = read_batches(path, layers=3)
    assert (found.form, found.batches, list(found.parts)) == ("vidur", (), ["dense"])
    assert {s.tokens: s.seconds for s in found.parts["dense"]}[64] == Fraction("0.046280")
    halved = read_batches(path, layers=3, gpus=2)
    assert {s.tokens: s.seconds for s in halved.parts["dense"]}[64] == Fraction("0.024140")
    with pytest.raises(InputError, match="holds no row of 3; there are 1, 2"):
        read_batches(path, layers=3, gpus=3)
    with pytest.raises(InputError, match="layers: the times are of one layer"):
        read_batches(path)
    path.write_text(path.read_text().replace("time_stats.add.median", "other"))
    with pytest.raises(InputError, match=r"column 'time_stats\.add\.median': is missing"):
        read_batches(path, layers=3)


def test_options_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "batches.csv"
    path.write_text(HEADER + "3,3,600,,0.1\n")
    with pytest.raises(InputError, match="a file of whole batches takes no --layers"):
        read_batches(path, layers=3)
    with pytest.raises(InputError, match="a folder of kernel tables takes no --gpus"):
        read_batches(tmp_path, layers=3, gpus=2)
    with pytest.raises(InputError, match="a profile of Vidur takes no --max-sequences"):
        read_batches(vidur_profile(tmp_path / "mlp.csv"), layers=3, max_sequences=2)
