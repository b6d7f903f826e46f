"""The text report: synthetic launches with numbers that a reader can follow by hand."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest

from gpusim import facts, report, sections
from gpusim.arch import get_arch
from gpusim.counters import AsCompiled, Counters, Issued, SharedCounts, SpaceCounts
from gpusim.errors import UnknownName
from gpusim.launch import Check, Fact, Launch, Registers
from gpusim.occupancy import occupancy
from gpusim.table import Table, number, paragraph, render

Make = Callable[..., Launch]


def row(text: str, label: str) -> list[str]:
    """Return the words that follow a label on its line."""
    found = [line for line in text.splitlines() if line.startswith(label)]
    assert len(found) == 1, f"{label!r} stands on {len(found)} lines"
    return found[0][len(label):].split()


def test_the_header_is_ncus(make_launch: Make) -> None:
    assert report.header(make_launch()) == "k (133, 1, 1)x(64, 1, 1), Device NVIDIA H200, CC 9.0"


def test_all_sections_stand_in_the_report_in_order(make_launch: Make) -> None:
    text = report.text([make_launch()])
    titles = [line.removeprefix("Section: ") for line in text.splitlines() if line.startswith("Section: ")]
    assert titles == [
        "Launch Statistics", "Occupancy", "Memory Workload Analysis", "Compute Workload Analysis",
        "GPU Speed Of Light Roofline Chart",
    ]


def test_each_value_has_its_unit_and_says_where_it_is_from(make_launch: Make) -> None:
    text = report.text([make_launch()])
    assert row(text, "Threads ") == ["thread", "8,512", "exact"]  # 133 * 64
    assert row(text, "Registers Per Thread") == ["register/thread", "32", "given"]
    assert row(text, "L1/TEX Hit Rate") == ["%", "50.00", "modelled"]  # 64 of 128
    assert row(text, "L2 Hit Rate") == ["%", "75.00", "modelled"]  # 96 of 128
    assert row(text, "Sectors Per Request, Global Loads") == ["sector", "4.00", "exact"]  # 128 / 32


def test_stores_are_three_numbers(make_launch: Make) -> None:
    text = report.text([make_launch()])
    assert row(text, "Bytes Stored By Threads") == ["byte", "2,048", "exact"]
    assert row(text, "Bytes Written Back To DRAM") == ["byte", "128", "modelled"]
    assert row(text, "Bytes Dirty In L2 At The End") == ["byte", "1,920", "modelled"]


def test_the_memory_table_has_a_row_for_each_kind_of_traffic(make_launch: Make) -> None:
    text = report.text([make_launch()])
    assert row(text, "SM-L1    global load") == ["32", "4,096", "128", "4,096", "50.00", "exact"]
    assert row(text, "SM-L1    global store") == ["16", "2,048", "64", "2,048", "exact"]
    # 96 hits, of them 64 stores: 32 of 64
    assert row(text, "L1-L2    read") == ["64", "2,048", "50.00", "modelled"]
    assert row(text, "L1-L2    write") == ["64", "2,048", "100.00", "exact"]
    assert row(text, "L2-DRAM  read data") == ["32", "1,024", "modelled"]
    assert row(text, "L2-DRAM  read code") == ["16", "512", "modelled"]
    assert row(text, "L2-DRAM  write back") == ["4", "128", "modelled"]


def test_traffic_that_does_not_occur_has_no_row(make_launch: Make) -> None:
    assert "RED" not in report.text([make_launch()], "MemoryWorkloadAnalysis")


def test_red_traffic_has_a_row_where_it_occurs(make_launch: Make) -> None:
    launch = make_launch()
    launch.counters.global_red = SpaceCounts(lanes=32, bytes=128, requests=1, sectors=32)
    assert row(report.text([launch]), "SM-L1    global RED") == ["1", "128", "32", "1,024", "exact"]


def test_a_fused_multiply_add_is_two_flops_and_a_mufu_none(make_launch: Make) -> None:
    text = report.text([make_launch()], "ComputeWorkloadAnalysis")
    assert row(text, "FFMA") == ["fma", "1,000", "2,000", "exact"]
    assert row(text, "MUFU") == ["xu", "5", "exact"]
    assert row(text, "Total") == ["2,030", "exact"]  # 2 * 1000 + 20 + 10
    assert row(text, "FLOPs, 32 bit") == ["flop", "2,030", "exact"]
    assert row(text, "FLOPs, 64 bit") == ["flop", "0", "exact"]


def test_integer_instructions_and_those_of_the_xu_pipe_are_modelled(make_launch: Make) -> None:
    assert row(report.text([make_launch()]), "Warp Instructions, Pipe XU")[-1] == "modelled"
    assert row(report.text([make_launch()]), "integer, compare, convert")[-1] == "modelled"


def test_the_roofline_divides_flops_by_the_bytes_of_each_level(make_launch: Make) -> None:
    text = report.text([make_launch()], "SpeedOfLight_RooflineChart")
    assert row(text, "L1 ")[:3] == ["2,030", "6,144", "0.33"]  # (128 + 64) * 32 bytes
    assert row(text, "L2 ")[:4] == ["2,030", "4,096", "0.50", "6.50"]  # (64 + 64) * 32; 66.9 / 10.29
    assert row(text, "DRAM ")[:3] == ["2,030", "1,664", "1.22"]  # 1024 + 512 + 128
    assert "sits under the roof of L2 bandwidth" in " ".join(text.split())  # 4,096 / 10.29 > 1,664 / 4.8


def test_the_lowest_roof_is_that_of_the_level_that_takes_longest(make_launch: Make) -> None:
    launch = make_launch()
    launch.counters.hierarchy.dram_read_bytes = 2_048
    text = report.text([launch], "SpeedOfLight_RooflineChart")
    assert "sits under the roof of DRAM bandwidth" in " ".join(text.split())  # 2,688 / 4.8 > 4,096 / 10.29


def test_a_gpu_whose_l2_bandwidth_is_not_known_has_no_roof_of_it(make_launch: Make) -> None:
    text = report.text([make_launch(arch=get_arch("h100"))], "SpeedOfLight_RooflineChart")
    assert row(text, "L2 ")[:5] == ["2,030", "4,096", "0.50", "n/a", "n/a"]
    assert "that of its L2 is not known" in " ".join(text.split())
    assert "is not known" not in report.text([make_launch()], "SpeedOfLight_RooflineChart")


def test_many_flops_a_byte_sit_under_the_compute_roof(make_launch: Make) -> None:
    launch = make_launch()
    launch.counters.arithmetic.ffma = 10**9
    assert "The launch sits under the compute roof." in report.text([launch], "SpeedOfLight_RooflineChart")


def test_shared_memory_limits_by_carve_out_as_ncu_shows_it_and_by_the_whole_sm(make_launch: Make) -> None:
    arch = get_arch("h200")
    launch = make_launch(static_shared_bytes=8192, occupancy=occupancy(arch, 256, 32, 8192, 0))
    text = report.text([launch], "Occupancy")
    assert row(text, "Block Limit Shared Mem Of The SM") == ["block", "25", "exact"]  # 233,472 // 9,216
    carveout = launch.occupancy.carveout_bytes
    assert row(text, "Block Limit Shared Mem  ") == ["block", str(carveout // 9216), "modelled"]
    # a carve-out of 135,168 bytes: 14 blocks of 9,216
    why = "Shared Mem: ncu's 14 fit this launch's carve-out; the SM's 25 fit its largest, and decide."
    assert [line.strip() for line in text.splitlines() if "ncu's" in line] == [why]


def test_two_equal_limits_of_shared_memory_need_no_explanation(make_launch: Make) -> None:
    whole = occupancy(get_arch("h200"), 256, 32, 0, 200_000)
    launch = make_launch(dynamic_shared_bytes=200_000, occupancy=whole)
    assert launch.occupancy.ncu_limit_shared == launch.occupancy.limit_shared == 1
    assert "ncu's" not in report.text([launch], "Occupancy")


def test_tail_blocks_are_counted(make_launch: Make) -> None:
    text = report.text([make_launch(grid=(132 * 32 + 1, 1, 1))], "Occupancy")  # 32 blocks an SM
    assert row(text, "Waves ") == ["wave", "2", "exact"]
    assert row(text, "Blocks In The Last Wave") == ["block", "1", "exact"]


def test_what_follows_from_estimated_registers_is_modelled(make_launch: Make) -> None:
    text = report.text([make_launch(registers=Registers(32, "estimated", "liveness"))])
    assert row(text, "Registers Per Thread") == ["register/thread", "32", "estimated"]
    assert row(text, "Block Limit Registers")[-1] == "modelled"
    assert row(text, "Theoretical Occupancy")[-1] == "modelled"
    assert row(text, "Block Limit Warps")[-1] == "exact"


def test_registers_recorded_for_another_gpu_are_no_more_sure_than_estimated_ones(make_launch: Make) -> None:
    text = report.text([make_launch(registers=Registers(32, "recorded for sm_80", "ptxas, sm_80"))])
    assert row(text, "Registers Per Thread")[-3:] == ["recorded", "for", "sm_80"]
    assert row(text, "Theoretical Occupancy")[-1] == "modelled"
    assert "count was recorded for sm_80 and is modelled for compute capability 9.0, and the" in text


def test_shared_memory_is_listed_by_buffer_with_the_reserved_part(make_launch: Make) -> None:
    arch = get_arch("h200")
    launch = make_launch(shared_buffers=(("tile", 4096),), static_shared_bytes=4096, dynamic_shared_bytes=64,
                         occupancy=occupancy(arch, 64, 32, 4096, 64))
    text = report.text([launch], "Occupancy")
    assert row(text, "tile") == ["4,096", "exact"]
    assert row(text, "(dynamic)") == ["64", "exact"]
    # 4096 + 64 + 1024 = 5184, to a multiple of 128
    assert row(text, "Total, rounded up") == ["5,248", "exact"]


def test_bank_conflicts_are_wavefronts_beyond_the_ideal(make_launch: Make) -> None:
    launch = make_launch()
    launch.counters.shared_load = SharedCounts(
        lanes=320, bytes=1280, requests=10, wavefronts=320, ideal_wavefronts=10
    )
    assert row(report.text([launch]), "load ") == ["10", "1,280", "320", "10", "310", "32.00", "exact"]


def test_shared_accesses_have_a_row_as_compiled_where_it_differs(make_launch: Make) -> None:
    launch = make_launch(as_compiled=AsCompiled(Issued(5, 24, 8), Issued(8, 9, 8)))
    launch.counters.shared_load = SharedCounts(512, 2048, 16, 32, 16)
    launch.counters.shared_store = SharedCounts(256, 1024, 8, 9, 8)
    text = report.text([launch], "MemoryWorkloadAnalysis")
    assert row(text, "load ") == ["16", "2,048", "32", "16", "16", "2.00", "exact"]
    assert row(text, "load, compiled") == ["5", "24", "8", "16", "4.80", "modelled"]
    assert "store, compiled" not in text
    assert "which ncu counts (modelled, rules in docs/as_compiled.md)" in " ".join(text.split())


def test_shared_accesses_that_stay_as_written_have_no_row_as_compiled(make_launch: Make) -> None:
    launch = make_launch(as_compiled=AsCompiled(Issued(8, 9, 8), Issued()))
    launch.counters.shared_load = SharedCounts(256, 1024, 8, 9, 8)
    assert "compiled" not in report.text([launch], "MemoryWorkloadAnalysis")
    launch.as_compiled = None
    assert "compiled" not in report.text([launch], "MemoryWorkloadAnalysis")


def test_no_shared_memory_has_no_table_of_it(make_launch: Make) -> None:
    assert "Wavefronts" not in report.text([make_launch()])


def test_the_closed_form_stands_beside_the_counted_value(make_launch: Make) -> None:
    text = report.text([make_launch(closed_form={"global_load.bytes": 4096, "hierarchy.l2_write": 65})])
    assert row(text, "global_load.bytes") == ["4,096", "4,096", "equal"]
    assert row(text, "hierarchy.l2_write") == ["65", "64", "DIFFERENT"]


def test_a_check_within_its_tolerance_is_ok_and_beyond_it_failed(make_launch: Make) -> None:
    text = report.text(
        [make_launch(checks=(Check("O", 1e-7, 1e-5), Check("L", 2e-5, 1e-5), Check("M", math.inf, 1e-5)))]
    )
    assert row(text, "O ") == ["1e-07", "1e-05", "OK"]
    assert row(text, "L ") == ["2e-05", "1e-05", "FAILED"]
    assert row(text, "M ") == ["inf", "1e-05", "FAILED"]


def algorithm(make_launch: Make, *said: Fact, **changes: object) -> str:
    """Return the section Algorithm of two equal launches whose facts stand in the last one."""
    launches = [make_launch(**changes), make_launch(**changes)]
    launches[-1].facts = facts.count(said, launches)
    return report.text(launches, "Algorithm")


def test_a_fact_is_held_against_the_counters_of_all_launches(make_launch: Make) -> None:
    lanes = {"global_load.lanes": 1, "global_store.lanes": 1}  # 1,024 + 512 in each of two launches
    text = algorithm(make_launch, Fact("Right", 3072, "element", "4 N", lanes),
                     Fact("Wrong", 3071, "element", "4 N - 1", lanes))
    assert row(text, "Right") == ["element", "3,072", "3,072", "equal", "4", "N"]
    assert row(text, "Wrong") == ["element", "3,071", "3,072", "DIFFERENT", "4", "N", "-", "1"]


def test_counters_of_a_fact_have_factors_and_a_divisor(make_launch: Make) -> None:
    flops = {"arithmetic.ffma": 2, "arithmetic.fmul": 1, "arithmetic.fadd": 1}
    text = algorithm(make_launch, Fact("FLOPs", 4060, "flop", "", flops),  # 2 (2 * 1000 + 20 + 10)
                     Fact("Elements", 512, "element", "", {"hierarchy.dram_read_bytes": 1}, per=4))
    assert row(text, "FLOPs") == ["flop", "4,060", "4,060", "equal"]
    assert row(text, "Elements") == ["element", "512", "512", "equal"]  # 2 * 1,024 bytes


def test_a_remainder_is_not_equal_to_less(make_launch: Make) -> None:
    parts = Fact("Parts", 409, "part", "", {"global_load.bytes": 1}, per=20)  # of 2 * 4,096
    text = algorithm(make_launch, parts)
    assert row(text, "Parts") == ["part", "409", "410", "DIFFERENT"]


def test_a_fact_without_counters_has_no_verdict(make_launch: Make) -> None:
    text = algorithm(make_launch, Fact("Tiles", 2080, "tile", "visited"))
    assert row(text, "Tiles") == ["tile", "2,080", "visited"]


def test_a_fact_of_what_an_engine_does_not_count_is_neither_equal_nor_different(make_launch: Make) -> None:
    flops = Fact("FLOPs", 7, "flop", "", {"arithmetic.ffma": 2})
    loads = Fact("Loads", 64, "", "", {"global_load.requests": 1})
    text = algorithm(make_launch, flops, loads, engine="oracle")
    assert row(text, "FLOPs") == ["flop", "7", "n/a", "not", "counted"]
    assert row(text, "Loads") == ["64", "64", "equal"]


def test_a_fact_is_divided_by_its_base_as_stated_and_as_counted(make_launch: Make) -> None:
    text = algorithm(make_launch, Fact("Moved", 3072, "element", "", {"global_load.lanes": 1}, base="Ideal"),
                     Fact("Ideal", 1024, "element"), Fact("Rest", 77, "element", base="Ideal"))
    assert "Moved / Ideal: 3.00, counted 2.00.\n" in text  # 3072 and 2 * 1024, over 1024
    assert "Rest / Ideal: 7.52 %.\n" in text
    assert "Ideal / " not in text


def test_a_ratio_to_nothing_is_na(make_launch: Make) -> None:
    text = algorithm(make_launch, Fact("Rest", 0, "flop", base="All"), Fact("All", 0, "flop"))
    assert "Rest / All: n/a.\n" in text


def test_only_the_launch_with_facts_has_the_section_and_it_follows_the_closed_form(make_launch: Make) -> None:
    assert "Section: Algorithm" not in report.text([make_launch()])
    assert "Algorithm\nThere is nothing in it for this launch.\n" in report.text([make_launch()], "algorithm")
    whole = make_launch(closed_form={"barriers": 0}, notes=("n",), facts=(Fact("Tiles", 1, "tile"),))
    titles = [s.title for s in sections.sections(whole)]
    assert titles[-3:] == ["Closed Form And Reference", "Algorithm", "Notes"]


def test_facts_keep_to_100_columns_for_a_trillion_flops(make_launch: Make) -> None:
    lanes = {"global_load.lanes": 1}
    fact = Fact("K/V Tiles Visited", 8_796_093_022_208, "element", "H (N d (2 + 2 ceil(N/Br)) + N)", lanes,
                counted=8_796_093_022_208)
    assert max(map(len, report.text([make_launch(facts=(fact,))], "Algorithm").splitlines())) <= 100


def test_nan_is_never_printed(make_launch: Make) -> None:
    text = report.text([make_launch(checks=(Check("O", math.nan, 1e-5),))])
    assert row(text, "O ") == ["n/a", "1e-05", "FAILED"]
    assert not re.search(r"\bnan\b", text)


def test_a_launch_with_no_traffic_prints_na_and_no_zero_rates(make_launch: Make) -> None:
    text = report.text([make_launch(counters=Counters.zero())])
    assert row(text, "L1/TEX Hit Rate") == ["%", "n/a", "modelled"]
    assert row(text, "L2 Hit Rate") == ["%", "n/a", "modelled"]


def test_what_the_oracle_does_not_count_is_na_or_left_out(make_launch: Make) -> None:
    text = report.text([make_launch(engine="oracle", closed_form={"arithmetic.ffma": 7})] * 2)
    assert "Section: Compute Workload Analysis" not in text
    assert "L2-DRAM" not in text
    assert row(text, "0   k") == ["48", "6,144", "n/a", "n/a", "n/a", "n/a", "n/a", "100.00"]
    assert text.count("not counted") == 2
    one = report.text([make_launch(engine="oracle")])
    for label in ("L1/TEX Hit Rate", "L2 Hit Rate"):
        assert row(one, label) == ["%", "n/a", "modelled"]
    for label in ("Bytes Written Back To DRAM", "Bytes Dirty In L2 At The End"):
        assert row(one, label) == ["byte", "n/a", "modelled"]
    assert row(one, "SM-L1  global load") == ["32", "4,096", "128", "4,096", "n/a", "exact"]


def test_time_is_not_claimed_where_nothing_tells_it(make_launch: Make) -> None:
    text = report.text([make_launch()])
    assert row(text, "Achieved Occupancy") == ["%", "n/a", "not", "timed"]
    assert row(text, "Memory Throughput") == ["byte/second", "n/a", "not", "timed"]


@pytest.mark.parametrize("name", ["occupancy", "Occupancy", "OCCUPANCY"])
def test_one_section_is_found_in_any_case(make_launch: Make, name: str) -> None:
    text = report.text([make_launch()], name)
    assert text.count("Section: ") == 1
    assert "Section: Occupancy\n" in text


def test_a_section_is_found_by_its_title() -> None:
    assert sections.find_section("launch statistics") == "LaunchStats"


def test_a_section_of_ncu_that_the_report_leaves_out_lists_its_metrics(make_launch: Make) -> None:
    assert "Section: Instruction Statistics\n" in report.text([make_launch()], "InstructionStats")


def test_an_unknown_section_is_refused_with_the_known_ones(make_launch: Make) -> None:
    with pytest.raises(UnknownName, match=r"unknown section 'Roof'.*LaunchStats \(Launch Statistics\)"):
        report.text([make_launch()], "Roof")


def test_a_pipeline_has_a_row_a_launch_and_totals_that_are_their_sum(make_launch: Make) -> None:
    text = report.text([make_launch(), make_launch(kernel="j")])
    one = ["48", "6,144", "4,096", "1,536", "128", "1,920", "2,030"]  # requests 32 + 16; DRAM read 1024 + 512
    assert row(text, "0   k") == [*one, "100.00"]
    assert row(text, "1   j") == [*one, "100.00"]
    assert row(text, "    Total") == ["96", "12,288", "8,192", "3,072", "256", "3,840", "4,060"]


def test_the_dirty_bytes_of_cold_launches_add_up_and_those_of_warm_ones_are_the_last_s(
    make_launch: Make,
) -> None:
    def total(*starts: str) -> tuple[str, str]:
        launches = [make_launch(l2=start) for start in starts]
        for n, launch in enumerate(launches):  # make_launch gives each its own counters: 100, 200, ... dirty
            launch.counters.hierarchy.dirty_bytes = 100 * (n + 1)
        text = report.text(launches)
        return row(text, "    Total")[5], " ".join(text.split())

    assert total("cold", "cold", "cold")[0] == "600"
    assert total("warm", "warm", "warm")[0] == "300"
    assert total("cold", "warm")[0] == "n/a"
    by_sum = "Total Dirty: sum of what each launch leaves, as each starts with an empty L2."
    by_last = "Total Dirty: what the last launch leaves, as L2 stays warm."
    assert by_sum in total("cold", "cold")[1] and by_last not in total("cold", "cold")[1]
    assert by_last in total("warm", "warm")[1] and by_sum not in total("warm", "warm")[1]


def test_one_launch_has_no_totals(make_launch: Make) -> None:
    assert "launches" not in report.text([make_launch()])


def test_no_launch_is_said_in_words() -> None:
    assert report.text([]) == "No kernels were profiled.\n"


def test_lines_keep_to_100_columns_for_the_numbers_of_the_main_job(make_launch: Make) -> None:
    launch = make_launch(shared_buffers=(("K", 16384),), static_shared_bytes=16384)
    launch.counters.global_load = SpaceCounts(34_082_816, 136_331_264, 532_544, 2_130_176)
    launch.counters.shared_load = SharedCounts(10**9, 4 * 10**9, 10**7, 2 * 10**7, 10**7)
    assert max(map(len, report.text([launch, launch]).splitlines())) <= 100


def test_numbers_have_thousands_separators_and_are_not_cut() -> None:
    assert number(34082816) == "34,082,816"
    assert number(1234567.891) == "1,234,567.89"
    assert number(0.0) == "0.00"
    assert number(1.25e-7) == "1.25e-07"
    assert number(math.nan) == number(None) == "n/a"


def test_a_table_too_wide_for_the_page_keeps_its_numbers() -> None:
    table = Table(("a", "b"), ((10**60, 10**60),), "rr")
    assert f"{10**60:,} {10**60:,}" in render(table, width=40)


def test_a_paragraph_hangs_below_its_mark() -> None:
    assert paragraph("aaa bbb", "OPT   ", width=10) == ["OPT   aaa", "      bbb"]


def test_on_a_terminal_the_same_lines_are_printed(make_launch: Make) -> None:
    import io

    from rich.console import Console

    out = io.StringIO()
    text = report.text([make_launch(closed_form={"global_load.bytes": 1})])
    report.show(text, Console(file=out, force_terminal=True, width=60, color_system="standard"))
    assert re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()) == text
    assert "\x1b[" in out.getvalue()


def test_a_section_with_nothing_in_it_says_so_where_it_is_asked_for(make_launch: Make) -> None:
    text = report.text([make_launch(closed_form={}, checks=())], "Validation")
    assert text.endswith("Section: Closed Form And Reference\nThere is nothing in it for this launch.\n")
    assert "There is nothing" not in report.text([make_launch(closed_form={}, checks=())])
    oracle = report.text([make_launch(engine="oracle")], "ComputeWorkloadAnalysis")
    assert "nothing in it for this launch: the engine oracle does not count what it shows.\n" in oracle
