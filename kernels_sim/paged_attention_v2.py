"""Paged attention, version 2: one query a sequence, keys and values in pages, partitions and a reduction.

A sequence's tokens lie in pages of `block_size` slots anywhere in a cache; its row of the block table says
where. K is laid out [page, kv head, d / x, slot, x] with x elements of 16 bytes, V [page, kv head, d, slot].

1. partition: a block takes `partition_size` tokens of one sequence and one query head. Each thread scores
   tokens of its own; the block's maximum and sum go through shuffles and four words of shared memory; then a
   warp takes a column of V at a time, a lane a token. It leaves the state (m, l, o), o = sum of
   exp(score - m) V. A partition past the end of its sequence leaves (-inf, 0) and reads nothing.
2. reduce: a warp a row merges the partitions that its sequence has, however many, and divides once. O and L
   of a sequence without tokens are 0 and -inf.

What to look at in the report:
- The block table: one load a page and block, into shared memory. Entries past the last page are never read,
  nor are the unused slots of the last page: the problem fills both with garbage.
- Sectors per request of K: 16, as 32 lanes load one element each, 16 bytes apart. The x elements of a slot
  are x such requests for the same sectors: all but the first hit L1. A load of 16 bytes a lane would ask
  once.
- Shared K/V heads: each query head of a group reads the pages again, from L2: one block has one query head.
- Useful blocks: the grid has as many partitions as the longest sequence. With ragged lengths many have
  nothing to do.
- Alibi: a bias of slope (token - last token) a score, slope 2^(-8 (h + 1) / heads).
- An 8-bit cache: elements of e4m3, times k_scale or v_scale, as float32. Half the bytes of a 16-bit one.

Offsets are 64-bit, so a cache may have more than 2^31 elements. Registers are estimated: numba-cuda does not
compile device functions without a GPU. What it leaves out: vector loads, several query heads a block,
several queries a sequence, sliding windows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from dsl import cuda
from gpusim.errors import BadOption
from kernels_sim.flash_decode import warp_max, warp_sum
from kernels_sim.formulas import WARP, ceil_div, require_at_least, require_choice
from kernels_sim.paged_attention_v2_counts import Pages, partition_form, reduce_form
from kernels_sim.problem import Data, Fact, KernelSpec, Problem, Step

float32, int32 = np.float32, np.int32
ZERO, ONE, NEG_INF = np.float32(0), np.float32(1), np.float32(-np.inf)
ALL = 0xFFFFFFFF
THREADS = 128
WARPS = THREADS // WARP
REDUCE_ROWS = 4
"""Rows of a block of the second launch, a warp each."""
PAGE_BYTES = 16
"""Bytes of K's innermost dimension."""
STATIC_SHARED_LIMIT = 49152
GARBAGE_PAGE = 2**31 - 1
"""What the block table holds behind a sequence's last page."""
SPARE_PAGES = 2
DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
TOLERANCES = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}
CACHES = {"auto": None, "fp8_e4m3": ml_dtypes.float8_e4m3fn}


