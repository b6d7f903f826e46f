"""The kernels of whole rows and whole matrices in numpy, as their launches and blocks divide the work.

numpy's side computes in float32 and counts nothing. Where a kernel's blocks hold rows that do not meet, numpy
takes all of them at once; K/V tiles, keys' blocks and parts go by one after another as in the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from ml_dtypes import bfloat16, float8_e4m3fn

from kernels_sim.problem import Problem

Arrays = list[np.ndarray]


def numpy_standard(problem: Problem, options: Any) -> Arrays:
    """Return O and L: S, P and O each a whole matrix, as the three launches of standard_attention."""
    Q, K, _, scale, _ = problem.steps[0].args
    V = problem.steps[2].args[1]
    S = Q @ K.transpose(0, 2, 1) * scale
    top = S.max(axis=2, keepdims=True)
    P = np.exp(S - top)
    total = P.sum(axis=2, keepdims=True)
    P /= total
    return [P @ V, (top + np.log(total))[..., 0]]


def numpy_standard_backward(problem: Problem, options: Any) -> Arrays:
    """Return dQ, dK and dV by the five launches of standard_attention_backward."""
    value, weight, score, query, key = (step.args for step in problem.steps)
    (P, dO), V, scale, K, Q = value[:2], weight[1], score[3], query[1], key[1]
    dV = P.transpose(0, 2, 1) @ dO
    dP = dO @ V.transpose(0, 2, 1)
    dS = P * (dP - (P * dP).sum(axis=2, keepdims=True)) * scale
    return [dS @ K, dS.transpose(0, 2, 1) @ Q, dV]


def numpy_merge(problem: Problem, options: Any) -> Arrays:
    """Return m, l and o: the parts merged one after another, all rows at once."""
    m, l, o = problem.steps[0].args[:3]  # noqa: E741
    top, total, acc = np.full(len(m[0]), -np.inf, np.float32), np.zeros_like(l[0]), np.zeros_like(o[0])
    for part in range(len(m)):
        full = m[part] != -np.inf
        new_top = np.maximum(top, m[part])
        shift = np.where(new_top > -np.inf, new_top, np.float32(0))
        old, new = np.exp(top - shift), np.exp(m[part] - shift)
        total = total * old + np.where(full, l[part], np.float32(0)) * new
        acc = acc * old[:, None] + np.where(full[:, None], o[part], np.float32(0)) * new[:, None]
        top = new_top
    return [top, total, acc]


def numpy_row_forward(problem: Problem, options: Any) -> Arrays:
    """Return O and L: all rows of a head at once, K and V a tile of Bc keys at a time."""
    Q, K, V, _, _, scale = problem.steps[0].args[:6]
    out, L = np.zeros_like(Q), np.zeros((options.B, options.H, options.T), np.float32)
    for b, h in np.ndindex(options.B, options.H):
        kv = h // (options.H // options.HKV)
        q = Q[b, :, h]
        m = np.full(len(q), -np.inf, np.float32)
        l, o = np.zeros_like(m), np.zeros_like(q)  # noqa: E741
        for j in range(0, K.shape[1], options.Bc):
            s = q @ K[b, j : j + options.Bc, kv].T * scale
            new_m = np.maximum(m, s.max(axis=1))
            p, correction = np.exp(s - new_m[:, None]), np.exp(m - new_m)
            l = l * correction + p.sum(axis=1)  # noqa: E741
            o = o * correction[:, None] + p @ V[b, j : j + options.Bc, kv]
            m = new_m
        out[b, :, h], L[b, h] = o / l[:, None], m + np.log(l)
    return [out, L]


def numpy_row_delta(problem: Problem, options: Any) -> Arrays:
    """Return D = rowsum(dO * O)."""
    out, dO, _ = problem.steps[0].args
    return [(out * dO).sum(axis=3).transpose(0, 2, 1)]


def numpy_row_dq(problem: Problem, options: Any) -> Arrays:
    """Return dQ: Br rows of a head at a time, with all keys."""
    Q, K, V, dO, L, D, _, scale = problem.steps[0].args[:8]
    dQ = np.zeros_like(Q)
    for b, h, i in np.ndindex(options.B, options.H, -(-options.T // options.Br)):
        rows, kv = slice(i * options.Br, (i + 1) * options.Br), h // (options.H // options.HKV)
        p = np.exp(Q[b, rows, h] @ K[b, :, kv].T * scale - L[b, h, rows, None])
        ds = p * (dO[b, rows, h] @ V[b, :, kv].T - D[b, h, rows, None]) * scale
        dQ[b, rows, h] = ds @ K[b, :, kv]
    return [dQ]


def numpy_row_dv(problem: Problem, options: Any) -> Arrays:
    """Return dV: Br keys of a head at a time, with all rows of each query head of its group."""
    Q, K, dO, L, out, scale = problem.steps[0].args[:6]
    dV = np.zeros_like(out)
    for b, h, j in np.ndindex(options.B, options.H, -(-out.shape[1] // options.Br)):
        keys, kv = slice(j * options.Br, (j + 1) * options.Br), h // (options.H // options.HKV)
        p = np.exp(Q[b, :, h] @ K[b, keys, kv].T * scale - L[b, h, :, None])
        dV[b, keys, kv] += p.T @ dO[b, :, h]
    return [dV]


def numpy_row_dk(problem: Problem, options: Any) -> Arrays:
    """Return dK: Br keys of a head at a time, with all rows of each query head of its group."""
    Q, K, V, dO, L, D, out, scale = problem.steps[0].args[:8]
    dK = np.zeros_like(out)
    for b, h, j in np.ndindex(options.B, options.H, -(-out.shape[1] // options.Br)):
        keys, kv = slice(j * options.Br, (j + 1) * options.Br), h // (options.H // options.HKV)
        p = np.exp(Q[b, :, h] @ K[b, keys, kv].T * scale - L[b, h, :, None])
        ds = p * (dO[b, :, h] @ V[b, keys, kv].T - D[b, h, :, None]) * scale
        dK[b, keys, kv] += ds.T @ Q[b, :, h]
    return [dK]


def numpy_norm_rope(problem: Problem, options: Any) -> Arrays:
    """Return Q and K, normalised and turned, plain heads."""
    qk, f1, f2, _, _, eps = problem.steps[0].args
    return normalised(qk.reshape(options.tokens, -1, options.d), f1, f2, eps)


def normalised(qk: np.ndarray, f1: np.ndarray, f2: np.ndarray, eps: float) -> Arrays:
    """Return the first and the second half of heads (tokens, 2 heads, d), normalised and turned."""
    x = qk / np.sqrt((qk * qk).mean(axis=2, keepdims=True) + eps)
    swapped = x.reshape(*x.shape[:2], -1, 2)[..., ::-1].reshape(x.shape)
    y = f1[:, None] * x + f2[:, None] * swapped
    return np.split(y, 2, axis=1)


def numpy_norm_rope_backward(problem: Problem, options: Any) -> Arrays:
    """Return the gradient of the rows of Q, K and V as e4m3, by row and transposed, plain heads."""
    *given, _, _, scale, eps = problem.steps[0].args
    grad_q, grad_k, grad_v, qk, f1, f2 = (x.astype(np.float32) for x in given)
    dy = np.concatenate([grad_q, grad_k], axis=1)
    x = qk[:, : dy[0].size].reshape(dy.shape)
    rstd = 1 / np.sqrt((x * x).mean(axis=2, keepdims=True) + eps)
    normal = x * rstd
    g = f1[:, None] * dy + (f2[:, None] * dy).reshape(*x.shape[:2], -1, 2)[..., ::-1].reshape(x.shape)
    dx = rstd * (g - normal * (g * normal).mean(axis=2, keepdims=True))
    rows = [y.astype(bfloat16).astype(np.float32).reshape(len(x), -1) for y in (dx, grad_v)]
    packed = np.clip(np.concatenate(rows, axis=1) / scale, -448, 448).astype(float8_e4m3fn)
    return [packed, np.ascontiguousarray(packed.T)]


def numpy_product(problem: Problem, options: Any) -> Arrays:
    """Return the scaled product of two matrices of 8-bit floats, as one of float32."""
    a, b, _, scale_a, scale_b = problem.steps[0].args
    return [a.astype(np.float32) @ b.astype(np.float32).T * (scale_a * scale_b)]


def numpy_fp8_qkv(problem: Problem, options: Any) -> Arrays:
    """Return Q, K and V: the packed product, rounded to bfloat16, then the norm and rotation, plain heads."""
    qkv = numpy_product(problem, options)[0].astype(bfloat16).astype(np.float32)
    _, f1, f2, *_, eps = problem.steps[1].args
    wide = 2 * options.heads * options.d
    f1, f2 = f1.astype(np.float32), f2.astype(np.float32)
    return [*normalised(qkv[:, :wide].reshape(len(qkv), -1, options.d), f1, f2, eps), qkv[:, wide:]]


def numpy_fp8_qkv_backward(problem: Problem, options: Any) -> Arrays:
    """Return the gradients of x, of the weights and of their scale by the four launches, plain heads."""
    _, of_weight, of_x, last = (step.args for step in problem.steps)
    by_row, by_column = (a.astype(np.float32) for a in numpy_norm_rope_backward(problem, options))
    of_scaled = by_column @ of_weight[1].astype(np.float32).T * (of_weight[3] * of_weight[4])
    of_scaled = of_scaled.astype(bfloat16).astype(np.float32)
    grad_x = by_row @ of_x[1].astype(np.float32).T * (of_x[3] * of_x[4])
    weight, scale = last[1].astype(np.float32), last[2]
    return [grad_x, of_scaled * scale, np.reshape((of_scaled * weight).sum(), 1)]


SAME_ROWS: dict[str, Callable[[Problem, Any], Arrays]] = {
    "standard_attention": numpy_standard,
    "standard_attention_backward": numpy_standard_backward,
    "softmax_merge": numpy_merge,
    "flash_row_forward": numpy_row_forward,
    "flash_row_delta": numpy_row_delta,
    "flash_row_dq": numpy_row_dq,
    "flash_row_dv": numpy_row_dv,
    "flash_row_dk": numpy_row_dk,
    "qk_norm_rope": numpy_norm_rope,
    "qkv_norm_rope_fp8_backward": numpy_norm_rope_backward,
    "matmul_fp8": numpy_product,
    "fp8_qkv": numpy_fp8_qkv,
    "fp8_qkv_backward": numpy_fp8_qkv_backward,
}
"""Kernel -> the same work in numpy for a problem without masks, its outputs in the problem's order."""
