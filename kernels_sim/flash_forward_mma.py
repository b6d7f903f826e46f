"""FlashAttention's forward pass on the tensor cores, in the steps of FlashAttention-2's CUDA code.

A warp owns 16 query rows and keeps them in registers as fragments, read by ldmatrix once; a block of Br / 16
warps walks the K/V tiles that its rows can see, from the first to the last (the CUDA code: from the last), so
that causal blocks ask for the same tiles side by side. K and V have one buffer each: while S = Q K^T of a
tile is made its V tile is on its way, and during softmax and P V the K tile of the next one; two barriers a
tile. Four lanes share a row, so its maximum takes two shuffles; each lane keeps a denominator of its own
until the end. Weights are 2^(s - m) with scale / log(2) folded into one FFMA. The accumulators of S, rounded
to 16 bits, are the A fragments of P V as they lie. O leaves by way of Q's place in shared memory, 16 bytes a
lane.

What to look at in the report (N = 4096, d = 64, float16):
- Compute: 1,048,576 mma.sync, 4 N^2 d = 4,294,967,296 FLOPs, beside 73,170,944 of softmax and rescaling on
  CUDA cores, 1.7 %. Causal executes 2,181,038,080, as tiles on the diagonal are computed whole.
- Global memory: K and V pass L1 once a block as in the simt variant, in half the bytes: 2,113,536 sectors
  loaded, 16 a request, none by L1. DRAM reads 1,572,864 bytes, 1/43 of that.
- Shared memory: 525,312 ldmatrix feed twice as many mma, 8 matrices of them a step of 16; 2,101,248
  wavefronts, where simt takes a load for each FFMA. Chunks of 16 bytes lie permuted (chunk xor row), so that
  there is no bank conflict at any head dimension.
- Registers: Q's fragments take d / 4, the accumulators dv / 2, the scores Bc / 2 a thread. No compiler's
  figure is recorded; the report estimates.
- Head dimensions that are no multiple of 16 are computed as the next one, with zeros, and loaded as they are.

Keys of a tile that no row of the block sees are zeros in shared memory, as those past the last key. A NaN in
V at a key that one row of a block sees reaches all rows of that block (its weight in them is 0, and 0 * NaN
is NaN); in an invisible K it reaches none, as the score is replaced. A visible one always arrives.

What it leaves out: two buffers for K and for V, and a warp's own end of the causal tiles: all warps walk
those of the block.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy import float16, float32, int64, uint32

from dsl import cuda, ptx
from gpusim.arch import H200
from gpusim.errors import BadOption
from kernels_sim.attention import (
    TOLERANCES,
    Shape,
    reference,
    rescalings,
    shape_of,
    tiles_skipped,
    tiles_visited,
)
from kernels_sim.attention_facts import element_facts, flop_facts, masked_flops, of_heads, pair_fact
from kernels_sim.flash_forward_mma_counts import CHUNK, closed_form, keys_loaded, keys_needed, padded
from kernels_sim.formulas import WARP, ceil_div
from kernels_sim.problem import Data, Fact, Problem, Step

ZERO, ONE, NEG_INF = float32(0), float32(1), float32(-np.inf)
SHARED_LIMIT = H200.shared_bytes_per_block_optin
"""Bytes of shared memory that a block can opt in to on the GPUs with most; a launch asks its own GPU."""
INSTRUCTIONS: dict[str, tuple[Any, Any, Any]] = {
    "float16": (float16, ptx.mma_sync_m16n8k16_f32_f16, ptx.cvt_rn_f16x2_f32),
    "bfloat16": (ml_dtypes.bfloat16, ptx.mma_sync_m16n8k16_f32_bf16, ptx.cvt_rn_bf16x2_f32),
}
"""Type of Q, K, V and O -> its dtype, its mma, and the conversion of two float32 to a register."""


def places(d: int, dv: int, Br: int, Bc: int) -> tuple[int, int, int]:
    """Return the first element of K's tile and of V's behind that of Q and O, and the elements in all."""
    k_at = Br * max(padded(d), padded(dv))
    v_at = k_at + Bc * padded(d)
    return k_at, v_at, v_at + Bc * padded(dv)


@cache
def tile_of(width: int, warps: int) -> tuple[Any, Any]:
    """Return place(row, chunk) and copy_rows(...), device functions for a tile of rows of `width` elements.

    A row takes padded(width) elements. The 8 rows of a matrix of ldmatrix lie in different banks.
    """
    row_elements, chunks, real = padded(width), padded(width) // CHUNK, width // CHUNK
    period = math.gcd(chunks, 8)
    repeats = 8 // period

    @cuda.jit(device=True)
    def place(row, chunk):
        """Return the element of the tile at which a chunk of a row begins."""
        return row * row_elements + (chunk ^ row // repeats % period) * CHUNK

    @cuda.jit(device=True)
    def copy_rows(tile, at, rows, source, head, first, low, high):
        """Start to copy rows of a head from `first` on; zeros for rows outside low..high and as padding."""
        for group in range(cuda.threadIdx.x // WARP, rows * chunks // WARP, warps):
            e = group * WARP + cuda.threadIdx.x % WARP
            r, chunk = e // chunks, e % chunks
            row = first + r
            size = 16 if low <= row and row < high and chunk < real else 0
            start = (head, min(row, source.shape[1] - 1), min(chunk, real - 1) * CHUNK)
            ptx.cp_async_cg(tile, at + place(r, chunk), source, start, 16, size)

    return place, copy_rows


@cache
def make_kernel(
    dtype: str, d: int, dv: int, Br: int, Bc: int, causal: bool, windowed: bool, stats: bool
) -> Any:
    """Return flash_forward_mma(Q, K, V, O, L, R, scale, scale_log2, q_start, window) for a tile and a mask.

    Q: (heads, N, d); K: (kv_heads, Nk, d); V: (kv_heads, Nk, dv); O: (heads, N, dv); of 16 bits; L: (heads,
    N) float32; R: the same, int32: with stats, how often a row was rescaled. scale_log2: scale / log(2).
    Grid (ceil(N / Br), heads, batch), block 2 Br; `places` says how many elements of dynamic shared memory.
    """
    element, mma, pack = INSTRUCTIONS[dtype]
    d_pad, dv_pad, chunks, warps = padded(d), padded(dv), padded(dv) // CHUNK, Br // 16
    k_at, v_at, _ = places(d, dv, Br, Bc)
    place_k, copy_k = tile_of(d, warps)
    place_v, copy_v = tile_of(dv, warps)

    @cuda.jit
    def flash_forward_mma(Q, K, V, O, L, R, scale, scale_log2, q_start, window):
        tile = cuda.shared.array(0, element, alignment=16)  # Q's rows, then O's; K's tile; V's tile
        q = cuda.local.array((d_pad // 16, 4), uint32)
        of_b = cuda.local.array((2, 2), uint32)
        s = cuda.local.array((Bc // 8, 4), float32)
        acc = cuda.local.array((dv_pad // 8, 4), float32)
        m = cuda.local.array(2, float32)
        total = cuda.local.array(2, float32)
        rescaled = cuda.local.array(2, int64)

        lane, warp = cuda.threadIdx.x % WARP, cuda.threadIdx.x // WARP
        head = cuda.blockIdx.y + cuda.gridDim.y * cuda.blockIdx.z
        kv_head = head // (Q.shape[0] // K.shape[0])
        first_row = cuda.blockIdx.x * Br
        n_rows, n_keys = Q.shape[1], K.shape[1]
        last_row = min(first_row + Br, n_rows) - 1
        # Some row of the block sees the keys from some_first to some_end, all rows those from all_first to
        # all_end.
        some_first, some_end, all_first, all_end = 0, n_keys, 0, n_keys
        if causal:
            some_end = min(n_keys, q_start + last_row + 1)
            all_end = min(n_keys, q_start + first_row + 1)
        if windowed:
            some_first = max(0, q_start + first_row + 1 - window)
            all_first = q_start + last_row + 1 - window
        first_tile = some_first // Bc
        tiles = (some_end + Bc - 1) // Bc - first_tile if some_first < some_end else 0

        copy_k(tile, 0, Br, Q, head, first_row, 0, n_rows)
        ptx.cp_async_commit_group()
        if tiles > 0:
            copy_k(tile, k_at, Bc, K, kv_head, first_tile * Bc, some_first, some_end)
        ptx.cp_async_commit_group()
        ptx.cp_async_wait_group(1)
        cuda.syncthreads()
        for k in range(d_pad // 16):
            at = place_k(warp * 16 + lane % 16, k * 2 + lane // 16)
            q[k, 0], q[k, 1], q[k, 2], q[k, 3] = ptx.ldmatrix_x4(tile, at)
        for j in range(dv_pad // 8):
            for c in range(4):
                acc[j, c] = ZERO
        for i in range(2):
            m[i], total[i], rescaled[i] = NEG_INF, ZERO, 0

        for turn in range(tiles):
            j0 = (first_tile + turn) * Bc
            ptx.cp_async_wait_group(0)
            cuda.syncthreads()  # K is there, and all warps are done with the V before
            copy_v(tile, v_at, Bc, V, kv_head, j0, some_first, some_end)
            ptx.cp_async_commit_group()

            for j in range(Bc // 8):
                for c in range(4):
                    s[j, c] = ZERO
            for k in range(d_pad // 16):
                of_q = (q[k, 0], q[k, 1], q[k, 2], q[k, 3])
                for j in range(0, Bc // 8, 2):
                    key = j * 8 + lane // 16 * 8 + lane % 8
                    at = k_at + place_k(key, k * 2 + lane // 8 % 2)
                    of_b[0, 0], of_b[0, 1], of_b[1, 0], of_b[1, 1] = ptx.ldmatrix_x4(tile, at)
                    for n in range(2):
                        old = (s[j + n, 0], s[j + n, 1], s[j + n, 2], s[j + n, 3])
                        new = mma(of_q, (of_b[n, 0], of_b[n, 1]), old)
                        s[j + n, 0], s[j + n, 1], s[j + n, 2], s[j + n, 3] = new
            if j0 < all_first or j0 + Bc > all_end:
                for i in range(2):
                    position = q_start + first_row + warp * 16 + i * 8 + lane // 4
                    first = position + 1 - window if windowed else 0
                    end = min(n_keys, position + 1) if causal else n_keys
                    for j in range(Bc // 8):
                        for c in range(2):
                            key = j0 + j * 8 + lane % 4 * 2 + c
                            score = s[j, 2 * i + c]
                            s[j, 2 * i + c] = score if first <= key and key < end else NEG_INF

            ptx.cp_async_wait_group(0)
            cuda.syncthreads()  # V is there, and all warps are done with K
            if turn + 1 < tiles:
                copy_k(tile, k_at, Bc, K, kv_head, j0 + Bc, some_first, some_end)
                ptx.cp_async_commit_group()

            for i in range(2):
                top = m[i]
                for j in range(Bc // 8):
                    top = max(top, max(s[j, 2 * i], s[j, 2 * i + 1]))
                top = max(top, cuda.shfl_xor_sync(0xFFFFFFFF, top, 1))
                top = max(top, cuda.shfl_xor_sync(0xFFFFFFFF, top, 2))
                # -inf - -inf is NaN: a row that has seen nothing yet measures from 0.
                shift = top * scale_log2 if top > NEG_INF else ZERO
                alpha = ptx.ex2_approx_ftz_f32(m[i] * scale_log2 - shift)
                if stats:
                    rescaled[i] += 1 if NEG_INF < m[i] and m[i] < top else 0
                m[i] = top
                weights = ZERO
                for j in range(Bc // 8):
                    for c in range(2):
                        p = ptx.ex2_approx_ftz_f32(s[j, 2 * i + c] * scale_log2 - shift)
                        s[j, 2 * i + c] = p
                        weights += p
                total[i] = total[i] * alpha + weights
                for j in range(dv_pad // 8):
                    acc[j, 2 * i] *= alpha
                    acc[j, 2 * i + 1] *= alpha

            for k in range(Bc // 16):
                a, b = 2 * k, 2 * k + 1
                of_p = (pack(s[a, 1], s[a, 0]), pack(s[a, 3], s[a, 2]),
                        pack(s[b, 1], s[b, 0]), pack(s[b, 3], s[b, 2]))  # fmt: skip
                for j in range(0, dv_pad // 8, 2):
                    at = v_at + place_v(k * 16 + lane % 16, j + lane // 16)
                    of_b[0, 0], of_b[0, 1], of_b[1, 0], of_b[1, 1] = ptx.ldmatrix_x4_trans(tile, at)
                    for n in range(2):
                        old = (acc[j + n, 0], acc[j + n, 1], acc[j + n, 2], acc[j + n, 3])
                        new = mma(of_p, (of_b[n, 0], of_b[n, 1]), old)
                        acc[j + n, 0], acc[j + n, 1], acc[j + n, 2], acc[j + n, 3] = new

        # No visible key: m = -inf, total = 0 and acc = 0 give L = -inf and O = 0.
        words = tile.view(uint32)
        for i in range(2):
            weights = total[i] + cuda.shfl_xor_sync(0xFFFFFFFF, total[i], 1)
            weights += cuda.shfl_xor_sync(0xFFFFFFFF, weights, 2)
            divisor = ONE if weights == ZERO else weights
            lse = m[i] * scale + math.log(divisor)
            inverse = ONE / divisor
            r = warp * 16 + i * 8 + lane // 4
            for j in range(dv_pad // 8):
                pair = pack(acc[j, 2 * i + 1] * inverse, acc[j, 2 * i] * inverse)
                words[place_v(r, j) // 2 + lane % 4] = pair
            if lane % 4 == 0 and first_row + r < n_rows:
                L[head, first_row + r] = lse
                if stats:
                    R[head, first_row + r] = rescaled[i]
        cuda.syncthreads()
        lines, out = tile.view(cuda.uint32x4), O.view(cuda.uint32x4)
        for group in range(warp, Br * chunks // WARP, warps):
            e = group * WARP + lane
            r, chunk = e // chunks, e % chunks
            line = lines[place_v(r, chunk) // CHUNK]
            if first_row + r < n_rows and chunk < dv // CHUNK:
                out[head, first_row + r, chunk] = line

    return flash_forward_mma


def check_tile(Br: int, Bc: int, d: int, dv: int) -> None:
    """Raise BadOption for a tile or a head dimension that the kernel does not accept."""
    for name, width in (("d", d), ("dv", dv)):
        if width % CHUNK:
            raise BadOption(f"flash_forward: --{name} must be a multiple of {CHUNK} with --variant mma, got "
                            f"{width}: rows begin at a multiple of 16 bytes, as cp.async needs")  # fmt: skip
    for name, n, most, what in (("Br", Br, 512, "rows"), ("Bc", Bc, 65536, "keys")):
        if not 16 <= n <= most or n % 16:
            raise BadOption(f"flash_forward: --{name} must be a multiple of 16 from 16 to {most} with "
                            f"--variant mma, got {n}: an mma takes 16 {what}")  # fmt: skip
    q, _, elements = places(d, dv, Br, Bc)
    if 2 * elements > SHARED_LIMIT:
        raise BadOption(
            f"flash_forward: --Br {Br} and --Bc {Bc} with --d {d} need {2 * elements} bytes of shared memory "
            f"(Q or O {2 * q}, K tile {2 * Bc * padded(d)}, V tile {2 * Bc * padded(dv)}), a block can have "
            f"{SHARED_LIMIT}; take smaller tiles"
        )


def build(options: Any, data: Data) -> Problem:
    """Make the problem of flash_forward's options: Q, K, V ~ N(0, 1) in 16 bits, O and L pre-filled with NaN.

    Raises BadOption.
    """
    if options.dtype not in INSTRUCTIONS:
        raise BadOption(f"flash_forward: --dtype must be float16 or bfloat16 with --variant mma, got "
                        f"{options.dtype}: the mma of this kernel multiplies numbers of 16 bits")
    shape, Br, Bc, dtype = shape_of(options, INSTRUCTIONS), options.Br, options.Bc, options.dtype
    check_tile(Br, Bc, shape.d, shape.dv)
    if shape.scale <= 0:
        raise BadOption(f"flash_forward: --scale must be above 0 with --variant mma, got {shape.scale}: the "
                        "maximum of a row is taken before its scores are scaled, as in FlashAttention-2")
    H, Hk, N, Nk, d, dv = shape.heads, shape.kv_heads, shape.N, shape.Nk, shape.d, shape.dv
    element = INSTRUCTIONS[dtype][0]
    Q, K, V = (data.normal(*of, dtype=element) for of in ((H, N, d), (Hk, Nk, d), (Hk, Nk, dv)))
    O, L = data.filled(np.nan, H, N, dv, dtype=element), data.filled(np.nan, H, N)
    R = data.filled(-1, H, N if options.stats else 0, dtype=np.int32)
    scales = np.float32(shape.scale), np.float32(shape.scale / math.log(2))
    step = Step(
        kernel=make_kernel(dtype, d, dv, Br, Bc, shape.causal, shape.window > 0, options.stats),
        grid=(ceil_div(N, Br), options.heads, options.batch),
        block=(2 * Br,),
        args=(Q, K, V, O, L, R, *scales, shape.q_start, shape.window),
        shared_bytes=2 * places(d, dv, Br, Bc)[2],
        closed_form=closed_form(shape, Br, Bc, dtype, options.stats),
    )
    said, outputs = facts(shape, Br, Bc, step.closed_form, dtype, options.stats), {"O": O, "L": L}
    inputs = {"Q": Q, "K": K, "V": V}
    if data.virtual:
        return Problem("flash_forward", (step,), outputs, facts=said, options=options, inputs=inputs)
    if options.stats:
        outputs["rescalings"] = R
        often = int(rescalings(Q, K, shape, Bc).sum())
        said += (Fact("Rescalings", often, "row", f"a tile of {Bc} keys raises the maximum, float64"),)

    def expected() -> dict[str, np.ndarray]:
        o, lse = reference(Q, K, V, shape)
        return {"O": o, "L": lse}

    tolerance = TOLERANCES[dtype]
    return Problem("flash_forward", (step,), outputs, expected, tolerance, said, options, inputs)


def facts(
    shape: Shape, Br: int, Bc: int, form: dict[str, int], dtype: str, stats: bool = False
) -> tuple[Fact, ...]:
    """Say what the report shows of the algorithm: tiles, pairs, elements and FLOPs over all heads.

    form: the closed form of the same shape and tile. Tiles are computed whole, with head dimensions in steps
    of 16; of their keys those are loaded that some row of the block sees.
    """
    H, width, wide = shape.heads, shape.d + shape.dv, padded(shape.d) + padded(shape.dv)
    tiles = H * int(tiles_visited(shape, Br, Bc).sum())
    pairs, rows = tiles * Br * Bc, H * shape.N * (1 + stats)
    needed = H * shape.N * width + shape.kv_heads * keys_needed(shape)[1] * width
    asked = H * (shape.N + keys_loaded(shape, Br)) * width
    tail, masked = " + 2 N" if stats else " + N", shape.causal or shape.window > 0
    formulas = "(d + dv) (N + keys seen)", "(d + dv) (N + keys loaded)"
    if shape.N == shape.Nk and not masked and (shape.dv, shape.group) == (shape.d, 1):
        formulas = "4 N d", "N d (2 + 2 ceil(N/Br))"
    return (
        Fact("K/V Tiles Visited", tiles, "tile", "some row of the block sees"),
        Fact("K/V Tiles Skipped", H * tiles_skipped(shape, Br, Bc), "tile", "no row of the block sees"),
        pair_fact(shape),
        Fact("Pairs Computed", pairs, "pair", "tiles of Br x Bc, whole"),
        *element_facts(
            needed + rows,
            of_heads(formulas[0] + tail, shape),
            asked + rows,
            of_heads(formulas[1] + tail, shape),
            (form,),
            2 * needed + 4 * rows,
            2 * asked + 4 * rows,
        ),
        *(masked_flops(shape, "2 (d + dv)") if masked else ()),
        *flop_facts(2 * wide * pairs, "2 (d + dv) pairs computed, d and dv in steps of 16", (form,),
                    "tensor.f16" if dtype == "float16" else "tensor.bf16"),
    )  # fmt: skip
