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
  in their future, about half of them, and a window those before it. At N = 4096, tiles of 64 x 64, a causal
  launch executes 2,181,038,080 FLOPs in its products; the visible pairs need 2,148,007,936, as the tiles on
  the diagonal are computed whole; the usual half of 4 N^2 d, 2,147,483,648, leaves out the diagonal's half.
- Shared K/V heads: each query head asks for its own copy of the tiles; DRAM reads them once a group.
- --stats counts the strips in which a row's maximum rises: how often the rescaling was needed.

With --dtype float16 or bfloat16, Q, K, V and O are held in 16 bits: half the bytes and sectors of global
memory. The tiles in shared memory and all arithmetic stay float32, so scores do not overflow.

What it leaves out: tensor cores and asynchronous copies, which --variant mma has
(kernels_sim/flash_forward_mma.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from dsl import cuda
from gpusim.arch import H200
from gpusim.errors import BadOption
from kernels_sim import flash_forward_mma
from kernels_sim.attention import (
    DTYPES,
    TOLERANCES,
    Shape,
    io_flash,
    io_flash_ideal,
    reference,
    rescalings,
    shape_of,
    tiles_skipped,
    tiles_visited,
)
from kernels_sim.attention_facts import element_facts, flop_facts, masked_flops, of_heads, pair_fact
from kernels_sim.flash_forward_counts import STRIP, closed_form, strips
from kernels_sim.formulas import ceil_div, require_choice
from kernels_sim.problem import Data, Fact, KernelSpec, Problem, Step

float32 = np.float32
ZERO, ONE, NEG_INF = np.float32(0), np.float32(1), np.float32(-np.inf)

STATIC_SHARED_LIMIT = 49152
"""Bytes of shared memory that a kernel may declare; more has to be dynamic, and asked for at launch."""
SHARED_LIMIT = H200.shared_bytes_per_block_optin
"""Bytes of shared memory that a block can opt in to on the GPUs with most; a launch asks its own GPU."""

VARIANTS = {"simt": "float32", "mma": "float16"}
"""Variants -> the type of Q, K, V and O where none is given."""

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
def make_kernel(d: int, dv: int, Br: int, Bc: int, causal: bool, windowed: bool, stats: bool) -> Any:
    """Return flash_forward(Q, K, V, O, L, R, scale, q_start, window) for head dimensions, a tile and a mask.

    Q: (heads, N * d); O: (heads, N * dv); K: (kv_heads, Nk * d); V: (kv_heads, Nk * dv); of 32 or 16 bits;
    L: (heads, N) float32; R: the same, int32: with stats, how often a row was rescaled. Rows lie one after
    another, so that a tile of rows is one contiguous run. Grid (ceil(N / Br), heads, batch), block Br. Tiles
    over 48 KB use dynamic shared memory: `shared_bytes` says how much.
    """
    k_tile, v_tile = Bc * d, Bc * dv
    dynamic = shared_bytes(d, dv, Bc) > 0
    k_elements, v_elements = (0, 0) if dynamic else (k_tile, v_tile)
    v_at = k_tile if dynamic else 0
    strip = STRIP

    @cuda.jit
    def flash_forward(Q, K, V, O, L, R, scale, q_start, window):
        # Two dynamic arrays start at the same byte, so V's tile begins v_at elements in.
        Ks = cuda.shared.array(k_elements, float32)
        Vs = cuda.shared.array(v_elements, float32)
        q = cuda.local.array(d, float32)
        acc = cuda.local.array(dv, float32)
        s = cuda.local.array(strip, float32)

        head = cuda.blockIdx.y + cuda.gridDim.y * cuda.blockIdx.z
        kv_head = head // (Q.shape[0] // K.shape[0])
        thread = cuda.threadIdx.x
        first_row = cuda.blockIdx.x * Br
        row = first_row + thread
        n_rows = L.shape[1]
        n_keys = K.shape[1] // d
        row_sees = n_keys
        all_see = n_keys
        some_see = n_keys
        last_row = min(first_row + Br, n_rows) - 1
        if causal:
            row_sees = min(n_keys, q_start + row + 1)
            all_see = min(n_keys, q_start + first_row + 1)
            some_see = min(n_keys, q_start + last_row + 1)
        # The first key that this row, all rows and some row of the block see.
        row_first = 0
        all_first = 0
        some_first = 0
        if windowed:
            row_first = q_start + row + 1 - window
            all_first = q_start + last_row + 1 - window
            some_first = max(0, q_start + first_row + 1 - window)
            if some_first >= some_see:
                some_see = 0

        # Row r lies rotated by r words, so that 32 threads find their rows in 32 banks (d = 64: else in one).
        # The scale goes into q: d multiplications a row instead of one a score.
        for r0 in range(0, Br, Bc):
            start = (first_row + r0) * d
            end = min(min(Bc, Br - r0), n_rows - first_row - r0) * d
            for e in range(thread, end, Br):
                r = e // d
                Ks[r * d + (e - r * d + r) % d] = float32(Q[head, start + e])
            cuda.syncthreads()
            own = thread - r0
            if 0 <= own and own < Bc and row < n_rows:
                for k in range(d):
                    q[k] = Ks[own * d + (k + own) % d] * scale
                for k in range(dv):
                    acc[k] = ZERO
            cuda.syncthreads()
        m = NEG_INF
        denominator = ZERO
        rescaled = 0

        for j0 in range(some_first // Bc * Bc, some_see, Bc):
            end = min(k_tile, (n_keys - j0) * d)
            for e in range(thread, k_tile, Br):
                Ks[e] = float32(K[kv_head, j0 * d + e]) if e < end else ZERO
                if dv == d:  # the same elements of V: one loop for both
                    Vs[v_at + e] = float32(V[kv_head, j0 * d + e]) if e < end else ZERO
            if dv != d:
                end = min(v_tile, (n_keys - j0) * dv)
                for e in range(thread, v_tile, Br):
                    Vs[v_at + e] = float32(V[kv_head, j0 * dv + e]) if e < end else ZERO
            cuda.syncthreads()

            if row < n_rows:
                first_strip = 0
                if windowed:
                    first_strip = max(0, some_first - j0) // strip * strip
                # In words of the K tile: a compiler then merges the loads of its rows by one rule (fact 29).
                for at in range(first_strip * d, min(Bc, some_see - j0) * d, strip * d):
                    j = at // d
                    key = j0 + j
                    for u in range(strip):
                        s[u] = ZERO
                    for k in range(d):
                        qk = q[k]
                        for u in range(strip):
                            s[u] += qk * Ks[at + u * d + k]

                    masked = key + strip > all_see
                    if windowed:
                        masked = masked or key < all_first
                    if masked:
                        for u in range(strip):
                            s[u] = s[u] if row_first <= key + u and key + u < row_sees else NEG_INF

                    m_new = m
                    for u in range(strip):
                        m_new = max(m_new, s[u])
                    # -inf - -inf is NaN: a row that has seen nothing yet measures from 0.
                    shift = m_new if m_new > NEG_INF else ZERO
                    alpha = math.exp(m - shift)
                    if stats:
                        rescaled += 1 if NEG_INF < m and m < m_new else 0
                    m = m_new
                    total = ZERO
                    for u in range(strip):
                        p = math.exp(s[u] - shift)
                        s[u] = p
                        total += p
                    denominator = denominator * alpha + total

                    if masked:
                        # 0 * NaN is NaN: a value that the row does not see must not get in with weight 0.
                        for k in range(dv):
                            a = acc[k] * alpha
                            for u in range(strip):
                                v = Vs[v_at + (j + u) * dv + k]
                                a += s[u] * (v if row_first <= key + u and key + u < row_sees else ZERO)
                            acc[k] = a
                    else:
                        for k in range(dv):
                            a = acc[k] * alpha
                            for u in range(strip):
                                a += s[u] * Vs[v_at + (j + u) * dv + k]
                            acc[k] = a
            cuda.syncthreads()

        # No visible key: m = -inf, denominator = 0 and acc = 0 give L = -inf and O = 0.
        divisor = ONE if denominator == ZERO else denominator
        if row < n_rows:
            L[head, row] = m + math.log(divisor)
            if stats:
                R[head, row] = rescaled
        for r0 in range(0, Br, Bc):
            own = thread - r0
            if 0 <= own and own < Bc and row < n_rows:
                for k in range(dv):
                    Vs[v_at + own * dv + (k + own) % dv] = acc[k] / divisor
            cuda.syncthreads()
            start = (first_row + r0) * dv
            end = min(min(Bc, Br - r0), n_rows - first_row - r0) * dv
            for e in range(thread, end, Br):
                r = e // dv
                O[head, start + e] = Vs[v_at + r * dv + (e - r * dv + r) % dv]
            cuda.syncthreads()

    return flash_forward


def shared_bytes(d: int, dv: int, Bc: int) -> int:
    """Return the bytes of dynamic shared memory: both tiles if they pass 48 KB, else 0 (they are static)."""
    both = 4 * Bc * (d + dv)
    return both if both > STATIC_SHARED_LIMIT else 0


@dataclass(frozen=True)
class Options:
    """Hold the options of flash_forward."""

    N: int = field(default=4096, metadata={"help": "query rows"})
    Nk: int | None = field(default=None, metadata={"help": "keys; not given: N"})
    d: int = field(default=64, metadata={"help": "head dimension of Q and K, 1 to 256"})
    dv: int | None = field(default=None, metadata={"help": "head dimension of V and O; 0 or not given: d"})
    Br: int = field(
        default=64, metadata={"help": "query rows a block, one thread each: 1 to 256, more at small --d"}
    )
    Bc: int = field(default=64, metadata={"help": f"keys a tile, a multiple of {STRIP}"})
    heads: int = field(default=1, metadata={"help": "query heads, grid dimension y"})
    kv_heads: int | None = field(default=None, metadata={"help": "K/V heads; 0 or not given: --heads"})
    batch: int = field(default=1, metadata={"help": "sequences, grid dimension z"})
    causal: bool = field(default=False, metadata={"help": "a row sees no key after its own position"})
    window: int | None = field(default=None, metadata={"help": "keys a row sees up to its own; 0: all"})
    q_start: int = field(default=0, metadata={"help": "position of row 0; may be negative"})
    scale: float | None = field(default=None, metadata={"help": "factor of the scores; else 1 / sqrt(d)"})
    dtype: str | None = field(default=None, metadata={
        "help": "type of Q, K, V and O, all else is float32; not given: float32, with mma float16",
        "choices": tuple(DTYPES)})
    variant: str = field(default="simt", metadata={
        "help": "simt: CUDA cores; mma: tensor cores, 16-bit Q, K, V and O", "choices": tuple(VARIANTS)})
    stats: bool = field(default=False, metadata={"help": "count how often rows are rescaled"})

    def __post_init__(self) -> None:
        """Settle the type by the variant where none is given, so that the report names it."""
        if self.dtype is None:
            object.__setattr__(self, "dtype", VARIANTS.get(self.variant))


def check_tile(Br: int, Bc: int, d: int, dv: int) -> None:
    """Raise BadOption for a tile shape that the kernel does not accept."""
    if not 1 <= Br <= 1024:
        why = "a block is one thread a query row (above 256, the registers of its threads must fit an SM too)"
        raise BadOption(f"flash_forward: --Br must be 1 to 1024, got {Br}: {why}")
    if Bc < STRIP or Bc % STRIP:
        why = f"keys go by in strips of {STRIP}"
        raise BadOption(f"flash_forward: --Bc must be a positive multiple of {STRIP}, got {Bc}: {why}")
    needed = 4 * Bc * (d + dv)
    if needed > SHARED_LIMIT:
        largest = SHARED_LIMIT // (4 * (d + dv)) // STRIP * STRIP
        raise BadOption(
            f"flash_forward: --Bc {Bc} with --d {d} needs {needed} bytes of shared memory (K tile "
            f"{4 * Bc * d}, V tile {4 * Bc * dv}), a block can have {SHARED_LIMIT}; the largest --Bc that "
            f"fits is {largest}"
        )


def build(options: Options, data: Data) -> Problem:
    """Make the problem: Q, K, V ~ N(0, 1), O and L pre-filled with NaN. Raises BadOption."""
    require_choice("flash_forward", "variant", options.variant, VARIANTS)
    if options.stats and data.virtual:
        raise BadOption("flash_forward: --stats counts what depends on the data; leave out --counts-only")
    if options.variant == "mma":
        return flash_forward_mma.build(options, data)
    shape, dtype = shape_of(options, DTYPES), DTYPES[options.dtype]
    check_tile(options.Br, options.Bc, shape.d, shape.dv)
    H, Hk, N, Nk, d, dv = shape.heads, shape.kv_heads, shape.N, shape.Nk, shape.d, shape.dv
    Q, K, V = (data.normal(*of, dtype=dtype) for of in ((H, N * d), (Hk, Nk * d), (Hk, Nk * dv)))
    O, L = data.filled(np.nan, H, N * dv, dtype=dtype), data.filled(np.nan, H, N)
    R = data.filled(-1, H, N if options.stats else 0, dtype=np.int32)
    plain = options.Br <= min(options.Bc, 256) and dv == d and not shape.window
    plain = plain and options.dtype == "float32" and not options.stats
    registers = REGISTERS.get((d, shape.causal)) if plain else None
    step = Step(
        kernel=make_kernel(d, dv, options.Br, options.Bc, shape.causal, shape.window > 0, options.stats),
        grid=(ceil_div(N, options.Br), options.heads, options.batch),
        block=(options.Br,),
        args=(Q, K, V, O, L, R, np.float32(shape.scale), shape.q_start, shape.window),
        shared_bytes=shared_bytes(d, dv, options.Bc),
        closed_form=closed_form(shape, options.Br, options.Bc, options.stats, dtype.itemsize),
        registers=registers,
        registers_source=REGISTERS_SOURCE if registers else "",
    )
    said = facts(shape, options.Br, options.Bc, step.closed_form, options.stats, dtype.itemsize)
    inputs = {"Q": Q, "K": K, "V": V}
    if data.virtual:
        return Problem("flash_forward", (step,), {"O": O, "L": L}, facts=said, options=options, inputs=inputs)
    q, k, v = Q.reshape(H, N, d), K.reshape(Hk, Nk, d), V.reshape(Hk, Nk, dv)
    outputs = {"O": O.reshape(H, N, dv), "L": L}
    if options.stats:
        outputs["rescalings"] = R
        often = int(rescalings(q, k, shape, STRIP).sum())
        said += (Fact("Rescalings", often, "row", f"a strip of {STRIP} keys raises the maximum, float64"),)

    def expected() -> dict[str, np.ndarray]:
        o, lse = reference(q, k, v, shape)
        return {"O": o, "L": lse}

    tolerance = TOLERANCES[options.dtype]
    return Problem("flash_forward", (step,), outputs, expected, tolerance, said, options, inputs)


def statistics(shape: Shape, Br: int, Bc: int) -> dict[str, int]:
    """Count the K/V tiles that all blocks of all heads visit, and those that they skip."""
    visited = int(tiles_visited(shape, Br, Bc).sum())
    return {"tiles": shape.heads * visited, "skipped": shape.heads * tiles_skipped(shape, Br, Bc)}


def facts(
    shape: Shape, Br: int, Bc: int, form: dict[str, int], stats: bool = False, size: int = 4
) -> tuple[Fact, ...]:
    """Say what the report shows of the algorithm: tiles, pairs, elements and FLOPs over all heads.

    form: the closed form of the same shape and tile. The FLOPs of the products are the executed ones: a strip
    is computed whole for every row of its block.
    """
    tiles = statistics(shape, Br, Bc)
    masked = shape.causal or shape.window > 0
    square = shape.N == shape.Nk and not masked and (shape.dv, shape.group) == (shape.d, 1)
    width, each = ("2 d", "4 d") if shape.dv == shape.d else ("(d + dv)", "2 (d + dv)")
    computed, rows = STRIP * strips(shape, Br)[0], "2 N" if stats else "N"
    needed, asked = f"{width} (N + keys visited)", f"{width} (N + keys loaded)"
    if square:
        needed, asked = "4 N d", "N d (2 + 2 ceil(N/Br))"
    wide = shape.heads * shape.N  # L: always 4 bytes
    more, ideal = stats * wide, io_flash_ideal(shape, Br, Bc) - wide
    return (
        Fact("K/V Tiles Visited", tiles["tiles"], "tile", "some row of the block sees"),
        Fact("K/V Tiles Skipped", tiles["skipped"], "tile", "no row of the block sees"),
        pair_fact(shape),
        Fact("Pairs Computed", computed, "pair", f"strips of {STRIP} keys, whole"),
        *element_facts(
            ideal + wide + more,
            of_heads(f"{needed} + {rows}", shape),
            io_flash(shape, Br, Bc) + more,
            of_heads(f"{asked} + {rows}", shape),
            (form,),
            None if size == 4 else size * ideal + 4 * (wide + more),
        ),
        *(masked_flops(shape, each) if masked else ()),
        *flop_facts(2 * (shape.d + shape.dv) * computed, f"{each} pairs computed", (form,)),
    )


SUMMARY = "FlashAttention forward: K/V tiles in shared memory, online softmax, no N x N matrix"
SPEC = KernelSpec("flash_forward", SUMMARY, Options, build)
