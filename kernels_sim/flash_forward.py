"""FlashAttention's forward pass, one thread a query row: K/V tiles in shared memory, online softmax.

The algorithm is FlashAttention-2's: a block owns Br query rows, walks the K/V tiles of Bc keys that its
rows can see, and keeps the row maximum m, the denominator and the unnormalised output in registers; O and L
= m + log(denominator) are written once. Inside a tile the keys go by in strips of STRIP: STRIP scores, one
rescaling, STRIP weighted values. A whole tile at a time, as the paper has it, would need Bc private scores
a thread (64 more registers, 128 at Bc = 128), and a key at a time rescales the accumulator d times a key;
strips of 8 rescale d / 8 times.

What to look at in the report:
- Global loads: Q is asked for once and K, V once a block, so N d (2 + 2 ceil(N/Br)) + N elements pass L1.
  DRAM reads only 3 N d of them: the blocks walk the same tiles side by side and find them in L2. Double Br,
  and the load sectors halve.
- Sectors per request: 4, all is coalesced. A thread's row of Q or O is d words apart from its neighbour's, so
  Q comes in and O goes out through the K tile, Bc rows at a time, 32 neighbours a request.
- Bank conflicts: none at d = 64. Lanes that take rows d words apart out of the tile would meet in one bank,
  so row r lies rotated by r words; where 32 does not divide d a few conflicts stay.
- Shared memory: every load of a product is a broadcast (all rows of a warp want the same key), one wavefront;
  but each FFMA needs one, so the kernel is bound by shared loads, not by FLOPs.
- Occupancy: q, the accumulator and the scores take 2 d + STRIP registers a thread before any address, so the
  register file is the limiter at d = 64 (229 registers, 4 blocks of 64 threads an SM); large tiles of
  8 Bc d bytes make it shared memory.
- Algorithm: K and V pass L1 ceil(N/Br) times, so 32 times the ideal at N = 4096; causal blocks skip the tiles
  in their future, about half of them.

What it leaves out: tensor cores, asynchronous copies, 16-bit types: other variants.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from dsl import cuda
from gpusim.errors import BadOption
from kernels_sim.attention import (
    DIV,
    EXP,
    LOG,
    Access,
    Shape,
    arithmetic,
    block_keys,
    block_rows,
    dram,
    io_flash,
    io_flash_ideal,
    linear,
    reference,
    requests_of,
    shape_of,
    tiles_skipped,
    tiles_visited,
)
from kernels_sim.attention_facts import element_facts, flop_facts, of_heads, pair_fact
from kernels_sim.formulas import ceil_div, shared
from kernels_sim.problem import Data, Fact, KernelSpec, Problem, Step

float32 = np.float32
ZERO, ONE, NEG_INF = np.float32(0), np.float32(1), np.float32(-np.inf)

STRIP = 8
"""Keys that a thread scores between two rescalings of its accumulator."""
STATIC_SHARED_LIMIT = 49152
"""Bytes of shared memory that a kernel may declare; more has to be dynamic, and asked for at launch."""
SHARED_LIMIT = 232448
"""Bytes of shared memory a block of an H100 or H200 can opt in to."""

REGISTERS: dict[tuple[int, bool], int] = {
    (16, False): 80,
    (16, True): 72,
    (32, False): 128,
    (32, True): 128,
    (48, False): 168,
    (48, True): 168,
    (64, False): 229,
    (64, True): 255,
    (80, False): 255,
    (80, True): 255,
    (128, False): 255,
    (128, True): 255,
}
"""(d, causal) -> registers a thread while Br is at most Bc; 8 bytes spill at d = 16, up to 420 at d = 128."""
REGISTERS_SOURCE = "ptxas 13.0.88, sm_90, of bench/flash_forward.cu: the same loops, unrolled"


@cache
def make_kernel(d: int, Br: int, Bc: int, causal: bool) -> Any:
    """Return flash_forward(Q, K, V, O, L, scale, q_start) for a head dimension, a tile and causal or not.

    Q, O: (heads, N * d); K, V: (heads, Nk * d); L: (heads, N); all float32. Rows lie one after another, so
    that a tile of rows is one contiguous run. Grid (ceil(N / Br), heads, batch), block Br. Tiles over 48 KB
    use dynamic shared memory: `shared_bytes` says how much.
    """
    tile = Bc * d
    dynamic = shared_bytes(d, Bc) > 0
    elements = 0 if dynamic else tile
    v_at = tile if dynamic else 0
    strip = STRIP

    @cuda.jit
    def flash_forward(Q, K, V, O, L, scale, q_start):
        # Two dynamic arrays start at the same byte, so V's tile begins v_at elements in.
        Ks = cuda.shared.array(elements, float32)
        Vs = cuda.shared.array(elements, float32)
        q = cuda.local.array(d, float32)
        acc = cuda.local.array(d, float32)
        s = cuda.local.array(strip, float32)

        head = cuda.blockIdx.y + cuda.gridDim.y * cuda.blockIdx.z
        thread = cuda.threadIdx.x
        first_row = cuda.blockIdx.x * Br
        row = first_row + thread
        n_rows = L.shape[1]
        n_keys = K.shape[1] // d
        row_sees = n_keys
        all_see = n_keys
        some_see = n_keys
        if causal:
            last_row = min(first_row + Br, n_rows) - 1
            row_sees = min(n_keys, q_start + row + 1)
            all_see = min(n_keys, q_start + first_row + 1)
            some_see = min(n_keys, q_start + last_row + 1)

        # Row r lies rotated by r words, so that 32 threads find their rows in 32 banks (d = 64: else in one).
        # The scale goes into q: d multiplications a row instead of one a score.
        for r0 in range(0, Br, Bc):
            start = (first_row + r0) * d
            end = min(min(Bc, Br - r0), n_rows - first_row - r0) * d
            for e in range(thread, end, Br):
                r = e // d
                Ks[r * d + (e - r * d + r) % d] = Q[head, start + e]
            cuda.syncthreads()
            own = thread - r0
            if 0 <= own and own < Bc and row < n_rows:
                for k in range(d):
                    q[k] = Ks[own * d + (k + own) % d] * scale
                    acc[k] = ZERO
            cuda.syncthreads()
        m = NEG_INF
        denominator = ZERO

        for j0 in range(0, some_see, Bc):
            start = j0 * d
            end = min(tile, (n_keys - j0) * d)
            for e in range(thread, tile, Br):
                Ks[e] = K[head, start + e] if e < end else ZERO
                Vs[v_at + e] = V[head, start + e] if e < end else ZERO
            cuda.syncthreads()

            if row < n_rows:
                for j in range(0, min(Bc, some_see - j0), strip):
                    key = j0 + j
                    for u in range(strip):
                        s[u] = ZERO
                    for k in range(d):
                        qk = q[k]
                        for u in range(strip):
                            s[u] += qk * Ks[(j + u) * d + k]

                    masked = key + strip > all_see
                    if masked:
                        for u in range(strip):
                            s[u] = s[u] if key + u < row_sees else NEG_INF

                    m_new = m
                    for u in range(strip):
                        m_new = max(m_new, s[u])
                    # -inf - -inf is NaN: a row that has seen nothing yet measures from 0.
                    shift = m_new if m_new > NEG_INF else ZERO
                    alpha = math.exp(m - shift)
                    m = m_new
                    total = ZERO
                    for u in range(strip):
                        p = math.exp(s[u] - shift)
                        s[u] = p
                        total += p
                    denominator = denominator * alpha + total

                    if masked:
                        # 0 * NaN is NaN: a value that the row does not see must not get in with weight 0.
                        for k in range(d):
                            a = acc[k] * alpha
                            for u in range(strip):
                                v = Vs[v_at + (j + u) * d + k]
                                a += s[u] * (v if key + u < row_sees else ZERO)
                            acc[k] = a
                    else:
                        for k in range(d):
                            a = acc[k] * alpha
                            for u in range(strip):
                                a += s[u] * Vs[v_at + (j + u) * d + k]
                            acc[k] = a
            cuda.syncthreads()

        # No visible key: m = -inf, denominator = 0 and acc = 0 give L = -inf and O = 0.
        divisor = ONE if denominator == ZERO else denominator
        if row < n_rows:
            L[head, row] = m + math.log(divisor)
        for r0 in range(0, Br, Bc):
            own = thread - r0
            if 0 <= own and own < Bc and row < n_rows:
                for k in range(d):
                    Ks[own * d + (k + own) % d] = acc[k] / divisor
            cuda.syncthreads()
            start = (first_row + r0) * d
            end = min(min(Bc, Br - r0), n_rows - first_row - r0) * d
            for e in range(thread, end, Br):
                r = e // d
                O[head, start + e] = Ks[r * d + (e - r * d + r) % d]
            cuda.syncthreads()

    return flash_forward


def shared_bytes(d: int, Bc: int) -> int:
    """Return the bytes of dynamic shared memory: both tiles if they pass 48 KB, else 0 (they are static)."""
    both = 2 * 4 * Bc * d
    return both if both > STATIC_SHARED_LIMIT else 0


@dataclass(frozen=True)
class Options:
    """Hold the options of flash_forward."""

    N: int = field(default=4096, metadata={"help": "query rows"})
    Nk: int | None = field(default=None, metadata={"help": "keys; not given: N"})
    d: int = field(default=64, metadata={"help": "head dimension, 1 to 256"})
    Br: int = field(
        default=64, metadata={"help": "query rows a block, one thread each: 1 to 256, more at small --d"}
    )
    Bc: int = field(default=64, metadata={"help": f"keys a tile, a multiple of {STRIP}"})
    heads: int = field(default=1, metadata={"help": "heads, grid dimension y"})
    batch: int = field(default=1, metadata={"help": "sequences, grid dimension z"})
    causal: bool = field(default=False, metadata={"help": "a row sees no key after its own position"})
    q_start: int = field(default=0, metadata={"help": "position of row 0 for causal; may be negative"})
    scale: float | None = field(default=None, metadata={"help": "factor of the scores; else 1 / sqrt(d)"})
    dtype: str = field(default="float32", metadata={"help": "element type: float32"})


def check_tile(Br: int, Bc: int, d: int) -> None:
    """Raise BadOption for a tile shape that the kernel does not accept."""
    if not 1 <= Br <= 1024:
        why = "a block is one thread a query row (above 256, the registers of its threads must fit an SM too)"
        raise BadOption(f"flash_forward: --Br must be 1 to 1024, got {Br}: {why}")
    if Bc < STRIP or Bc % STRIP:
        why = f"keys go by in strips of {STRIP}"
        raise BadOption(f"flash_forward: --Bc must be a positive multiple of {STRIP}, got {Bc}: {why}")
    each = 4 * Bc * d
    if 2 * each > SHARED_LIMIT:
        largest = SHARED_LIMIT // (8 * d) // STRIP * STRIP
        raise BadOption(
            f"flash_forward: --Bc {Bc} with --d {d} needs {2 * each} bytes of shared memory (K tile {each}, "
            f"V tile {each}), a block can have {SHARED_LIMIT}; the largest --Bc that fits is {largest}"
        )


def build(options: Options, data: Data) -> Problem:
    """Make the problem: Q, K, V ~ N(0, 1), O and L pre-filled with NaN. Raises BadOption."""
    shape = shape_of(options)
    check_tile(options.Br, options.Bc, options.d)
    H, N, Nk, d = shape.heads, shape.N, shape.Nk, shape.d
    Q, K, V = data.normal(H, N * d), data.normal(H, Nk * d), data.normal(H, Nk * d)
    O, L = data.filled(np.nan, H, N * d), data.filled(np.nan, H, N)
    registers = REGISTERS.get((d, shape.causal)) if options.Br <= min(options.Bc, 256) else None
    step = Step(
        kernel=make_kernel(d, options.Br, options.Bc, shape.causal),
        grid=(ceil_div(N, options.Br), options.heads, options.batch),
        block=(options.Br,),
        args=(Q, K, V, O, L, np.float32(shape.scale), shape.q_start),
        shared_bytes=shared_bytes(d, options.Bc),
        closed_form=closed_form(shape, options.Br, options.Bc),
        registers=registers,
        registers_source=REGISTERS_SOURCE if registers else "",
    )

    def expected() -> dict[str, np.ndarray]:
        o, lse = reference(Q.reshape(H, N, d), K.reshape(H, Nk, d), V.reshape(H, Nk, d), shape)
        return {"O": o, "L": lse}

    said = facts(shape, options.Br, options.Bc, step.closed_form)
    if data.virtual:
        return Problem("flash_forward", (step,), {"O": O, "L": L}, facts=said)
    return Problem("flash_forward", (step,), {"O": O.reshape(H, N, d), "L": L}, expected, facts=said)


def statistics(shape: Shape, Br: int, Bc: int) -> dict[str, int]:
    """Count the K/V tiles that all blocks of all heads visit, and those that they skip."""
    visited = int(tiles_visited(shape, Br, Bc).sum())
    return {"tiles": shape.heads * visited, "skipped": shape.heads * tiles_skipped(shape, Br, Bc)}


def facts(shape: Shape, Br: int, Bc: int, form: dict[str, int]) -> tuple[Fact, ...]:
    """Say what the report shows of the algorithm: tiles, pairs, elements and FLOPs over all heads.

    form: the closed form of the same shape and tile. The FLOPs of the products are the executed ones: a strip
    is computed whole for every row of its block.
    """
    tiles = statistics(shape, Br, Bc)
    square = shape.N == shape.Nk and not shape.causal
    computed = STRIP * _strips(shape, Br)[0]
    return (
        Fact("K/V Tiles Visited", tiles["tiles"], "tile", "some row of the block sees"),
        Fact("K/V Tiles Skipped", tiles["skipped"], "tile", "no row of the block sees"),
        pair_fact(shape),
        Fact("Pairs Computed", computed, "pair", f"strips of {STRIP} keys, whole"),
        *element_facts(
            io_flash_ideal(shape, Br, Bc),
            of_heads("4 N d + N" if square else "2 d (N + keys visited) + N", shape),
            io_flash(shape, Br, Bc),
            of_heads("N d (2 + 2 ceil(N/Br)) + N" if square else "2 d (N + keys loaded) + N", shape),
            (form,),
        ),
        *flop_facts(4 * shape.d * computed, "4 d pairs computed", (form,)),
    )


def closed_form(shape: Shape, Br: int, Bc: int) -> dict[str, int]:
    """Return what the counters must be, by counter path; every number follows from the shape alone.

    Cache figures are given where they follow too: a problem that fits L2 reads each sector from DRAM once
    (cold caches) and leaves its output dirty; other shapes have no hierarchy.dram_read_bytes and
    hierarchy.dirty_bytes here.
    """
    q_or_o = _staged(shape, Br, Bc)
    stores = q_or_o + _lse(shape, Br)
    forms = (q_or_o + _tiles(shape, Br, Bc)).paths("global_load") | stores.paths("global_store")
    forms |= _shared(shape, Br, Bc, q_or_o) | _arithmetic(shape, Br)
    visited = tiles_visited(shape, Br, Bc)
    barriers = 4 * ceil_div(Br, Bc) * len(visited) + 2 * int(visited.sum())
    forms["barriers"] = shape.heads * barriers * ceil_div(Br, 32)
    forms["hierarchy.l2_write"] = stores.sectors
    return forms | _dram(shape, Br, Bc)


def _passes(shape: Shape, Br: int, rows: int) -> list[tuple[int, int, int]]:
    """List (first row in its block, rows, first row over all heads) of the passes over all blocks' rows."""
    return [
        (r0, int(min(rows, n - r0)), h * shape.N + i * Br + r0)
        for h in range(shape.heads)
        for i, n in enumerate(block_rows(shape, Br))
        for r0 in range(0, int(n), rows)
    ]


