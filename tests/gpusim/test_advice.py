"""Each rule of advice: where it speaks, and where it keeps silent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gpusim import advice
from gpusim.arch import get_arch
from gpusim.counters import Counters, Hierarchy, SharedCounts, SpaceCounts
from gpusim.launch import Check, Launch, Registers
from gpusim.occupancy import occupancy

Make = Callable[..., Launch]


def launch_with(make_launch: Make, **counters: object) -> Launch:
    """Return a launch whose counters are all 0 but for those named."""
    launch = make_launch(counters=Counters.zero())
    for name, value in counters.items():
        setattr(launch.counters, name, value)
    return launch


def test_a_stride_of_32_floats_is_called_uncoalesced(make_launch: Make) -> None:
    launch = launch_with(
        make_launch, global_load=SpaceCounts(lanes=320, bytes=1280, requests=10, sectors=320)
    )
    found = advice.uncoalesced_loads(launch)
    assert found is not None
    assert found.tag == "OPT"
    assert "32.0 sectors a request where the bytes asked for fill 4.0" in found.text
    assert "88 % of the 10,240 bytes" in found.text  # 1,280 of 10,240 are used


def test_coalesced_loads_get_no_advice(make_launch: Make) -> None:
    launch = launch_with(make_launch, global_load=SpaceCounts(lanes=320, bytes=1280, requests=10, sectors=40))
    assert advice.uncoalesced_loads(launch) is None


def test_an_offset_of_one_element_gets_no_advice(make_launch: Make) -> None:
    launch = launch_with(make_launch, global_load=SpaceCounts(lanes=320, bytes=1280, requests=10, sectors=50))
    assert advice.uncoalesced_loads(launch) is None  # 5 sectors for 4: exactly 1.25 times


def test_a_broadcast_gets_no_advice(make_launch: Make) -> None:
    launch = launch_with(make_launch, global_load=SpaceCounts(lanes=320, bytes=1280, requests=10, sectors=10))
    assert advice.uncoalesced_loads(launch) is None


def test_uncoalesced_stores_are_told_from_loads(make_launch: Make) -> None:
    launch = launch_with(
        make_launch, global_store=SpaceCounts(lanes=320, bytes=1280, requests=10, sectors=320)
    )
    found = advice.uncoalesced_stores(launch)
    assert found is not None
    assert found.heading == "Uncoalesced Global Stores"
    assert advice.uncoalesced_loads(launch) is None


def test_atomics_on_one_address_are_advised_against(make_launch: Make) -> None:
    launch = launch_with(make_launch, global_red=SpaceCounts(lanes=320, bytes=1280, requests=10, sectors=320))
    found = advice.contended_atomics(launch)
    assert found is not None
    assert "32.0 sectors a request" in found.text


def test_atomics_side_by_side_get_no_advice(make_launch: Make) -> None:
    launch = launch_with(make_launch, global_red=SpaceCounts(lanes=320, bytes=1280, requests=10, sectors=40))
    assert advice.contended_atomics(launch) is None


def test_a_column_of_a_32_wide_tile_is_a_32_way_conflict(make_launch: Make) -> None:
    counts = SharedCounts(lanes=320, bytes=1280, requests=10, wavefronts=320, ideal_wavefronts=10)
    found = advice.load_bank_conflicts(launch_with(make_launch, shared_load=counts))
    assert found is not None
    assert "32.0-way bank conflict" in found.text
    assert "310 of them (97 %)" in found.text
    assert "Pad the rows" in found.text


def test_shared_accesses_without_conflicts_get_no_advice(make_launch: Make) -> None:
    counts = SharedCounts(lanes=320, bytes=1280, requests=10, wavefronts=10, ideal_wavefronts=10)
    launch = launch_with(make_launch, shared_load=counts, shared_store=counts, shared_atom=counts)
    assert advice.load_bank_conflicts(launch) is None
    assert advice.store_bank_conflicts(launch) is None
    assert advice.atomic_bank_conflicts(launch) is None


def test_wide_loads_that_need_several_wavefronts_are_no_conflict(make_launch: Make) -> None:
    counts = SharedCounts(lanes=320, bytes=5120, requests=10, wavefronts=40, ideal_wavefronts=40)
    assert advice.load_bank_conflicts(launch_with(make_launch, shared_load=counts)) is None


def test_local_memory_is_named_with_its_bytes(make_launch: Make) -> None:
    counts = SpaceCounts(lanes=64, bytes=256, requests=2, sectors=8)
    found = advice.local_memory(launch_with(make_launch, local_load=counts, local_store=counts))
    assert found is not None
    assert "2 loads and 2 stores of local memory move 512 bytes" in found.text


def test_no_local_memory_gets_no_advice(make_launch: Make) -> None:
    assert advice.local_memory(launch_with(make_launch)) is None


def test_tiles_read_again_by_every_block_hit_l1_little(make_launch: Make) -> None:
    h = Hierarchy(l1_load_misses=1_000_000, dram_read_bytes=3_200_000)
    found = advice.low_l1_hits(launch_with(make_launch, hierarchy=h))
    assert found is not None
    assert "asked for 10.0 times" in found.text  # 32,000,000 / 3,200,000


def test_a_stream_that_reads_each_byte_once_gets_no_advice_on_l1(make_launch: Make) -> None:
    h = Hierarchy(l1_load_misses=1_000_000, dram_read_bytes=32_000_000)
    assert advice.low_l1_hits(launch_with(make_launch, hierarchy=h)) is None


def test_a_good_l1_hit_rate_gets_no_advice(make_launch: Make) -> None:
    h = Hierarchy(l1_load_hits=900_000, l1_load_misses=100_000, dram_read_bytes=3_200_000)
    assert advice.low_l1_hits(launch_with(make_launch, hierarchy=h)) is None


def test_reads_merged_before_l2_are_told_where_they_are_a_tenth_of_the_misses(make_launch: Make) -> None:
    some = Hierarchy(l1_load_misses=100, lrc_merged=10, l2_read=90)
    found = advice.shared_reads(launch_with(make_launch, hierarchy=some))
    assert found is not None and found.tag == "INF"
    assert found.text.startswith("10 of 100 sectors that miss L1 arrive with a read of another SM")
    assert "modelled" in found.text
    fewer = Hierarchy(l1_load_misses=100, lrc_merged=9, l2_read=91)
    assert advice.shared_reads(launch_with(make_launch, hierarchy=fewer)) is None
    assert advice.shared_reads(launch_with(make_launch, hierarchy=Hierarchy())) is None


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "words"),
    [(256, 255, 0, "255 registers"), (64, 32, 100_000, "100,000 bytes of shared memory"), (32, 16, 0, None)],
)
def test_the_limiter_of_a_low_occupancy_is_named(
    make_launch: Make, threads: int, registers: int, shared: int, words: str | None
) -> None:
    o = occupancy(get_arch("h200"), threads, registers, 0, shared)
    launch = make_launch(occupancy=o, registers=Registers(registers, "given"), dynamic_shared_bytes=shared)
    found = advice.occupancy_limiter(launch)
    if words is None:  # 32 blocks of 1 warp: 50 %, not under half
        assert found is None
    else:
        assert found is not None
        assert words in found.text


def test_fewer_blocks_than_sms_is_a_small_grid(make_launch: Make) -> None:
    found = advice.tail_effect(make_launch(grid=(64, 1, 1)))
    assert found is not None
    assert found.heading == "Small Grid"
    assert "64 blocks on 132 SMs: 68 SMs get none" in found.text


def test_one_block_more_than_a_wave_is_a_tail(make_launch: Make) -> None:
    found = advice.tail_effect(make_launch(grid=(132 * 32 + 1, 1, 1)))  # 32 blocks an SM: 4,224 slots
    assert found is not None
    assert "1 full wave of 4,224 blocks and a last one of 1: 50.0 % of the block slots" in found.text


def test_whole_waves_have_no_tail(make_launch: Make) -> None:
    assert advice.tail_effect(make_launch(grid=(132 * 32, 2, 1))) is None


def test_the_tail_of_many_waves_is_too_small_to_speak_of(make_launch: Make) -> None:
    assert advice.tail_effect(make_launch(grid=(132 * 32 * 16 + 1, 1, 1))) is None  # 16 of 17 waves: 94 %


def test_a_wrong_result_is_a_warning(make_launch: Make) -> None:
    found = advice.failed_check(make_launch(checks=(Check("O", 1e-3, 1e-5), Check("L", 0.0, 1e-5))))
    assert found is not None
    assert found.tag == "WRN"
    assert found.text.startswith("O differs")


def test_a_nan_error_is_a_warning_and_a_right_result_is_none(make_launch: Make) -> None:
    assert advice.failed_check(make_launch(checks=(Check("O", float("nan"), 1e-5),))) is not None
    assert advice.failed_check(make_launch(checks=(Check("O", 1e-5, 1e-5),))) is None


def test_a_closed_form_that_differs_is_a_warning_and_one_that_is_equal_none(make_launch: Make) -> None:
    found = advice.closed_form_differs(make_launch(closed_form={"global_load.bytes": 1, "barriers": 0}))
    assert found is not None
    assert found.text.startswith("global_load.bytes:")
    assert advice.closed_form_differs(make_launch(closed_form={"barriers": 0})) is None


def test_what_the_oracle_does_not_count_is_no_difference(make_launch: Make) -> None:
    launch = make_launch(closed_form={"arithmetic.ffma": 7, "hierarchy.l2_write": 7}, engine="oracle")
    assert advice.closed_form_differs(launch) is None
    assert advice.closed_form_differs(replace(launch, engine="compiled")) is not None


def test_a_gpu_that_was_not_held_against_a_card_is_a_warning(make_launch: Make) -> None:
    launch = make_launch()
    assert advice.unvalidated_gpu(launch) is None
    assert advice.unvalidated_gpu(replace(launch, arch=get_arch("a100"))) is not None


def test_every_rule_stands_in_a_section_of_the_report(make_launch: Make) -> None:
    from gpusim.sections import SECTIONS

    full = SharedCounts(lanes=320, bytes=1280, requests=10, wavefronts=320, ideal_wavefronts=10)
    bad = SpaceCounts(lanes=320, bytes=1280, requests=10, sectors=320)
    names = ("global_load", "global_store", "global_red", "local_load")
    launch = launch_with(
        make_launch, shared_load=full, shared_store=full, shared_atom=full, **dict.fromkeys(names, bad)
    )
    found = advice.advise(replace(launch, grid=(1, 1, 1), closed_form={"barriers": 1}, arch=get_arch("a100")))
    assert len(found) == 10
    assert {a.section for a in found} <= set(SECTIONS)
