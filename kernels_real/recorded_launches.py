"""The launches that are recorded: for each algorithm and backend small, large and ragged shapes, and one
whose working set overflows the 60 MB of L2.

The order is the order of measuring: the most telling first, so that a run that has to stop leaves out the
least.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpusim.goals import FIT, TEST
from kernels_real.jobs import Job

Options = dict[str, Any]
EMPTY = "kernels_real/empty_kernel.py:empty"
WINDOW = {"B": 16, "T": 1024, "H": 4, "HKV": 4, "d": 64, "causal": True, "window": 4}
"""64 heads of 1,024 rows: 17 MB for each array of d = 64."""
ROW_SHAPES: list[Options] = [
    {"T": 128}, {"B": 2, "T": 300, "H": 4, "HKV": 1, "d": 32, "causal": True},
    {"T": 384, "H": 4, "HKV": 2, "d": 64, "causal": True}, WINDOW]

NUMBA: dict[str, list[Options]] = {
    EMPTY: [{"grid": "1", "block": "32"}, {"grid": "1320", "block": "256"}],
    "flash_forward": [
        {"N": 512, "d": 16}, {"N": 500, "Nk": 700, "d": 16}, {"N": 1000, "d": 48, "Br": 32, "Bc": 32,
                                                              "causal": True},
        {"N": 1024, "d": 32, "heads": 4, "batch": 2}, {"N": 4096, "d": 64, "causal": True},
        {"N": 2048, "d": 64, "heads": 16, "batch": 2}],
    "flash_backward": [
        {"N": 256, "d": 16}, {"N": 500, "d": 16, "causal": True}, {"N": 1024, "d": 16, "heads": 4},
        {"N": 512, "d": 16, "heads": 64, "batch": 5}, {"N": 1024, "d": 64, "deterministic": True}],
    "flash_decode": [
        {"Nk": 1000, "splits": 7, "heads": 4}, {}, {"Nk": 65536, "heads": 16, "kv_heads": 2, "splits": 64},
        {"Nq": 3, "Nk": 4001, "splits": 16, "heads": 8, "kv_heads": 2, "batch": 3},
        {"Nk": 65536, "heads": 4, "splits": 128}],
    "paged_attention_v2": [
        {"lens": "100,17"}, {"lens": "1000,2048,1,513"}, {"lens": "4096,4000,3000,2048", "heads": 16},
        {"lens": ",".join(["8192"] * 16), "kv_heads": 4, "heads": 8}],
    "standard_attention": [
        {"N": 256}, {"N": 1000, "causal": True}, {"N": 2048}, {"N": 4096, "heads": 2}],
    "qk_norm_rope": [
        {"tokens": 100}, {"tokens": 333, "paired": True, "heads": 4}, {"tokens": 4096},
        {"tokens": 8192, "heads": 16}],
    "softmax_merge": [
        {"parts": 4, "rows": 256}, {"parts": 3, "rows": 1001, "d": 48}, {"parts": 8, "rows": 16384},
        {"parts": 8, "rows": 100_000, "d": 0}, {"parts": 16, "rows": 32768, "d": 64}],
    "standard_attention_backward": [
        {"N": 256}, {"N": 500, "d": 48, "causal": True}, {"N": 1024}, {"N": 4096}],
    "flash_row_forward": ROW_SHAPES,
    "flash_row_delta": [*ROW_SHAPES[:-1], {**WINDOW, "B": 32}],
    "flash_row_dq": ROW_SHAPES,
    "flash_row_dk": ROW_SHAPES,
    "flash_row_dv": ROW_SHAPES,
    "transpose": [
        {"rows": 33, "cols": 65, "variant": "padded"},
        *({"rows": rows, "cols": cols, "variant": variant}
          for rows, cols in ((1000, 777), (2048, 2048)) for variant in ("naive", "tiled", "padded")),
        {"rows": 4096, "cols": 4100, "variant": "tiled"}],
    "matmul_tiled": [{"N": 64}, {"N": 300}, {"N": 1024}, {"N": 2400}],
    "softmax_rows": [
        {"rows": 300, "cols": 100}, {"rows": 1000, "cols": 777}, {"rows": 4096, "cols": 1024},
        {"rows": 8192, "cols": 2048}, {"rows": 8192, "cols": 8192}],
    "histogram": [
        {"n": 100_000, "bins": 37, "variant": "global"}, {"n": 1 << 20, "bins": 256, "variant": "global"},
        {"n": 1 << 20, "bins": 256, "variant": "shared"}, {"n": (1 << 24) + 5, "bins": 256,
                                                           "variant": "shared"}],
    "block_reduce": [{"n": 1003}, {"n": 1_000_003}, {"n": 1 << 22}, {"n": (1 << 24) + 5}],
    "vec_add": [{"n": 1003}, {"n": 1_000_003}, {"n": 1 << 22}, {"n": 1 << 24}],
    "strided_copy": [
        {"n": 1000, "stride": 33}, {"n": 999_999, "stride": 2}, {"n": 1 << 20, "stride": 8},
        {"n": 1 << 20, "stride": 32}],
    "offset_copy": [
        {"n": 1003, "offset": 3}, {"n": 1_000_003, "offset": 3}, {"n": 1 << 22, "offset": 1},
        {"n": 1 << 24, "offset": 8}],
}
HALF = {"dtype": "float16"}
MMA = {"variant": "mma", **HALF}

TRITON: dict[str, list[Options]] = {
    "flash_forward": [
        {"N": 256, **MMA}, {"N": 1000, "Nk": 900, "d": 64, **MMA, "causal": True}, {"N": 4096, **MMA},
        {"N": 4096, "heads": 4, "kv_heads": 2, "d": 128, **MMA, "causal": True},
        {"N": 2048, "variant": "mma", "dtype": "bfloat16", "window": 256, "causal": True},
        {"N": 4096, "heads": 16, "batch": 2, **MMA}],
    "flash_backward": [
        {"N": 256, **MMA}, {"N": 1000, **MMA, "causal": True}, {"N": 2048, "heads": 4, **MMA},
        {"N": 1024, "heads": 32, "batch": 2, **MMA}],
    "flash_decode": NUMBA["flash_decode"],
    "paged_attention_v2": [*NUMBA["paged_attention_v2"], {"lens": "1000,2048,1,513", **HALF}],
    "standard_attention": [
        {"N": 256, **HALF}, {"N": 1000, "causal": True, **HALF}, {"N": 2048, **HALF},
        {"N": 4096, "heads": 2, **HALF}],
    "qk_norm_rope": NUMBA["qk_norm_rope"],
    "softmax_merge": NUMBA["softmax_merge"],
    "matmul_fp8": [
        {"M": 256, "N": 256, "K": 256}, {"M": 1000, "N": 496, "K": 768}, {"M": 2048, "N": 2048, "K": 2048},
        {"M": 4096, "N": 4096, "K": 4096, "accumulation": "full"}],
    "fp8_qkv": [
        {"tokens": 128}, {"tokens": 1000, "paired": True}, {"tokens": 4096}, {"tokens": 16384}],
    "qkv_norm_rope_fp8_backward": [
        {"tokens": 128}, {"tokens": 992, "paired": True}, {"tokens": 4096}, {"tokens": 16384}],
    "fp8_qkv_backward": [
        {"tokens": 128}, {"tokens": 992, "paired": True}, {"tokens": 4096}, {"tokens": 16384}],
    "standard_attention_backward": [
        {"N": 256, **HALF}, {"N": 500, "d": 48, "causal": True, **HALF}, {"N": 1024, **HALF},
        {"N": 4096, **HALF}],
}
MB = 1 << 20
MICRO_FILE = "kernels_real/micro_kernels.py:"
OUT = "out"
"""An argument: an element a thread."""


def _micro(grid: int, block: int, *args: str | int, shared: int = 0) -> Options:
    filled = [f"float32[{grid * block}]" if a == OUT else f"{a}" for a in args]
    return {"grid": f"{grid}", "block": f"{block}", "arg": filled, "shared": shared}


def _floats(nbytes: int) -> str:
    return f"float32[{nbytes // 4}]=zeros"


def _slices(kilobytes: int, shared: int = 0) -> Options:
    return _micro(132, 256, _floats(132 * kilobytes << 10), kilobytes << 8, 2, OUT, shared=shared)


MICRO: dict[str, list[Options]] = {
    f"{MICRO_FILE}read_slices": [
        _slices(kb) for kb in (16, 64, 128, 160, 192, 200, 208, 216, 224, 240, 256, 320)],
    f"{MICRO_FILE}read_slices_beside_shared": [
        _slices(kb, shared << 10) for shared in (50, 100, 160, 200) for kb in (16, 32, 64, 96, 128, 160)],
    f"{MICRO_FILE}read_in_strides": [
        _micro(1056, 256, _floats(mb * MB), mb * MB // 4, 2, OUT)
        for mb in (8, 24, 28, 32, 36, 40, 44, 48, 52, 60, 80)],
    f"{MICRO_FILE}read_together": [
        *(_micro(16, 1024, _floats(mb * MB), mb * MB // 4, 2, 0, OUT) for mb in (24, 28, 32, 36)),
        *(_micro(blocks, 512, _floats(2 * MB), MB // 2, 1, apart, OUT)
          for apart in (0, 4096) for blocks in (1, 2, 4, 8, 16, 24, 32, 66, 100, 132, 264, 528))],
    f"{MICRO_FILE}write_in_strides": [
        _micro(1056, 256, _floats(mb * MB), mb * MB // 4) for mb in (4, 16, 24, 28, 32, 48, 64, 128, 256)],
    f"{MICRO_FILE}copy_sums": [
        _micro(1056, 256, _floats(reads * mb * MB), _floats(mb * MB), mb * MB // 4, reads)
        for reads in (1, 2, 3) for mb in (16, 32, 64, 128)],
    f"{MICRO_FILE}write_then_read": [
        _micro(1056, 256, _floats(mb * MB), mb * MB // 4, OUT) for mb in (8, 24, 32, 48, 64)],
    f"{MICRO_FILE}write_in_parts": [
        _micro(1056, 256, _floats(64 * MB), 16 * MB, stride, count)
        for stride, count in ((8, 4), (8, 1), (16, 8), (32, 8), (32, 24), (64, 32))],
    f"{MICRO_FILE}read_behind": [
        _micro(blocks, 512, _floats(2 * MB), MB // 2, delay, OUT)
        for blocks in (8, 132) for delay in (10, 100, 1000, 10000)],
}
CONFIGURATIONS: dict[tuple[str, str], dict[str, int]] = {}
"""(kernel, backend) -> configuration other than its defaults."""
LISTS = {"numba": NUMBA, "triton": TRITON, "micro": MICRO}
"""Name of a list, and of its file of measurements -> its launches. Microbenchmarks run through numba."""


def jobs(listed: str, kernels: tuple[str, ...] = ()) -> Iterator[Job]:
    """Yield the jobs of a list, of some kernels if any are named."""
    backend = "triton" if listed == "triton" else "numba"
    for kernel, shapes in LISTS[listed].items():
        if not kernels or kernel in kernels:
            configuration = CONFIGURATIONS.get((kernel, backend), {})
            for options in shapes:
                yield Job(kernel, backend, options, configuration)


def list_of(job: Job) -> str:
    """Return the list that a job belongs to."""
    return "micro" if job.kernel.startswith(MICRO_FILE) else job.backend


def subset_of(listed: str, number: int) -> str:
    """Return the set of a kernel's problem by its number in a list, from 0: parameters of the model are
    fitted on the even ones, and the odd ones judge them. Microbenchmarks are all for fitting."""
    return FIT if listed == "micro" or number % 2 == 0 else TEST
