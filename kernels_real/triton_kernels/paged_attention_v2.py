"""Paged attention, version 2, in Triton: pages, partitions and a reduction.

The twin of kernels_sim/paged_attention_v2.py, access by access: a block takes one partition of one query head
and sequence; its pages of the block table and its query are loaded once; keys go by an element a lane, 32
tokens side by side, and values a column at a time. A Triton kernel left to itself would load the x elements
of a key that lie together (16 bytes) with one instruction, and so ask x times less often for the same
sectors; x is therefore a number that the compiler does not know.

What the simulated kernel shares between threads in shared memory is picked by tl.gather here. Loads are made
of at least as many elements as a block has threads, masked, since Triton repeats smaller ones in each warp.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from gpusim.errors import BadOption
from kernels_real.triton_kernels.arrays import Arrays
from kernels_real.triton_kernels.launching import Launch
from kernels_real.triton_kernels.per_row import load_by_warp, store_by_warp

REDUCE_ROWS = 4
"""Rows of a block of the second launch."""
TILE_ELEMENTS = 4096
"""Elements of a tile of keys or values."""
MOST_TOKENS = TILE_ELEMENTS
MOST_STATES = 32


@triton.jit(do_not_specialize=["x"])
def partition(
    Q, K, V, table, lens, slopes, m, l, o, heads, kv_heads, columns, scale, v_scale, x,
    D: tl.constexpr, PAGE: tl.constexpr, PARTITION: tl.constexpr, PAGES: tl.constexpr, WIDE: tl.constexpr,
    TOKENS: tl.constexpr, BD: tl.constexpr, ALIBI: tl.constexpr,
):  # fmt: skip
    """Write the state of one partition of one head of one sequence.

    Q (sequences, heads, D); K (pages, kv_heads, D / x, PAGE, x); V (pages, kv_heads, D, PAGE); table
    (sequences, columns) and lens (sequences,) int32; slopes (heads,); m, l (sequences heads, partitions), o
    (sequences heads, partitions, D), float32. PAGES, WIDE: what holds the partition's pages and D; TOKENS:
    the partition; BD: columns at a time. Grid (partitions, heads, sequences).
    """
    part = tl.program_id(0)
    head = tl.program_id(1)
    seq = tl.program_id(2).to(tl.int64)
    state = (seq * heads + head) * tl.num_programs(0) + part
    length = tl.load(lens + seq)
    start = part * PARTITION
    if start >= length:
        tl.store(m + state, float("-inf"))
        tl.store(l + state, 0.0)
        return

    end = tl.minimum(start + PARTITION, length)
    first_page = start // PAGE
    entry = tl.arange(0, PAGES)
    pages = tl.load(table + seq * columns + first_page + entry,
                    mask=first_page + entry <= (end - 1) // PAGE, other=0)
    element = tl.arange(0, WIDE)
    q = tl.load(Q + (seq * heads + head) * D + element, mask=element < D, other=0.0).to(tl.float32)

    token = start + tl.arange(0, TOKENS)
    there = token < end
    slot = token % PAGE
    page = tl.gather(pages, tl.where(there, token // PAGE - first_page, 0), 0).to(tl.int64)
    row = (page * kv_heads + head // (heads // kv_heads)) * D * PAGE
    column = tl.arange(0, BD)
    score = tl.zeros([TOKENS], tl.float32)
    for k0 in range(0, D, BD):
        k = k0 + column
        # Tokens come first: where nothing is known to lie together, Triton gives neighbours there to lanes.
        at = row[:, None] + (k // x)[None, :] * PAGE * x + slot[:, None] * x + (k % x)[None, :]
        keys = tl.load(K + at, mask=there[:, None] & (k < D)[None, :], other=0.0).to(tl.float32)
        score += tl.sum(keys * tl.gather(q, k, 0)[None, :], 1)
    score *= scale
    if ALIBI:
        score += tl.load(slopes + head) * (token - length + 1).to(tl.float32)
    score = tl.where(there, score, float("-inf"))
    top = tl.max(score, 0)
    # -inf - -inf is NaN: scores that are all -inf measure from 0.
    weights = tl.exp(score - tl.where(top == float("-inf"), 0.0, top))
    tl.store(m + state, top)
    tl.store(l + state, tl.sum(weights, 0))

    for k0 in range(0, D, BD):
        k = k0 + column
        at = row[:, None] + k[None, :] * PAGE + slot[:, None]
        values = tl.load(V + at, mask=there[:, None] & (k < D)[None, :], other=0.0).to(tl.float32)
        tl.store(o + state * D + k, tl.sum(values * weights[:, None], 0) * v_scale, mask=k < D)


@triton.jit
def reduce(
    m, l, o, lens, O, L, rows, heads, partitions,
    D: tl.constexpr, BD: tl.constexpr, PARTITION: tl.constexpr, ROWS: tl.constexpr, STATES: tl.constexpr,
):  # fmt: skip
    """Merge the partitions of ROWS rows and divide once: m, l (rows, partitions), o (rows, partitions, D), L
    (rows,), float32; O (rows, D); rows = sequences heads. Grid ceil(rows / ROWS).
    """
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    inside = row < rows
    parts = (load_by_warp(lens, row // heads, inside, ROWS) + PARTITION - 1) // PARTITION
    most = tl.max(parts, 0)
    state = tl.arange(0, STATES)
    column = tl.arange(0, BD)
    tops = tl.full([ROWS, STATES], float("-inf"), tl.float32)
    for p0 in range(0, most, STATES):
        at = row[:, None] * partitions + p0 + state[None, :]
        mask = p0 + state[None, :] < parts[:, None]
        tops = tl.maximum(tops, tl.load(m + at, mask=mask, other=float("-inf")))
    top = tl.max(tops, 1)
    shift = tl.where(top == float("-inf"), 0.0, top)
    totals = tl.zeros([ROWS, STATES], tl.float32)
    acc = tl.zeros([ROWS, BD], tl.float32)
    for p0 in range(0, most, STATES):
        at = row[:, None] * partitions + p0 + state[None, :]
        mask = p0 + state[None, :] < parts[:, None]
        weight = tl.exp(tl.load(m + at, mask=mask, other=float("-inf")) - shift[:, None])
        totals += weight * tl.load(l + at, mask=mask, other=0.0)
        part = tl.load(o + at[:, :, None] * D + column[None, None, :],
                       mask=mask[:, :, None] & (column < D)[None, None, :], other=0.0)
        acc += tl.sum(weight[:, :, None] * part, 1)
    total = tl.sum(totals, 1)
    # No token: top = -inf, total = 0 and acc = 0 give L = -inf and O = 0.
    divisor = tl.where(total == 0.0, 1.0, total)
    store_by_warp(L, row, top + tl.log(divisor), inside, ROWS)
    tl.store(O + row[:, None] * D + column[None, :], acc / divisor[:, None],
             mask=inside[:, None] & (column < D)[None, :])


def launches(options: Any, arrays: Arrays, num_warps: int = 4) -> list[Launch]:
    """Return the two launches; raise BadOption for partitions and pages that no tile holds.

    num_warps: of the first launch; the second has 4.
    """
    page, size, d, K = options.block_size, options.partition_size, options.d, arrays["K"]
    if size > MOST_TOKENS:
        raise BadOption(f"paged_attention_v2 in Triton: --partition-size must be at most {MOST_TOKENS}, got "
                        f"{size}: a block holds the weights of a partition")
    m, l, o, O, L = (arrays.output(name) for name in "mloOL")
    heads, sequences, threads = options.heads, arrays["lens"].shape[0], 32 * num_warps
    partitions = m.shape[1]
    scale = (1 / d**0.5 if options.scale is None else options.scale) * options.k_scale
    tokens = max(threads, triton.next_power_of_2(size))
    most_pages = triton.cdiv(size, page) + (size % page > 0)
    constants = {
        "D": d, "PAGE": page, "PARTITION": size, "TOKENS": tokens, "ALIBI": options.alibi,
        "PAGES": max(threads, triton.next_power_of_2(most_pages)),
        "WIDE": max(threads, triton.next_power_of_2(d)),
        "BD": max(1, min(triton.next_power_of_2(d), TILE_ELEMENTS // tokens)),
    }  # fmt: skip
    args = (arrays["Q"], K, arrays["V"], arrays["table"], arrays["lens"], arrays["slopes"], m, l, o, heads,
            K.shape[1], arrays["table"].shape[1], scale, options.v_scale, K.shape[4])
    width = triton.next_power_of_2(d)
    merging = {"D": d, "BD": width, "PARTITION": size, "ROWS": REDUCE_ROWS,
               "STATES": max(1, min(MOST_STATES, 4 * TILE_ELEMENTS // (REDUCE_ROWS * width)))}
    return [
        Launch(partition, (partitions, heads, sequences), args, constants, num_warps),
        Launch(reduce, (triton.cdiv(sequences * heads, REDUCE_ROWS),),
               (m, l, o, arrays["lens"], O, L, sequences * heads, heads, partitions), merging),
    ]  # fmt: skip
