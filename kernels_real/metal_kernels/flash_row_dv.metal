// dV, a thread a key: every head of its group and every row that sees it, added in registers.
//
// dV_j = sum P_ij dO_i. dK has a kernel of its own: both gradients in one thread would spill, and computing q.k
// twice costs less.
#include "flash_row.h"

kernel void flash_row_dv(device const float* Q [[buffer(0)]],
                         device const float* K [[buffer(1)]],
                         device const float* dO [[buffer(2)]],
                         device const float* L [[buffer(3)]],
                         device float* dV [[buffer(4)]],
                         constant Params& p [[buffer(5)]],
                         uint3 group [[threadgroup_position_in_grid]],
                         uint3 size [[threads_per_threadgroup]],
                         uint tid [[thread_index_in_threadgroup]]) {
    const int j = int(group.x * size.x + tid);
    const int kv = int(group.y);
    const int b = int(group.z);
    if (j >= p.Tk) return;

    device const float* k_row = K + row_at(b, p.Tk, j, p.HKV, kv);
    float key[HEAD_DIM], dv[HEAD_DIM];
#pragma clang loop unroll(full)
    for (int k = 0; k < HEAD_DIM; ++k) {
        key[k] = k_row[k];
        dv[k] = 0.0f;
    }

    const int heads = p.H / p.HKV;
    const Range rows = rows_of(p, j);
    for (int h = kv * heads; h < (kv + 1) * heads; ++h) {
        device const float* lse = L + head_at(p, b, h);
        for (int i = rows.begin; i < rows.end; ++i) {
            device const float* q_row = Q + row_at(b, p.T, i, p.H, h);
            device const float* do_row = dO + row_at(b, p.T, i, p.H, h);
            float s = 0.0f;
#pragma clang loop unroll(full)
            for (int k = 0; k < HEAD_DIM; ++k) s = fma(q_row[k], key[k], s);
            const float weight = exp(s * p.scale - lse[i]);
#pragma clang loop unroll(full)
            for (int k = 0; k < HEAD_DIM; ++k) dv[k] = fma(weight, do_row[k], dv[k]);
        }
    }

    device float* dv_row = dV + row_at(b, p.Tk, j, p.HKV, kv);
#pragma clang loop unroll(full)
    for (int k = 0; k < HEAD_DIM; ++k) dv_row[k] = dv[k];
}
