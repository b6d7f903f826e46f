"""Counters by source line: they add up for every shipped kernel, stand at their lines, and give reasons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpusim
from dsl import cuda
from dsl.programs.target import load_kernel
from gpusim import by_line, launch_json
from gpusim.launch import Launch, LineAccess
from gpusim.line_reasons import UNKNOWN, reasons
from gpusim.table import render
from tests.dsl.engine_support import load_source
from tests.test_formulas_match_simulation import CASES, launches, title

ROOT = Path(__file__).resolve().parents[1]
float32 = np.float32


def profiled(kernel: Any, grid: Any, block: Any, *args: Any) -> Launch:
    """Launch a kernel on a simulated H200 and return its report."""
    with gpusim.profile() as p:
        kernel[grid, block](*args)
    return p.reports[0]


def line_of(kernel: Any, text: str) -> int:
    """Return the number of the one line of a kernel's file that holds a text."""
    numbered = enumerate(Path(kernel.py_func.__code__.co_filename).read_text().splitlines(), 1)
    start = kernel.py_func.__code__.co_firstlineno
    return next(number for number, line in numbered if number >= start and text in line)


def rows(launch: Launch) -> dict[str, dict[str, Any]]:
    """Map the source text of the table's rows to their cells by header."""
    table = by_line.table(launch)
    return {str(row[1]).strip(): dict(zip(table.headers, row, strict=True)) for row in table.rows}


@pytest.mark.parametrize(("name", "options"), CASES, ids=title)
def test_the_lines_of_every_shipped_kernel_add_up(name, options):
    for launch in launches(name, options):
        assert launch.lines
        assert by_line.differing(launch) == []
        assert by_line.total(launch).global_load == launch.counters.global_load


@pytest.mark.parametrize(("name", "options"), CASES, ids=title)
def test_the_accesses_of_every_shipped_kernel_add_up_too(name, options):
    kinds = ("global_load", "global_store", "global_red", "shared_load", "shared_store", "shared_atom")
    for launch in launches(name, options):
        for kind in kinds:
            counts = getattr(launch.counters, kind)
            found = [a for a in launch.accesses if a.kind == kind]
            moved = counts.sectors if kind.startswith("global") else counts.wavefronts
            assert sum(a.requests for a in found) == counts.requests
            assert sum(a.lanes for a in found) == counts.lanes
            assert sum(a.taken for a in found) == moved


@pytest.mark.parametrize(("name", "options"), CASES, ids=title)
def test_the_table_of_every_shipped_kernel_fits_110_columns_and_json_keeps_its_lines(name, options):
    for launch in launches(name, options):
        assert max(map(len, render(by_line.table(launch)))) <= 110
        back = launch_json.load(launch_json.dump([launch]))[0]
        assert (back.lines, back.accesses) == (launch.lines, tuple(launch.accesses))


def test_a_counter_that_no_line_has_is_named_and_one_that_lines_have_is_not():
    launch = profiled(three_lines, 1, 64, np.ones(512, "f4"), np.zeros(64, "f4"))
    assert by_line.differing(launch) == []
    launch.counters.global_load.sectors += 1
    launch.counters.hierarchy.l2_read += 1
    assert by_line.differing(launch) == ["global_load.sectors"]
    assert by_line.verdict(launch).endswith("DIFFERENT, global_load.sectors 72 for 73.")


@cuda.jit
def three_lines(a, o):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = a[t * 8] * a[t]
    cuda.syncthreads()
    if t < 40:
        o[t] = s[(t * 2) % 64]


def test_each_line_has_its_own_figures():
    table = rows(profiled(three_lines, 1, 64, np.ones(512, "f4"), np.zeros(64, "f4")))
    assert list(table) == ["s[t] = a[t * 8] * a[t]", "o[t] = s[(t * 2) % 64]", "Total"]
    # Two warps. a[t * 8]: 32 sectors a request, a[t]: 4; s[t]: a wavefront a request.
    assert table["s[t] = a[t * 8] * a[t]"] == {
        "Line": str(line_of(three_lines, "s[t] = a")), "Source": "s[t] = a[t * 8] * a[t]",
        "Requests": 4, "Sectors": 72, "Sect/Req": 18.0, "Shared Req": 2, "Wavefronts": 2, "Conflicts": 0,
        "Lanes/Req": 32.0, "FLOPs": 64}  # fmt: skip
    # 32 lanes and 8: o takes 4 sectors and 1; s at a stride of 2 words 2 wavefronts and, for 8 lanes, 1.
    assert table["o[t] = s[(t * 2) % 64]"] == {
        "Line": str(line_of(three_lines, "o[t] = s")), "Source": "  o[t] = s[(t * 2) % 64]",
        "Requests": 2, "Sectors": 5, "Sect/Req": 2.5, "Shared Req": 2, "Wavefronts": 3, "Conflicts": 1,
        "Lanes/Req": 20.0, "FLOPs": ""}  # fmt: skip
    # 8 whole requests of 32 lanes and 2 of 8.
    assert table["Total"] == {
        "Line": "", "Source": "Total", "Requests": 6, "Sectors": 77, "Sect/Req": 77 / 6, "Shared Req": 4,
        "Wavefronts": 5, "Conflicts": 1, "Lanes/Req": 27.2, "FLOPs": 64}  # fmt: skip


