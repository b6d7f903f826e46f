"""The descriptions of GPUs: the numbers a reader knows, and a source for each."""

from __future__ import annotations

import dataclasses

import pytest

from gpusim.arch import ARCHES, get_arch
from gpusim.errors import UnknownName


def test_the_h200_has_the_numbers_that_the_card_reports() -> None:
    h200 = get_arch("h200")
    assert (h200.sm_count, h200.max_threads_per_sm, h200.registers_per_sm) == (132, 2048, 65536)
    assert (h200.shared_bytes_per_sm, h200.shared_bytes_per_block_optin) == (233_472, 232_448)
    assert (h200.l2_bytes, h200.l1_total_bytes) == (62_914_560, 262_144)
    assert h200.carveouts_bytes == (8192, 16384, 32768, 65536, 102400, 135168, 167936, 200704, 233472)


def test_the_a100_has_the_numbers_of_its_documents() -> None:
    a100 = get_arch("a100")
    assert (a100.sm_count, a100.compute_capability) == (108, "8.0")
    assert (a100.shared_bytes_per_sm, a100.shared_bytes_per_block_optin) == (167_936, 166_912)
    assert (a100.l1_total_bytes, a100.l2_bytes, a100.l2_partitions) == (196_608, 41_943_040, 2)


def test_only_the_h200_says_that_it_was_validated() -> None:
    assert {name: arch.validated for name, arch in ARCHES.items()} == {"h200": True, "h100": False,
                                                                       "a100": False}


def test_the_peaks_are_those_of_the_data_sheets() -> None:
    # 132 SMs x 128 lanes x 2 x 1.98 GHz and 108 x 64 x 2 x 1.41 GHz.
    assert get_arch("h200").fp32_flops_per_second == 66_908_160_000_000
    assert get_arch("h200").fp64_flops_per_second == 33_454_080_000_000
    assert get_arch("a100").fp32_flops_per_second == 19_491_840_000_000
    # 132 SMs x 4,096 x 1.98 GHz (989.4 at the 1.83 GHz of the data sheet) and 108 x 2,048 x 1.41 GHz.
    assert get_arch("h200").tensor_flops_per_second == 1_070_530_560_000_000
    assert get_arch("a100").tensor_flops_per_second == 311_869_440_000_000


@pytest.mark.parametrize("arch", ARCHES.values(), ids=ARCHES)
def test_the_memory_clock_and_bus_give_the_bandwidth_to_half_a_percent(arch) -> None:
    assert 2 * arch.memory_clock_hz * arch.memory_bus_bits / 8 == pytest.approx(arch.dram_bytes_per_second,
                                                                                rel=0.005)


@pytest.mark.parametrize("arch", ARCHES.values(), ids=ARCHES)
def test_every_number_has_a_source_and_no_source_is_of_nothing(arch) -> None:
    named = {f.name for f in dataclasses.fields(arch)} - {"sources", "name", "title", "compute_capability",
                                                          "validated"}
    assert set(arch.sources) == named
    assert all(len(text) > 5 for text in arch.sources.values())


@pytest.mark.parametrize("arch", ARCHES.values(), ids=ARCHES)
def test_the_parts_of_an_sm_add_up(arch) -> None:
    assert arch.quarters_per_sm * arch.registers_per_quarter == arch.registers_per_sm
    assert arch.max_warps_per_sm * arch.warp_size == arch.max_threads_per_sm
    assert arch.shared_bytes_per_block_optin + arch.shared_reserved_bytes == arch.shared_bytes_per_sm
    assert arch.carveouts_bytes[-1] == arch.shared_bytes_per_sm
    assert list(arch.carveouts_bytes) == sorted(arch.carveouts_bytes)


def test_a_name_is_found_in_any_case() -> None:
    assert get_arch(" H200 ") is ARCHES["h200"]


def test_an_unknown_gpu_is_refused_with_the_nearest_and_all_names() -> None:
    with pytest.raises(UnknownName, match=r"'h20'\. Did you mean 'h200'\? .*are h200, h100, a100\."):
        get_arch("h20")


def test_the_fingerprint_changes_with_a_value_and_not_with_a_source() -> None:
    h200 = get_arch("h200")
    assert len(h200.fingerprint()) == 12
    assert dataclasses.replace(h200, l2_ways=8).fingerprint() != h200.fingerprint()
    assert dataclasses.replace(h200, sources={}).fingerprint() == h200.fingerprint()
