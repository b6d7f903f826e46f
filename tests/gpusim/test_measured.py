"""What ncu prints in its three shapes, read as launches with numbers by name and in base units."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusim import metrics
from gpusim.errors import BadOption
from gpusim.measured import base_unit, by_label, canonical, parse_measured, read_measured
from gpusim.metrics import METRICS, SECTIONS
from gpusim.ncu_csv import IDENTITY, raw_csv

IDENTITY_ROW = ",".join(f'"{name}"' for name in IDENTITY)
CELLS = '"0","41","python","host","vec_add(float)","1","7","(256, 1, 1)","(3907, 1, 1)","0","9.0"'
LONG = '"Section Name","Metric Name","Metric Unit","Metric Value"'
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"


def wide(names: str, units: str, cells: str) -> str:
    empty = ",".join(['""'] * len(IDENTITY))
    return f"{IDENTITY_ROW},{names}\n{empty},{units}\n{CELLS},{cells}\n"


def test_the_raw_page_gives_a_launch_a_row_with_its_shape(sample) -> None:
    one, two = parse_measured(raw_csv([sample, sample]))
    assert (one.kernel, one.grid, one.block) == ("sample", (3, 2, 2), (8, 16, 2))
    assert one.values == two.values
    assert one.values["dram__bytes_read.sum"] == sample["dram__bytes_read.sum"]
    assert "gpu__time_duration.sum" not in one.values  # n/a


def test_the_details_page_gives_the_same_metrics_by_label() -> None:
    rows = [
        ("GPU Speed Of Light Throughput", "Memory Throughput", "%", "37.06"),
        ("GPU Speed Of Light Throughput", "Duration", "us", "5.47"),
        ("Memory Workload Analysis", "Memory Throughput", "Tbyte/s", "1.46"),
        ("Launch Statistics", "Grid Size", "", "3,907"),
        ("Launch Statistics", "Registers Per Thread", "register/thread", "16"),
        ("Launch Statistics", "Function Cache Configuration", "", "CachePreferNone"),
        ("Launch Statistics", "", "", ""),
        ("Occupancy", "Theoretical Occupancy", "%", "100"),
        ("Occupancy", "A Label Of Next Year", "%", "5"),
    ]
    text = f"{IDENTITY_ROW},{LONG}\n" + "".join(
        f"{CELLS}," + ",".join(f'"{cell}"' for cell in row) + "\n" for row in rows)
    (launch,) = parse_measured("==PROF== Connected\n" + text)
    assert launch.grid == (3907, 1, 1)
    assert launch.values == {
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": 37.06,
        "gpu__time_duration.sum": 5470,
        "dram__bytes.sum.per_second": 1_460_000_000_000,
        "launch__grid_size": 3907,
        "launch__registers_per_thread": 16,
        "sm__maximum_warps_per_active_cycle_pct": 100,
        "A Label Of Next Year": 5,
    }


def test_chosen_metrics_give_one_launch_of_several_rows() -> None:
    rows = f'{CELLS},"Command line profiler metrics","{SECTORS}","sector","250,002"\n'
    rows += f'{CELLS},"Command line profiler metrics","dram__bytes_read.sum","Mbyte","8.00"\n'
    (launch,) = parse_measured(f"{IDENTITY_ROW},{LONG}\n{rows}")
    assert launch.values == {SECTORS: 250_002, "dram__bytes_read.sum": 8_000_000}
    assert launch.units == {SECTORS: "sector", "dram__bytes_read.sum": "byte"}


def test_an_older_page_without_grid_and_block_has_no_shape() -> None:
    columns = f'"ID","Process ID","Process Name","Host Name","Kernel Name","Kernel Time",{LONG}'
    row = f'"0","41","python","host","vec_add","20","Command line profiler metrics","{SECTORS}","sector","5"'
    (launch,) = parse_measured(f"{columns}\n{row}\n")
    assert (launch.kernel, launch.grid, launch.block, launch.values) == ("vec_add", None, None, {SECTORS: 5})


def test_a_scaled_number_says_what_its_rounding_leaves_open() -> None:
    cells = wide('"dram__bytes_read.sum","dram__bytes_write.sum","launch__grid_size"', '"Mbyte","byte",""',
                 '"8.00","8,003,584","3,907"')
    (launch,) = parse_measured(cells)
    assert launch.rounding == {"dram__bytes_read.sum": pytest.approx(5000)}


@pytest.mark.parametrize(("older", "name"), [
    ("sm__sass_thread_inst_executed_op_ffma_pred_on.sum",
     "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"),
    ("dram__bytes_op_read.sum", "dram__bytes_read.sum"),
    ("dram__read_bytes.sum", "dram__bytes_read.sum"),
    ("smsp__sass_inst_executed_op_ldsm.sum", "smsp__inst_executed_op_ldsm.sum"),
    ("gpu__time_duration.avg", "gpu__time_duration.sum"),
    ("sm__inst_executed_pipe_xu.sum", "smsp__inst_executed_pipe_xu.sum"),
    ("a_metric__of_next_year.sum", "a_metric__of_next_year.sum"),
])
def test_older_names_are_those_of_the_table(older: str, name: str) -> None:
    assert canonical(older) == canonical(name)
    assert canonical(name) in {m.name for m in METRICS} | {"a_metric__of_next_year.sum"}


def test_names_that_are_not_in_the_table_are_kept_without_a_search_for_like_ones(monkeypatch) -> None:
    """A raw page has some 550 columns a launch, and a search takes 50 ms."""
    monkeypatch.setattr(metrics, "_nearest", lambda name: pytest.fail(f"{name} was searched for"))
    assert canonical("device__attribute_of_no_table") == "device__attribute_of_no_table"


def test_every_label_of_the_table_is_found_in_its_section() -> None:
    once = [m for m in METRICS if sum(n.label == m.label and n.section == m.section for n in METRICS) == 1]
    assert len(once) > 100
    assert [m.name for m in once if by_label(m.label, SECTIONS[m.section]) != m.name] == []


@pytest.mark.parametrize(("unit", "base"), [
    ("Kbyte", "byte"), ("us", "ns"), ("Gbyte/second", "byte/second"), ("Ghz", "hz"), ("%", "%"), ("", ""),
    ("register/thread", "register/thread"), ("Kbyte/block", "byte/block"), ("Tbyte/s", "byte/second")])
def test_units_are_named_by_their_base(unit: str, base: str) -> None:
    assert base_unit(unit) == base


def test_lines_of_the_header_go_with_every_launch() -> None:
    text = "# card: NVIDIA H200\n# cache control: none\n" + wide('"launch__grid_size"', '""', '"5"')
    (launch,) = parse_measured(text)
    assert launch.header == {"card": "NVIDIA H200", "cache control": "none"}
    assert launch.l2 == "warm"
    assert parse_measured(wide('"launch__grid_size"', '""', '"5"'))[0].l2 == "cold"


@pytest.mark.parametrize(("text", "message"), [
    ("kernel,bytes\nx,1\n", 'no line that begins with "ID"'),
    (f"{IDENTITY_ROW},{LONG}\n", "cut off"),
    (f'{IDENTITY_ROW},"m"\n', "cut off"),
    (wide('"m"', '"furlong"', '"5"'), "unknown unit 'furlong'"),
])
def test_what_is_no_csv_of_ncu_s_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadOption, match=message):
        parse_measured(text)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="cannot read .*none.csv"):
        read_measured(tmp_path / "none.csv")
