"""FlashAttention's backward pass: P is computed again from L, and no N x N matrix exists.

1. delta:  D = rowsum(dO * O), a warp a row; dQ becomes 0.
2. flash_backward: a block owns a tile of Bc keys, one thread a key, and walks the tiles of Br query rows that
   see it. P = exp(scale Q K^T - L), dV += P^T dO, dS = P * (dO V^T - D), dK += dS^T Q; dS goes through shared
   memory to the other way round, a warp a strip of rows, and dQ += dS K by atomics, as the blocks of all
   tiles add to the same rows.
3. reduce: with --deterministic only. Each block writes its dQ to a workspace of its own instead, and this
   launch adds them up in the order of tiles.

The blocks of a K/V head take all query heads of its group, so dK and dV need no atomics. Rows and keys go by
in strips of STRIP rows: a strip's K word is loaded once for STRIP products.

What to look at in the report:
- Atomics: each visited tile adds Br d elements to dQ: N d ceil(N/Bc) in all, 16,777,216 at N = 4096, d = 64,
  Bc = 64, and 8,519,680 when causal. They are RED, 32 neighbours a request, and go to L2.
- FLOPs: 10 d a pair against the forward pass's 4 d. A causal launch computes 2,080 whole tiles of 4,096: a
  little more than half, as the diagonal ones are computed whole.
- Order: floats that are added in another order round differently. --atomic-order runs the blocks of a wave in
  other orders: dQ moves in its last digits, dK and dV do not move at all.
- --deterministic: dQ is the same every time, for ceil(Nk/Bc) times the bytes of dQ as workspace, written once
  and read once.
- Shared memory: K and V rows are padded to odd lengths, so that 32 threads reading their own row meet in no
  bank. The two tiles of keys, two of rows and dS take 4 (2 Bc (d + 1) + 2 Br d + Br Bc + 2 Br) bytes.

With --dtype float16 or bfloat16, Q, K, V, O, dO, dK and dV are held in 16 bits; dQ is added up in float32 and
stays it, as a card has no atomics that would round 16-bit sums well.

--variant mma is flash_backward_mma.py: the same tiles on tensor cores. What this file leaves out: the
gradient of L. O and L are the float64 reference's,
rounded: what a forward pass would hand over.
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
from kernels_sim.attention import (
    DTYPES,
    TOLERANCES,
    Shape,
    attention_flops,
    reference,
    shape_of,
    tiles_skipped,
    tiles_visited,
)
from kernels_sim.attention_facts import flop_facts, of_heads, pair_fact
from kernels_sim.attention_gradients import gradients, summed
from kernels_sim.flash_backward_counts import (
    atomic_adds,
    closed_form,
    delta_form,
    reduce_form,
    strips,
    workspace_bytes,
)
from kernels_sim.formulas import ELEMENT_BYTES, WARP, ceil_div, require_choice
from kernels_sim.problem import Data, Fact, KernelSpec, Problem, Step
from kernels_sim.registers import recorded

float32 = np.float32
ZERO = np.float32(0)

VARIANTS = {"simt": "float32", "mma": "float16"}
"""Variants -> the type of Q, K, V, O, dO, dK and dV where none is given."""
STRIP = 4
"""Query rows that a thread works on at a time."""
ROWS = 4
"""Rows of a block of the first and the last launch, one warp each."""
SHARED_LIMIT = H200.shared_bytes_per_block_optin
"""Bytes of shared memory that a block can opt in to on the GPUs with most; a launch asks its own GPU."""


@dataclass(frozen=True)
class Tile:
    """Hold what the kernel is made for: head dimensions, rows and keys of a tile, and its place in shared
    memory.

    Words from the start of the dynamic shared memory: K tile, V tile, Q tile, dO tile, dS, L, D.
    """

    d: int
    dv: int
    Br: int
    Bc: int

    @property
    def strip(self) -> int:
        """Return the rows that a thread works on at a time."""
        return STRIP

    @property
    def threads(self) -> int:
        """Return the threads of a block: one a key, in whole warps."""
        return WARP * ceil_div(self.Bc, WARP)

    @property
    def places(self) -> tuple[int, ...]:
        """Return the first word of each buffer, and the words in all."""
        Br, Bc, d, dv = self.Br, self.Bc, self.d, self.dv
        sizes = (Bc * (d | 1), Bc * (dv | 1), Br * d, Br * dv, Br * Bc, Br, Br)
        return tuple(int(n) for n in np.cumsum((0, *sizes)))


@cache
def make_delta(d: int, dv: int, zeroed: bool) -> Any:
    """Return delta(O, dO, D, dQ): D = rowsum(dO * O), and dQ = 0 if `zeroed`, for atomics to add to.

    O, dO (heads, N * dv), of 32 or 16 bits; D (heads, N), dQ (heads, N * d), float32. Grid (ceil(N / 4),
    heads, batch), block 128: a warp a row.
    """

    @cuda.jit
    def delta(O, dO, D, dQ):
        lane = cuda.threadIdx.x % WARP
        row = cuda.blockIdx.x * ROWS + cuda.threadIdx.x // WARP
        head = cuda.blockIdx.y + cuda.gridDim.y * cuda.blockIdx.z
        if row < D.shape[1]:
            total = ZERO
            for k in range(lane, dv, WARP):
                total += float32(O[head, row * dv + k]) * float32(dO[head, row * dv + k])
            for distance in (16, 8, 4, 2, 1):
                total += cuda.shfl_xor_sync(0xFFFFFFFF, total, distance)
            if lane == 0:
                D[head, row] = total
            if zeroed:
                for k in range(lane, d, WARP):
                    dQ[head, row * d + k] = ZERO

    return delta


@cache
def make_kernel(tile: Tile, causal: bool, windowed: bool, deterministic: bool) -> Any:
    """Return flash_backward(Q, K, V, dO, L, D, dQ, dK, dV, scale, q_start, window) for a tile and a mask.

    Q: (heads, N * d); dO: (heads, N * dv); K, dK: (kv_heads, Nk * d); V, dV: (kv_heads, Nk * dv); of 32 or 16
    bits; L, D: (heads, N); dQ: (heads, N * d); float32. deterministic: dQ is the workspace (tiles of keys,
    heads, N * d) instead. Grid (ceil(Nk / Bc), kv_heads, batch), block tile.threads; `shared_bytes` of
    dynamic shared memory.
    """
    d, dv, Br, Bc, threads, strip = tile.d, tile.dv, tile.Br, tile.Bc, tile.threads, STRIP
    K_AT, V_AT, Q_AT, DO_AT, DS_AT, L_AT, D_AT, _ = tile.places
    k_row, v_row = d | 1, dv | 1

    @cuda.jit
    def flash_backward(Q, K, V, dO, L, D, dQ, dK, dV, scale, q_start, window):
        # All buffers are parts of the one dynamic array: K's tile starts at sm[K_AT], and so on.
        sm = cuda.shared.array(0, float32)
        dk = cuda.local.array(d, float32)
        dvs = cuda.local.array(dv, float32)
        p = cuda.local.array(strip, float32)
        ds = cuda.local.array(strip, float32)

        thread = cuda.threadIdx.x
        lane = thread % WARP
        warp = thread // WARP
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

        for e in range(thread, keys * d, threads):
            j = e // d
            sm[K_AT + j * k_row + e - j * d] = float32(K[kv_head, j0 * d + e])
        for e in range(thread, keys * dv, threads):
            j = e // dv
            sm[V_AT + j * v_row + e - j * dv] = float32(V[kv_head, j0 * dv + e])
        for k in range(d):
            dk[k] = ZERO
        for k in range(dv):
            dvs[k] = ZERO
        cuda.syncthreads()

        for g in range(group):
            head = kv_head * group + g
            for i0 in range(some_first // Br * Br, some_end, Br):
                rows = min(Br, n_rows - i0)
                for e in range(thread, Br * d, threads):
                    sm[Q_AT + e] = float32(Q[head, i0 * d + e]) if e < rows * d else ZERO
                for e in range(thread, Br * dv, threads):
                    sm[DO_AT + e] = float32(dO[head, i0 * dv + e]) if e < rows * dv else ZERO
                for r in range(thread, Br, threads):
                    sm[L_AT + r] = L[head, i0 + r] if r < rows else ZERO
                    sm[D_AT + r] = D[head, i0 + r] if r < rows else ZERO
                cuda.syncthreads()

                # One thread a key: P and dS of a strip of rows, then its share of dV and dK.
                if thread < keys:
                    for r in range(0, rows, strip):
                        for u in range(strip):
                            p[u] = ZERO
                            ds[u] = ZERO
                        for k in range(d):
                            key = sm[K_AT + thread * k_row + k]
                            for u in range(strip):
                                p[u] += sm[Q_AT + (r + u) * d + k] * key
                        for k in range(dv):
                            value = sm[V_AT + thread * v_row + k]
                            for u in range(strip):
                                ds[u] += sm[DO_AT + (r + u) * dv + k] * value

                        # The key is seen by the rows low to high - 1 of the strip.
                        row = i0 + r
                        masked = row < all_first or row + strip > all_end
                        ahead = q_start + row - j0 - thread
                        low = -ahead if causal else 0
                        high = n_rows - row
                        if windowed:
                            high = min(high, window - ahead)
                        for u in range(strip):
                            p[u] = math.exp(p[u] * scale - sm[L_AT + r + u])
                            ds[u] = p[u] * (ds[u] - sm[D_AT + r + u]) * scale
                        if masked:
                            for u in range(strip):
                                p[u] = p[u] if low <= u and u < high else ZERO
                                ds[u] = ds[u] if low <= u and u < high else ZERO
                        for u in range(strip):
                            sm[DS_AT + (r + u) * Bc + thread] = ds[u]

                        if masked:
                            # 0 * NaN is NaN: a row that does not see the key must not get in with weight 0.
                            for k in range(dv):
                                a = dvs[k]
                                for u in range(strip):
                                    x = sm[DO_AT + (r + u) * dv + k]
                                    a += p[u] * (x if low <= u and u < high else ZERO)
                                dvs[k] = a
                            for k in range(d):
                                a = dk[k]
                                for u in range(strip):
                                    x = sm[Q_AT + (r + u) * d + k]
                                    a += ds[u] * (x if low <= u and u < high else ZERO)
                                dk[k] = a
                        else:
                            for k in range(dv):
                                a = dvs[k]
                                for u in range(strip):
                                    a += p[u] * sm[DO_AT + (r + u) * dv + k]
                                dvs[k] = a
                            for k in range(d):
                                a = dk[k]
                                for u in range(strip):
                                    a += ds[u] * sm[Q_AT + (r + u) * d + k]
                                dk[k] = a
                cuda.syncthreads()

                # One warp a strip of rows, one lane a column: dQ += dS K.
                for r in range(warp * strip, rows, threads // WARP * strip):
                    row = i0 + r
                    masked = row < all_first or row + strip > all_end
                    for k in range(lane, d, WARP):
                        for u in range(strip):
                            ds[u] = ZERO
                        for j in range(keys):
                            key = sm[K_AT + j * k_row + k]
                            if masked:
                                ahead = q_start + row - j0 - j
                                low = -ahead if causal else 0
                                high = window - ahead if windowed else strip
                                for u in range(strip):
                                    x = key if low <= u and u < high else ZERO
                                    ds[u] += sm[DS_AT + (r + u) * Bc + j] * x
                            else:
                                for u in range(strip):
                                    ds[u] += sm[DS_AT + (r + u) * Bc + j] * key
                        for u in range(strip):
                            if row + u < n_rows:
                                if deterministic:
                                    dQ[cuda.blockIdx.x, head, (row + u) * d + k] = ds[u]
                                else:
                                    cuda.atomic.add(dQ, (head, (row + u) * d + k), ds[u])
                cuda.syncthreads()

        # Each thread's rows of dK and dV are d words apart: out through the tiles, 32 neighbours a request.
        if thread < keys:
            for k in range(d):
                sm[K_AT + thread * k_row + k] = dk[k]
            for k in range(dv):
                sm[V_AT + thread * v_row + k] = dvs[k]
        cuda.syncthreads()
        for e in range(thread, keys * d, threads):
            j = e // d
            dK[kv_head, j0 * d + e] = sm[K_AT + j * k_row + e - j * d]
        for e in range(thread, keys * dv, threads):
            j = e // dv
            dV[kv_head, j0 * dv + e] = sm[V_AT + j * v_row + e - j * dv]

    return flash_backward


@cache
def make_reduce(d: int, Br: int, Bc: int, causal: bool, windowed: bool) -> Any:
    """Return reduce(workspace, dQ, n_keys, q_start, window): add up what the tiles of keys gave, in order.

    workspace (tiles of keys, heads, N * d), dQ (heads, N * d), float32. Grid (ceil(N / 4), heads, batch),
    block 128: a warp a row.
    """

    @cuda.jit
    def reduce(workspace, dQ, n_keys, q_start, window):
        lane = cuda.threadIdx.x % WARP
        row = cuda.blockIdx.x * ROWS + cuda.threadIdx.x // WARP
        head = cuda.blockIdx.y + cuda.gridDim.y * cuda.blockIdx.z
        n_rows = dQ.shape[1] // d
        if row < n_rows:
            # Only the tiles of keys that some row of the same tile of rows sees were written.
            i0 = row // Br * Br
            first = 0
            end = n_keys
            if causal:
                end = min(n_keys, q_start + min(i0 + Br, n_rows))
            if windowed:
                first = max(0, q_start + i0 + 1 - window)
            tiles = (end + Bc - 1) // Bc if first < end else 0
            for k in range(lane, d, WARP):
                total = ZERO
                for t in range(first // Bc, tiles):
                    total += workspace[t, head, row * d + k]
                dQ[head, row * d + k] = total

    return reduce


def shared_bytes(tile: Tile) -> int:
    """Return the bytes of dynamic shared memory of a tile."""
    return ELEMENT_BYTES * tile.places[-1]


@dataclass(frozen=True)
class Options:
    """Hold the options of flash_backward."""

    N: int = field(default=1024, metadata={"help": "query rows"})
    Nk: int | None = field(default=None, metadata={"help": "keys; not given: N"})
    d: int = field(default=64, metadata={"help": "head dimension of Q and K, 1 to 256"})
    dv: int | None = field(default=None, metadata={"help": "head dimension of V and O; 0 or not given: d"})
    Br: int = field(default=64, metadata={"help": f"query rows a tile, a multiple of {STRIP}"})
    Bc: int = field(default=64, metadata={"help": "keys a tile, one thread each: 1 to 1024"})
    heads: int = field(default=1, metadata={"help": "query heads"})
    kv_heads: int | None = field(default=None, metadata={"help": "K/V heads; 0 or not given: --heads"})
    batch: int = field(default=1, metadata={"help": "sequences, grid dimension z"})
    causal: bool = field(default=False, metadata={"help": "a row sees no key after its own position"})
    window: int | None = field(default=None, metadata={"help": "keys a row sees up to its own; 0: all"})
    q_start: int = field(default=0, metadata={"help": "position of row 0; may be negative"})
    scale: float | None = field(default=None, metadata={"help": "factor of the scores; else 1 / sqrt(d)"})
    deterministic: bool = field(
        default=False, metadata={"help": "sum dQ in a fixed order: a workspace and a launch more"}
    )
    dtype: str | None = field(default=None, metadata={
        "help": "type of Q, K, V, O, dO, dK and dV; not given: float32, for mma float16 (and no float32)",
        "choices": tuple(DTYPES)})
    variant: str = field(default="simt", metadata={
        "help": "simt: CUDA cores; mma: tensor cores, 16-bit dQ too", "choices": tuple(VARIANTS)})

    def __post_init__(self) -> None:
        """Settle the type by the variant where none is given, so that the report names it."""
        if self.dtype is None:
            object.__setattr__(self, "dtype", VARIANTS.get(self.variant))


def check_tile(tile: Tile) -> None:
    """Raise BadOption for a tile shape that the kernel does not accept."""
    if tile.Br < STRIP or tile.Br % STRIP:
        why = f"rows go by in strips of {STRIP}"
        raise BadOption(f"flash_backward: --Br must be a positive multiple of {STRIP}, got {tile.Br}: {why}")
    if not 1 <= tile.Bc <= 1024:
        raise BadOption(f"flash_backward: --Bc must be 1 to 1024, got {tile.Bc}: a block is one thread a key")
    if shared_bytes(tile) > SHARED_LIMIT:
        sizes = zip(("K", "V", "Q", "dO", "dS", "L", "D"), np.diff(tile.places), strict=True)
        parts = ", ".join(f"{name} {ELEMENT_BYTES * words}" for name, words in sizes)
        raise BadOption(
            f"flash_backward: --Br {tile.Br} --Bc {tile.Bc} with --d {tile.d} needs {shared_bytes(tile)} "
            f"bytes of shared memory ({parts}), a block can have {SHARED_LIMIT}; make --Br or --Bc smaller"
        )


def build(options: Options, data: Data) -> Problem:
    """Make the problem: Q, K, V, dO ~ N(0, 1), O and L of the reference; D and the gradients start as NaN.

    Raises BadOption.
    """
    require_choice("flash_backward", "variant", options.variant, VARIANTS)
    if options.variant == "mma" and options.dtype == "float32":
        why = "takes --dtype float16 or bfloat16, not float32: its products are of 16-bit numbers"
        raise BadOption(f"flash_backward: --variant mma {why}")
    shape, dtype = shape_of(options, DTYPES), DTYPES[str(options.dtype)]
    H, Hk, N, Nk, d, dv = shape.heads, shape.kv_heads, shape.N, shape.Nk, shape.d, shape.dv
    sizes = (H, N * d), (Hk, Nk * d), (Hk, Nk * dv), (H, N * dv)
    Q, K, V, dO = (data.normal(*of, dtype=dtype) for of in sizes)
    O, L = data.filled(0, H, N * dv, dtype=dtype), data.filled(0, H, N)
    D = data.filled(np.nan, H, N)
    dQ = data.filled(np.nan, H, N * d, dtype=dtype if options.variant == "mma" else np.float32)
    dK, dV = (data.filled(np.nan, *of, dtype=dtype) for of in sizes[1:3])
    from kernels_sim import flash_backward_mma  # it takes this module's small launches

    make = flash_backward_mma.steps if options.variant == "mma" else _steps
    steps, said = make(options, shape, data, (Q, K, V, dO, L, D, dQ, dK, dV), O)
    inputs = {"Q": Q, "K": K, "V": V, "O": O, "dO": dO, "L": L}
    if data.virtual:
        outputs = {"dQ": dQ, "dK": dK, "dV": dV}
        return Problem("flash_backward", steps, outputs, facts=said, options=options, inputs=inputs)

    q, k, v, do = Q.reshape(H, N, d), K.reshape(Hk, Nk, d), V.reshape(Hk, Nk, dv), dO.reshape(H, N, dv)
    o, L[...] = reference(q, k, v, shape)
    O[...] = o.reshape(O.shape)
    outputs = {"dQ": dQ.reshape(q.shape), "dK": dK.reshape(k.shape), "dV": dV.reshape(v.shape)}

    def expected() -> dict[str, np.ndarray]:
        return dict(zip(outputs, gradients(q, k, v, do, shape), strict=True))

    def terms() -> dict[str, float]:
        return dict(zip(("dQ", "dK"), summed(q, k, v, do, shape), strict=True))

    tolerance = TOLERANCES[str(options.dtype)]
    return Problem("flash_backward", steps, outputs, expected, tolerance, said, options, inputs, terms)


def _steps(
    options: Options, shape: Shape, data: Data, arrays: tuple[Any, ...], O: Any
) -> tuple[tuple[Step, ...], tuple[Fact, ...]]:
    """Return the launches of the simt variant and their facts: the first one alone where there is no key, a
    third one if it is asked for.
    """
    tile = Tile(shape.d, shape.dv, options.Br, options.Bc)
    check_tile(tile)
    *_, dO, _, D, dQ, dK, dV = arrays
    rows = ceil_div(shape.N, ROWS), options.heads, options.batch
    fixed, tiles, windowed = options.deterministic, ceil_div(shape.Nk, tile.Bc), shape.window > 0
    zeroed = not fixed or not tiles
    delta = Step(
        make_delta(shape.d, shape.dv, zeroed), rows, (ROWS * WARP,), (O, dO, D, dQ), 0,
        delta_form(shape, zeroed, dO.dtype.itemsize), *_recorded(options, "delta"),
    )  # fmt: skip
    if not tiles:
        return (delta,), facts(shape, tile, fixed, [delta.closed_form])
    target = data.filled(np.nan, tiles, shape.heads, shape.N * shape.d) if fixed else dQ
    mask = shape.q_start, shape.window
    main = Step(
        make_kernel(tile, shape.causal, windowed, fixed),
        (tiles, shape.kv_heads // options.batch, options.batch), (tile.threads,),
        (*arrays[:6], target, dK, dV, np.float32(shape.scale), *mask),
        shared_bytes(tile), closed_form(shape, tile, fixed, dO.dtype.itemsize),
    )  # fmt: skip
    reduce = Step(
        make_reduce(shape.d, tile.Br, tile.Bc, shape.causal, windowed), rows, (ROWS * WARP,),
        (target, dQ, shape.Nk, *mask), 0, reduce_form(shape, tile),
        *_recorded(options, "reduce"),
    )  # fmt: skip
    steps = (delta, main, reduce) if fixed else (delta, main)
    return steps, facts(shape, tile, fixed, [step.closed_form for step in steps])


def _recorded(options: Options, launch: str) -> tuple[int | None, str]:
    """Return the registers recorded for one of the small launches; none for a window or another width of V.
    """
    if options.window or options.dv not in (None, 0, options.d) or options.dtype != "float32":
        return None, ""
    how = f"causal={options.causal} deterministic={options.deterministic}"
    return recorded("flash_backward", f"{launch} d={options.d} {how}")


def facts(shape: Shape, tile: Tile, deterministic: bool, forms: list[dict[str, int]]) -> tuple[Fact, ...]:
    """Say what the report shows of the algorithm over all heads and launches: tiles, pairs, adds, FLOPs."""
    visited = shape.heads * int(tiles_visited(shape, tile.Br, tile.Bc).sum())
    skipped = shape.heads * tiles_skipped(shape, tile.Br, tile.Bc)
    width, computed = 3 * shape.d + 2 * shape.dv, STRIP * strips(shape, tile)[0]
    how = Fact("Atomic Adds To dQ", atomic_adds(shape, tile), "element", "d rows, each visited tile",
               {"global_red.lanes": 1})
    if deterministic:
        needed = workspace_bytes(shape, tile.Bc)
        how = Fact("Workspace", needed, "byte", of_heads("4 ceil(Nk/Bc) N d", shape))
    return (
        Fact("Launches", len(forms), "launch", "delta, flash_backward" + ", reduce" * deterministic),
        Fact("Tiles Visited", visited, "tile", "some row sees some key"),
        Fact("Tiles Skipped", skipped, "tile", "no row sees a key"),
        pair_fact(shape),
        Fact("Pairs Computed", computed, "pair", f"whole tiles, rows in strips of {STRIP}"),
        how,
        Fact("FLOPs, Pairs Visible", attention_flops(shape, backward=True), "flop", "6 d + 4 dv a pair"),
        *flop_facts(2 * width * computed, "6 d + 4 dv a pair computed", forms),
    )


SUMMARY = "FlashAttention backward: P again from L, dQ by atomics or in a workspace"
SPEC = KernelSpec("flash_backward", SUMMARY, Options, build)
