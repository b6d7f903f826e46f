"""The gradients of attention in float64, written out: what backward kernels are compared with.

With P = softmax(scale Q K^T), O = P V and a gradient dO of O: dV = P^T dO, dP = dO V^T, D = rowsum(dO * O),
dS = P * (dP - D), dQ = scale dS K, dK = scale dS^T Q; dK and dV are summed over the query heads of a group.
What it leaves out: the gradient of L. Checked against torch.autograd in float64 (tests/kernels_sim).
"""

from __future__ import annotations

import numpy as np

from kernels_sim.attention import Shape, key_range, reference, weigh


def gradients(
    Q: np.ndarray, K: np.ndarray, V: np.ndarray, dO: np.ndarray, shape: Shape, rows: int = 256
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return dQ (heads, N, d), dK (heads / group, Nk, d) and dV (heads / group, Nk, dv) in float64.

    A row that sees no key has dQ = 0, as have dK and dV of a key that no row sees. NaN in a row or a key
    does not reach the gradient of one that it does not see, or that does not see it. Works on `rows` query
    rows at a time.
    """
    O, L = reference(Q, K, V, shape, rows)
    q, k, v, do = (x.astype(np.float64) for x in (Q, K, V, dO))
    D = (do * O).sum(axis=2)
    first, end = key_range(shape)
    keys = np.arange(shape.Nk)
    dQ, dK, dV = np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape)
    for head in range(shape.heads):
        kv = head // shape.group
        for i in range(0, shape.N, rows):
            at = slice(i, min(i + rows, shape.N))
            visible = (keys >= first[at, None]) & (keys < end[at, None])
            L_finite = np.where(first[at] < end[at], L[head, at], 0.0)
            with np.errstate(invalid="ignore", over="ignore"):
                p = np.where(visible, np.exp(shape.scale * (q[head, at] @ k[kv].T) - L_finite[:, None]), 0.0)
                ds = np.where(visible, p * (do[head, at] @ v[kv].T - D[head, at, None]) * shape.scale, 0.0)
            dQ[head, at] = weigh(ds, k[kv], visible)
            dK[kv] += weigh(ds.T, q[head, at], visible.T)
            dV[kv] += weigh(p.T, do[head, at], visible.T)
    return dQ, dK, dV


def summed(
    Q: np.ndarray, K: np.ndarray, V: np.ndarray, dO: np.ndarray, shape: Shape, rows: int = 256
) -> tuple[float, float]:
    """Return how large the terms are that the gradients dQ and dK add up, where dP - D cancels.

    That is the largest element of the root of the sum of squares of P (|dP| + |D|) scale K over keys, and of
    the same with Q over rows: rounding errors of float32, which are independent, grow with it and not with
    the sum. With one key dP = D, so that dQ and dK are 0 and only rounding is left.
    """
    O, L = reference(Q, K, V, shape, rows)
    q, k, v, do = (np.nan_to_num(x.astype(np.float64)) for x in (Q, K, V, dO))
    D = np.abs(np.nan_to_num(do * O).sum(axis=2))
    first, end = key_range(shape)
    keys, of_q, of_k = np.arange(shape.Nk), 0.0, np.zeros(k.shape)
    for head in range(shape.heads):
        kv = head // shape.group
        for i in range(0, shape.N, rows):
            at = slice(i, min(i + rows, shape.N))
            visible = (keys >= first[at, None]) & (keys < end[at, None])
            L_finite = np.where(first[at] < end[at], np.nan_to_num(L[head, at]), 0.0)
            p = np.where(visible, np.exp(shape.scale * (q[head, at] @ k[kv].T) - L_finite[:, None]), 0.0)
            terms = (p * (np.abs(do[head, at] @ v[kv].T) + D[head, at, None]) * shape.scale) ** 2
            of_q = max(of_q, float((terms @ k[kv] ** 2).max(initial=0.0)))
            of_k[kv] += terms.T @ q[head, at] ** 2
    return of_q**0.5, float(of_k.max(initial=0.0)) ** 0.5