@cache
def make_partition(d: int, x: int, block_size: int, partition_size: int, alibi: bool) -> Any:
    """Return partition(Q, K, V, table, lens, slopes, m, l, o, scale, v_scale).

    Q: (sequences, heads, d); K: (pages, kv_heads, d / x, block_size, x); V: (pages, kv_heads, d, block_size);
    both of 16, 32 or 8 bits; table: (sequences, columns) int32; lens: (sequences,) int32; slopes: (heads,);
    m, l: (sequences * heads, partitions); o: (sequences * heads, partitions, d); all float32. Grid
    (partitions, heads, sequences), block 128. scale holds the scale of K, too.
    """
    most_pages = pages_of_partition(block_size, partition_size)

    @cuda.jit
    def partition(Q, K, V, table, lens, slopes, m, l, o, scale, v_scale):
        pages = cuda.shared.array(most_pages, int32)
        q = cuda.shared.array(d, float32)
        weights = cuda.shared.array(partition_size, float32)
        part = cuda.shared.array(WARPS, float32)

        thread = cuda.threadIdx.x
        lane = thread % WARP
        warp = thread // WARP
        p = cuda.blockIdx.x
        head = cuda.blockIdx.y
        seq = cuda.blockIdx.z
        kv_head = head // (Q.shape[1] // K.shape[1])
        row = seq * Q.shape[1] + head
        length = lens[seq]
        start = p * partition_size
        if start >= length:
            if thread == 0:
                m[row, p] = NEG_INF
                l[row, p] = ZERO
            return

        tokens = min(partition_size, length - start)
        first_page = start // block_size
        for i in range(thread, (start + tokens - 1) // block_size - first_page + 1, THREADS):
            pages[i] = table[seq, first_page + i]
        for k in range(thread, d, THREADS):
            q[k] = np.float32(Q[seq, head, k])
        cuda.syncthreads()

        # Scores: a thread a token.
        top = NEG_INF
        for t in range(thread, tokens, THREADS):
            token = start + t
            page = pages[token // block_size - first_page]
            slot = token % block_size
            score = ZERO
            for k in range(d // x):
                for i in range(x):
                    score += q[k * x + i] * np.float32(K[page, kv_head, k, slot, i])
            score *= scale
            if alibi:
                score += slopes[head] * np.float32(token - length + 1)
            weights[t] = score
            top = max(top, score)
        top = warp_max(top)
        if lane == 0:
            part[warp] = top
        cuda.syncthreads()
        for w in range(WARPS):
            top = max(top, part[w])
        # -inf - -inf is NaN: scores that are all -inf measure from 0.
        shift = top if top > NEG_INF else ZERO
        cuda.syncthreads()

        total = ZERO
        for t in range(thread, tokens, THREADS):
            weight = math.exp(weights[t] - shift)
            weights[t] = weight
            total += weight
        total = warp_sum(total)
        if lane == 0:
            part[warp] = total
        cuda.syncthreads()
        if thread == 0:
            total = ZERO
            for w in range(WARPS):
                total += part[w]
            m[row, p] = top
            l[row, p] = total

        # Output: a warp a column, a lane a token; the columns gather where q was.
        for k in range(warp, d, WARPS):
            a = ZERO
            for first in range(0, tokens, WARP):  # no lane leaves earlier, so that unrolling parts none
                t = first + lane
                if t < tokens:
                    page = pages[(start + t) // block_size - first_page]
                    a += weights[t] * np.float32(V[page, kv_head, k, (start + t) % block_size])
            a = warp_sum(a)
            if lane == 0:
                q[k] = a
        cuda.syncthreads()
        for k in range(thread, d, THREADS):
            o[row, p, k] = q[k] * v_scale

    return partition


@cache
def make_reduce(d: int, partition_size: int) -> Any:
    """Return reduce(m, l, o, lens, O, L): merge the partitions of each row.

    m, l: (sequences * heads, partitions); o: (sequences * heads, partitions, d); float32; lens: (sequences,)
    int32; O: (sequences, heads, d), of any type; L: (sequences, heads), float32. Grid ceil(sequences * heads
    / 4), block 128. Partitions past the end of a sequence are not read.
    """
    columns = ceil_div(d, WARP)

    @cuda.jit
    def reduce(m, l, o, lens, O, L):
        acc = cuda.local.array(columns, float32)
        lane = cuda.threadIdx.x % WARP
        row = cuda.blockIdx.x * REDUCE_ROWS + cuda.threadIdx.x // WARP
        if row < m.shape[0]:
            seq = row // O.shape[1]
            head = row - seq * O.shape[1]
            parts = (lens[seq] + partition_size - 1) // partition_size
            top = NEG_INF
            for p in range(lane, parts, WARP):
                top = max(top, m[row, p])
            top = warp_max(top)
            shift = top if top > NEG_INF else ZERO
            total = ZERO
            for c in range(columns):
                acc[c] = ZERO

            # A lane weighs one partition; then all lanes go through the 32, each for its columns.
            for p0 in range(0, parts, WARP):
                weight = ZERO
                if p0 + lane < parts:
                    weight = math.exp(m[row, p0 + lane] - shift)
                    total += weight * l[row, p0 + lane]
                for t in range(min(WARP, parts - p0)):
                    w = cuda.shfl_sync(ALL, weight, t)
                    for c in range(columns):
                        k = lane + c * WARP
                        if k < d:
                            acc[c] += w * o[row, p0 + t, k]

            total = warp_sum(total)
            # No token: top = -inf, total = 0 and acc = 0 give L = -inf and O = 0.
            divisor = ONE if total == ZERO else total
            if lane == 0:
                L[seq, head] = top + math.log(divisor)
            for c in range(columns):
                k = lane + c * WARP
                if k < d:
                    O[seq, head, k] = acc[c] / divisor

    return reduce


def pages_of_partition(block_size: int, partition_size: int) -> int:
    """Return the most pages that a partition touches; two partly where it ends inside pages."""
    return ceil_div(partition_size, block_size) + (partition_size % block_size > 0)


@dataclass(frozen=True)
class Options:
    """Hold the options of paged_attention_v2."""

    sequences: int | None = field(default=None, metadata={"help": "sequences; not given: as many as --lens"})
    lens: str = field(default="2000,1200,513,0", metadata={"help": "tokens: of each, or one number of all"})
    block_size: int = field(default=16, metadata={"help": "tokens of a page"})
    partition_size: int = field(default=512, metadata={"help": "tokens of a partition, a block each"})
    heads: int = field(default=8, metadata={"help": "query heads, grid dimension y"})
    kv_heads: int | None = field(default=2, metadata={"help": "K/V heads; 0: --heads"})
    d: int = field(default=64, metadata={"help": "head dimension, whole times x = 16 bytes of the cache"})
    scale: float | None = field(default=None, metadata={"help": "factor of the scores; else 1 / sqrt(d)"})
    alibi: bool = field(default=False, metadata={"help": "bias by the distance to the last token"})
    dtype: str = field(
        default="float32", metadata={"help": "of Q, O and the cache", "choices": tuple(DTYPES)}
    )
    kv_cache_dtype: str = field(
        default="auto", metadata={"help": "of the cache, auto: --dtype", "choices": tuple(CACHES)}
    )
    k_scale: float = field(default=1.0, metadata={"help": "factor of an 8-bit cache's keys"})
    v_scale: float = field(default=1.0, metadata={"help": "factor of an 8-bit cache's values"})


def lengths(options: Options) -> list[int]:
    """Return the tokens of each sequence; raise BadOption."""
    words = [w.strip() for w in str(options.lens).split(",")]
    if not all(w.isdigit() for w in words):
        raise BadOption(f"paged_attention_v2: --lens is {options.lens!r}; write whole numbers with commas "
                        "between, such as 700,33,0")
    found = [int(w) for w in words]
    wanted = len(found) if options.sequences is None else options.sequences
    if wanted < 1 or len(found) not in (1, wanted):
        raise BadOption(f"paged_attention_v2: --sequences is {wanted} and --lens gives {len(found)} lengths; "
                        "give one for each sequence, or one for all")
    if max(found) >= 1 << 31:
        raise BadOption(f"paged_attention_v2: --lens has {max(found)}, a length is a 32-bit integer")
    return found if len(found) == wanted else found * wanted


def pages_of(options: Options) -> Pages:
    """Check the options and return the problem's sizes; raise BadOption."""
    name, kv_heads = "paged_attention_v2", options.kv_heads or options.heads
    for option in ("block_size", "partition_size", "heads", "d"):
        require_at_least(name, option.replace("_", "-"), getattr(options, option), 1)
    require_at_least(name, "kv-heads", kv_heads, 1)
    require_choice(name, "dtype", options.dtype, DTYPES)
    require_choice(name, "kv-cache-dtype", options.kv_cache_dtype, CACHES)
    if options.heads % kv_heads:
        raise BadOption(f"{name}: --heads {options.heads} is not a multiple of --kv-heads {kv_heads}: each "
                        "K/V head serves the same number of query heads")
    element = np.dtype(CACHES[options.kv_cache_dtype] or DTYPES[options.dtype])
    x = PAGE_BYTES // element.itemsize
    if options.d % x or options.d > 256:
        raise BadOption(f"{name}: --d is {options.d}; K's layout takes whole pieces of {x} elements (16 "
                        f"bytes of {element.name}), so a multiple of {x} up to 256")
    if options.kv_cache_dtype == "auto" and (options.k_scale, options.v_scale) != (1, 1):
        raise BadOption(f"{name}: --k-scale and --v-scale belong to --kv-cache-dtype fp8_e4m3")
    if not all(map(math.isfinite, (options.scale or 0.0, options.k_scale, options.v_scale))):
        raise BadOption(f"{name}: --scale, --k-scale and --v-scale must be finite numbers")
    lens = lengths(options)
    if max(options.heads, len(lens)) > 65535:
        raise BadOption(f"{name}: --heads and --sequences are grid dimensions y and z, at most 65535")
    taken = 4 * (pages_of_partition(options.block_size, options.partition_size) + options.d
                 + options.partition_size + WARPS)  # fmt: skip
    if taken > STATIC_SHARED_LIMIT:
        raise BadOption(f"{name}: --partition-size {options.partition_size} needs {taken} bytes of shared "
                        f"memory, a kernel can declare {STATIC_SHARED_LIMIT}; the weights take 4 bytes a "
                        "token: make it smaller")
    return Pages(tuple(lens), options.block_size, options.partition_size, options.heads, kv_heads, options.d,
                 x, np.dtype(DTYPES[options.dtype]).itemsize, options.alibi)  # fmt: skip


def build(options: Options, data: Data) -> Problem:
    """Make the problem: Q, K, V ~ N(0, 1), pages in random order, NaN in unused slots; outputs start as NaN.

    Raises BadOption.
    """
    size = pages_of(options)
    dtype = DTYPES[options.dtype]
    element = CACHES[options.kv_cache_dtype] or dtype
    S, H, Hk, d, parts = len(size.lens), size.heads, size.kv_heads, size.d, size.partitions
    Q = data.normal(S, H, d, dtype=dtype)
    K = data.normal(size.pages + SPARE_PAGES, Hk, d // size.x, size.block_size, size.x, dtype=element)
    V = data.normal(size.pages + SPARE_PAGES, Hk, d, size.block_size, dtype=element)
    order = data.normal(size.pages + SPARE_PAGES)
    table = data.filled(GARBAGE_PAGE, S, size.columns + 1, dtype=np.int32)
    lens = np.array(size.lens, np.int32)
    slopes = (2.0 ** (-8.0 * np.arange(1, H + 1) / H)).astype(np.float32)
    scale = 1.0 / math.sqrt(d) if options.scale is None else options.scale
    if not data.virtual:
        fill(table, K, V, np.argsort(order), size)
    m, l = data.filled(np.nan, S * H, parts), data.filled(np.nan, S * H, parts)
    o = data.filled(np.nan, S * H, parts, d)
    O, L = data.filled(np.nan, S, H, d, dtype=dtype), data.filled(np.nan, S, H)
    first = Step(
        make_partition(d, size.x, size.block_size, size.partition_size, options.alibi),
        (parts, H, S), (THREADS,),
        (Q, K, V, table, lens, slopes, m, l, o, np.float32(scale * options.k_scale),
         np.float32(options.v_scale)),
        closed_form={} if data.virtual else partition_form(size, table),
    )  # fmt: skip
    second = Step(make_reduce(d, size.partition_size), (ceil_div(S * H, REDUCE_ROWS),),
                  (REDUCE_ROWS * WARP,), (m, l, o, lens, O, L), closed_form=reduce_form(size))  # fmt: skip

    def expected() -> dict[str, np.ndarray]:
        factors = scale * options.k_scale, options.v_scale, slopes if options.alibi else None
        return reference(Q, K, V, table, size, *factors)

    outputs = {"O": O, "L": L, "m": m, "l": l, "o": o}
    inputs = {"Q": Q, "K": K, "V": V, "table": table, "lens": lens, "slopes": slopes}
    return Problem("paged_attention_v2", (first, second), outputs, None if data.virtual else expected,
                   TOLERANCES[options.dtype], facts(size), options, inputs)


def fill(table: np.ndarray, K: np.ndarray, V: np.ndarray, order: np.ndarray, size: Pages) -> None:
    """Deal the pages to the sequences in this order, and put NaN into the slots that no token uses."""
    used = np.zeros((len(K), size.block_size), bool)
    taken = 0
    for seq, n in enumerate(size.lens):
        own = order[taken : taken + ceil_div(n, size.block_size)]
        table[seq, : len(own)] = own
        used[own] = np.arange(len(own) * size.block_size).reshape(len(own), size.block_size) < n
        taken += len(own)
    page, slot = np.nonzero(~used)
    K[page, :, :, slot] = np.nan
    V[page, :, :, slot] = np.nan


def tokens_of(K: np.ndarray, V: np.ndarray, pages: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the keys and values of n tokens, (kv_heads, n, d) each, in float64."""
    k = K[pages].astype(np.float64).transpose(1, 0, 3, 2, 4).reshape(K.shape[1], -1, V.shape[2])
    v = V[pages].astype(np.float64).transpose(1, 0, 3, 2).reshape(V.shape[1], -1, V.shape[2])
    return k[:, :n], v[:, :n]


def reference(
    Q: np.ndarray, K: np.ndarray, V: np.ndarray, table: np.ndarray, size: Pages,
    scale: float, v_scale: float, slopes: np.ndarray | None,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Return O, L and the partitions' m, l and o in float64; o is NaN where there is nothing to write."""
    S, H, d = Q.shape
    m, l = np.full((S * H, size.partitions), -np.inf), np.zeros((S * H, size.partitions))
    o, O, L = np.full((*m.shape, d), np.nan), np.zeros((S, H, d)), np.full((S, H), -np.inf)
    for seq, n in enumerate(size.lens):
        if n == 0:
            continue
        k, v = tokens_of(K, V, table[seq, : ceil_div(n, size.block_size)], n)
        for head in range(H):
            scores = scale * (k[head // size.group] @ Q[seq, head].astype(np.float64))
            if slopes is not None:
                scores += np.float64(slopes[head]) * np.arange(1 - n, 1)
            weights = np.exp(scores - scores.max())
            O[seq, head] = weights @ v[head // size.group] * v_scale / weights.sum()
            L[seq, head] = scores.max() + np.log(weights.sum())
            for p, start in enumerate(range(0, n, size.partition_size)):
                at = slice(start, start + size.partition_size)
                row, top = seq * H + head, scores[at].max()
                w = np.exp(scores[at] - top)
                m[row, p], l[row, p], o[row, p] = top, w.sum(), w @ v[head // size.group][at] * v_scale
    return {"O": O, "L": L, "m": m, "l": l, "o": o}


def facts(size: Pages) -> tuple[Fact, ...]:
    """Say what the report shows of the algorithm: pages, partitions, blocks with work, products."""
    tokens, useful = sum(size.lens), sum(ceil_div(n, size.partition_size) for n in size.lens)
    blocks = size.partitions * size.heads * len(size.lens)
    return (
        Fact("Tokens", tokens, "token", "sum of --lens"),
        Fact("Pages", size.pages, "page", "ceil(tokens / block_size) a sequence"),
        Fact("Slots Unused", size.pages * size.block_size - tokens, "slot", "of last pages"),
        Fact("Blocks", blocks, "block", "partitions of the longest x heads x sequences"),
        Fact("Blocks With Tokens", useful * size.heads, "block", "partitions of each x heads", base="Blocks"),
        Fact("Pairs Visible", tokens * size.heads, "pair", "tokens x heads"),
        Fact("FLOPs, Products", 4 * size.d * tokens * size.heads, "flop", "4 d pairs visible"),
    )


SUMMARY = "paged attention V2: block tables, partitions and a reduction, ragged lengths"
SPEC = KernelSpec("paged_attention_v2", SUMMARY, Options, build)
