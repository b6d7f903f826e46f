// FlashAttention's forward pass: a thread a query row, a key at a time, K and V staged in threadgroup memory.
//
// A threadgroup takes consecutive rows of one head. Its threads fetch TILE_KEYS keys and values together, so
// each element comes from device memory once a threadgroup and not once a thread. A thread keeps its rows of Q
// and O and the softmax state (m, l), and writes O and L = m + log l once.
#include "flash_row.h"

#ifndef TILE_KEYS
#define TILE_KEYS 16
#endif

kernel void flash_row_forward(device const float* Q [[buffer(0)]],
                              device const float* K [[buffer(1)]],
                              device const float* V [[buffer(2)]],
                              device float* O [[buffer(3)]],
                              device float* L [[buffer(4)]],
                              constant Params& p [[buffer(5)]],
                              uint3 group [[threadgroup_position_in_grid]],
                              uint3 size [[threads_per_threadgroup]],
                              uint tid [[thread_index_in_threadgroup]]) {
    threadgroup float Ks[TILE_KEYS * HEAD_DIM];
    threadgroup float Vs[TILE_KEYS * HEAD_DIM];

    const int threads = int(size.x);
    const int first_row = int(group.x) * threads;
    const int row = first_row + int(tid);
    const int h = int(group.y);
    const int b = int(group.z);
    const int kv = h / (p.H / p.HKV);
    const bool active = row < p.T;

    // The keys that this row sees, and those from the first to the last that some row of the group sees.
    const Range own = keys_of(p, row);
    const int some_begin = keys_of(p, first_row).begin;
    const int some_end = keys_of(p, min(first_row + threads, p.T) - 1).end;

    float q[HEAD_DIM], o[HEAD_DIM];
    if (active) {
        device const float* q_row = Q + row_at(b, p.T, row, p.H, h);
#pragma clang loop unroll(full)
        for (int k = 0; k < HEAD_DIM; ++k) {
            q[k] = q_row[k];
            o[k] = 0.0f;
        }
    }
    float m = -FLT_MAX;  // not -INFINITY: exp(-inf - -inf) is NaN
    float l = 0.0f;

    const int first_tile = some_begin < some_end ? some_begin / TILE_KEYS * TILE_KEYS : some_end;
    for (int j0 = first_tile; j0 < some_end; j0 += TILE_KEYS) {
        const int tile_keys = min(TILE_KEYS, some_end - j0);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (int e = int(tid); e < tile_keys * HEAD_DIM; e += threads) {
            const int r = e / HEAD_DIM;
            const int k = e - r * HEAD_DIM;
            const long at = row_at(b, p.Tk, j0 + r, p.HKV, kv) + k;
            Ks[e] = K[at];
            Vs[e] = V[at];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);

        // Every thread comes back to the barriers, so none may leave the loop over tiles.
        if (!active) continue;
        const bool diagonal = p.causal && j0 + TILE_KEYS > p.q_start + first_row + 1;
        for (int r = 0; r < tile_keys; ++r) {
            const int j = j0 + r;
            if (diagonal && j >= own.end) break;  // the rest of the tile is in the future too
            if (j < own.begin) continue;
            threadgroup const float* k_row = Ks + r * HEAD_DIM;
            threadgroup const float* v_row = Vs + r * HEAD_DIM;

            float s = 0.0f;
#pragma clang loop unroll(full)
            for (int k = 0; k < HEAD_DIM; ++k) s = fma(q[k], k_row[k], s);
            s *= p.scale;

            const float m_new = max(m, s);
            const float correction = exp(m - m_new);  // 0 at the first key
            const float weight = exp(s - m_new);
            l = l * correction + weight;
#pragma clang loop unroll(full)
            for (int k = 0; k < HEAD_DIM; ++k) o[k] = fma(o[k], correction, weight * v_row[k]);
            m = m_new;
        }
    }

    if (!active) return;
    // A row that sees no key has l = 0 and o = 0: it gets O = 0 and L = -inf.
    const float inverse = 1.0f / (l == 0.0f ? 1.0f : l);
    device float* o_row = O + row_at(b, p.T, row, p.H, h);
#pragma clang loop unroll(full)
    for (int k = 0; k < HEAD_DIM; ++k) o_row[k] = o[k] * inverse;
    L[head_at(p, b, h) + row] = m + log(l);
}
