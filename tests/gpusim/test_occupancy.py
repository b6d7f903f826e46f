"""Occupancy: every recorded answer of the H200, the literal cases of the rounding rules, and every
refusal."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from gpusim.arch import get_arch
from gpusim.errors import LaunchRefused
from gpusim.occupancy import check_launch, occupancy, opt_in_note, waves

H200, A100 = get_arch("h200"), get_arch("a100")
DATA = Path(__file__).parents[1] / "data"
GOOD = {"grid": (1, 1, 1), "block": (256, 1, 1), "static_shared": 0, "dynamic_shared": 0, "registers": 32}


def recorded(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(newline="") as file:
        return list(csv.DictReader(file))


def refused(**changes) -> str:
    with pytest.raises(LaunchRefused) as caught:
        check_launch(H200, **{**GOOD, **changes})
    return str(caught.value)


def test_every_recorded_answer_of_the_h200_is_met() -> None:
    rows = [{k: int(v) for k, v in row.items()} for row in recorded("h200_occupancy.csv")]
    wrong = [r for r in rows
             if occupancy(H200, r["threads"], r["regs"], r["static_smem"],
                          r["dyn_smem"]).blocks_per_sm != r["blocks"]]
    assert len(rows) == 2174 and wrong == []
    assert sum(r["blocks"] == 0 for r in rows) == 561


@pytest.mark.parametrize(("registers", "threads", "blocks"), [(33, 256, 6), (85, 128, 5), (65, 256, 3)])
def test_registers_of_a_warp_round_up_so_fewer_blocks_fit(registers: int, threads: int, blocks: int) -> None:
    # 33 x 32 = 1,056 -> 1,280 a warp: 12 in a quarter of 16,384, 48 an SM, 6 blocks of 8 warps;
    # 65,536 / (33 x 256) would be 7.
    found = occupancy(H200, threads, registers, 0, 0)
    assert (found.blocks_per_sm, found.limiters) == (blocks, ("registers",))


def test_registers_that_fill_the_unit_exactly_lose_no_block() -> None:
    # 32 x 32 = 1,024: 16 warps a quarter, 64 an SM, 8 blocks of 8 warps: the warp limit too.
    found = occupancy(H200, 256, 32, 0, 0)
    assert (found.blocks_per_sm, found.limiters, found.theoretical_pct) == (8, ("registers", "warps"), 100.0)


def test_shared_memory_counts_the_reserved_kilobyte_and_rounds_to_128() -> None:
    assert occupancy(H200, 128, 32, 4224, 0).shared_allocated_bytes == 5248
    assert occupancy(H200, 128, 32, 0, 1).shared_allocated_bytes == 1152
    # 233,472 / (32,768 + 1,024) = 6.9
    found = occupancy(H200, 64, 32, 32_768, 0)
    assert (found.limit_shared, found.blocks_per_sm, found.limiter) == (6, 6, "shared_mem")


def test_the_largest_block_of_shared_memory_fits_once_and_one_byte_more_does_not() -> None:
    assert occupancy(H200, 128, 32, 0, 232_448).blocks_per_sm == 1
    assert occupancy(H200, 128, 32, 0, 232_449).blocks_per_sm == 0


def test_a_partial_warp_takes_a_whole_one() -> None:
    assert occupancy(H200, 33, 16, 0, 0).warps_per_block == 2
    assert occupancy(H200, 32, 16, 0, 0).warps_per_block == 1


def test_blocks_that_are_small_are_limited_by_the_number_of_blocks() -> None:
    found = occupancy(H200, 32, 16, 0, 0)
    assert (found.limit_registers, found.limit_warps, found.limit_blocks) == (128, 64, 32)
    assert (found.limiters, found.active_warps, found.theoretical_pct) == (("blocks",), 32, 50.0)


def test_the_a100_has_less_shared_memory() -> None:
    # 167,936 / 33,792 = 4.97
    assert occupancy(A100, 64, 32, 32_768, 0).blocks_per_sm == 4


@pytest.mark.parametrize("name", ["h200_counters.csv", "h200_micro.csv"])
def test_the_limits_of_every_recorded_launch_are_ncus(name: str) -> None:
    for row in recorded(name):
        r = {k.removeprefix("launch__"): float(v) for k, v in row.items() if k.startswith("launch__")}
        found = occupancy(H200, int(r["block_size"]), int(r["registers_per_thread"]),
                          int(r["shared_mem_per_block_static"]), int(r["shared_mem_per_block_dynamic"]))
        assert found.limit_registers == r["occupancy_limit_registers"], row["case"]
        assert found.limit_warps == r["occupancy_limit_warps"], row["case"]
        assert found.limit_blocks == r["occupancy_limit_blocks"], row["case"]
        assert found.shared_allocated_bytes == r["shared_mem_per_block_allocated"], row["case"]
        assert found.registers_allocated_per_warp == 32 * r["registers_per_thread_allocated"], row["case"]
        ncu_limit = int(r["shared_mem_config_size"]) // found.shared_allocated_bytes
        assert ncu_limit == r["occupancy_limit_shared_mem"], row["case"]
        measured = waves(H200, (int(r["grid_size"]), 1, 1), found.blocks_per_sm)
        assert measured == pytest.approx(r["waves_per_multiprocessor"], abs=0.0051), row["case"]


def test_the_modelled_carveout_is_that_of_all_recorded_launches_but_one() -> None:
    wrong = []
    rows = recorded("h200_counters.csv") + recorded("h200_micro.csv")
    for row in rows:
        size = {k: int(float(row[f"launch__{k}"])) for k in (
            "block_size", "registers_per_thread", "shared_mem_per_block_static",
            "shared_mem_per_block_dynamic", "shared_mem_config_size",
            "occupancy_limit_shared_mem")}
        found = occupancy(H200, size["block_size"], size["registers_per_thread"],
                          size["shared_mem_per_block_static"],
                          size["shared_mem_per_block_dynamic"])
        if (found.carveout_bytes, found.ncu_limit_shared) != (size["shared_mem_config_size"],
                                                              size["occupancy_limit_shared_mem"]):
            wrong.append(row["case"])
    assert len(rows) == 237 and wrong == ["std_softmax N=1024"]


def test_l1_is_what_the_carveout_leaves_and_the_carveout_holds_the_blocks() -> None:
    # 1 block of 204,800 + 1,024 bytes does not fit 196 KB: the next configuration is the largest.
    found = occupancy(H200, 256, 32, 0, 204_800)
    assert (found.carveout_bytes, found.l1_bytes) == (233_472, 28_672)
    # 8 blocks without shared memory: 32 KB, as recorded; ncu's limit is 32 blocks, the SM would hold 228.
    found = occupancy(H200, 256, 16, 0, 0)
    assert (found.carveout_bytes, found.l1_bytes) == (32_768, 229_376)
    assert (found.ncu_limit_shared, found.limit_shared) == (32, 228)


def test_the_sm_limit_and_ncus_limit_of_shared_memory_are_kept_apart() -> None:
    # 9,216 bytes a block: 25 on an SM, 14 in the 132 KB that 8 resident blocks get.
    found = occupancy(H200, 256, 32, 0, 8192)
    assert (found.limit_shared, found.carveout_bytes, found.ncu_limit_shared) == (25, 135_168, 14)


def test_one_block_more_than_the_sms_hold_makes_a_second_wave() -> None:
    assert waves(H200, (132, 1, 1), 1) == 1.0
    assert waves(H200, (133, 1, 1), 1) == pytest.approx(1.00758, abs=1e-5)
    assert waves(H200, (33, 2, 4), 2) == 1.0


def test_a_launch_that_fits_is_not_refused() -> None:
    check_launch(H200, **GOOD)
    check_launch(H200, (2**31 - 1, 65535, 65535), (1024, 1, 1), 49_152, 232_448 - 49_152, 64)
    check_launch(H200, (1, 1, 1), (1, 1, 64), 0, 0, 255)


def test_2048_threads_a_block_are_refused_with_the_limit() -> None:
    assert refused(block=(2048, 1, 1)) == (
        "2,048 threads a block in block (2048, 1, 1); NVIDIA H200 takes at most 1,024. Use smaller blocks "
        "and a larger grid.")
    assert "1,056 threads" in refused(block=(33, 32, 1))


def test_a_block_deeper_than_64_is_refused() -> None:
    assert "block dimension z is 65 in block (1, 1, 65); NVIDIA H200 takes at most 64" in refused(block=(1, 1,
                                                                                                         65))


@pytest.mark.parametrize(("grid", "axis", "limit"), [
    ((2**31, 1, 1), "x", "2,147,483,647"), ((1, 65536, 1), "y", "65,535"), ((1, 1, 65536), "z", "65,535")])
def test_a_grid_beyond_its_limits_is_refused(grid: tuple[int, int, int], axis: str, limit: str) -> None:
    message = refused(grid=grid)
    assert f"grid dimension {axis} is" in message and f"at most {limit}" in message


@pytest.mark.parametrize("what", ["grid", "block"])
@pytest.mark.parametrize("extent", [0, -3])
def test_an_empty_or_negative_dimension_is_refused(what: str, extent: int) -> None:
    message = refused(**{what: (1, extent, 1)})
    assert f"{what} dimension y is {extent} in {what} (1, {extent}, 1); each must be at least 1" in message


def test_static_shared_memory_over_48_kb_is_refused_with_its_buffers() -> None:
    message = refused(static_shared=49_156, buffers=(("Ks", 32_768), ("Vs", 16_388)))
    assert message.startswith("49,156 bytes of static shared memory a block (Ks 32,768, Vs 16,388)")
    assert "at most 49,152 together" in message and "up to 232,448" in message


def test_shared_memory_over_the_opt_in_limit_is_refused_with_both_parts() -> None:
    message = refused(static_shared=1024, dynamic_shared=231_425, buffers=(("s", 1024),))
    assert message.startswith("232,449 bytes of shared memory a block, 1,024 static and 231,425 dynamic (s "
                              "1,024, dynamic 231,425)")
    assert "at most 232,448" in message
    assert "307,200 bytes" in refused(dynamic_shared=300 * 1024)


def test_negative_dynamic_shared_memory_is_refused() -> None:
    assert "-4 bytes of dynamic shared memory" in refused(dynamic_shared=-4)


def test_registers_that_no_block_could_get_are_refused() -> None:
    assert "256 registers a thread; NVIDIA H200 has at most 255" in refused(registers=256)
    assert "0 registers a thread" in refused(registers=0)
    # 255 -> 8,192 a warp: 2 in a quarter, 8 an SM; a block of 512 threads has 16 warps.
    message = refused(registers=255, block=(512, 1, 1))
    assert "8 warps fit an SM of 65,536 and the block has 16. Use at most 256 threads a block" in message


def test_a_refusal_begins_with_the_kernel() -> None:
    assert refused(block=(2048, 1, 1), kernel="flash_forward").startswith("flash_forward: 2,048 threads")


def test_one_byte_beside_48_kb_needs_opt_in_and_48_kb_do_not() -> None:
    check_launch(H200, **{**GOOD, "static_shared": 1, "dynamic_shared": 49_152})
    assert "needs opt-in (49,153 > 49,152)" in str(opt_in_note(H200, 1, 49_152))
    assert "at most 232,448" in str(opt_in_note(H200, 1, 49_152))
    assert opt_in_note(H200, 0, 49_152) is None


def test_a_register_count_that_is_not_sure_says_so_and_what_sets_it() -> None:
    # 175 x 32 = 5,600 -> 5,632 a warp: 2 in a quarter of 16,384, 8 an SM; 512 threads are 16 warps.
    changes = {"block": (512, 1, 1), "registers": 175}
    said = refused(**changes, source="estimated")
    assert said.startswith("175 registers a thread (estimated) and 512 threads a block: ")
    assert said.endswith("or fewer registers; --regs N sets the compiler's own.")
    other = refused(**changes, source="recorded for sm_90")
    assert other.startswith("175 registers a thread (recorded for sm_90) and")
    assert "--regs" not in refused(**changes, source="given") + refused(**changes)


def test_dynamic_shared_memory_is_listed_once() -> None:
    changes = {"static_shared": 1024, "dynamic_shared": 300_000}
    for buffers in ((("tile", 1024),), (("tile", 1024), ("dynamic", 300_000))):
        said = refused(**changes, buffers=buffers)
        assert "1,024 static and 300,000 dynamic (tile 1,024, dynamic 300,000)" in said
