"""The table of metrics: the value of each, worked out by hand from the counters of `sample` (conftest.py),
and the look-ups."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path

import pytest

from gpusim import time_metrics
from gpusim.arch import get_arch
from gpusim.counters import SpaceCounts
from gpusim.errors import UnknownName
from gpusim.explain import overview
from gpusim.launch import Registers
from gpusim.metrics import (
    METRICS,
    SECTIONS,
    explain,
    find,
    in_section,
    kind,
    row_names,
    select,
    value,
    values,
)
from gpusim.occupancy import occupancy

DATA = Path(__file__).parents[1] / "data"
LD, ST = "pipe_lsu_mem_global_op_ld", "pipe_lsu_mem_global_op_st"

EXPECTED = {
    # 12 blocks of 256 threads, 40 registers: 1,280 a warp, 12 warps a quarter, 48 an SM, 6 blocks of 8 warps.
    "launch__grid_size": 12, "launch__block_size": 256, "launch__thread_count": 3072,
    "launch__grid_dim_x": 3, "launch__grid_dim_y": 2, "launch__grid_dim_z": 2,
    "launch__block_dim_x": 8, "launch__block_dim_y": 16, "launch__block_dim_z": 2,
    "launch__registers_per_thread": 40, "launch__registers_per_thread_allocated": 40,
    "launch__sm_count": 132, "launch__tpc_count": 66,
    # 8,192 + 1,000 + 1,024 = 10,216, rounded up to 10,240; 6 blocks need 61,440, the goal is twice that.
    "launch__shared_mem_per_block_static": 8192, "launch__shared_mem_per_block_dynamic": 1000,
    "launch__shared_mem_per_block_driver": 1024, "launch__shared_mem_per_block": 10_216,
    "launch__shared_mem_per_block_allocated": 10_240, "launch__shared_mem_config_size": 135_168,
    "gpusim__l1_size": 126_976,
    "launch__waves_per_multiprocessor": 12 / 792, "gpusim__wave_efficiency.pct": 100 * 12 / 792,
    "launch__occupancy_limit_blocks": 32, "launch__occupancy_limit_registers": 6,
    "launch__occupancy_limit_warps": 8,
    "launch__occupancy_limit_shared_mem": 13, "gpusim__occupancy_limit_shared_mem": 22,
    "gpusim__blocks_per_sm": 6,
    "sm__maximum_warps_avg_per_active_cycle": 48, "sm__maximum_warps_per_active_cycle_pct": 75.0,
    # Global memory.
    f"l1tex__t_requests_{LD}.sum": 100, f"l1tex__t_sectors_{LD}.sum": 400,
    "gpusim__global_load_bytes.sum": 12_800, "gpusim__global_load_lanes.sum": 3200,
    f"l1tex__t_requests_{ST}.sum": 50, f"l1tex__t_sectors_{ST}.sum": 1600,
    "gpusim__global_store_bytes.sum": 6400, "gpusim__global_store_lanes.sum": 1600,
    "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum": 3,
    "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum": 24,
    "gpusim__global_red_bytes.sum": 384, "gpusim__global_red_lanes.sum": 96,
    "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum": 2,
    "l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum": 64,
    "gpusim__global_atom_bytes.sum": 256, "gpusim__global_atom_lanes.sum": 64,
    f"l1tex__average_t_sectors_per_request_{LD}.ratio": 4.0,
    f"l1tex__average_t_sectors_per_request_{ST}.ratio": 32.0,
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio": 32.0,
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio": 4.0,
    f"l1tex__t_sectors_{LD}_lookup_hit.sum": 100, f"l1tex__t_sectors_{LD}_lookup_miss.sum": 300,
    f"l1tex__t_sector_{LD}_hit_rate.pct": 25.0, "l1tex__t_sector_hit_rate.pct": 25.0,
    # Local memory: loads are in a test of their own.
    "l1tex__t_requests_pipe_lsu_mem_local_op_ld.sum": 0, "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum": 0,
    "gpusim__local_load_bytes.sum": 0, "gpusim__local_load_lanes.sum": 0,
    "l1tex__t_requests_pipe_lsu_mem_local_op_st.sum": 1, "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum": 5,
    "gpusim__local_store_bytes.sum": 128, "gpusim__local_store_lanes.sum": 32,
    # Shared memory: conflicts are wavefronts minus ideal ones; loads and stores by ncu's names as compiled.
    "gpusim__shared_load_wavefronts.sum": 6400, "gpusim__shared_store_wavefronts.sum": 198,
    "gpusim__shared_atom_wavefronts.sum": 40,
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": 1620,
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum": 66,
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum": 40,
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": 1548,
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum": 16,
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_atom.sum": 30,
    "gpusim__shared_load_requests.sum": 200, "gpusim__shared_store_requests.sum": 99,
    "gpusim__shared_atom_requests.sum": 10,
    "gpusim__shared_load_ideal_wavefronts.sum": 200, "gpusim__shared_store_ideal_wavefronts.sum": 99,
    "gpusim__shared_atom_ideal_wavefronts.sum": 10,
    "gpusim__shared_load_bytes.sum": 25_600, "gpusim__shared_store_bytes.sum": 12_672,
    "gpusim__shared_atom_bytes.sum": 1280,
    "gpusim__shared_load_lanes.sum": 6400, "gpusim__shared_store_lanes.sum": 3168,
    "gpusim__shared_atom_lanes.sum": 320,
    # Instructions, under both spellings.
    **{f"smsp__{sass}inst_executed_op_{op}.sum": n for sass in ("", "sass_") for op, n in (
        ("global_ld", 98), ("global_st", 50), ("global_red", 3), ("shared_ld", 50), ("shared_st", 25),
        ("shared_atom", 10))},
    # L2: 240 + 1,605 + 24 + 64 = 1,933 from SMs; 118 + 800 + 12 + 31 = 961 over the fabric.
    "lts__t_sectors_srcunit_tex.sum": 1933, "lts__t_sectors_srcunit_tex_op_read.sum": 240,
    "lrc__average_xbar2gpc_sectors_op_read.ratio": 1.25,
    "lts__t_sectors_srcunit_tex_op_write.sum": 1605, "lts__t_sectors_srcunit_tex_op_red.sum": 24,
    "lts__t_sectors_srcunit_tex_op_atom.sum": 64, "lts__t_sectors_srcunit_tex_lookup_hit.sum": 1813,
    "lts__t_sectors_srcunit_tex_lookup_miss.sum": 135, "gpusim__l2_promoted_sectors.sum": 15,
    "lts__t_sectors_op_read.sum": 358, "lts__t_sectors_op_write.sum": 2405, "lts__t_sectors_op_red.sum": 36,
    "lts__t_sectors_op_atom.sum": 95, "lts__t_sectors.sum": 2894, "lts__t_sectors_srcunit_ltcfabric.sum": 961,
    "lts__t_sector_hit_rate.pct": 100 * 1813 / 1933, "lts__t_sector_op_read_hit_rate.pct": 50.0,
    "lts__t_sector_op_write_hit_rate.pct": 100.0,
    # DRAM: 3,840 of data and 4,864 of code; 50 x 32 lanes x 4 bytes + 128 bytes stored.
    "dram__bytes_read.sum": 8704, "dram__bytes_write.sum": 640, "dram__bytes.sum": 9344,
    "dram__sectors_read.sum": 272, "dram__sectors_write.sum": 20,
    "gpusim__dram_data_read_bytes.sum": 3840, "gpusim__dram_code_bytes.sum": 4864,
    "gpusim__dram_written_back_bytes.sum": 640, "gpusim__dram_found_bytes.sum": 0,
    "gpusim__stored_bytes.sum": 6528, "gpusim__l2_dirty_bytes_end.sum": 50_720,
    # Arithmetic: 2 x 1,000 + 11 + 7, 2 x 2,000 + 17 + 13 and 2 x 400 + 5 + 3.
    **{f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum": n for op, n in (
        ("fadd", 7), ("fmul", 11), ("ffma", 1000), ("dadd", 13), ("dmul", 17), ("dfma", 2000),
        ("hadd", 3 + 6), ("hmul", 5), ("hfma", 400))},
    "gpusim__fp16_flops.sum": 808,
    "gpusim__fp32_flops.sum": 2018, "gpusim__fp64_flops.sum": 4030, "smsp__inst_executed_pipe_xu.sum": 29,
    "gpusim__mufu_lanes.sum": 19, "gpusim__integer_lanes.sum": 23, "gpusim__barrier_warps.sum": 37,
    "gpusim__wrapped_indices.sum": 41,
    # ldmatrix: 3 requests of x4, 12 matrices in 20 wavefronts; cp.async: 4 instructions, 2 that read.
    "smsp__inst_executed_op_ldsm.sum": 3, "gpusim__shared_matrix_wavefronts.sum": 20,
    "gpusim__shared_matrix_conflicts.sum": 8, "gpusim__shared_matrix_bytes.sum": 1536,
    "smsp__inst_executed_op_ldgsts.sum": 4, "gpusim__shared_async_bytes.sum": 2048,
    "gpusim__shared_async_wavefronts.sum": 6,
    # Tensor cores: 2 x 16 x 8 x k, k = 16, 16, 8, 32; fp8 is two HMMA of f16.
    "gpusim__mma_f16.sum": 3, "gpusim__mma_bf16.sum": 5, "gpusim__mma_tf32.sum": 6, "gpusim__mma_fp8.sum": 2,
    "gpusim__tensor_flops.sum": 3 * 4096 + 5 * 4096 + 6 * 2048 + 2 * 8192,
    "sm__inst_executed_pipe_tensor.sum": 18, "sm__inst_executed_pipe_tensor_op_hmma.sum": 18,
    "sm__ops_path_tensor_src_fp16.sum": 3 * 4096 + 2 * 8192,
    "sm__ops_path_tensor_src_bf16_dst_fp32.sum": 20_480, "sm__ops_path_tensor_src_tf32_dst_fp32.sum": 12_288,
    # Constant memory.
    "smsp__inst_executed_op_ldc.sum": 9, "gpusim__constant_load_addresses.sum": 21,
    "gpusim__constant_load_bytes.sum": 800,
    # Roofline: 66.90816 and 33.45408 TFLOP/s over 4.8 TB/s.
    "gpusim__arithmetic_intensity_dram_fp32.ratio": 2018 / 9344, "gpusim__roofline_ridge_fp32.ratio": 13.9392,
    "gpusim__roofline_attainable_fp32.pct": 100 * 2018 / 9344 / 13.9392,
    "gpusim__arithmetic_intensity_dram_fp64.ratio": 4030 / 9344, "gpusim__roofline_ridge_fp64.ratio": 6.9696,
    "gpusim__roofline_attainable_fp64.pct": 100 * 4030 / 9344 / 6.9696,
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_metric_has_the_value_worked_out_by_hand(sample, name: str) -> None:
    assert value(sample, name) == pytest.approx(EXPECTED[name], rel=1e-12)
    assert find(name).name == name


def test_every_metric_with_a_formula_is_in_the_table_above() -> None:
    timed = {m.name for m in time_metrics.METRICS}  # those are in test_clock.py
    assert {m.name for m in METRICS if m.formula} == set(EXPECTED) | timed


def test_local_loads_are_counted_and_make_the_hits_of_global_loads_unknown(sample) -> None:
    sample.counters.local_load = SpaceCounts(lanes=64, bytes=256, requests=2, sectors=8)
    assert value(sample, "l1tex__t_requests_pipe_lsu_mem_local_op_ld.sum") == 2
    assert value(sample, "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum") == 8
    assert value(sample, "gpusim__local_load_bytes.sum") == 256
    assert value(sample, "gpusim__local_load_lanes.sum") == 64
    assert value(sample, f"l1tex__t_sectors_{LD}_lookup_hit.sum") is None
    assert value(sample, f"l1tex__t_sectors_{LD}_lookup_miss.sum") is None
    assert value(sample, f"l1tex__t_sector_{LD}_hit_rate.pct") is None
    assert value(sample, "l1tex__t_sector_hit_rate.pct") == 25.0


@pytest.mark.parametrize("name", [
    "sm__cycles_active.avg", "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "smsp__inst_executed.sum", "sm__ops_path_tensor_src_fp8.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"])
def test_what_the_simulator_cannot_answer_is_none_and_says_why(sample, name: str) -> None:
    assert value(sample, name) is None
    assert kind(sample, find(name)) == "n/a"
    assert "What it leaves out: " in explain(name) and "prints n/a, never 0" in explain(name)


@pytest.mark.parametrize("spelling", ["smsp__inst_executed", "smsp__sass_inst_executed"])
@pytest.mark.parametrize(
    "op", ["global_ld", "global_st", "global_red", "shared_ld", "shared_st", "shared_atom"])
def test_instructions_are_modelled_and_say_what_the_card_counts_more(spelling, op) -> None:
    metric = find(f"{spelling}_op_{op}.sum")
    assert metric.kind == "modelled" and "all lanes predicated off" in metric.excludes
    compiled = op in ("shared_ld", "shared_st")
    assert ("as compiled" in metric.counts, "docs/as_compiled.md" in metric.words) == (compiled, compiled)
    assert ("of the kernel's source" in metric.counts, "active lane" in metric.words) == (
        not compiled, not compiled)


@pytest.mark.parametrize("op", ["ld", "st"])
def test_shared_accesses_as_compiled_are_na_where_the_engine_does_not_tell(sample, op) -> None:
    silent = dataclasses.replace(sample, as_compiled=None)
    for name in (f"smsp__inst_executed_op_shared_{op}.sum",
                 f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum",
                 f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum"):
        assert (value(silent, name), kind(silent, find(name))) == (None, "n/a")
        assert kind(sample, find(name)) == "modelled"


def test_counts_of_l2_that_hold_reads_say_that_some_are_merged_before(sample) -> None:
    before = values(sample)
    for field in ("l2_read", "l2_fabric_read", "l2_hits"):
        setattr(sample.counters.hierarchy, field, 2 * getattr(sample.counters.hierarchy, field))
    after = values(sample)
    counts = {m.name for m in METRICS if m.unit == "sector" and before[m.name] != after[m.name]}
    assert "lts__t_sectors_srcunit_tex_op_read.sum" in counts and len(counts) == 6
    said = {m.name for m in METRICS if "up to 4 together" in m.excludes}
    assert counts <= said and "lts__t_sectors_srcunit_tex_op_write.sum" not in said


def test_reads_that_one_read_of_l2_serves_are_the_misses_of_l1_over_the_reads(sample) -> None:
    sample.counters.hierarchy.l1_load_misses, sample.counters.hierarchy.l2_read = 300, 75
    assert sample["lrc__average_xbar2gpc_sectors_op_read.ratio"] == 4.0


def doubled(launch, *parts: str):
    """Return a launch in which every counter of these parts is twice as large."""
    counters = {p: getattr(launch.counters, p) for p in parts}
    twice = {p: type(c)(**{f: 2 * n for f, n in dataclasses.asdict(c).items()}) for p, c in counters.items()}
    return dataclasses.replace(launch, counters=dataclasses.replace(launch.counters, **twice))


@pytest.mark.parametrize("part", ["arithmetic", "hierarchy"])
def test_every_metric_that_follows_what_the_oracle_does_not_count_is_na_for_it(sample, part: str) -> None:
    before, after = values(sample), values(doubled(sample, part))
    following = {name for name in before if before[name] != after[name]}
    judge = dataclasses.replace(sample, engine="oracle")
    assert len(following) > 6
    assert {name: value(judge, name) for name in following} == dict.fromkeys(following)
    assert {kind(judge, find(name)) for name in following} == {"n/a"}


def test_rates_and_bounds_of_what_the_oracle_does_not_count_are_na_too(sample) -> None:
    judge = dataclasses.replace(sample, engine="oracle")
    for name in ("l1tex__t_sector_hit_rate.pct", "lts__t_sector_hit_rate.pct",
                 "lts__t_sector_op_write_hit_rate.pct", "gpusim__roofline_attainable_fp32.pct"):
        assert value(sample, name) is not None and value(judge, name) is None


def test_what_the_oracle_does_count_has_the_same_value_and_kind(sample) -> None:
    judge = dataclasses.replace(sample, engine="oracle")
    same = {name for name, v in values(judge).items() if v is not None}
    assert {name: value(judge, name) for name in same} == {name: value(sample, name) for name in same}
    assert {kind(judge, find(name)) for name in same} == {"exact", "modelled"}
    assert {f"l1tex__t_sectors_{LD}.sum", "gpusim__shared_load_wavefronts.sum", "gpusim__barrier_warps.sum",
            "gpusim__stored_bytes.sum", "launch__grid_size"} <= same


def test_other_engines_count_everything(sample) -> None:
    for engine in ("compiled", "ir"):
        assert values(dataclasses.replace(sample, engine=engine)) == values(sample)


def test_a_rate_of_nothing_is_none_and_not_zero(sample) -> None:
    sample.counters.global_load = SpaceCounts()
    sample.counters.hierarchy = type(sample.counters.hierarchy)()
    for name in (f"l1tex__average_t_sectors_per_request_{LD}.ratio", "l1tex__t_sector_hit_rate.pct",
                 "lts__t_sector_hit_rate.pct",
                 "lts__t_sector_op_write_hit_rate.pct", "gpusim__arithmetic_intensity_dram_fp32.ratio"):
        assert value(sample, name) is None


def test_a_block_that_does_not_fit_has_no_waves(sample) -> None:
    sample.occupancy = occupancy(sample.arch, 1024, 128, 0, 0)
    assert sample.occupancy.blocks_per_sm == 0
    assert value(sample, "launch__waves_per_multiprocessor") is None
    assert value(sample, "gpusim__wave_efficiency.pct") is None


def test_133_blocks_on_132_sms_use_half_of_the_slots_of_two_waves(sample) -> None:
    sample.grid, sample.occupancy = (133, 1, 1), occupancy(sample.arch, 1024, 64, 0, 0)
    assert sample.occupancy.blocks_per_sm == 1
    assert value(sample, "gpusim__wave_efficiency.pct") == pytest.approx(50.4, abs=0.05)


def test_fewer_than_16_registers_are_shown_as_16(sample) -> None:
    sample.registers = Registers(10, "given")
    assert value(sample, "launch__registers_per_thread") == 16


def test_a_launch_answers_by_name(sample) -> None:
    assert sample["dram__bytes_read.sum"] == 8704


def test_the_rollup_may_be_left_out_where_there_is_one() -> None:
    assert find("dram__bytes_read").name == "dram__bytes_read.sum"
    assert find("sm__maximum_warps_per_active_cycle_pct").unit == "%"


def test_a_missing_rollup_with_two_candidates_lists_both() -> None:
    with pytest.raises(UnknownName, match=r"needs a rollup: sm__warps_active\.avg\.pct_of_peak.*, sm__warps"):
        find("sm__warps_active")


def test_an_unknown_metric_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"'dram__byte_read\.sum'; the nearest are dram__bytes_read\.sum"):
        find("dram__byte_read.sum")
    with pytest.raises(UnknownName, match="unknown metric ''; `explain` lists them all$"):
        find("")


def test_a_label_of_the_report_finds_its_metric() -> None:
    assert find("L2 Hit Rate").name == "lts__t_sector_hit_rate.pct"
    assert find("theoretical occupancy").name == "sm__maximum_warps_per_active_cycle_pct"
    with pytest.raises(UnknownName, match="is the label of gpu__.* and of dram__bytes.sum.per"):
        find("Memory Throughput")
    with pytest.raises(UnknownName, match="'L2 Hit Rat'; the nearest are lts__t_sector_hit_rate"):
        find("L2 Hit Rat")


def test_a_metric_is_not_asked_for_by_a_number(sample) -> None:
    with pytest.raises(UnknownName, match="by its name, such as launch__grid_size, not by 3"):
        sample[3]


def test_a_label_that_stands_above_gives_way_to_the_name() -> None:
    names = list(row_names(in_section("InstructionStats")).values())
    assert len(names) == len(set(names))
    assert names[:2] == ["Global Load Instructions", "smsp__inst_executed_op_global_ld.sum"]


def test_select_keeps_the_order_and_takes_each_once() -> None:
    chosen = select([" dram__bytes_write.sum", "launch__grid_size", "dram__bytes_write"])
    assert [m.name for m in chosen] == ["dram__bytes_write.sum", "launch__grid_size"]


def test_a_section_is_found_by_identifier_or_title_in_any_case() -> None:
    assert in_section("occupancy")[0].name == "launch__occupancy_limit_blocks"
    assert in_section("launch statistics") == in_section("LaunchStats")
    with pytest.raises(UnknownName, match=r"unknown section 'Ocupancy'\. Did you mean 'Occupancy'\?"):
        in_section("Ocupancy")


def test_sections_follow_ncus_order_and_none_is_empty() -> None:
    order = list(SECTIONS)
    places = [order.index(m.section) for m in METRICS]
    assert places == sorted(places) and set(places) == set(range(len(order)))


def test_an_estimated_register_count_makes_what_follows_from_it_modelled(sample) -> None:
    limit, blocks, waves = map(find,
                               ("launch__occupancy_limit_registers", "launch__grid_size",
                                "launch__waves_per_multiprocessor"))
    assert [kind(sample, m) for m in (limit, blocks, waves)] == ["exact", "exact", "exact"]
    sample.registers = Registers(40, "estimated")
    assert [kind(sample, m) for m in (limit, blocks, waves)] == ["modelled", "exact", "modelled"]
    sample.registers = Registers(40, "recorded for sm_90")
    assert [kind(sample, m) for m in (limit, blocks, waves)] == ["modelled", "exact", "modelled"]


def test_the_clocks_of_the_gpu_change_no_counter(sample) -> None:
    before = values(sample)
    sample.arch = dataclasses.replace(get_arch("h200"), sm_clock_hz=10**9, memory_clock_hz=10**9)
    changed = {name for name, v in values(sample).items() if v != before[name]}
    assert changed == {f"gpusim__roofline_{what}_{bits}.{form}" for what,
                       form in (("ridge", "ratio"), ("attainable", "pct"))
                       for bits in ("fp32", "fp64")}


@pytest.mark.parametrize("name", ["h200_counters.csv", "h200_micro.csv"])
def test_every_metric_of_the_recorded_launches_is_in_the_table(name: str) -> None:
    with (DATA / name).open(newline="") as file:
        columns = next(csv.reader(file))
    known = {m.name for m in METRICS}
    assert [c for c in columns if c not in known] in (["case", "source"], ["case"])


@pytest.mark.parametrize("metric", METRICS, ids=lambda m: m.name)
def test_every_metric_says_what_it_counts_and_how(metric) -> None:
    assert metric.section in SECTIONS and metric.label and metric.counts.endswith(".")
    assert (metric.kind == "n/a") == (metric.formula is None)
    assert metric.kind in ("exact", "modelled", "n/a")
    assert metric.words if metric.formula else metric.excludes.endswith(".")
    text = explain(metric.name)
    assert text.startswith(metric.name + "\n") and f"  Unit: {metric.unit or 'none'}\n" in text
    assert ("ncu has no such metric" in text) == metric.name.startswith("gpusim__")


def test_an_explanation_says_what_is_counted_what_is_not_and_what_to_do() -> None:
    text = explain("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum")
    for part in ("Value: modelled", "as compiled", "docs/as_compiled.md",
                 "Formula: wavefronts - ideal wavefronts",
                 "What it leaves out: It does not count arbitration",
                 "What to do: Pad the rows"):
        assert part in text


def test_the_overview_lists_every_metric_once() -> None:
    lines = overview().splitlines()
    assert len(lines) == len(METRICS) + len(SECTIONS)
    assert sum(line.startswith("  dram__bytes_read.sum  [byte]  modelled") for line in lines) == 1
