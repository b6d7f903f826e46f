"""A tiled FlashAttention kernel whose tile sizes are closure variables: both oracles, and a float64
reference.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numba import float32

from dsl import cuda
from dsl.warpir import ir
from tests.dsl.frontend_support import agree, compiled


def make(d: int, br: int, bc: int, causal: bool) -> Any:
    @cuda.jit(device=True)
    def dot(q, tile, row):
        s = float32(0)
        for c in range(d):
            s += q[c] * tile[row, c]
        return s

    @cuda.jit
    def flash(Q, K, V, O, L, scale):
        Ks = cuda.shared.array((bc, d), float32)
        Vs = cuda.shared.array((bc, d), float32)
        q = cuda.local.array(d, float32)
        acc = cuda.local.array(d, float32)
        t = cuda.threadIdx.x
        i = cuda.blockIdx.x * br + t
        n, nk = Q.shape[0], K.shape[0]
        inside = i < n
        for c in range(d):
            q[c] = Q[i, c] if inside else float32(0)
            acc[c] = 0
        m, total = float32(-math.inf), float32(0)
        last = min(nk, (cuda.blockIdx.x + 1) * br) if causal else nk
        for tile in range(0, last, bc):
            cuda.syncthreads()
            for e in range(t, bc * d, br):
                r, c = e // d, e % d
                if tile + r < nk:
                    Ks[r, c], Vs[r, c] = K[tile + r, c], V[tile + r, c]
            cuda.syncthreads()
            if not inside:
                continue
            for r in range(min(bc, last - tile)):
                if causal and tile + r > i:
                    break
                s = dot(q, Ks, r) * scale
                above = max(m, s)
                shrink, p = math.exp(m - above), math.exp(s - above)
                total = total * shrink + p
                for c in range(d):
                    acc[c] = acc[c] * shrink + p * Vs[r, c]
                m = above
        if inside:
            for c in range(d):
                O[i, c] = acc[c] / total
            L[i] = m + math.log(total)

    return flash


@pytest.mark.parametrize("causal", [False, True])
def test_flash_attention_with_closure_constants_is_right(causal: bool) -> None:
    n, d, br, bc = 37, 8, 32, 16
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((n, d)).astype(np.float32) for _ in range(3))
    o, lse = np.full((n, d), np.nan, np.float32), np.full(n, np.nan, np.float32)
    got = agree(make(d, br, bc, causal), -(-n // br), br, q, k, v, o, lse, np.float32(d**-0.5), rtol=2e-4)
    scores = q.astype(np.float64) @ k.T.astype(np.float64) * float(np.float32(d**-0.5))
    scores[~np.tri(n, dtype=bool) if causal else np.zeros((n, n), bool)] = -np.inf
    top = scores.max(1)
    weights = np.exp(scores - top[:, None])
    np.testing.assert_allclose(got[3], weights @ v / weights.sum(1)[:, None], atol=1e-5)
    np.testing.assert_allclose(got[4], top + np.log(weights.sum(1)), atol=1e-5)


def test_flash_attention_keeps_its_loops_and_computes_in_float32() -> None:
    a = np.zeros((4, 8), np.float32)
    fn = compiled(make(8, 32, 16, True), a, a, a, a, a[0], np.float32(1))
    assert len(ir.loops(fn)) == 7 and len(fn.blocks) < 40
    assert [(s.name, s.offset, s.bytes) for s in fn.shared] == [("Ks", 0, 512), ("Vs", 512, 512)]
    assert "f64" not in {i.type for b in fn.blocks for i in b.instrs if isinstance(i, (ir.Alu, ir.Ld, ir.St))}