def test_a_line_that_only_computes_indices_has_no_row():
    launch = profiled(three_lines, 1, 64, np.ones(512, "f4"), np.zeros(64, "f4"))
    barrier = line_of(three_lines, "syncthreads")
    assert any(line == barrier for _, line in launch.lines)
    assert str(barrier) not in {row[0] for row in by_line.table(launch).rows}


@cuda.jit
def copy(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = x[i]


def test_a_column_with_nothing_in_it_is_left_out():
    table = by_line.table(profiled(copy, 2, 64, np.ones(100, "f4"), np.zeros(100, "f4")))
    assert table.headers == ("Line", "Source", "Requests", "Sectors", "Sect/Req", "Lanes/Req")
    # 100 elements: 4 requests each way with 13 sectors, and 4 lanes in the last.
    assert [row[2:] for row in table.rows] == [(8, 26, 3.25, 25.0)] * 2


def test_local_memory_has_columns_of_its_own(tmp_path):
    module = load_source(
        "import numpy as np\nfrom dsl import cuda\n\n@cuda.jit\ndef private(x, n):\n"
        "    a = cuda.local.array(4, np.float32)\n    a[n] = 1\n    x[0] = a[n]\n",
        tmp_path, "private")  # fmt: skip
    table = rows(profiled(module.private, 1, 32, np.zeros(1, "f4"), 2))
    assert (table["a[n] = 1"]["Local Req"], table["a[n] = 1"]["Local Sect"]) == (1, 4)
    assert table["a[n] = 1"]["Requests"] == ""


def test_lines_of_a_device_function_stand_under_its_own_file(tmp_path, monkeypatch):
    helper = "from dsl import cuda\n\n@cuda.jit(device=True)\ndef twice(x, i):\n    return x[i] + x[i]\n"
    (tmp_path / "line_helper.py").write_text(helper)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    source = "from line_helper import twice\nfrom dsl import cuda\n\n@cuda.jit\ndef k(x, y):\n"
    source += "    i = cuda.grid(1)\n    y[i] = twice(x, i * 8)\n"
    module = load_source(source, tmp_path, "a_kernel")
    launch = profiled(module.k, 1, 32, np.ones(256, "f4"), np.zeros(32, "f4"))
    table = by_line.table(launch)
    assert [row[:2] for row in table.rows] == [
        ("", "a_kernel.py"), ("7", "y[i] = twice(x, i * 8)"), ("", "line_helper.py"),
        ("5", "return x[i] + x[i]"), ("", "Total")]  # fmt: skip
    # Both loads of x are one access: 2 requests of 32 sectors, lanes 32 bytes apart.
    assert reasons(launch) == (
        "line_helper.py:5, load of x: 32 sectors a request (ideal 4): lanes are 32 B apart; "
        "let neighbouring lanes read neighbouring elements.",)  # fmt: skip


def test_a_line_whose_source_is_gone_shows_its_number_alone(tmp_path):
    text = "from dsl import cuda\n\n@cuda.jit\ndef k(x):\n    x[cuda.grid(1)] = 1\n"
    module = load_source(text, tmp_path, "gone")
    launch = profiled(module.k, 1, 32, np.zeros(32, "f4"))
    assert by_line.table(launch).rows[0][:2] == ("5", "x[cuda.grid(1)] = 1")
    (tmp_path / "gone.py").unlink()
    assert by_line.table(launch).rows[0][:2] == ("5", "")


def test_source_text_keeps_two_levels_of_indentation_and_is_cut(tmp_path):
    file = tmp_path / "deep.py"
    file.write_text("    a\n        b\n            c\n                d\n" + "    " + "x" * 60 + "\n")
    keys = [(str(file), n) for n in range(1, 6)]
    assert list(by_line.sources(keys, 20).values()) == ["a", "  b", "    c", "    d", "x" * 17 + "..."]


# ------------------------------------------------------------------------------------------ reasons


def bank_conflict(kernel: str) -> Launch:
    """Run a kernel of examples/bank_conflict.py on 64 x 64 elements."""
    target = load_kernel(f"{ROOT / 'examples' / 'bank_conflict.py'}:{kernel}")
    return profiled(target, 2, (32, 8), np.ones((64, 64), "f4"), np.zeros(64, "f4"))


def test_column_sum_is_told_to_pad_its_rows_to_33_words():
    what = "32 wavefronts a request (ideal 1): lanes are 32 words apart; pad the row to 33 words."
    target = load_kernel(f"{ROOT / 'examples' / 'bank_conflict.py'}:column_sum")
    store, load = line_of(target, "tile[x, j] = a"), line_of(target, "total += tile")
    assert set(reasons(bank_conflict("column_sum"))) == {
        f"line {store}, store to tile: {what}", f"line {load}, load of tile: {what}"}  # fmt: skip


def test_column_sum_padded_is_told_nothing():
    assert reasons(bank_conflict("column_sum_padded")) == ()


def test_the_naive_transpose_is_told_how_far_apart_its_stores_are():
    (launch,) = launches("transpose", {"rows": 64, "cols": 32, "variant": "naive"})
    (reason,) = reasons(launch)
    # at has 32 rows of 64 floats: neighbouring lanes write neighbouring rows, 256 bytes apart.
    assert reason.endswith(
        "store to at: 32 sectors a request (ideal 4): lanes are 256 B apart; "
        "let neighbouring lanes write neighbouring elements.")  # fmt: skip


@cuda.jit
def gather(x, at, y):
    i = cuda.grid(1)
    y[i] = x[at[i]]


def test_addresses_that_depend_on_data_get_the_figure_and_no_advice():
    at = np.arange(32) * 8
    launch = profiled(gather, 1, 32, np.ones(256, "f4"), at, np.zeros(32, "f4"))
    line = line_of(gather, "y[i] = x[at[i]]")
    assert reasons(launch) == (f"line {line}, load of x: 32 sectors a request (ideal 4): {UNKNOWN}.",)


@cuda.jit
def strided(x, y, n, pitch):
    i = cuda.grid(1)
    y[i] = x[i * (n * pitch + 2)]


def test_a_stride_made_of_arguments_is_worked_out_for_the_launch():
    for pitch, apart in ((5, "68 B"), (7, "92 B")):  # 4 * (3 * 5 + 2) and 4 * (3 * 7 + 2)
        launch = profiled(strided, 1, 32, np.ones(800, "f4"), np.zeros(32, "f4"), 3, pitch)
        (reason,) = reasons(launch)
        assert f"lanes are {apart} apart" in reason


@cuda.jit
def count(total):
    cuda.atomic.add(total, 0, 1)


def test_updates_of_one_address_are_told_to_add_up_first():
    (reason,) = reasons(profiled(count, 1, 32, np.zeros(1, "i4")))
    assert "32 sectors a request (ideal 4): all lanes update one address; add up in the warp" in reason


@cuda.jit
def narrow(x, y):
    r, c = cuda.threadIdx.y, cuda.threadIdx.x
    y[r, c] = x[r, c]


def test_a_narrow_block_is_told_to_be_wider():
    x = np.ones((16, 64), "f4")
    said = reasons(profiled(narrow, 1, (2, 16), x, x.copy()))
    # Two lanes a row, 256 bytes from row to row: 16 sectors for 128 bytes.
    assert len(said) == 2
    assert all(
        "16 sectors a request (ideal 4): lanes are in runs of 2 4 B apart, and the runs 256 B apart; make the"
        in s for s in said)  # fmt: skip


def test_only_the_worst_five_get_a_sentence():
    launch = bank_conflict("column_sum_padded")
    counts = [(4, 1, 32, 32 - n, None, 128) for n in range(1, 8)]
    launch.accesses = tuple(LineAccess("f.py", n, "global_load", "x", *c) for n, c in enumerate(counts, 1))
    said = reasons(launch)
    assert [s.split(",")[0] for s in said[:5]] == [f"line {n}" for n in range(1, 6)]
    assert said[5:] == ("2 more accesses with less to gain.",)


def test_the_path_of_a_file_longer_than_its_column_keeps_its_end():
    path = "kernels_sim/a_very_long_name_of_a_kernel.py"
    assert by_line._end_of(path, 16) == "...f_a_kernel.py"
    assert by_line._end_of(path, 60) == path
