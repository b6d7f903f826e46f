"""Simulated beside measured: classes, tolerances, verdicts and the causes that numbers give."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

import cli
from gpusim.beside import (
    DIFFERS,
    EQUAL,
    NOT_COMPARABLE,
    TENSOR_FLOPS,
    UNITS,
    WITHIN,
    beside,
    rows,
)
from gpusim.causes import CAUSES, UNEXPLAINED
from gpusim.counters import Tensor
from gpusim.errors import BadOption
from gpusim.measured import Measured
from gpusim.metrics import select
from gpusim.ncu_csv import IDENTITY
from gpusim.tolerances import Tolerance

DATA = Path(__file__).parents[1] / "data"
LOADS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
FFMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
L2_READ, L2_WRITE = (f"lts__t_sectors_srcunit_tex_op_{op}.sum" for op in ("read", "write"))
LOCAL = "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum"
DRAM_READ, DRAM_WRITE = "dram__bytes_read.sum", "dram__bytes_write.sum"
TENSOR, LDC = "sm__inst_executed_pipe_tensor.sum", "smsp__inst_executed_op_ldc.sum"
SHARED_LOADS = "smsp__inst_executed_op_shared_ld.sum"
LRC = "lrc__average_xbar2gpc_sectors_op_read.ratio"


def card(values: dict[str, float], **more) -> Measured:
    return Measured("sample", None, None, values, **more)


def only(launch, name: str, measured: float, **more):
    """Return the row of one metric; more: what else the card counted."""
    return next(r for r in rows(launch, card({name: measured, **more})) if r.metric.name == name)


def test_equal_exact_numbers_are_equal_and_one_sector_more_differs(sample) -> None:
    ours = sample[LOADS]
    assert (only(sample, LOADS, ours).verdict, only(sample, LOADS, ours).error) == (EQUAL, 0.0)
    assert only(sample, LOADS, ours + 1).verdict == DIFFERS


def test_thread_instructions_may_lie_1_percent_off_and_no_more(sample) -> None:
    ours = sample[FFMA]
    assert only(sample, FFMA, ours / 0.995).verdict == WITHIN
    assert only(sample, FFMA, ours / 0.98).verdict == DIFFERS


PATHS = [f"sm__ops_path_tensor_src_{src}.sum" for src in ("fp16", "bf16_dst_fp32", "tf32_dst_fp32", "fp8")]


def with_tensor(sample, **counts):
    return replace(sample, counters=replace(sample.counters, tensor=Tensor(**counts)))


def test_tensor_operations_of_8_bit_floats_are_compared_as_the_sum_of_all_paths(sample) -> None:
    launch = with_tensor(sample, fp8=10)  # m16n8k32: 2 x 16 x 8 x 32 operations each
    measured = dict(zip(PATHS, (0, 0, 0, 81_920), strict=True))
    row = only(launch, TENSOR_FLOPS, 0, **measured)
    assert (row.simulated, row.measured, row.verdict) == (81_920, 81_920, EQUAL)
    assert only(launch, PATHS[0], 0, **measured).cause == "path of 8-bit floats"
    assert TENSOR_FLOPS not in [r.metric.name for r in rows(launch, card({PATHS[0]: 1}))]


def test_a_tile_that_is_multiplied_whole_is_a_cause_and_ffma_are_no_tensor_operations(sample) -> None:
    measured = dict.fromkeys(PATHS, 0) | {PATHS[0]: 4096 * 16}
    assert only(with_tensor(sample, f16=15), TENSOR_FLOPS, 0, **measured).cause == "whole tiles"
    row = only(with_tensor(sample), TENSOR_FLOPS, 0, **measured)
    assert (row.kind, row.cause) == (NOT_COMPARABLE, "multiplied outside of tensor cores")


def test_wavefronts_may_lie_8_percent_below_the_card_and_never_above() -> None:
    allowed = Tolerance(0.08, never_above=True)
    assert allowed.holds(92, 100) and not allowed.holds(91, 100) and not allowed.holds(101, 100)
    assert (str(allowed), str(Tolerance(0.05, 1000)), str(Tolerance())) == ("-8%", "5% or 1,000", "0")


def test_rounding_of_a_scaled_print_leaves_a_number_equal(sample) -> None:
    ours = sample[DRAM_READ]
    (row,) = rows(sample, card({DRAM_READ: ours + 40}, rounding={DRAM_READ: 50.0}))
    assert row.verdict == EQUAL
    (row,) = rows(sample, card({LOADS: sample[LOADS] + 60}, rounding={LOADS: 50.0}))
    assert row.verdict == DIFFERS


def test_unlike_units_are_not_divided(sample) -> None:
    (row,) = rows(sample, card({DRAM_READ: 100}, units={DRAM_READ: "sector"}))
    assert (row.kind, row.error, row.verdict, row.cause) == (NOT_COMPARABLE, None, NOT_COMPARABLE, UNITS)


def test_what_the_simulator_has_no_number_for_is_not_comparable(sample) -> None:
    row = only(sample, "gpu__time_duration.sum", 5000)
    assert (row.kind, row.simulated, row.error) == (NOT_COMPARABLE, None, None)


def test_warm_caches_are_not_held_against_cold_ones(sample) -> None:
    with pytest.raises(BadOption, match="simulated with cold caches and measured with warm ones.*--l2 warm"):
        rows(sample, card({LOADS: 1}, header={"cache control": "none"}))


# Causes


def test_local_sectors_on_the_card_make_spills_the_cause_of_traffic_and_not_of_global_sectors(sample) -> None:
    spilled = {LOCAL: sample[LOCAL] + 832}
    assert only(sample, L2_READ, sample[L2_READ] + 832, **spilled).cause == "spills"
    assert only(sample, L2_READ, sample[L2_READ] + 832).cause != "spills"
    assert only(sample, LOADS, sample[LOADS] + 1, **spilled).cause == "as compiled"


def test_other_reads_at_l2_are_merged_ones_only_where_some_were_merged_on_either_side(sample) -> None:
    sample.counters.hierarchy.lrc_merged = 0
    for measured in (sample[L2_READ] / 2, sample[L2_READ] * 2):
        assert only(sample, L2_READ, measured, **{LRC: 3.8}).cause == "merged reads (LRC)"
        assert only(sample, L2_READ, measured, **{LRC: 1.0}).cause == "cache policy"
    sample.counters.hierarchy.lrc_merged = 8
    assert only(sample, L2_READ, sample[L2_READ] * 2, **{LRC: 1.0}).cause == "merged reads (LRC)"


def test_a_few_kilobytes_more_from_dram_are_code_and_megabytes_are_not(sample) -> None:
    assert only(sample, DRAM_READ, sample[DRAM_READ] + 20_000).cause == "code and constants"
    assert only(sample, DRAM_READ, sample[DRAM_READ] + 5_000_000).cause == "cache policy"


def test_writes_to_dram_are_dirty_lines(sample) -> None:
    assert only(sample, DRAM_WRITE, sample[DRAM_WRITE] + 2_600_000).cause == "dirty lines"


def test_a_few_wavefronts_more_are_arbitration_and_fewer_are_merged_loads(sample) -> None:
    ours = sample[WAVEFRONTS]
    assert only(sample, WAVEFRONTS, ours * 1.06).cause == "arbitration wavefronts"
    assert only(sample, WAVEFRONTS, ours * 1.5).cause == UNEXPLAINED
    assert only(sample, WAVEFRONTS, ours * 0.5).cause == "merged loads"


def test_tensor_pipe_and_16_bit_instructions_of_a_launch_that_has_none_are_constants(sample) -> None:
    none = replace(sample, counters=replace(sample.counters, tensor=Tensor()))
    assert (none[TENSOR], only(none, TENSOR, 64).cause) == (0, "constants made by HFMA2")
    assert only(sample, TENSOR, sample[TENSOR] + 64).cause == "as compiled"


def test_constant_loads_beyond_those_of_constant_arrays_read_parameters(sample) -> None:
    assert only(sample, LDC, sample[LDC] + 8).cause == "parameters read by LDC"
    assert only(sample, LDC, sample[LDC] - 1 if sample[LDC] else 0).cause != "parameters read by LDC"


def test_more_wavefronts_are_as_compiled_where_there_are_more_loads_and_not_where_as_many(sample) -> None:
    ours, loads = sample[WAVEFRONTS], sample[SHARED_LOADS]
    assert only(sample, WAVEFRONTS, ours * 1.5, **{SHARED_LOADS: loads * 1.5}).cause == "as compiled"
    assert only(sample, WAVEFRONTS, ours * 1.5, **{SHARED_LOADS: loads}).cause == UNEXPLAINED


def test_every_cause_of_the_rules_stands_in_the_documents() -> None:
    text = (Path(__file__).parents[2] / "docs" / "accuracy.md").read_text()
    assert [c for c in (*CAUSES, UNITS, UNEXPLAINED) if f"| {c} |" not in text] == []


# The text and the command


def recorded_as_ncu_prints(path: Path, kernel: str, options: str) -> Path:
    """Write the recorded launches of a kernel as a raw page."""
    with (DATA / "h200_kernels_sim.csv").open() as file:
        found = [r for r in csv.DictReader(file) if (r["kernel"], r["options"]) == (kernel, options)]
    names = [name for name in found[0] if "__" in name]
    with path.open("w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow([*IDENTITY, *names])
        writer.writerow([""] * (len(IDENTITY) + len(names)))
        for i, r in enumerate(found):
            identity = [str(i), "1", "python", "host", kernel, "1", "7", r["block"], r["grid"], "0", "9.0"]
            writer.writerow([*identity, *(r[name] for name in names)])
    return path


def test_a_kernel_is_held_against_what_the_card_counted(capsys, tmp_path: Path) -> None:
    file = str(recorded_as_ncu_prints(tmp_path / "m.csv", "vec_add", '{"n": 1003}'))
    assert cli.run(["compare", "vec_add", "--n", "1003", "--measured", file]) == 0
    text = capsys.readouterr().out
    assert "Simulated: vec_add (4, 1, 1)x(256, 1, 1)" in text
    assert any(line.split()[:6] == ["Global", "Load", "Sectors", "sector", "252", "252"]
               for line in text.splitlines())
    assert cli.run(["compare", "vec_add", "--n", "1003", "--measured", file, "--l2", "warm"]) == 2
    assert "not comparable" in capsys.readouterr().err


def test_different_numbers_of_launches_and_other_grids_get_a_note(sample) -> None:
    one = Measured("sample", (9, 1, 1), None, {LOADS: 1, "a__b.sum": 1}, header={"card": "NVIDIA B200"})
    text = beside([sample], [one, one])
    assert "1 launch simulated and 2 launches measured" in text
    assert "The grids differ" in text and "The GPUs differ" in text and "1 measured metric not shown" in text


# Where nothing can be compared


@pytest.mark.parametrize(("values", "units", "chosen", "said"), [
    ({DRAM_READ: 100}, {DRAM_READ: "sector"}, (),
     "unlike units of dram__bytes_read.sum (byte, measured in sector)"),
    ({"foo__bar.sum": 1, "foo__baz.sum": 2}, {}, (),
     "the simulator has none of the 2 metrics that were measured, such as foo__bar.sum"),
    ({LOADS: 1}, {}, ("dram__bytes_read.sum",), "dram__bytes_read.sum was not measured"),
    ({LOADS: 1}, {}, (DRAM_READ, DRAM_WRITE),
     "dram__bytes_read.sum, dram__bytes_write.sum were not measured"),
    ({}, {}, (), "m.csv has no number for sample"),
])
def test_where_nothing_can_be_compared_the_reason_is_an_error(sample, values, units, chosen, said) -> None:
    measured = Measured("sample", None, None, values, units=units, source="m.csv")
    for every in (False, True):
        with pytest.raises(BadOption) as raised:
            beside([sample], [measured], select(list(chosen)) if chosen else (), every)
        assert str(raised.value) == f"nothing can be compared: {said}"


def test_a_launch_with_one_comparable_number_is_compared_and_says_what_is_left_out(sample) -> None:
    measured = Measured("sample", None, None, {LOADS: 1, DRAM_READ: 100}, units={DRAM_READ: "sector"})
    text = " ".join(beside([sample], [measured]).split())
    assert "1 metric not compared, as the units are unlike: dram__bytes_read.sum (byte, measured in " in text
    assert "unlike" not in beside([sample], [Measured("sample", None, None, {LOADS: 1})])


def test_a_chosen_metric_that_was_not_measured_is_named(sample) -> None:
    text = beside([sample], [card({LOADS: 1})], select([LOADS, DRAM_READ]))
    assert "WRN   1 metric not measured: dram__bytes_read.sum." in text
    assert "not measured" not in beside([sample], [card({LOADS: 1})], select([LOADS]))


def test_compare_of_a_metric_that_was_not_measured_ends_with_2(capsys, tmp_path: Path) -> None:
    file = str(recorded_as_ncu_prints(tmp_path / "m.csv", "vec_add", '{"n": 1003}'))
    assert cli.run(["compare", "vec_add", "--n", "1003", "--measured", file, "--metrics",
                    "gpusim__l1_size"]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("error: nothing can be compared: gpusim__l1_size was not measured")
    assert said.out == ""


# Twins of other machine code


REGISTERS, OCCUPANCY = "launch__registers_per_thread", "sm__maximum_warps_per_active_cycle_pct"
ACHIEVED = "sm__warps_active.avg.pct_of_peak_sustained_active"


def test_of_a_triton_version_only_what_grid_tiles_and_layout_decide_is_compared(sample) -> None:
    counted = {LOADS: sample[LOADS] + 5, FFMA: 1, REGISTERS: 99}
    twin = {r.metric.name: r for r in rows(sample, card(counted, header={"backend": "triton"}))}
    assert (twin[LOADS].kind, twin[LOADS].verdict) == ("exact", DIFFERS)
    for name in (FFMA, REGISTERS):
        assert (twin[name].kind, twin[name].verdict) == (NOT_COMPARABLE, NOT_COMPARABLE)
        assert twin[name].error is None
    own = {r.metric.name: r.verdict for r in rows(sample, card(counted, header={"backend": "numba"}))}
    assert own == {LOADS: DIFFERS, FFMA: DIFFERS, REGISTERS: DIFFERS}


def test_a_line_says_that_triton_s_machine_code_is_another(sample) -> None:
    counted = {LOADS: sample[LOADS], FFMA: 1, REGISTERS: 99}
    text = " ".join(beside([sample], [card(counted, header={"backend": "triton"})]).split())
    assert "Triton's machine code is another than the simulated kernel's: 2 metrics not comparable" in text
    assert "1 metric: 1 equal, 0 within their tolerance, 0 beyond it." in text
    assert "machine code" not in beside([sample], [card(counted)])
    with pytest.raises(BadOption, match="nothing can be compared: Triton's machine code is another"):
        beside([sample], [card({FFMA: 1}, header={"backend": "triton"})])


def test_a_short_time_is_no_cause_of_another_occupancy_and_one_of_another_time(sample) -> None:
    short = {"gpu__time_duration.sum": 5_000}
    for name in (OCCUPANCY, ACHIEVED):
        assert only(sample, name, 1.5, **short).cause != "too short a kernel"
    assert only(sample, "l1tex__t_sector_hit_rate.pct", 99.5, **short).cause == "too short a kernel"
