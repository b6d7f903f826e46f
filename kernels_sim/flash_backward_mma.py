"""FlashAttention-2's backward pass on the tensor cores: 16-bit inputs and gradients, float32 sums.

`flash_backward --variant mma`; its options and inputs are those of flash_backward.py.

1. delta: D = rowsum(dO * O), as in flash_backward.py; the float32 sums of dQ become 0.
2. flash_backward_mma: a block owns Bc keys, a warp 16 of them. It walks the tiles of Br query rows that see a
   key of it, which come by cp.async while the tile before is worked on. A warp takes 16 rows at a time:
   S^T = K Q^T, P = exp2(S scale log2(e) - L log2(e)), dP^T = V dO^T, dS = P * (dP - D), dV += P^T dO,
   dK += dS^T Q. dS goes through shared memory to all warps, and dQ += dS K, 16 x 16 elements at a time.
3. reduce: with --deterministic only, as in flash_backward.py. Each block writes its dQ to a workspace of its
   own, and this launch adds them up in the order of tiles.
4. convert: dQ = scale * sums, in 16 bits.

P and dS are rounded to 16 bits for the products that take them. The accumulators of S^T lie in a warp as the
first operand of the next product wants them, so P never leaves the registers. The blocks of a K/V head take
all query heads of its group, so dK and dV are summed in float32 and written once.

What to look at in the report, next to --variant simt --dtype float16 (N = 1024, d = 64, tiles of 64 x 64):
- Compute: five products of 256 tiles are 163,840 mma of 4,096 FLOPs, 10 d a pair. What is left for the CUDA
  cores is 1 FFMA, 1 MUFU, 1 FADD and 1.5 FMUL a pair, 5,144,576 FLOPs with dK's and dQ's factor.
- Shared memory: 577,536 wavefronts instead of simt's 12,235,776. All tiles are swizzled: no conflicts, also
  where pairs of elements are stored and columns are read.
- Global loads: the same 143,360 sectors in 9,728 requests instead of 70,656, as a lane copies 16 bytes.
- Atomics: the same 1,048,576 adds to dQ (16,777,216 at N = 4096, 8,519,680 when causal). Each lane adds its
  own accumulators, 8 rows x 4 of 8 neighbours a request: 262,144 sectors, twice simt's. FlashAttention-2
  keeps these sums in the order of fragments, and its convert_dQ puts them right.
- --deterministic stores them in pairs, whole sectors, into a workspace of ceil(Nk/Bc) dQs.

A NaN in an input reaches every gradient that it has a part in. One in key j of K also reaches dQ of rows that
do not see the key, but only in a tile of rows of which another one sees it; likewise one in row i of Q or dO
reaches dK or dV of all keys of a tile of which row i sees one. One in V reaches no other.

What it leaves out: warps that share the columns of dK and dV, the gradient of L.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy import float16, float32, uint32

from dsl import cuda, ptx
from gpusim.errors import BadOption
from kernels_sim.attention import Shape, attention_flops, tiles_skipped
from kernels_sim.attention_facts import FLOPS, of_heads, pair_fact
from kernels_sim.flash_backward import ROWS, SHARED_LIMIT, Options, make_delta, make_reduce
from kernels_sim.flash_backward_counts import atomic_adds, delta_form, reduce_form, workspace_bytes
from kernels_sim.flash_backward_mma_counts import (
    PAIRS,
    closed_form,
    convert_form,
    instructions,
    rows_seen,
    units,
)
from kernels_sim.formulas import WARP, ceil_div
from kernels_sim.problem import Data, Fact, Step

ZERO = np.float32(0)
LOG2E = np.float32(math.log2(math.e))
CHUNK = 8
"""Elements of 16 bytes: what a lane copies, and a row of a matrix that ldmatrix loads."""
STRIP = 16
"""Keys of a warp, and rows that it takes at a time: the rows of an mma's result and the depth of the next."""
MOST_KEYS = 512
"""Keys of a tile of 1,024 threads."""
MOST_COLUMNS = 256
"""d + dv up to which the sums of dK and dV, half a register a column, leave a thread what else it needs."""
SPARE = 16
"""Rows of zeros behind the keys of K's tile: what a tile of rows reads in the place of keys that it does not
see. One for each row that an ldmatrix loads, so that a row of zeros lies in the banks of the row that it
stands for.
"""
INSTRUCTIONS = {
    "float16": (float16, ptx.mma_sync_m16n8k16_f32_f16, ptx.cvt_rn_f16x2_f32),
    "bfloat16": (ml_dtypes.bfloat16, ptx.mma_sync_m16n8k16_f32_bf16, ptx.cvt_rn_bf16x2_f32),
}
"""Type of the inputs -> that type in kernels, the product of its fragments, the rounding of two numbers."""


