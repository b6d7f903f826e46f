"""ldmatrix, cp.async, wide and constant loads against what an H200 counted, pattern by pattern.

tests/data/h200_tensor_micro.csv is what bench/record_tensor_micro.py wrote (h200 facts 36, 37, 39 and 40):
one warp a launch, ldmatrix, cp.async and stores 64 times, loads once. Beside the instruction looked at, each
launch loads its pattern and stores a result: 4 sectors for each array of 32 words.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsl import cuda, ptx
from dsl.host.device import Device
from dsl.host.launch import launch
from gpusim.arch import H200
from gpusim.counters import Counters

with (Path(__file__).parents[1] / "data" / "h200_tensor_micro.csv").open(newline="") as stream:
    CARD = {row["case"]: {k: int(v) for k, v in row.items() if k != "case"} for row in csv.DictReader(stream)}
TIMES = 64
LANES = np.arange(32, dtype=np.int64)
ROWS = {
    "rows*16": LANES * 16, "rows*32": LANES * 32, "rows*64": LANES * 64, "rows*128": LANES * 128,
    "rows*144": LANES * 144, "rows*256": LANES * 256, "rows*128 xor": LANES * 128 + (LANES & 7) * 16,
    "rows*64 xor": LANES * 64 + (LANES >> 1 & 3) * 16, "same row": LANES * 0, "rows/2*128": LANES // 2 * 128,
    "rows%4*128": LANES % 4 * 128,
}  # fmt: skip
PLACES = {
    "16*lane": LANES * 16, "32*lane": LANES * 32, "128*lane": LANES * 128, "144*lane": LANES * 144,
    "xor rows of 128": LANES // 8 * 128 + ((LANES % 8) ^ (LANES // 8)) * 16, "same": LANES * 0,
    "rows of 64 B apart 1024": LANES // 4 * 1024 + LANES % 4 * 16,
}  # fmt: skip
FLOATS = {
    "2*lane": LANES * 2, "4*lane": LANES * 4, "8*lane": LANES * 8, "32*lane": LANES * 32,
    "4*(lane/2)": LANES // 2 * 4, "same": LANES * 0, "4*lane+4": LANES * 4 + 4, "lane": LANES,
    "lane/8": LANES // 8,
}  # fmt: skip
CONSTANTS = np.zeros(8192, np.float32)


def counted(kernel: Any, *args: Any) -> Counters:
    """Return the counters of one warp."""
    return launch(kernel, 1, 32, args, Device(H200)).counters


@cuda.jit
def matrix_x1(rows, out):
    tile = cuda.shared.array(20480, np.float16, alignment=128)
    out[cuda.threadIdx.x] = ptx.ldmatrix_x1(tile, rows[cuda.threadIdx.x] // 2)


@cuda.jit
def matrix_x2(rows, out):
    tile = cuda.shared.array(20480, np.float16, alignment=128)
    a, b = ptx.ldmatrix_x2(tile, rows[cuda.threadIdx.x] // 2)
    out[cuda.threadIdx.x] = a ^ b


@cuda.jit
def matrix_x4(rows, out):
    tile = cuda.shared.array(20480, np.float16, alignment=128)
    a, b, c, d = ptx.ldmatrix_x4(tile, rows[cuda.threadIdx.x] // 2)
    out[cuda.threadIdx.x] = a ^ b ^ c ^ d


@cuda.jit
def matrix_x4_trans(rows, out):
    tile = cuda.shared.array(20480, np.float16, alignment=128)
    a, b, c, d = ptx.ldmatrix_x4_trans(tile, rows[cuda.threadIdx.x] // 2)
    out[cuda.threadIdx.x] = a ^ b ^ c ^ d


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(
    ("size", "kernel"),
    [("x1", matrix_x1), ("x2", matrix_x2), ("x4", matrix_x4), ("x4.trans", matrix_x4_trans)],
)
def test_ldmatrix_takes_the_wavefronts_of_the_card(size: str, kernel: Any, rows: str) -> None:
    card = CARD[f"ldmatrix {size} {rows}"]
    ours = counted(kernel, ROWS[rows], np.zeros(32, np.uint32)).shared_matrix
    assert card["smsp__inst_executed_op_ldsm.sum"] == TIMES * ours.requests
    assert card["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"] == TIMES * ours.wavefronts
    conflicts = ours.wavefronts - ours.ideal_wavefronts
    assert card["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"] == TIMES * conflicts


@cuda.jit
def copy_cg(data, source, target, size):
    tile = cuda.shared.array(40960, np.uint8, alignment=128)
    t = cuda.threadIdx.x
    ptx.cp_async_cg(tile, target[t], data, source[t], 16, size[t])
    ptx.cp_async_commit_group()
    ptx.cp_async_wait_group(0)


def copy_ca(size: int) -> Any:
    """Return the kernel that copies `size` bytes a lane through L1."""

    @cuda.jit
    def copy(data, source, target, taken):
        tile = cuda.shared.array(40960, np.uint8, alignment=128)
        t = cuda.threadIdx.x
        ptx.cp_async_ca(tile, target[t], data, source[t], size, taken[t])
        ptx.cp_async_commit_group()
        ptx.cp_async_wait_group(0)

    return copy


def copies() -> dict[str, tuple[Any, np.ndarray, np.ndarray, np.ndarray]]:
    """Return the recorded cases that a kernel may do: two copies to one place are a mistake here."""
    whole, side_by_side = LANES * 0 + 16, PLACES["16*lane"]
    found: dict[str, tuple[Any, np.ndarray, np.ndarray, np.ndarray]] = {}
    for kernel, name in ((copy_cg, "cp.async.cg 16"), (copy_ca(16), "cp.async.ca 16")):
        for place, of in PLACES.items():
            if place != "same":
                found[f"{name} src 16*lane dst {place}"] = kernel, side_by_side, of, whole
            found[f"{name} dst 16*lane src {place}"] = kernel, of, side_by_side, whole
        found[f"{name} upper half src-size 0"] = kernel, side_by_side, side_by_side, 16 * (LANES < 16)
        found[f"{name} src-size 4"] = kernel, side_by_side, side_by_side, LANES * 0 + 4
    for size, steps in ((4, (4, 32)), (8, (8, 128))):
        kernel = copy_ca(size)
        for step in steps:
            name = f"cp.async.ca {size} src {size}*lane dst {step}*lane"
            found[name] = kernel, LANES * size, LANES * step, LANES * 0 + size
    return found


COPIES = copies()


@pytest.mark.parametrize("case", COPIES)
def test_cp_async_asks_for_the_sectors_of_the_card(case: str) -> None:
    kernel, *pattern = COPIES[case]
    ours = counted(kernel, np.zeros(1 << 16, np.uint8), *pattern)
    # The card's patterns are three arrays of 32 int32, and a pointer's alignment costs one more load.
    card = CARD[case]
    requests = card["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"]
    sectors = card["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"]
    assert (requests - 4) // TIMES == 1 and (sectors - 16) % TIMES == 0
    # Ours are three arrays of 32 int64: 8 sectors each.
    assert ours.global_load.sectors - 24 == (sectors - 16) // TIMES
    assert ours.shared_async.requests == card["smsp__inst_executed_op_ldgsts.sum"] // TIMES


@pytest.mark.parametrize("case", [case for case in COPIES if ".ca" in case])
def test_cp_async_through_l1_takes_the_wavefronts_of_the_card(case: str) -> None:
    kernel, *pattern = COPIES[case]
    ours = counted(kernel, np.zeros(1 << 16, np.uint8), *pattern).shared_async
    # 194 of the card's are not the copies': 3 a commit with its wait, and the load behind them; up to 31 more
    # are that load's conflicts, where its places have some.
    more = CARD[case]["l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"] - 194 - TIMES * ours.wavefronts
    assert 0 <= more < TIMES


@cuda.jit
def load_4(data, index, out):
    v = data.view(cuda.float32x4)[index[cuda.threadIdx.x] // 4]
    out[cuda.threadIdx.x] = v.x + v.y + v.z + v.w


@cuda.jit
def store_4(data, index, out):
    data.view(cuda.float32x4)[index[cuda.threadIdx.x] // 4] = cuda.float32x4(1, 2, 3, 4)


@cuda.jit
def load_2(data, index, out):
    v = data.view(cuda.float32x2)[index[cuda.threadIdx.x] // 2]
    out[cuda.threadIdx.x] = v.x + v.y


@cuda.jit
def store_2(data, index, out):
    data.view(cuda.float32x2)[index[cuda.threadIdx.x] // 2] = cuda.float32x2(1, 2)


@pytest.mark.parametrize(
    ("bits", "pattern"), [(int(case[3:].split()[0]), case.split()[1]) for case in CARD if case[:3] == "ldg"]
)
def test_wide_accesses_touch_the_sectors_of_the_card(bits: int, pattern: str) -> None:
    load, store = (load_4, store_4) if bits == 128 else (load_2, store_2)
    args = np.zeros(4096, np.float32), FLOATS[pattern], np.zeros(32, np.float32)
    loads, stores = CARD[f"ldg{bits} {pattern}"], CARD[f"stg{bits} {pattern}"]
    of_data = counted(load, *args).global_load
    assert (of_data.requests, of_data.sectors) == (
        loads["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"],
        loads["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] + 4,
    )
    to_data = counted(store, *args).global_store
    assert stores["l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"] == TIMES * to_data.requests
    assert stores["l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"] == TIMES * to_data.sectors


@cuda.jit
def load_constant(index, out):
    table = cuda.const.array_like(CONSTANTS)
    out[cuda.threadIdx.x] = table[index[cuda.threadIdx.x]]


@pytest.mark.parametrize("pattern", FLOATS)
def test_a_constant_load_asks_for_each_address_once_as_the_card_does(pattern: str) -> None:
    ours = counted(load_constant, FLOATS[pattern], np.zeros(32, np.float32)).const_load
    # The card asks for three constants more: the kernel's two parameters and its own.
    assert ours.requests == 1
    assert CARD[f"ldc {pattern}"]["idc__requests.sum"] == ours.addresses + 3