def _staged(shape: Shape, Br: int, Bc: int) -> Access:
    """Count the global accesses of Q, or of O: each block's rows once, contiguous, Bc rows a pass."""
    passes = _passes(shape, Br, Bc)
    return sum((linear(row * shape.d, n * shape.d, Br) for _, n, row in passes), Access())


def _staging(shape: Shape, Br: int, Bc: int) -> tuple[int, int]:
    """Count the shared requests by which threads take their rows of Q, and the wavefronts of Q's whole way.

    O's way is the same, backwards. The words' places in the rotated tile decide the wavefronts.
    """
    requests = wavefronts = 0
    for (r0, n), times in Counter((r0, n) for r0, n, _ in _passes(shape, Br, Bc)).items():
        wavefronts += times * _run_wavefronts(n * shape.d, shape.d, Br)
        for warp in range(r0 // 32 * 32, r0 + n, 32):
            first, last = max(warp, r0) - r0, min(warp + 32, r0 + n) - r0
            requests += times * shape.d
            wavefronts += times * _row_wavefronts(first, last, shape.d)
    return requests, wavefronts


def _bank_passes(places: Iterable[tuple[int, int]], d: int) -> int:
    """Return the wavefronts of one request to (row, column) places of the tile: most words in one bank."""
    return max(Counter((row * d + (column + row) % d) % 32 for row, column in places).values())


@cache
def _run_wavefronts(count: int, d: int, threads: int) -> int:
    """Count the wavefronts of a block's access to `count` consecutive elements from row 0."""
    runs = requests_of(count, threads)
    return sum(_bank_passes((divmod(e, d) for e in range(first, first + n)), d) for first, n in runs)


@cache
def _row_wavefronts(first: int, last: int, d: int) -> int:
    """Count the wavefronts of one warp whose lanes walk the rows first to last - 1."""
    return sum(_bank_passes(((row, k) for row in range(first, last)), d) for k in range(d))


def _tiles(shape: Shape, Br: int, Bc: int) -> Access:
    """Count the global loads of K and V: of each tile that a block visits the rows below Nk."""
    total, visited = Access(), tiles_visited(shape, Br, Bc)
    for head in range(shape.heads):
        for t in range(int(visited.max())):
            keys = min(Bc, shape.Nk - t * Bc)
            tile = linear((head * shape.Nk + t * Bc) * shape.d, keys * shape.d, Br)
            total += tile * (2 * int((visited > t).sum()))
    return total


def _lse(shape: Shape, Br: int) -> Access:
    """Count the global stores of L: one element a thread."""
    return sum((linear(row, n, Br) for _, n, row in _passes(shape, Br, Br)), Access())


def _strips(shape: Shape, Br: int) -> tuple[int, int]:
    """Count (thread, strip) and (warp, strip) pairs over all heads; threads of rows beyond N have no strip.
    """
    strips, rows = ceil_div(block_keys(shape, Br), STRIP), block_rows(shape, Br)
    return shape.heads * int((strips * rows).sum()), shape.heads * int((strips * ceil_div(rows, 32)).sum())


def _shared(shape: Shape, Br: int, Bc: int, q_or_o: Access) -> dict[str, int]:
    """Count shared memory: whole tiles stored (zeros beyond Nk), keys and values loaded as broadcasts.

    Q and O pass through once each: on one side as in global memory, 32 neighbours a request, on the other by
    rows.
    """
    tiles = shape.heads * int(tiles_visited(shape, Br, Bc).sum())
    stored = linear(0, Bc * shape.d, Br) * (2 * tiles)
    threads, warps = _strips(shape, Br)
    each = 2 * STRIP * shape.d
    loaded = Access(threads * each, warps * each)
    requests, wavefronts = _staging(shape, Br, Bc)
    forms = {}
    for space, count in (("shared_store", stored), ("shared_load", loaded)):
        forms |= shared(
            space,
            lanes=count.lanes + 2 * q_or_o.lanes,
            requests=count.requests + q_or_o.requests + requests,
            wavefronts=count.requests + wavefronts,
        )
    return forms


def _arithmetic(shape: Shape, Br: int) -> dict[str, int]:
    """Count float instructions, by strips of a thread and by rows.

    A strip: 2 STRIP d FFMA for scores and output, d FMUL to rescale, STRIP + 1 exponentials; their
    arguments and the sum of the weights are FADD, the denominator is one FFMA. A row: d FMUL to scale q, d
    divisions, one logarithm, and one FADD for L.
    """
    threads, _ = _strips(shape, Br)
    rows, d = shape.heads * shape.N, shape.d
    return arithmetic(
        (threads, {"ffma": 2 * STRIP * d + 1, "fmul": d, "fadd": 2 * STRIP + 1}),
        (threads * (STRIP + 1), EXP),
        (rows, {"fmul": d, "fadd": 1}),
        (rows * d, DIV),
        (rows, LOG),
    )


def _dram(shape: Shape, Br: int, Bc: int) -> dict[str, int]:
    """Give DRAM's figures: Q and each visited tile are read once, O and L stay in L2."""
    keys = min(shape.Nk, Bc * int(tiles_visited(shape, Br, Bc).max()))
    sizes = shape.N * shape.d, shape.Nk * shape.d, keys * shape.d, shape.heads * shape.N
    return dram(shape.heads * shape.d * (shape.N + 2 * keys), shape.heads * shape.N * (shape.d + 1), sizes)


SUMMARY = "FlashAttention forward: K/V tiles in shared memory, online softmax, no N x N matrix"
SPEC = KernelSpec("flash_forward", SUMMARY, Options, build)
