"""Project tokens onto Q, K and V with one product of 8-bit floats in Triton, then norm and rotation.

The twin of kernels_sim/fp8_qkv.py: the launches are those of matmul_fp8 and qk_norm_rope. Plain: one product,
and V is a view of its last columns; --paired: two products, so that V is dense.
"""

from __future__ import annotations

from typing import Any

from kernels_real.triton_kernels.arrays import Arrays
from kernels_real.triton_kernels.launching import Launch
from kernels_real.triton_kernels.matmul_fp8 import product_launch
from kernels_real.triton_kernels.qk_norm_rope import ROWS, norm_launch


def launches(options: Any, arrays: Arrays, num_warps: int = 8, num_stages: int = 3) -> list[Launch]:
    """Return the two or three launches. num_warps, num_stages: of the products; the norm has 4 warps."""
    x8, weight8, of_qk = arrays["x8"], arrays["weight8"], 2 * options.heads * options.d
    Q, K, dtype = arrays.output("Q"), arrays.output("K"), arrays.type_of("V")
    how = arrays["x_scale"], arrays["weight_scale"], options.accumulation, num_warps, num_stages
    if options.paired:
        qk = arrays.make("qk", (options.tokens, of_qk), dtype)
        V = arrays.output("V")
        parts = (weight8[:of_qk], qk), (weight8[of_qk:], V)
        products = [product_launch(x8, weight, out, *how) for weight, out in parts]
    else:
        qk = arrays.make("qkv", (options.tokens, weight8.shape[0]), dtype)
        arrays.name("V", qk[:, of_qk:])
        products = [product_launch(x8, weight8, qk, *how)]
    factors = arrays["factor1"], arrays["factor2"]
    return [*products, norm_launch(qk, factors, (Q, K), options, ROWS)]
