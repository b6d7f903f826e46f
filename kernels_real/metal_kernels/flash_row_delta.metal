// D = rowsum(dO * O), a thread a query row: all that the backward pass needs of the output.
#include "flash_row.h"

kernel void flash_row_delta(device const float* O [[buffer(0)]],
                            device const float* dO [[buffer(1)]],
                            device float* D [[buffer(2)]],
                            constant Params& p [[buffer(3)]],
                            uint3 group [[threadgroup_position_in_grid]],
                            uint3 size [[threads_per_threadgroup]],
                            uint tid [[thread_index_in_threadgroup]]) {
    const int row = int(group.x * size.x + tid);
    const int h = int(group.y);
    const int b = int(group.z);
    if (row >= p.T) return;

    const long at = row_at(b, p.T, row, p.H, h);
    float total = 0.0f;
#pragma clang loop unroll(full)
    for (int k = 0; k < HEAD_DIM; ++k) total = fma(dO[at + k], O[at + k], total);
    D[head_at(p, b, h) + row] = total;
}
