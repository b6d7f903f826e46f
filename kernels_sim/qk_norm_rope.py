"""Normalise the heads of Q and K and turn them by their position, in one pass: RMS norm, rotary embedding.

A warp takes one row, a head of a token: y = f1 x' + f2 swap(x') with x' = x / sqrt(mean(x^2) + eps).
Neighbouring elements make the pairs that turn (GPT-J's order, not the halves of NeoX): f1 holds the cosine
twice, f2 minus the sine and the sine, and swap exchanges the two of each pair. The pair lies in neighbouring
lanes, so the other half comes by a shuffle and is not read again. Elements from rotary_dim on do not turn: f1
= 1, f2 = 0, and the angles are those of a head of rotary_dim elements. Everything is computed in float32 and
rounded once, at the store.

- plain: Q and K each (tokens, heads, d).
- --paired: head h of token t goes to token 2 t + h // (heads / 2), so that neighbouring heads see each
  other's keys; odd heads turn by the second half of a row of factors of 2 d. Q and K each (2 tokens, heads /
  2, d).
- --key-offset: the elements of a key that do not turn come from the token before, normalised by its own
  length.

What to look at in the report (1,024 tokens, 6 heads, d = 128):
- Loads: the row once, two rows of factors. The factors of a token are the same for its 12 rows: they are
  asked for 12 times and come from DRAM once.
- Sectors per request: 4 in float32, 2 in 16 bits; all is coalesced, in and out, paired or not.
- FLOPs: 10.5 an element: 2 for the squares, 4 to normalise and turn it, and 4.5 for the row's sum over the
  lanes, root and reciprocal, which all 32 lanes do alike. DRAM's bandwidth is the roof all the same.
- --key-offset: half of all rows read one row more, to take d - rotary_dim elements out of it.

What it leaves out: the backward pass, positions other than 0 .. tokens - 1, NeoX's order of pairs.
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
    DTYPES,
    RCP,
    SQRT,
    TOLERANCES,
    Access,
    arithmetic,
    dram_of_bytes,
    row_segments,
)
from kernels_sim.attention_facts import element_facts
from kernels_sim.formulas import SECTOR_BYTES, WARP, ceil_div, require_at_least, require_choice, row_sectors
from kernels_sim.problem import Data, Fact, KernelSpec, Problem, Step
from kernels_sim.registers import recorded

float32 = np.float32
ZERO, ONE = np.float32(0), np.float32(1)
ALL = 0xFFFFFFFF

ROWS = 4
"""Rows of a block, one warp each."""
WIDEST = 1024
"""Elements of a head: a lane holds 32 of them."""
BASE = 10000.0
"""Angles of pair i: position * BASE^(-2 i / rotary_dim)."""
EPS = float(np.finfo(np.float32).eps)


@cache
def make_kernel(d: int, rotary_dim: int, paired: bool, key_offset: bool) -> Any:
    """Return qk_norm_rope(qk, factor1, factor2, out_q, out_k, eps).

    qk (tokens, at least 2 heads d), Q's heads, K's and what follows; factor1, factor2 (tokens, d), paired
    (tokens, 2 d); out_q, out_k (tokens, heads, d), paired (2 tokens, heads / 2, d); of any float type. Grid
    ceil(2 tokens heads / 4), block (32, 4).
    """
    per_lane = ceil_div(d, WARP)
    inverse_d = np.float32(1 / d)

    @cuda.jit
    def qk_norm_rope(qk, factor1, factor2, out_q, out_k, eps):
        x = cuda.local.array(per_lane, float32)
        y = cuda.local.array(per_lane, float32)
        lane = cuda.threadIdx.x
        row = cuda.blockIdx.x * ROWS + cuda.threadIdx.y
        tokens = qk.shape[0]
        heads = out_q.shape[1]
        if paired:
            heads *= 2
        both = 2 * heads
        if row < tokens * both:
            token = row // both
            input_head = row - token * both
            is_key = input_head >= heads
            head = input_head - heads if is_key else input_head
            out_token = token
            out_head = head
            factor0 = 0
            if paired:
                out_token = 2 * token + head // (heads // 2)
                out_head = head % (heads // 2)
                factor0 = (head % 2) * d

            total = ZERO
            for r in range(per_lane):
                e = lane + WARP * r
                x[r] = ZERO
                if e < d:
                    x[r] = float32(qk[token, input_head * d + e])
                    total += x[r] * x[r]
            for distance in (16, 8, 4, 2, 1):
                total += cuda.shfl_xor_sync(ALL, total, distance)
            rstd = ONE / math.sqrt(total * inverse_d + eps)
            for r in range(per_lane):
                e = lane + WARP * r
                normal = x[r] * rstd
                swapped = cuda.shfl_xor_sync(ALL, normal, 1)
                if e < d:
                    f1 = float32(factor1[token, factor0 + e])
                    f2 = float32(factor2[token, factor0 + e])
                    y[r] = f1 * normal + f2 * swapped

            if key_offset:
                if is_key and token > 0:
                    total = ZERO
                    for r in range(per_lane):
                        e = lane + WARP * r
                        if e < d:
                            x[r] = float32(qk[token - 1, input_head * d + e])
                            total += x[r] * x[r]
                    for distance in (16, 8, 4, 2, 1):
                        total += cuda.shfl_xor_sync(ALL, total, distance)
                    rstd = ONE / math.sqrt(total * inverse_d + eps)
                    for r in range(per_lane):
                        e = lane + WARP * r
                        if rotary_dim <= e and e < d:
                            y[r] = x[r] * rstd

            for r in range(per_lane):
                e = lane + WARP * r
                if e < d:
                    if is_key:
                        out_k[out_token, out_head, e] = y[r]
                    else:
                        out_q[out_token, out_head, e] = y[r]

    return qk_norm_rope


@dataclass(frozen=True)
class Options:
    """Hold the options of qk_norm_rope."""

    tokens: int = field(default=1024, metadata={"help": "tokens, at positions 0, 1, ..."})
    heads: int = field(default=6, metadata={"help": "heads of Q, and as many of K"})
    d: int = field(default=128, metadata={"help": f"elements of a head, even, at most {WIDEST}"})
    rotary_dim: int | None = field(default=None, metadata={"help": "elements that turn, even; not given: d"})
    paired: bool = field(default=False, metadata={"help": "neighbouring heads share their keys"})
    key_offset: bool = field(
        default=False, metadata={"help": "a key's elements that do not turn come from the token before"}
    )
    eps: float = field(default=EPS, metadata={"help": "added to the mean of squares"})
    dtype: str = field(default="float32", metadata={
        "help": "type of inputs, factors and outputs", "choices": tuple(DTYPES)})


def require_shape(name: str, options: Any) -> int:
    """Raise BadOption for sizes that no kernel of norm and rotation takes; return the elements that turn.

    options: has tokens, heads, d, rotary_dim, paired, key_offset and eps.
    """
    d = options.d
    rotary_dim = d if options.rotary_dim is None else options.rotary_dim
    require_at_least(name, "tokens", options.tokens, 1)
    require_at_least(name, "heads", options.heads, 1)
    if not 2 <= d <= WIDEST or d % 2:
        raise BadOption(f"{name}: --d must be an even number from 2 to {WIDEST}, got {d}: neighbours turn in "
                        "pairs, and a lane holds d / 32 elements")
    if not 0 <= rotary_dim <= d or rotary_dim % 2:
        raise BadOption(f"{name}: --rotary-dim must be an even number from 0 to --d {d}, got {rotary_dim}")
    if options.paired and options.key_offset:
        raise BadOption(f"{name}: --paired and --key-offset exclude each other: the token before a paired "
                        "key is another head's")
    if options.paired and options.heads % 2:
        raise BadOption(f"{name}: --paired needs an even number of --heads, got {options.heads}")
    if not (math.isfinite(options.eps) and options.eps >= 0):
        raise BadOption(f"{name}: --eps must be a finite number of at least 0, got {options.eps}")
    return rotary_dim


def build(options: Options, data: Data) -> Problem:
    """Make the problem: Q and K ~ N(0, 1), factors of the positions, outputs NaN. Raises BadOption."""
    rotary_dim = require_shape("qk_norm_rope", options)
    require_choice("qk_norm_rope", "dtype", options.dtype, DTYPES)
    tokens, heads, d, dtype = options.tokens, options.heads, options.d, DTYPES[options.dtype]
    qk = data.normal(tokens, 2 * heads * d, dtype=dtype)
    width = 2 * d if options.paired else d
    factors = [data.filled(0, tokens, width, dtype=dtype) for _ in range(2)]
    if not data.virtual:
        factors[0][...], factors[1][...] = rotation(tokens, d, rotary_dim, options.paired)
    shape = (2 * tokens, heads // 2, d) if options.paired else (tokens, heads, d)
    Q, K = (data.filled(np.nan, *shape, dtype=dtype) for _ in range(2))
    form = closed_form(tokens, heads, d, rotary_dim, options.paired, options.key_offset, dtype.itemsize)
    how = f"rotary_dim={rotary_dim} key_offset=True" if options.key_offset else f"paired={options.paired}"
    registers, source = recorded("qk_norm_rope", f"d={d} {how}") if options.dtype == "float32" else (None, "")
    step = Step(
        make_kernel(d, rotary_dim if options.key_offset else d, options.paired, options.key_offset),
        (ceil_div(2 * tokens * heads, ROWS),), (WARP, ROWS), (qk, *factors, Q, K, np.float32(options.eps)),
        0, form, registers, source,
    )  # fmt: skip

    def expected() -> dict[str, np.ndarray]:
        found = norm_rope(qk, *factors, options.eps, rotary_dim, options.paired, options.key_offset)
        return dict(zip(("Q", "K"), found, strict=True))

    said = facts(options, form, dtype.itemsize)
    reference = None if data.virtual else expected
    inputs = {"qk": qk, "factor1": factors[0], "factor2": factors[1]}
    return Problem("qk_norm_rope", (step,), {"Q": Q, "K": K}, reference, TOLERANCES[options.dtype], said,
                   options, inputs)


def rotation(tokens: int, d: int, rotary_dim: int, paired: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the factors of x and of its swapped neighbours, (tokens, d), float64.

    Paired: (tokens, 2 d), the rows of positions 2 t and 2 t + 1 side by side.
    """
    rows = tokens * (2 if paired else 1)
    angle = np.arange(rows)[:, None] * BASE ** (-np.arange(0, rotary_dim, 2) / max(1, rotary_dim))
    f1, f2 = np.ones((rows, d)), np.zeros((rows, d))
    f1[:, :rotary_dim:2] = f1[:, 1:rotary_dim:2] = np.cos(angle)
    f2[:, :rotary_dim:2], f2[:, 1:rotary_dim:2] = -np.sin(angle), np.sin(angle)
    return f1.reshape(tokens, -1), f2.reshape(tokens, -1)


