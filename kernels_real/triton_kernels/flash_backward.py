"""FlashAttention's backward pass in Triton: P again from L, dQ by atomics or by a workspace.

The twin of kernels_sim/flash_backward.py, launch by launch: delta (D = rowsum(dO * O), dQ = 0), then a block
for each tile of Bc keys that walks the tiles of Br rows which see it, then with --deterministic a launch that
adds up the workspace, and with --variant mma one that rounds dQ to 16 bits. The blocks of a K/V head take all
query heads of its group.

With mma the rows of a tile that see none of the block's keys are not read. The atomics are relaxed and their
results unused, as the simulated ones are; Triton merges four neighbours to one instruction. With simt dQ
stays float32. In 16 bits P and dS are rounded before their products.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from kernels_real.triton_kernels.arrays import Arrays
from kernels_real.triton_kernels.attention import Sizes, sizes_of
from kernels_real.triton_kernels.launching import Launch, require_power_of_2
from kernels_real.triton_kernels.per_row import load_once, store_by_warp

ROWS = 4
"""Rows of a block of the small launches, one warp each."""


@triton.jit
def delta(
    O, dO, D, dQ, N,
    DQ: tl.constexpr, DV: tl.constexpr, BD: tl.constexpr, BDV: tl.constexpr, ROWS: tl.constexpr,
    ZEROED: tl.constexpr,
):  # fmt: skip
    """Write D = rowsum(dO * O) of ROWS rows, and dQ = 0 if ZEROED: O, dO (heads, N, DV), D (heads, N), dQ
    (heads, N, DQ), the last two float32. Grid (ceil(N / ROWS), heads, batch).
    """
    head = (tl.program_id(1) + tl.num_programs(1) * tl.program_id(2)).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BDV)
    inside = rows < N
    at = head * N * DV + rows[:, None] * DV + column[None, :]
    mask = inside[:, None] & (column[None, :] < DV)
    o = tl.load(O + at, mask=mask, other=0.0).to(tl.float32)
    do = tl.load(dO + at, mask=mask, other=0.0).to(tl.float32)
    store_by_warp(D, head * N + rows, tl.sum(o * do, 1), inside, ROWS)
    if ZEROED:
        column = tl.arange(0, BD)
        at = head * N * DQ + rows[:, None] * DQ + column[None, :]
        tl.store(dQ + at, tl.zeros([ROWS, BD], tl.float32), mask=inside[:, None] & (column[None, :] < DQ))


@triton.jit
def flash_backward(
    Q, K, V, dO, L, DELTA, dQ, dK, dV, N, Nk, scale, q_start, window, group,
    D: tl.constexpr, DV: tl.constexpr, BD: tl.constexpr, BDV: tl.constexpr, BR: tl.constexpr,
    BC: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, DETERMINISTIC: tl.constexpr,
    SEEN_ONLY: tl.constexpr, THREADS: tl.constexpr, ONCE: tl.constexpr,
):  # fmt: skip
    """Write dK and dV of BC keys and add to dQ, or write it to the workspace (key tiles, heads, N, D).

    Q (heads, N, D), dO (heads, N, DV), K, dK (kv_heads, Nk, D), V, dV (kv_heads, Nk, DV); L, DELTA (heads, N)
    and dQ (heads, N, D) float32. Grid (ceil(Nk / BC), kv_heads, batch).
    """
    tile = tl.program_id(0)
    j0 = tile * BC
    kv_heads = tl.num_programs(1) * tl.num_programs(2)
    kv_head = (tl.program_id(1) + tl.num_programs(1) * tl.program_id(2)).to(tl.int64)
    keys = j0 + tl.arange(0, BC)
    own = tl.arange(0, BR)
    column = tl.arange(0, BD)
    v_column = tl.arange(0, BDV)
    there = keys < Nk
    # Rows from first to end see a key of the tile.
    first = 0
    end = N
    if CAUSAL:
        first = tl.maximum(0, j0 - q_start)
    if WINDOWED:
        end = tl.minimum(N, tl.minimum(j0 + BC, Nk) - 1 - q_start + window)
    if CAUSAL:
        end = tl.where(first < N, end, 0)

    k_at = kv_head * Nk * D + keys[:, None] * D + column[None, :]
    v_at = kv_head * Nk * DV + keys[:, None] * DV + v_column[None, :]
    k_mask = there[:, None] & (column[None, :] < D)
    v_mask = there[:, None] & (v_column[None, :] < DV)
    k = tl.load(K + k_at, mask=k_mask, other=0.0)
    v = tl.load(V + v_at, mask=v_mask, other=0.0)
    dk = tl.zeros([BC, BD], tl.float32)
    dv = tl.zeros([BC, BDV], tl.float32)
    for g in range(0, group):
        head = kv_head * group + g
        for i0 in range(first // BR * BR, end, BR):
            rows = i0 + own
            inside = rows < N
            q_at = head * N * D + rows[:, None] * D + column[None, :]
            q_mask = inside[:, None] & (column[None, :] < D)
            read = inside
            if SEEN_ONLY:
                read = (rows >= first) & (rows < end)
            q = tl.load(Q + q_at, mask=read[:, None] & (column[None, :] < D), other=0.0)
            do = tl.load(dO + head * N * DV + rows[:, None] * DV + v_column[None, :],
                         mask=read[:, None] & (v_column[None, :] < DV), other=0.0)
            if ONCE:
                lse = load_once(L + head * N, i0, N, BR, THREADS)
                of_row = load_once(DELTA + head * N, i0, N, BR, THREADS)
            else:  # a product on tensor cores gives 16 rows to each warp
                lse = tl.load(L + head * N + rows, mask=inside, other=0.0)
                of_row = tl.load(DELTA + head * N + rows, mask=inside, other=0.0)

            seen = inside[:, None] & there[None, :]
            if CAUSAL:
                seen = seen & (keys[None, :] <= q_start + rows[:, None])
            if WINDOWED:
                seen = seen & (keys[None, :] > q_start + rows[:, None] - window)
            s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
            # A row that sees nothing has L = -inf: its weights are left out, not computed as exp(inf).
            p = tl.where(seen, tl.exp(tl.where(seen, s - lse[:, None], 0.0)), 0.0)
            dv += tl.dot(tl.trans(p.to(do.dtype)), do, input_precision="ieee")
            dp = tl.dot(do, tl.trans(v), input_precision="ieee")
            ds = p * (dp - of_row[:, None]) * scale
            dk += tl.dot(tl.trans(ds.to(q.dtype)), q, input_precision="ieee")
            dq = tl.dot(ds.to(k.dtype), k, input_precision="ieee")
            if DETERMINISTIC:
                tl.store(dQ + tile.to(tl.int64) * kv_heads * group * N * D + q_at, dq, mask=q_mask)
            else:
                tl.atomic_add(dQ + q_at, dq, mask=q_mask, sem="relaxed")

    tl.store(dK + k_at, dk, mask=k_mask)
    tl.store(dV + v_at, dv, mask=v_mask)


@triton.jit
def reduce(
    WORKSPACE, dQ, N, Nk, q_start, window,
    D: tl.constexpr, BD: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr, ROWS: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr,
):  # fmt: skip
    """Write dQ of ROWS rows, the sum of what the tiles of keys gave, in their order: WORKSPACE (tiles, heads,
    N, D), dQ (heads, N, D), float32. Grid (ceil(N / ROWS), heads, batch); ROWS divides BR.
    """
    heads = tl.num_programs(1) * tl.num_programs(2)
    head = (tl.program_id(1) + tl.num_programs(1) * tl.program_id(2)).to(tl.int64)
    row0 = tl.program_id(0) * ROWS
    rows = row0 + tl.arange(0, ROWS)
    column = tl.arange(0, BD)
    # Only the tiles of keys that some row of the same tile of rows sees were written.
    i0 = row0 // BR * BR
    first = 0
    end = Nk
    if CAUSAL:
        end = tl.minimum(Nk, q_start + tl.minimum(i0 + BR, N))
    if WINDOWED:
        first = tl.maximum(0, q_start + i0 + 1 - window)
        end = tl.where(first < end, end, 0)
    at = head * N * D + rows[:, None] * D + column[None, :]
    mask = (rows < N)[:, None] & (column[None, :] < D)
    total = tl.zeros([ROWS, BD], tl.float32)
    WORKSPACE += first // BC * heads.to(tl.int64) * N * D
    for _ in range(first // BC * BC, end, BC):
        total += tl.load(WORKSPACE + at, mask=mask, other=0.0)
        WORKSPACE += heads.to(tl.int64) * N * D
    tl.store(dQ + at, total, mask=mask)


@triton.jit
def convert(
    SUMS, dQ, N, D: tl.constexpr, BD: tl.constexpr, ROWS: tl.constexpr
):  # fmt: skip
    """Round ROWS rows of SUMS (heads, N, D), float32, to dQ. Grid (ceil(N / ROWS), heads, batch)."""
    head = (tl.program_id(1) + tl.num_programs(1) * tl.program_id(2)).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BD)
    at = head * N * D + rows[:, None] * D + column[None, :]
    mask = (rows < N)[:, None] & (column[None, :] < D)
    tl.store(dQ + at, tl.load(SUMS + at, mask=mask), mask=mask)


def launches(
    options: Any, arrays: Arrays, num_warps: int | None = None, num_stages: int = 1
) -> list[Launch]:
    """Return the two to four launches; raise BadOption for tiles whose sides are no powers of 2.

    num_warps, num_stages: of the launch with the products; the others have a warp a row. num_warps not given:
    one for each 16 keys in 16 bits, as the simulated kernel has it, and 8 in float32.
    """
    size = sizes_of(options)
    require_power_of_2("flash_backward", Br=options.Br, Bc=options.Bc)
    H, tiles = size.heads * size.batch, triton.cdiv(size.Nk, options.Bc)
    D, dQ = arrays.make("D", (H, size.N)), arrays.output("dQ")
    dK, dV = arrays.output("dK"), arrays.output("dV")
    fixed = options.deterministic and tiles > 0
    sums = arrays.make("sums", (H, size.N, size.d)) if options.variant == "mma" else dQ
    target = arrays.make("workspace", (tiles, H, size.N, size.d)) if fixed else sums
    small = _Small(size, options)
    made = [small.launch(delta, (arrays["O"], arrays["dO"], D, sums, size.N), ZEROED=not fixed, DQ=size.d,
                         DV=size.dv, BDV=size.columns["BDV"])]  # fmt: skip
    if tiles:
        args = (arrays["Q"], arrays["K"], arrays["V"], arrays["dO"], arrays["L"], D, target, dK, dV, size.N,
                size.Nk, size.scale, size.q_start, size.window, size.group)
        wide = options.dtype == "float32"
        warps = num_warps or (8 if wide else options.Bc // 16)
        constants = {**size.columns, "BR": options.Br, "BC": options.Bc, **size.mask, "DETERMINISTIC": fixed,
                     "SEEN_ONLY": options.variant == "mma", "THREADS": 32 * warps,
                     "ONCE": wide or options.Br < 16 * warps}
        grid = tiles, size.kv_heads, size.batch
        made.append(Launch(flash_backward, grid, args, constants, warps, num_stages))
    if fixed:
        made.append(small.launch(reduce, (target, sums, size.N, size.Nk, size.q_start, size.window), D=size.d,
                                 BR=options.Br, BC=options.Bc, **size.mask))  # fmt: skip
    if sums is not dQ:
        made.append(small.launch(convert, (sums, dQ, size.N), D=size.d))
    return made


class _Small:
    """Make the launches that take a warp a row."""

    def __init__(self, size: Sizes, options: Any) -> None:
        self.grid = triton.cdiv(size.N, ROWS), size.heads, size.batch
        self.shared = {"ROWS": ROWS, "BD": size.columns["BD"]}

    def launch(self, kernel: Any, args: tuple[Any, ...], **constants: Any) -> Launch:
        """Return one launch."""
        return Launch(kernel, self.grid, args, {**self.shared, **constants}, num_warps=ROWS)
