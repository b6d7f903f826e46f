// dK, a thread a key: every head of its group and every row that sees it, added in registers.
//
// dK_j = scale sum dS_ij q_i with dS = P (dO.v - D) and P = exp(scale q.k - L). The thread's rows of K and V
// stay in device memory, as in flash_row_dv.
#include "flash_row.h"

kernel void flash_row_dk(device const float* Q [[buffer(0)]],
                         device const float* K [[buffer(1)]],
                         device const float* V [[buffer(2)]],
                         device const float* dO [[buffer(3)]],
                         device const float* L [[buffer(4)]],
                         device const float* D [[buffer(5)]],
                         device float* dK [[buffer(6)]],
                         constant Params& p [[buffer(7)]],
                         uint3 group [[threadgroup_position_in_grid]],
                         uint3 size [[threads_per_threadgroup]],
                         uint tid [[thread_index_in_threadgroup]]) {
    const int j = int(group.x * size.x + tid);
    const int kv = int(group.y);
    const int b = int(group.z);
    if (j >= p.Tk) return;

    device const float* k_row = K + row_at(b, p.Tk, j, p.HKV, kv);
    device const float* v_row = V + row_at(b, p.Tk, j, p.HKV, kv);
    float dk[HEAD_DIM];
#pragma clang loop unroll(full)
    for (int k = 0; k < HEAD_DIM; ++k) dk[k] = 0.0f;

    const int heads = p.H / p.HKV;
    const Range rows = rows_of(p, j);
    for (int h = kv * heads; h < (kv + 1) * heads; ++h) {
        device const float* lse = L + head_at(p, b, h);
        device const float* delta = D + head_at(p, b, h);
        for (int i = rows.begin; i < rows.end; ++i) {
            device const float* q_row = Q + row_at(b, p.T, i, p.H, h);
            device const float* do_row = dO + row_at(b, p.T, i, p.H, h);
            float s = 0.0f, dp = 0.0f;
#pragma clang loop unroll(full)
            for (int k = 0; k < HEAD_DIM; ++k) {
                s = fma(q_row[k], k_row[k], s);
                dp = fma(do_row[k], v_row[k], dp);
            }
            const float weight = exp(s * p.scale - lse[i]);
            const float ds = weight * (dp - delta[i]) * p.scale;
#pragma clang loop unroll(full)
            for (int k = 0; k < HEAD_DIM; ++k) dk[k] = fma(ds, q_row[k], dk[k]);
        }
    }

    device float* dk_row = dK + row_at(b, p.Tk, j, p.HKV, kv);
#pragma clang loop unroll(full)
    for (int k = 0; k < HEAD_DIM; ++k) dk_row[k] = dk[k];
}
