"""Kernels of numba.cuda that an H200 ran under ncu (tests/data/h200_counters.csv), as written there.

`matmul_tile` and `flash_row` are here for what compilers make of them: 16 shared loads that become 4, loops
over private arrays that are unrolled, exponentials, a division and a logarithm. The others of that file are
in kernels_sim.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from numpy import float32

from dsl import cuda

ROWS_A_BLOCK, ROWS_STAGED = 64, 16


@cuda.jit
def matmul_tile(A, B, C):
    """Write C = A @ B, one element a thread; n a multiple of 16."""
    sa = cuda.shared.array((16, 16), float32)
    sb = cuda.shared.array((16, 16), float32)
    x, y = cuda.grid(2)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    acc = float32(0)
    for p in range(A.shape[1] // 16):
        sa[ty, tx] = A[y, p * 16 + tx]
        sb[ty, tx] = B[p * 16 + ty, x]
        cuda.syncthreads()
        for k in range(16):
            acc += sa[ty, k] * sb[k, tx]
        cuda.syncthreads()
    C[y, x] = acc


@cache
def make_flash_row(d: int) -> Any:
    """Return flash_row(Q, K, V, O, L, scale, causal) for a head dimension: one query row a thread."""
    TQ, BK, D = ROWS_A_BLOCK, ROWS_STAGED, d

    @cuda.jit
    def flash_row(Q, K, V, O, L, scale, causal):
        Ks = cuda.shared.array((BK, D), float32)
        Vs = cuda.shared.array((BK, D), float32)
        q = cuda.local.array(D, float32)
        o = cuda.local.array(D, float32)
        t = cuda.threadIdx.x
        i = cuda.blockIdx.x * TQ + t
        N = Q.shape[0]
        for k in range(D):
            q[k] = Q[i, k] if i < N else float32(0)
            o[k] = float32(0)
        m = float32(-3.0e38)
        l = float32(0)
        jend = min(N, (cuda.blockIdx.x + 1) * TQ) if causal else N
        jb = 0
        while jb < jend:
            cuda.syncthreads()
            e = t
            while e < BK * D:
                r = e // D
                c = e % D
                if jb + r < N:
                    Ks[r, c] = K[jb + r, c]
                    Vs[r, c] = V[jb + r, c]
                e += TQ
            cuda.syncthreads()
            if i < N:
                for r in range(min(BK, jend - jb)):
                    if (not causal) or jb + r <= i:
                        s = float32(0)
                        for k in range(D):
                            s += q[k] * Ks[r, k]
                        s *= scale
                        mn = max(m, s)
                        corr = math.exp(m - mn)
                        p = math.exp(s - mn)
                        l = l * corr + p
                        for k in range(D):
                            o[k] = o[k] * corr + p * Vs[r, k]
                        m = mn
            jb += BK
        if i < N:
            for k in range(D):
                O[i, k] = o[k] / l
            L[i] = m + math.log(l)

    return flash_row