@dataclass(frozen=True)
class Tile:
    """Hold what the kernel is made for: head dimensions, rows and keys of a tile, and its place in shared
    memory.

    Bytes from the start of the dynamic shared memory: K tile with rows of zeros, V tile, two Q tiles, two dO
    tiles, dS, two L, two D.
    """

    d: int
    dv: int
    Br: int
    Bc: int

    @property
    def threads(self) -> int:
        """Return the threads of a block: a warp for 16 keys."""
        return self.Bc // STRIP * WARP

    @property
    def places(self) -> tuple[int, ...]:
        """Return the first byte of each buffer, and the bytes in all."""
        Br, Bc, d, dv = self.Br, self.Bc, self.d, self.dv
        halves = (Bc + SPARE) * d, Bc * dv, 2 * Br * d, 2 * Br * dv, Bc * Br
        sizes = *(2 * n for n in halves), 4 * 2 * Br, 4 * 2 * Br
        return tuple(int(n) for n in np.cumsum((0, *sizes)))


@cache
def swizzle(width: int) -> Any:
    """Return place(row, chunk): the element at which a tile with rows of `width` elements holds a chunk.

    The 16-byte chunks of a row are permuted (chunk xor row), so that the same chunk of any 8 rows one after
    another lies in 8 different places of the 128 bytes of all banks: with `group` the largest power of two up
    to 8 that divides the chunks of a row, row r begins r / (8 / group) rounds and a multiple of `group`
    chunks behind, and the xor tells the rows apart that begin at the same place.
    """
    group = math.gcd(width // CHUNK, 8)

    @cuda.jit(device=True)
    def place(row, chunk):
        return row * width + (chunk ^ row // (8 // group) % group) * CHUNK

    return place


@cache
def copier(width: int, threads: int) -> Any:
    """Return copy(sm, at, rows, source, head, first, low, high) for rows of `width` elements.

    It starts to copy `rows` rows of a head, from row `first` on, into the tile at sm[at]; those before the
    tile's row `low` and from `high` on become zeros, and are not read.
    """
    place, chunks = swizzle(width), width // CHUNK

    @cuda.jit(device=True)
    def copy(sm, at, rows, source, head, first, low, high):
        lane = cuda.threadIdx.x % WARP
        for start in range(cuda.threadIdx.x - lane, rows * chunks, threads):
            e = start + lane
            row = e // chunks
            size = 16 if low <= row and row < high else 0
            element = min(first * width + e * CHUNK, source.shape[1] - CHUNK)
            ptx.cp_async_cg(sm, at + place(row, e % chunks), source, (head, element), 16, size)

    return copy


@cache
def make_kernel(tile: Tile, dtype: str, causal: bool, windowed: bool, deterministic: bool) -> Any:
    """Return flash_backward_mma(Q, K, V, dO, L, D, dQ, dK, dV, scale, scale_log2, q_start, window).

    Q: (heads, N * d); dO: (heads, N * dv); K, dK: (kv_heads, Nk * d); V, dV: (kv_heads, Nk * dv); of 16 bits;
    L, D: (heads, N); dQ: (heads, N * d), its sums without `scale`; float32. deterministic: dQ is the
    workspace (tiles of keys, heads, N * d) instead. scale_log2: scale * log2(e). Grid (ceil(Nk / Bc),
    kv_heads, batch), block tile.threads; tile.places[-1] bytes of dynamic shared memory.
    """
    d, dv, Br, Bc, threads = tile.d, tile.dv, tile.Br, tile.Bc, tile.threads
    K_AT, V_AT, Q_AT, DO_AT, DS_AT = (n // 2 for n in tile.places[:5])
    L_AT, D_AT = (n // 4 for n in tile.places[5:7])
    element, mma, pack = INSTRUCTIONS[dtype]
    in_d, in_dv, in_rows = swizzle(d), swizzle(dv), swizzle(Br)
    copy_d, copy_dv = copier(d, threads), copier(dv, threads)

    @cuda.jit(device=True)
    def copy_rows(sm, floats, buffer, Q, dO, L, D, head, i0, some_first, some_end):
        """Start to copy a tile of rows into a buffer; rows that see no key of the block become zeros."""
        low, high = some_first - i0, some_end - i0
        copy_d(sm, Q_AT + buffer * Br * d, Br, Q, head, i0, low, high)
        copy_dv(sm, DO_AT + buffer * Br * dv, Br, dO, head, i0, low, high)
        lane = cuda.threadIdx.x % WARP
        for start in range(cuda.threadIdx.x - lane, Br, threads):
            row = i0 + start + lane
            size = 4 if row < L.shape[1] else 0
            source = (head, min(row, L.shape[1] - 1))
            ptx.cp_async_ca(floats, L_AT + buffer * Br + start + lane, L, source, 4, size)
            ptx.cp_async_ca(floats, D_AT + buffer * Br + start + lane, D, source, 4, size)

    @cuda.jit(device=True)
    def add_product(total, n, a, b0, b1):
        """Add a product of fragments to 8 columns of accumulators."""
        old = (total[n, 0], total[n, 1], total[n, 2], total[n, 3])
        total[n, 0], total[n, 1], total[n, 2], total[n, 3] = mma(a, (b0, b1), old)

    @cuda.jit
    def flash_backward_mma(Q, K, V, dO, L, D, dQ, dK, dV, scale, scale_log2, q_start, window):
        # Four names of the one dynamic array, as elements, as pairs of them, as chunks, and as float32.
        sm = cuda.shared.array(0, element)
        words = cuda.shared.array(0, uint32)
        chunks = cuda.shared.array(0, cuda.uint32x4)
        floats = cuda.shared.array(0, float32)
        of_p = cuda.local.array(4, uint32)
        of_ds = cuda.local.array(4, uint32)
        p = cuda.local.array((2, 4), float32)
        ds = cuda.local.array((2, 4), float32)
        dk = cuda.local.array((d // 8, 4), float32)
        dvs = cuda.local.array((dv // 8, 4), float32)
        dq = cuda.local.array((2, 4), float32)

        thread = cuda.threadIdx.x
        lane = thread % WARP
        mine = thread // WARP * STRIP  # the first of the warp's 16 keys
        kv_head = cuda.blockIdx.y + cuda.gridDim.y * cuda.blockIdx.z
        group = Q.shape[0] // K.shape[0]
        n_rows = L.shape[1]
        j0 = cuda.blockIdx.x * Bc
        keys = min(Bc, K.shape[1] // d - j0)

        # Row i sees key j if ahead = q_start + i - j is at least 0 (causal) and below the window.
        # Rows from some_first to some_end see a key of the tile, those from all_first to all_end all of them.
        some_first = 0
        all_first = 0
        some_end = n_rows
        all_end = n_rows
        if causal:
            some_first = max(0, j0 - q_start)
            all_first = j0 + keys - 1 - q_start
        if windowed:
            some_end = min(n_rows, j0 + keys - 1 - q_start + window)
            all_end = min(n_rows, j0 - q_start + window)
        if some_first >= n_rows:
            some_end = 0

        # An ldmatrix takes 4 matrices of 8 x 8: the lanes name their rows, 16 rows of 2 chunks or, for
        # operands that lie the other way round, 8 rows of 2 chunks and 8 rows more.
        row16, chunk16 = lane % 16, lane // 16
        row8, chunk8 = lane % 8 + lane // 16 * 8, lane // 8 % 2

        copy_d(sm, K_AT, Bc + SPARE, K, kv_head, j0, 0, keys)
        copy_dv(sm, V_AT, Bc, V, kv_head, j0, 0, keys)
        for n in range(d // 8):
            for e in range(4):
                dk[n, e] = ZERO
        for n in range(dv // 8):
            for e in range(4):
                dvs[n, e] = ZERO

        # A pass starts to copy a tile of rows, and works on the one that the pass before started; K and V
        # come with the first.
        first = some_first // Br * Br
        tiles = max(0, (some_end - first + Br - 1) // Br)
        for visit in range(group * tiles + 1):
            if visit < group * tiles:
                head = kv_head * group + visit // tiles
                i0 = first + visit % tiles * Br
                copy_rows(sm, floats, visit % 2, Q, dO, L, D, head, i0, some_first, some_end)
            ptx.cp_async_commit_group()
            if visit == 0:
                continue
            ptx.cp_async_wait_group(1)
            cuda.syncthreads()
            head = kv_head * group + (visit - 1) // tiles
            i0 = first + (visit - 1) % tiles * Br
            rows = min(Br, n_rows - i0)
            buffer = (visit - 1) % 2
            q_at = Q_AT + buffer * Br * d
            do_at = DO_AT + buffer * Br * dv

            # The warp's 16 keys x 16 rows at a time: P and dS, then their share of dV and dK.
            if mine < keys:
                for r in range(0, rows, STRIP):
                    for n in range(2):
                        for e in range(4):
                            p[n, e] = ZERO
                            ds[n, e] = ZERO
                    for k in range(0, d // 8, 2):
                        a = ptx.ldmatrix_x4(sm, K_AT + in_d(mine + row16, k + chunk16))
                        b = ptx.ldmatrix_x4(sm, q_at + in_d(r + row8, k + chunk8))
                        add_product(p, 0, a, b[0], b[1])
                        add_product(p, 1, a, b[2], b[3])
                    for k in range(0, dv // 8, 2):
                        a = ptx.ldmatrix_x4(sm, V_AT + in_dv(mine + row16, k + chunk16))
                        b = ptx.ldmatrix_x4(sm, do_at + in_dv(r + row8, k + chunk8))
                        add_product(ds, 0, a, b[0], b[1])
                        add_product(ds, 1, a, b[2], b[3])

                    # Accumulator e of 8 rows n: row 8 n + 2 (lane % 4) + e % 2, key lane / 4 + 8 (e / 2).
                    masked = i0 + r < all_first or i0 + r + STRIP > all_end or mine + STRIP > keys
                    for n in range(2):
                        for odd in range(2):
                            row = r + 8 * n + lane % 4 * 2 + odd
                            log2_sum = floats[L_AT + buffer * Br + row] * LOG2E
                            delta = floats[D_AT + buffer * Br + row]
                            for e in range(odd, 4, 2):
                                p[n, e] = ptx.ex2_approx_ftz_f32(p[n, e] * scale_log2 - log2_sum)
                                ds[n, e] = p[n, e] * (ds[n, e] - delta)
                            if masked:
                                for e in range(odd, 4, 2):
                                    key = mine + lane // 4 + e // 2 * 8
                                    ahead = q_start + i0 + row - j0 - key
                                    seen = (row < rows) & (key < keys)
                                    if causal:
                                        seen = seen & (ahead >= 0)
                                    if windowed:
                                        seen = seen & (ahead < window)
                                    p[n, e] = cuda.selp(seen, p[n, e], ZERO)
                                    ds[n, e] = cuda.selp(seen, ds[n, e], ZERO)
                    for n in range(2):
                        for below in range(2):
                            e = 2 * below
                            of_p[2 * n + below] = pack(p[n, e + 1], p[n, e])
                            of_ds[2 * n + below] = pack(ds[n, e + 1], ds[n, e])
                            at = DS_AT + in_rows(mine + 8 * below + lane // 4, r // 8 + n)
                            words[at // 2 + lane % 4] = of_ds[2 * n + below]

                    a = (of_p[0], of_p[1], of_p[2], of_p[3])
                    for n in range(0, dv // 8, 2):
                        b = ptx.ldmatrix_x4_trans(sm, do_at + in_dv(r + row16, n + chunk16))
                        add_product(dvs, n, a, b[0], b[1])
                        add_product(dvs, n + 1, a, b[2], b[3])
                    a = (of_ds[0], of_ds[1], of_ds[2], of_ds[3])
                    for n in range(0, d // 8, 2):
                        b = ptx.ldmatrix_x4_trans(sm, q_at + in_d(r + row16, n + chunk16))
                        add_product(dk, n, a, b[0], b[1])
                        add_product(dk, n + 1, a, b[2], b[3])
            cuda.syncthreads()

            # A warp takes 16 rows x 16 columns of dQ += dS K at a time. 0 * NaN is NaN: a key that no row of
            # the tile sees is zeros.
            seen_first = max(0, q_start + i0 + 1 - window - j0) if windowed else 0
            seen_end = min(keys, q_start + i0 + rows - j0) if causal else keys
            for part in range(mine // STRIP, (rows + STRIP - 1) // STRIP * (d // 16), threads // WARP):
                r = part // (d // 16) * STRIP
                column = part % (d // 16) * 16
                for n in range(2):
                    for e in range(4):
                        dq[n, e] = ZERO
                for j in range(0, keys, 16):
                    a = ptx.ldmatrix_x4_trans(sm, DS_AT + in_rows(j + row8, r // 8 + chunk8))
                    key = j + row16
                    key = key if seen_first <= key and key < seen_end else Bc + key % SPARE
                    b = ptx.ldmatrix_x4_trans(sm, K_AT + in_d(key, column // 8 + chunk16))
                    add_product(dq, 0, a, b[0], b[1])
                    add_product(dq, 1, a, b[2], b[3])
                for below in range(2):
                    row = i0 + r + 8 * below + lane // 4
                    if row < n_rows:
                        for n in range(2):
                            at = row * d + column + 8 * n + lane % 4 * 2
                            if deterministic:
                                pair = cuda.float32x2(dq[n, 2 * below], dq[n, 2 * below + 1])
                                dQ.view(cuda.float32x2)[cuda.blockIdx.x, head, at // 2] = pair
                            else:
                                cuda.atomic.add(dQ, (head, at), dq[n, 2 * below])
                                cuda.atomic.add(dQ, (head, at + 1), dq[n, 2 * below + 1])

        # Fragments hold pairs of elements: out through the tiles, 16 bytes a lane. A block that no row sees
        # has not waited for K and V.
        ptx.cp_async_wait_all()
        cuda.syncthreads()
        if mine < keys:
            for below in range(2):
                row = mine + 8 * below + lane // 4
                for n in range(d // 8):
                    pair = pack(dk[n, 2 * below + 1] * scale, dk[n, 2 * below] * scale)
                    words[(K_AT + in_d(row, n)) // 2 + lane % 4] = pair
                for n in range(dv // 8):
                    pair = pack(dvs[n, 2 * below + 1], dvs[n, 2 * below])
                    words[(V_AT + in_dv(row, n)) // 2 + lane % 4] = pair
        cuda.syncthreads()
        dk_chunks = dK.view(cuda.uint32x4)
        dv_chunks = dV.view(cuda.uint32x4)
        for e in range(thread, keys * d // CHUNK, threads):
            at = K_AT + in_d(e // (d // CHUNK), e % (d // CHUNK))
            dk_chunks[kv_head, j0 * d // CHUNK + e] = chunks[at // CHUNK]
        for e in range(thread, keys * dv // CHUNK, threads):
            at = V_AT + in_dv(e // (dv // CHUNK), e % (dv // CHUNK))
            dv_chunks[kv_head, j0 * dv // CHUNK + e] = chunks[at // CHUNK]

    return flash_backward_mma


@cache
def make_convert(d: int, dtype: str) -> Any:
    """Return convert(sums, dQ, scale): dQ = scale * sums, two elements a lane.

    sums (heads, N * d), float32; dQ (heads, N * d), of 16 bits. Grid (ceil(N / 4), heads, batch), block 128:
    a warp a row.
    """
    _, _, pack = INSTRUCTIONS[dtype]

    @cuda.jit
    def convert(sums, dQ, scale):
        lane = cuda.threadIdx.x % WARP
        row = cuda.blockIdx.x * ROWS + cuda.threadIdx.x // WARP
        head = cuda.blockIdx.y + cuda.gridDim.y * cuda.blockIdx.z
        pairs = sums.view(cuda.float32x2)
        words = dQ.view(uint32)
        if row < dQ.shape[1] // d:
            for k in range(lane, d // 2, WARP):
                pair = pairs[head, row * (d // 2) + k]
                words[head, row * (d // 2) + k] = pack(pair.y * scale, pair.x * scale)

    return convert


def check_tile(tile: Tile) -> None:
    """Raise BadOption for a tile shape that the kernel does not accept."""
    what = "flash_backward --variant mma"
    for name, value, unit, why in (
        ("d", tile.d, 16, "an mma takes 16 values of a row"),
        ("dv", tile.dv, 16, "an mma takes 16 values of a row"),
        ("Br", tile.Br, 32, "a warp copies L and D of 32 rows"),
        ("Bc", tile.Bc, STRIP, "a warp owns 16 keys"),
    ):
        if value < 1 or value % unit:
            raise BadOption(f"{what}: --{name} must be a positive multiple of {unit}, got {value}: {why}")
    if tile.Bc > MOST_KEYS:
        why = "a block is a warp for 16 keys"
        raise BadOption(f"{what}: --Bc must be at most {MOST_KEYS}, got {tile.Bc}: {why}")
    if tile.d + tile.dv > MOST_COLUMNS:
        raise BadOption(
            f"{what}: --d {tile.d} and --dv {tile.dv} are more than {MOST_COLUMNS} together: a thread holds "
            "(d + dv) / 2 sums of dK and dV, and has 255 registers"
        )
    if tile.places[-1] > SHARED_LIMIT:
        sizes = zip(("K", "V", "Q", "dO", "dS", "L", "D"), np.diff(tile.places), strict=True)
        parts = ", ".join(f"{name} {size}" for name, size in sizes)
        raise BadOption(
            f"{what}: --Br {tile.Br} --Bc {tile.Bc} with --d {tile.d} --dv {tile.dv} needs {tile.places[-1]} "
            f"bytes of shared memory ({parts}), a block can have {SHARED_LIMIT}; make --Br or --Bc smaller"
        )


def steps(
    options: Options, shape: Shape, data: Data, arrays: tuple[Any, ...], O: Any
) -> tuple[tuple[Step, ...], tuple[Fact, ...]]:
    """Return the launches and what the report shows of the algorithm; without a key, the first and the last.

    arrays: Q, K, V, dO, L, D, dQ, dK and dV, as flash_backward.build makes them. Raises BadOption.
    """
    tile, dtype = Tile(shape.d, shape.dv, options.Br, options.Bc), str(options.dtype)
    check_tile(tile)
    *inputs, D, dQ, dK, dV = arrays
    rows, block = (ceil_div(shape.N, ROWS), options.heads, options.batch), (ROWS * WARP,)
    tiles, windowed = ceil_div(shape.Nk, tile.Bc), shape.window > 0
    fixed = options.deterministic and tiles > 0
    sums = data.filled(np.nan, *dQ.shape)
    found = [Step(
        make_delta(shape.d, shape.dv, not fixed), rows, block, (O, inputs[3], D, sums), 0,
        delta_form(shape, not fixed, 2),
    )]  # fmt: skip
    target = data.filled(np.nan, tiles, *dQ.shape) if fixed else sums
    if tiles:
        scales = np.float32(shape.scale), np.float32(shape.scale * math.log2(math.e))
        found.append(Step(
            make_kernel(tile, dtype, shape.causal, windowed, fixed),
            (tiles, shape.kv_heads // options.batch, options.batch), (tile.threads,),
            (*inputs, D, target, dK, dV, *scales, shape.q_start, shape.window),
            tile.places[-1], closed_form(shape, tile, fixed, dtype),
        ))  # fmt: skip
    if fixed:
        found.append(Step(
            make_reduce(shape.d, tile.Br, tile.Bc, shape.causal, windowed), rows, block,
            (target, sums, shape.Nk, shape.q_start, shape.window), 0, reduce_form(shape, tile),
        ))  # fmt: skip
    found.append(Step(
        make_convert(shape.d, dtype), rows, block, (sums, dQ, np.float32(shape.scale)), 0, convert_form(shape)
    ))  # fmt: skip
    return tuple(found), facts(shape, tile, fixed, dtype, [step.closed_form for step in found])


def facts(
    shape: Shape, tile: Tile, deterministic: bool, dtype: str, forms: list[dict[str, int]]
) -> tuple[Fact, ...]:
    """Say what the report shows of the algorithm over all heads and launches: tiles, pairs, adds, FLOPs."""
    low, high = rows_seen(shape, tile)
    how = Fact("Atomic Adds To dQ", atomic_adds(shape, tile), "element", "d rows, each visited tile",
               {"global_red.lanes": 1})
    if deterministic:
        needed = workspace_bytes(shape, tile.Bc)
        how = Fact("Workspace", needed, "byte", of_heads("4 ceil(Nk/Bc) N d", shape))
    rest = sum(times * form.get(path, 0) for form in forms for path, times in FLOPS.items())
    return (
        Fact("Launches", len(forms), "launch", "delta, flash_backward_mma, convert; reduce before the last"
             if deterministic else "delta, flash_backward_mma, convert"),
        Fact("Tiles Visited", shape.heads * int((high > low).sum()), "tile", "some row sees some key"),
        Fact("Tiles Skipped", shape.heads * tiles_skipped(shape, tile.Br, tile.Bc), "tile",
             "no row sees a key"),
        pair_fact(shape),
        Fact("Pairs Computed", PAIRS * units(shape, tile), "pair", "whole tiles, 16 rows x 16 keys a time"),
        how,
        Fact("FLOPs, Pairs Visible", attention_flops(shape, backward=True), "flop", "6 d + 4 dv a pair"),
        Fact("FLOPs, Tensor Cores", 4096 * instructions(shape, tile), "flop", "6 d + 4 dv a pair computed",
             {"tensor.f16" if dtype == "float16" else "tensor.bf16": 4096}),
        Fact("FLOPs, CUDA Cores", rest, "flop", "2 FFMA + FMUL + FADD", dict(FLOPS)),
    )  # fmt: skip
