"""Project tokens onto Q, K and V with one product of 8-bit floats, then normalise and turn Q and K.

The weights of Q, K and V are one packed matrix, qkv = sx sw x8 @ w8^T, and its columns are [Q | K | V] with
heads side by side. The launches are those of matmul_fp8 and qk_norm_rope, each in its own file:

- plain: one product makes qkv (tokens, qkv_dim), bfloat16; the norm reads Q and K where they lie, and V
  stays where it is: the last heads v_dim columns, a view with rows qkv_dim apart.
- --paired: attention merges the token and the head axis, for which V has to be dense. So two products make
  it so at birth, one of the rows of Q and K of the weights, one of V's; both read x.

x and the weights come as e4m3 with their scales: whoever makes x quantises it once for all the layers that
read it. sw is the weights' scale times qkv_scale, a learned number that multiplies all of them. V feels it;
of Q and K the norm takes it away again, up to eps.

What to look at in the report (1,024 tokens, model_dim = 768, 6 heads, d = v_dim = 128):
- The product: 442,368 mma.sync, 3,623,878,656 FLOPs, 28,606,464 bytes asked for. The norm: 16,515,072 FLOPs,
  9,437,184 bytes. The first sits under the compute roof, the second under that of DRAM's bandwidth.
- qkv goes out in bfloat16, 4,718,592 bytes; the norm takes two thirds of it and leaves V.
- --paired: 12 and 6 tiles across instead of 18, so that L1 is asked for the same; with cold caches DRAM gives
  x once more, 786,432 bytes. Where the cut leaves ragged tiles, they are computed whole.

What it leaves out: quantising x and the weights, the product of the two scales (a kernel of one thread), the
backward pass (fp8_qkv_backward).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from ml_dtypes import bfloat16, float8_e4m3fn

from gpusim.errors import BadOption
from kernels_sim.attention import TOLERANCES
from kernels_sim.formulas import WARP, ceil_div, require_at_least, require_choice
from kernels_sim.matmul_fp8 import KERNELS, require_chunks, scaled_product, step_of
from kernels_sim.problem import Data, Fact, KernelSpec, Problem, Step
from kernels_sim.qk_norm_rope import EPS, ROWS, make_kernel, norm_rope, require_shape, rotation
from kernels_sim.qk_norm_rope import closed_form as norm_form
from kernels_sim.qkv_norm_rope_fp8_backward import quantised

X_SCALE = np.float32(2.0**-6)
"""What one unit of x is in e4m3: numbers ~ N(0, 1) up to 7 fit."""


@dataclass(frozen=True)
class Options:
    """Hold the options of fp8_qkv."""

    tokens: int = field(default=1024, metadata={"help": "tokens, at positions 0, 1, ..."})
    model_dim: int = field(default=768, metadata={"help": "elements of a token of x, a multiple of 16"})
    heads: int = field(default=6, metadata={"help": "heads of Q, and as many of K and V"})
    d: int = field(default=128, metadata={"help": "elements of a head of Q and K, even"})
    v_dim: int | None = field(default=None, metadata={"help": "elements of a head of V; not given: d"})
    rotary_dim: int | None = field(default=None, metadata={"help": "elements that turn, even; not given: d"})
    paired: bool = field(default=False, metadata={"help": "neighbouring heads share their keys; V is dense"})
    key_offset: bool = field(
        default=False, metadata={"help": "a key's elements that do not turn come from the token before"}
    )
    eps: float = field(default=EPS, metadata={"help": "added to the mean of squares"})
    qkv_scale: float = field(default=0.5, metadata={"help": "multiplies all weights"})
    accumulation: str = field(default="fast", metadata={
        "help": "sums of the product; fast: in the tensor cores, full: 128 values there, then in float32",
        "choices": tuple(KERNELS)})  # fmt: skip


def check(name: str, options: Any) -> tuple[int, int]:
    """Raise BadOption for options that the projection does not take; return rotary_dim and v_dim."""
    rotary_dim = require_shape(name, options)
    v_dim = options.d if options.v_dim is None else options.v_dim
    require_at_least(name, "v-dim", v_dim, 1)
    require_choice(name, "accumulation", options.accumulation, KERNELS)
    require_chunks(name, **{"--model-dim": options.model_dim})
    of_qk, of_v = 2 * options.heads * options.d, options.heads * v_dim
    if options.paired:
        require_chunks(name, **{"2 heads d of --paired": of_qk, "heads v_dim of --paired": of_v})
    require_chunks(name, **{"heads (2 d + v_dim)": of_qk + of_v})
    if not math.isfinite(options.qkv_scale):
        raise BadOption(f"{name}: --qkv-scale must be a finite number, got {options.qkv_scale}")
    return rotary_dim, v_dim


@dataclass(frozen=True)
class Inputs:
    """Hold what the projection takes: 8-bit x (tokens, model_dim) and weights (qkv_dim, model_dim), scales
    (1,) float32 (weight_scale with qkv_scale in it), bfloat16 weights, factors of the positions.
    """

    x8: Any
    weight8: Any
    x_scale: Any
    weight_scale: Any
    weight: Any
    factors: tuple[Any, Any]

    @property
    def by_name(self) -> dict[str, Any]:
        """Return the arrays by name, those that only a backward pass takes too."""
        return {"x8": self.x8, "weight8": self.weight8, "x_scale": self.x_scale,
                "weight_scale": self.weight_scale, "weight": self.weight, "factor1": self.factors[0],
                "factor2": self.factors[1]}


def make_inputs(options: Any, width: int, rotary_dim: int, data: Data) -> Inputs:
    """Make x ~ N(0, 1), weights ~ N(0, 1 / model_dim) and the factors, quantised where they are 8 bits."""
    tokens, model_dim = options.tokens, options.model_dim
    x, weight = data.normal(tokens, model_dim, dtype=bfloat16), data.normal(width, model_dim, dtype=bfloat16)
    unit = np.float32(X_SCALE / math.sqrt(model_dim))
    x_scale = data.filled(X_SCALE, 1)
    weight_scale = data.filled(unit * np.float32(options.qkv_scale), 1)
    shape = tokens, options.d * (2 if options.paired else 1)
    factors = data.filled(0, *shape, dtype=bfloat16), data.filled(0, *shape, dtype=bfloat16)
    x8, weight8 = (data.filled(0, *a.shape, dtype=float8_e4m3fn) for a in (x, weight))
    if not data.virtual:
        weight[...] = weight.astype(np.float32) / math.sqrt(model_dim)
        x8[...] = quantised(x.astype(np.float32), X_SCALE)
        weight8[...] = quantised(weight.astype(np.float32), unit)
        factors[0][...], factors[1][...] = rotation(tokens, options.d, rotary_dim, options.paired)
    return Inputs(x8, weight8, x_scale, weight_scale, weight, factors)


def build(options: Options, data: Data) -> Problem:
    """Make the problem: x ~ N(0, 1), weights ~ N(0, 1 / model_dim), outputs NaN. Raises BadOption."""
    rotary_dim, v_dim = check("fp8_qkv", options)
    tokens, heads, d, paired = options.tokens, options.heads, options.d, options.paired
    of_qk, of_v = 2 * heads * d, heads * v_dim
    given = make_inputs(options, of_qk + of_v, rotary_dim, data)
    widths = (of_qk, of_v) if paired else (of_qk + of_v,)
    products = [data.filled(np.nan, tokens, width, dtype=bfloat16) for width in widths]
    weights = [rows(given.weight8, first, width) for first, width in zip((0, of_qk), widths, strict=False)]
    scales = given.x_scale, given.weight_scale
    steps = [step_of(given.x8, w, out, *scales, options.accumulation)
             for w, out in zip(weights, products, strict=True)]  # fmt: skip
    shape = (2 * tokens, heads // 2, d) if paired else (tokens, heads, d)
    Q, K = (data.filled(np.nan, *shape, dtype=bfloat16) for _ in range(2))
    V = products[-1] if paired or data.virtual else products[0][:, of_qk:]
    norm = Step(
        make_kernel(d, rotary_dim if options.key_offset else d, paired, options.key_offset),
        (ceil_div(2 * tokens * heads, ROWS),), (WARP, ROWS),
        (products[0], *given.factors, Q, K, np.float32(options.eps)), 0,
        norm_form(tokens, heads, d, rotary_dim, paired, options.key_offset, 2, widths[0]),
    )  # fmt: skip

    def expected() -> dict[str, np.ndarray]:
        qkv = scaled_product(given.x8, given.weight8, *scales).astype(bfloat16)
        found = norm_rope(qkv[:, :of_qk], *given.factors, options.eps, rotary_dim, paired, options.key_offset)
        return dict(zip(("Q", "K", "V"), (*found, qkv[:, of_qk:].astype(np.float64)), strict=True))

    reference = None if data.virtual else expected
    needed = 2 * tokens * (of_qk + of_v) * options.model_dim
    said = product_facts(needed, "2 tokens qkv_dim model_dim", steps)
    outputs = {"Q": Q, "K": K, "V": V}
    return Problem("fp8_qkv", (*steps, norm), outputs, reference, TOLERANCES["bfloat16"], said, options,
                   given.by_name)


def rows(matrix: Any, first: int, count: int) -> Any:
    """Return some rows of a matrix, as a view; of one without storage, one without storage."""
    if isinstance(matrix, np.ndarray):
        return matrix[first : first + count]
    return type(matrix)((count, matrix.shape[1]), matrix.dtype)


def product_facts(needed: int, formula: str, steps: list[Step]) -> tuple[Fact, Fact]:
    """Say how many FLOPs the products need, and how many their whole tiles execute."""
    executed = sum(step.closed_form["tensor.fp8"] for step in steps) * 8192
    return (
        Fact("FLOPs, Products Needed", needed, "flop", formula),
        Fact("FLOPs, Products Executed", executed, "flop", "whole tiles of 128 x 128 x 64",
             {"tensor.fp8": 8192}, base="FLOPs, Products Needed"),
    )  # fmt: skip


SUMMARY = "packed projection onto Q, K, V in 8-bit floats, then RMS norm and rotary embedding of Q and K"
SPEC = KernelSpec("fp8_qkv", SUMMARY, Options, build)
