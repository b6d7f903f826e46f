"""FlashAttention's forward pass in numpy, with flash_forward's tiles: what the simulator is timed against.

It computes and counts nothing; its products are BLAS calls on Br x d and Bc x d tiles.
"""

from __future__ import annotations

import numpy as np


def numpy_flash(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, br: int, bc: int, scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return (O, L) of one head, float32: q (N, d), k and v (Nk, d), no mask."""
    out, lse = np.empty_like(q), np.empty(len(q), np.float32)
    scale = np.float32(scale)
    for i in range(0, len(q), br):
        rows = q[i : i + br]
        m = np.full(len(rows), -np.inf, np.float32)
        total = np.zeros(len(rows), np.float32)
        acc = np.zeros((len(rows), v.shape[1]), np.float32)
        for j in range(0, len(k), bc):
            s = (rows @ k[j : j + bc].T) * scale
            m_new = np.maximum(m, s.max(axis=1))
            alpha = np.exp(m - m_new)
            p = np.exp(s - m_new[:, None])
            total = total * alpha + p.sum(axis=1)
            acc = acc * alpha[:, None] + p @ v[j : j + bc]
            m = m_new
        out[i : i + br] = acc / total[:, None]
        lse[i : i + br] = m + np.log(total)
    return out, lse
