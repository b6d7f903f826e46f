"""FlashAttention's forward pass in Triton: one block a tile of Br query rows, K/V tiles of Bc keys in a loop.

The twin of kernels_sim/flash_forward.py. Q is read once a block, K and V once for each tile that some row of
the block sees, O and L are written once; grid, tiles and layout are the same. With --variant mma a tile's
keys that no row of the block sees are not read, as the simulated kernel of tensor cores has it; with simt
the tiles are read whole.

In 16 bits both products run on the tensor cores and P is rounded to that type; in float32 they run on the
CUDA cores (input_precision "ieee"), as one product in TF32 would lose 13 bits. It does not count rescalings
(--stats).
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from gpusim.errors import BadOption
from kernels_real.triton_kernels.arrays import Arrays
from kernels_real.triton_kernels.attention import sizes_of
from kernels_real.triton_kernels.launching import Launch, require_power_of_2


@triton.jit
def flash_forward(
    Q, K, V, O, L, N, Nk, scale, q_start, window, group,
    D: tl.constexpr, DV: tl.constexpr, BD: tl.constexpr, BDV: tl.constexpr, BR: tl.constexpr,
    BC: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, SEEN_ONLY: tl.constexpr,
):  # fmt: skip
    """Write O and L of BR rows: Q (heads, N, D), K (kv_heads, Nk, D), V (kv_heads, Nk, DV), O (heads, N, DV),
    L (heads, N) float32. Grid (ceil(N / BR), heads, batch).
    """
    row0 = tl.program_id(0) * BR
    head = (tl.program_id(1) + tl.num_programs(1) * tl.program_id(2)).to(tl.int64)
    kv_head = head // group
    rows = row0 + tl.arange(0, BR)
    own = tl.arange(0, BC)
    column = tl.arange(0, BD)
    v_column = tl.arange(0, BDV)
    inside = rows < N
    # Some row of the block sees the keys from first to end.
    first = 0
    end = Nk
    if CAUSAL:
        end = tl.minimum(Nk, q_start + tl.minimum(row0 + BR, N))
    if WINDOWED:
        first = tl.maximum(0, q_start + row0 + 1 - window)
        end = tl.where(first < end, end, 0)

    at = head * N * D + rows[:, None] * D + column[None, :]
    q = tl.load(Q + at, mask=inside[:, None] & (column[None, :] < D), other=0.0)
    m = tl.full([BR], float("-inf"), tl.float32)
    total = tl.zeros([BR], tl.float32)
    acc = tl.zeros([BR, BDV], tl.float32)
    K += kv_head * Nk * D
    V += kv_head * Nk * DV
    for j0 in range(first // BC * BC, end, BC):
        keys = j0 + own
        there = keys < Nk
        if SEEN_ONLY:
            there = (keys >= first) & (keys < end)
        k = tl.load(K + keys[None, :] * D + column[:, None], mask=there[None, :] & (column[:, None] < D),
                    other=0.0)
        s = tl.dot(q, k, input_precision="ieee") * scale
        seen = (keys < Nk)[None, :]
        if CAUSAL:
            seen = seen & (keys[None, :] <= q_start + rows[:, None])
        if WINDOWED:
            seen = seen & (keys[None, :] > q_start + rows[:, None] - window)
        s = tl.where(seen, s, float("-inf"))

        top = tl.maximum(m, tl.max(s, 1))
        # -inf - -inf is NaN: a row that has seen nothing yet measures from 0.
        shift = tl.where(top == float("-inf"), 0.0, top)
        alpha = tl.exp(m - shift)
        p = tl.exp(s - shift[:, None])
        total = total * alpha + tl.sum(p, 1)
        v = tl.load(V + keys[:, None] * DV + v_column[None, :],
                    mask=there[:, None] & (v_column[None, :] < DV), other=0.0)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = top

    # No visible key: m = -inf, total = 0 and acc = 0 give L = -inf and O = 0.
    divisor = tl.where(total == 0.0, 1.0, total)
    tl.store(L + head * N + rows, m + tl.log(divisor), mask=inside)
    out = O + head * N * DV + rows[:, None] * DV + v_column[None, :]
    tl.store(out, acc / divisor[:, None], mask=inside[:, None] & (v_column[None, :] < DV))


def launches(
    options: Any, arrays: Arrays, num_warps: int | None = None, num_stages: int = 2
) -> list[Launch]:
    """Return the one launch; raise BadOption for --stats and for tiles whose sides are no powers of 2.

    num_warps: not given, one for each 16 rows in 16 bits, as the simulated kernel has it (more would compute
    the same rows again), and 8 in float32, where the products are the work.
    """
    if options.stats:
        raise BadOption("flash_forward in Triton does not count rescalings; leave out --stats")
    size = sizes_of(options)
    require_power_of_2("flash_forward", Br=options.Br, Bc=options.Bc)
    O, L = arrays.output("O"), arrays.output("L")
    args = (arrays["Q"], arrays["K"], arrays["V"], O, L, size.N, size.Nk, size.scale, size.q_start,
            size.window, size.group)
    constants = {**size.columns, "BR": options.Br, "BC": options.Bc, **size.mask,
                 "SEEN_ONLY": options.variant == "mma"}
    grid = triton.cdiv(size.N, options.Br), size.heads, size.batch
    warps = num_warps or (8 if options.dtype == "float32" else options.Br // 16)
    return [Launch(flash_forward, grid, args, constants, warps, num_stages)]
