"""CSV in ncu's raw shape: what is written, and what the reader takes from ncu's own files."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from gpusim.errors import BadOption
from gpusim.measured import parse_measured
from gpusim.metrics import METRICS, find, select, values
from gpusim.ncu_csv import IDENTITY, parse_number, parse_raw, raw_csv, read_raw

IDENTITY_ROW = ",".join(f'"{name}"' for name in IDENTITY)
IDENTITY_CELLS = '"0","41","python","host","vec_add","1","7","(256, 1, 1)","(3907, 1, 1)","0","9.0"'
EMPTY = ",".join(['""'] * len(IDENTITY))


def measured(names: str, units: str, cells: str) -> str:
    return f"{IDENTITY_ROW},{names}\n{EMPTY},{units}\n{IDENTITY_CELLS},{cells}\n"


def test_the_shape_is_names_units_and_one_row_a_launch_with_every_cell_quoted(sample) -> None:
    text = raw_csv([sample, sample],
                   select(["launch__grid_size", "dram__bytes_read.sum", "gpu__time_duration.sum"]))
    assert text.splitlines() == [
        f'{IDENTITY_ROW},"launch__grid_size","dram__bytes_read.sum","gpu__time_duration.sum"',
        f'{EMPTY},"","byte","ns"',
        '"0","1","gpusim","localhost","sample","1","7","(8, 16, 2)","(3, 2, 2)","0","9.0","12","8704","n/a"',
        '"1","1","gpusim","localhost","sample","1","7","(8, 16, 2)","(3, 2, 2)","0","9.0","12","8704","n/a"',
    ]


def test_what_the_oracle_does_not_count_is_na_and_what_it_counts_is_there(sample) -> None:
    sample.engine = "oracle"
    chosen = select(["gpusim__fp32_flops.sum", "lts__t_sectors.sum", "gpusim__barrier_warps.sum"])
    assert raw_csv([sample], chosen).splitlines()[2].endswith('"9.0","n/a","n/a","37"')
    assert parse_raw(raw_csv([sample], chosen))[0]["lts__t_sectors.sum"] is None


def test_the_whole_table_is_written_unless_metrics_are_chosen(sample) -> None:
    rows = list(csv.reader(io.StringIO(raw_csv([sample]))))
    assert rows[0] == [*IDENTITY, *(m.name for m in METRICS)]
    assert [len(row) for row in rows] == [len(IDENTITY) + len(METRICS)] * 3


def test_what_is_written_is_read_back_to_the_last_digit(sample, tmp_path: Path) -> None:
    path = tmp_path / "report.csv"
    path.write_text(raw_csv([sample, sample]))
    read = read_raw(path)
    assert [row["ID"] for row in read] == [0, 1]
    assert (read[0]["Kernel Name"], read[0]["Block Size"], read[0]["CC"]) == ("sample", "(8, 16, 2)", "9.0")
    for row in read:
        assert {name: row[name] for name in values(sample)} == values(sample)


def test_the_reader_skips_program_output_and_takes_commas_out() -> None:
    text = "==PROF== Connected\nmax error 1e-7\n" + measured('"dram__bytes_read.sum"', '"byte"',
                                                             '"8,003,584"')
    assert parse_raw(text)[0]["dram__bytes_read.sum"] == 8_003_584


def test_lines_of_the_profiler_after_the_table_are_skipped() -> None:
    text = measured('"launch__grid_size"', '""', '"3,907"') + "==PROF== Disconnected from process 41\n"
    assert [row["launch__grid_size"] for row in parse_raw(text)] == [3907]


@pytest.mark.parametrize(("unit", "cell", "expected"), [
    ("Mbyte", "2.43", 2_430_000), ("byte", "2431616", 2_431_616), ("Kbyte/block", "1.02", 1020),
    ("Gbyte", "1", 10**9),
    ("us", "3.5", 3500), ("usecond", "3.5", 3500), ("ns", "1,568", 1568), ("nsecond", "1568", 1568),
    ("ms", "2", 2_000_000),
    ("second", "1", 10**9), ("Ghz", "1.98", 1_980_000_000), ("cycle/nsecond", "1.5", 1_500_000_000),
    ("Gbyte/second", "4.8", 4_800_000_000), ("Tbyte/s", "4.8", 4_800_000_000_000), ("%", "37.06", 37.06),
    ("", "7", 7),
    ("register/thread", "40", 40), ("sector/request", "4", 4)])
def test_scaled_units_come_back_in_base_units(unit: str, cell: str, expected: float) -> None:
    read = parse_raw(measured('"m"', f'"{unit}"', f'"{cell}"'))[0]["m"]
    assert read == pytest.approx(expected, rel=1e-12)


def test_a_scaled_value_equals_the_base_value_to_within_its_rounding() -> None:
    scaled = parse_raw(measured('"m"', '"Mbyte"', '"2.43"'))[0]["m"]
    assert abs(scaled - 2_431_616) <= 0.005e6


def test_every_unit_of_the_table_is_known_to_the_reader_and_is_a_base_unit() -> None:
    for unit in sorted({m.unit for m in METRICS}):
        assert parse_raw(measured('"m"', f'"{unit}"', '"5"'))[0]["m"] == 5, unit


@pytest.mark.parametrize("unit", ["furlong", "Xbyte", "byte/fortnight", "kbyte"])
def test_an_unknown_unit_is_an_error_that_names_the_column(unit: str) -> None:
    with pytest.raises(BadOption, match=f"run.csv: column m has the unknown unit '{unit}'"):
        parse_raw(measured('"m"', f'"{unit}"', '"5"'), "run.csv")


def test_a_missing_value_is_none_and_zero_stays_zero() -> None:
    row = parse_raw(measured('"a","b","c"', '"byte","byte","byte"', '"n/a","","0"'))[0]
    assert (row["a"], row["b"], row["c"]) == (None, None, 0)
    assert row["c"] is not None


@pytest.mark.parametrize(("text", "expected"), [
    ("1,234", 1234), ("8,003,584", 8003584), ("1,234.5", 1234.5), ("9,00", 9.0), ("37.06", 37.06), ("-3", -3),
    ("1e6", 1e6), ("no", None)])
def test_numbers_are_read_in_the_ways_ncu_prints_them(text: str, expected: float | None) -> None:
    assert parse_number(text) == expected


def test_text_values_stay_text() -> None:
    assert parse_raw(measured('"device__attribute_display_name"', '""',
                              '"NVIDIA H200"'))[0]["device__attribute_display_name"] == "NVIDIA H200"


@pytest.mark.parametrize(("text", "message"), [
    ("kernel,bytes\nx,1\n", 'no line that begins with "ID"'),
    ("", 'no line that begins with "ID"'),
    (f'{IDENTITY_ROW},"Section Name","Metric Name","Metric Unit","Metric Value"\n', "details page"),
    (f'{IDENTITY_ROW},"m"\n', "cut off"),
    (f'{IDENTITY_ROW},"m"\n{EMPTY},"byte"\n"0","1"\n', "cut off: each row needs 12 cells"),
])
def test_another_shape_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadOption, match=message):
        parse_raw(text)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="cannot read .*none.csv"):
        read_raw(tmp_path / "none.csv")


def test_a_kernel_name_with_quotes_and_commas_survives(sample) -> None:
    sample.kernel = 'scale<float, "x">(a, b)'
    assert parse_raw(raw_csv([sample],
                             [find("launch__grid_size")]))[0]["Kernel Name"] == 'scale<float, "x">(a, b)'


@pytest.mark.parametrize("cell", ["nan", "NaN", "-nan", "inf", "-inf", "Infinity", "1e999", "9" * 400])
def test_what_is_not_finite_counts_as_not_measured(cell: str) -> None:
    assert parse_number(cell) is None
    assert parse_raw(measured('"m","l"', '"byte","byte"', f'"{cell}","7"'))[0]["m"] is None
    assert parse_measured(measured('"a__b.sum","c__d.sum"', '"byte","byte"', f'"{cell}","7"'))[0].values == {
        "c__d.sum": 7}


def test_a_cell_beyond_what_csv_reads_and_a_row_cut_short_are_refused_with_their_line() -> None:
    long = measured('"m"', '"byte"', f'"{"2" * 131_073}"')
    with pytest.raises(BadOption, match=r"^run.csv line 4 is damaged: field larger than field limit"):
        parse_raw(f"text\n{long}", "run.csv")
    with pytest.raises(BadOption, match=r"^run.csv line 4 is cut off: each row needs 12 cells"):
        parse_raw("text\n" + measured('"m"', '"byte"', '"1","2"'), "run.csv")