def norm_rope(
    qk: np.ndarray,
    f1: np.ndarray,
    f2: np.ndarray,
    eps: float,
    rotary_dim: int,
    paired: bool,
    key_offset: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Return Q and K of qk (tokens, 2 heads d) in float64."""
    tokens, d = len(qk), f1.shape[1] // (2 if paired else 1)
    x = qk.astype(np.float64).reshape(tokens, -1, d)
    both = x.shape[1]
    heads = both // 2
    x /= np.sqrt((x**2).mean(axis=2, keepdims=True) + eps)
    swapped = x.reshape(tokens, both, d // 2, 2)[..., ::-1].reshape(x.shape)
    # Paired rows of factors have a half for even heads and one for odd heads.
    half = np.tile(np.arange(heads) % (2 if paired else 1), 2)
    a, b = (f.astype(np.float64).reshape(tokens, -1, d)[:, half] for f in (f1, f2))
    y = a * x + b * swapped
    if key_offset:
        y[1:, heads:, rotary_dim:] = x[:-1, heads:, rotary_dim:]
    shape = (2 * tokens, heads // 2, d) if paired else (tokens, heads, d)
    return y[:, :heads].reshape(shape), y[:, heads:].reshape(shape)


def facts(options: Options, form: dict[str, int], size: int) -> tuple[Fact, ...]:
    """Say what the report shows of the algorithm: rows, and elements that move."""
    rows, d = 2 * options.tokens * options.heads, options.d
    width = 2 * d if options.paired else d
    shifted = (options.tokens - 1) * options.heads if options.key_offset else 0
    ideal = 2 * rows * d + 2 * options.tokens * width
    return (
        Fact("Rows", rows, "row", "2 tokens heads"),
        Fact("Keys That Read The Token Before", shifted, "row", "(tokens - 1) heads" if shifted else "none"),
        *element_facts(ideal, "2 rows d + factors", 4 * rows * d + shifted * d,
                       "in, out and two factors a row", (form,), None if size == 4 else size * ideal),
    )


def closed_form(
    tokens: int,
    heads: int,
    d: int,
    rotary_dim: int,
    paired: bool,
    key_offset: bool,
    size: int = 4,
    width: int | None = None,
) -> dict[str, int]:
    """Return what the counters must be; size: bytes of an element, width: elements from a token to the next,
    not given: 2 heads d.

    A row: d FFMA of the squares, then in all 32 lanes 5 additions, the mean with eps, a root and a
    reciprocal, and ceil(d / 32) multiplications that normalise; a multiplication and an FFMA an element turn
    it.
    """
    rows, shifted = 2 * tokens * heads, (tokens - 1) * heads if key_offset else 0
    factors = row_segments((2 if paired else 1) * tokens, d, size) * (2 * (1 if paired else 2) * heads)
    width = 2 * heads * d if width is None else width
    begins = range(0, tokens * width, width)
    loads = factors + runs((begin + head * d for begin in begins for head in range(2 * heads)), 0, d, size)
    if key_offset:
        before = (begin + (heads + head) * d for begin in begins[:-1] for head in range(heads))
        loads += runs(before, 0, d, size)
    stores = row_segments(rows // 2, d, size) * 2
    forms = loads.paths("global_load") | stores.paths("global_store")
    lanes = WARP * (rows + shifted)
    forms |= arithmetic(
        ((rows + shifted) * d, {"ffma": 1}),
        (lanes, {"fadd": 5, "ffma": 1}),
        (lanes, SQRT),
        (lanes, RCP),
        (rows * WARP * ceil_div(d, WARP), {"fmul": 1}),
        (rows * d, {"fmul": 1, "ffma": 1}),
        (shifted * (d - rotary_dim), {"fmul": 1}),
    )
    forms["hierarchy.l2_write"] = stores.sectors
    pieces = size * rows * d, size * 2 * tokens * d * (2 if paired else 1)
    apart = (size * width, size * 2 * heads * d) if width > 2 * heads * d else ()
    return forms | dram_of_bytes(sum(pieces), pieces[0], (pieces[0] // 2, pieces[1] // 2, *apart))


def runs(starts: Iterable[int], first: int, end: int, size: int) -> Access:
    """Count one access to elements first .. end - 1 of rows that begin at these element numbers: a warp a
    row, lane l takes elements l, l + 32, ...
    """
    phases = Counter(start % SECTOR_BYTES for start in starts)
    count, cut = sum(phases.values()), min(ceil_div(first, WARP) * WARP, end)
    sectors = sum(
        n * (row_sectors(phase + first, cut - first, size) + row_sectors(phase + cut, end - cut, size))
        for phase, n in phases.items()
    )
    requests = ceil_div(end, WARP) - first // WARP if end > first else 0
    return Access(count * (end - first), count * requests, sectors, size * count * (end - first))


SUMMARY = "RMS norm and rotary embedding of Q and K in one pass: paired heads, key offset, partial rotary"
SPEC = KernelSpec("qk_norm_rope", SUMMARY, Options, build)
