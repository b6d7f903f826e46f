// dQ, a thread a query row: P again from L, no threadgroup memory, no atomics.
//
// dS = P (dO.v - D) with P = exp(scale q.k - L), dQ = scale sum dS k over the keys that the row sees. The
// gradient is written, not added to what the buffer holds.
#include "flash_row.h"

kernel void flash_row_dq(device const float* Q [[buffer(0)]],
                         device const float* K [[buffer(1)]],
                         device const float* V [[buffer(2)]],
                         device const float* dO [[buffer(3)]],
                         device const float* L [[buffer(4)]],
                         device const float* D [[buffer(5)]],
                         device float* dQ [[buffer(6)]],
                         constant Params& p [[buffer(7)]],
                         uint3 group [[threadgroup_position_in_grid]],
                         uint3 size [[threads_per_threadgroup]],
                         uint tid [[thread_index_in_threadgroup]]) {
    const int row = int(group.x * size.x + tid);
    const int h = int(group.y);
    const int b = int(group.z);
    if (row >= p.T) return;
    const int kv = h / (p.H / p.HKV);

    device const float* q_row = Q + row_at(b, p.T, row, p.H, h);
    device const float* do_row = dO + row_at(b, p.T, row, p.H, h);
    float q[HEAD_DIM], go[HEAD_DIM], dq[HEAD_DIM];
#pragma clang loop unroll(full)
    for (int k = 0; k < HEAD_DIM; ++k) {
        q[k] = q_row[k];
        go[k] = do_row[k];
        dq[k] = 0.0f;
    }
    const float lse = L[head_at(p, b, h) + row];
    const float delta = D[head_at(p, b, h) + row];

    const Range keys = keys_of(p, row);
    for (int j = keys.begin; j < keys.end; ++j) {
        device const float* k_row = K + row_at(b, p.Tk, j, p.HKV, kv);
        device const float* v_row = V + row_at(b, p.Tk, j, p.HKV, kv);
        float key[HEAD_DIM], s = 0.0f, dp = 0.0f;
#pragma clang loop unroll(full)
        for (int k = 0; k < HEAD_DIM; ++k) {
            key[k] = k_row[k];
            s = fma(q[k], key[k], s);
            dp = fma(go[k], v_row[k], dp);
        }
        const float weight = exp(s * p.scale - lse);
        const float ds = weight * (dp - delta) * p.scale;
#pragma clang loop unroll(full)
        for (int k = 0; k < HEAD_DIM; ++k) dq[k] = fma(ds, key[k], dq[k]);
    }

    device float* dq_row = dQ + row_at(b, p.T, row, p.H, h);
#pragma clang loop unroll(full)
    for (int k = 0; k < HEAD_DIM; ++k) dq_row[k] = dq[k];
}
