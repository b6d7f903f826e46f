"""The values that mma and ldmatrix give, for both oracles: matrices taken out of fragments, and put back.

What it models: the sum that an H200's tensor cores make, to the bit (h200 facts 33 and 34). The largest
exponent among the terms decides: every product (exact) and the accumulator are cut toward zero 25 bits below
it, added exactly, and the sum is cut to a float32. The low 13 bits of a tf32 are ignored. fp8 values are
multiplied as float16 in two such sums, and one addition. What it leaves out: other cards, whose sums are cut
elsewhere. Which ncu metric checks it: none; tests/data/h200_mma.npz holds fragments and results of the card.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from dsl.semantics import fragments
from dsl.semantics.floats import Array
from dsl.semantics.messages import LANES
from dsl.warpir.tensor import PARTS

STORED: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}
"""numpy's type of each packed type."""
TF32_BITS = np.uint32(0xFFFFE000)
KEPT_BITS = 25
"""Binary places that a term keeps below the largest exponent."""
LEAST_EXPONENT = {"f16": -14, "e4m3": -14, "e5m2": -14, "bf16": -126, "tf32": -126, "f32": -126}
"""Exponent of subnormals; fp8 values are float16 when they are multiplied."""


def unpacked(registers: Array, type_: str) -> Array:
    """Return the values in registers, uint32 of shape (r, 32), as float32 of shape (32, r, values each)."""
    bits = np.ascontiguousarray(registers.T)
    if type_ == "tf32":
        return (bits & TF32_BITS).view(np.float32)[:, :, None]
    return bits.view(STORED[type_]).astype(np.float32).reshape(LANES, len(registers), PARTS[type_])


def _matrix(values: Array, places: list[list[fragments.Place]]) -> Array:
    """Return the matrix whose elements lie at some places of (lanes, registers, values each), in float64."""
    return values[tuple(np.moveaxis(np.array(places), -1, 0))].astype(np.float64)


def _exponents(x: Array, type_: str) -> Array:
    """Return the exponents of numbers of a type; a large negative one for zero."""
    found = np.maximum(np.frexp(x)[1] - 1, LEAST_EXPONENT[type_])
    return np.where(x == 0, -10_000, found)


def _cut(x: Array) -> Array:
    """Return float64 numbers cut toward zero to a float32; past its largest comes infinity."""
    quantum = np.maximum(np.frexp(x)[1] - 24, -149)
    return np.ldexp(np.trunc(np.ldexp(x, -quantum)), quantum).astype(np.float32) + np.float32(0)


def tensor_sum(a_type: str, b_type: str, a: Array, b: Array, c: Array) -> Array:
    """Return a b + c as one sum of the tensor cores makes it, float32.

    a: (rows, k), b: (k, columns), c: (rows, columns), float64 numbers of their types and float32.
    """
    product = a[:, :, None] * b[None, :, :]
    of_product = _exponents(a, a_type)[:, :, None] + _exponents(b, b_type)[None, :, :]
    largest = np.maximum(of_product.max(axis=1), _exponents(c, "f32"))
    shift = KEPT_BITS - np.maximum(largest, -400)
    terms = np.trunc(np.ldexp(product, shift[:, None, :])).sum(axis=1) + np.trunc(np.ldexp(c, shift))
    plain = product.sum(axis=1) + c
    return np.where(np.isfinite(plain), _cut(np.ldexp(terms, -shift)), plain.astype(np.float32))


def _by_type(a_type: str, b_type: str, a: Array, b: Array, c: Array) -> Array:
    """Return a b + c as the instructions of an mma make it."""
    if PARTS[a_type] != 4:
        return tensor_sum(a_type, b_type, a, b, c)
    low = np.arange(a.shape[1]) % 4 < 2
    first = tensor_sum(a_type, b_type, a[:, low], b[low], np.zeros_like(c))
    second = tensor_sum(a_type, b_type, a[:, ~low], b[~low], first.astype(np.float64))
    return c.astype(np.float32) + second


def multiply(a_type: str, b_type: str, a: Array, b: Array, c: Array) -> Array:
    """Return the accumulators d = a b + c as fragments, float32 of shape (4, 32).

    a: uint32, shape (4, 32); b: uint32, (2, 32); c: float32, (4, 32).
    """
    with np.errstate(all="ignore"):
        left = _matrix(unpacked(a, a_type), fragments.places_a(a_type))
        right = _matrix(unpacked(b, b_type), fragments.places_b(b_type))
        places = fragments.places_c()
        total = _matrix(np.ascontiguousarray(c.T)[:, :, None], places)
        found = _by_type(a_type, b_type, left, right, total)
    out = np.empty((LANES, 4, 1), np.float32)
    out[tuple(np.moveaxis(np.array(places), -1, 0))] = found
    return np.ascontiguousarray(out[:, :, 0].T)


def spread(rows: Array, trans: bool) -> Array:
    """Return the registers that ldmatrix makes of matrices: uint32, shape (matrices, 32).

    rows: uint16, shape (matrices, 8, 8).
    """
    out = np.empty((len(rows), LANES, 2), np.uint16)
    for lane in range(LANES):
        for part in range(2):
            row, column = fragments.source_of_matrix(lane, part, trans)
            out[:, lane, part] = rows[:, row, column]
    return out.view(np.uint32)[:, :, 0]
