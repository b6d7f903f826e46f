// Standard attention in three launches, with S and P [heads, N, Nk] in device memory: what the fused kernels
// save. scores: S = scale Q K^T; softmax: P = softmax(S) by rows and L = log of the sum of exp; output: O = P V.
//
// Arrays are float: Q [heads, N, d], K [heads, Nk, d], V [heads, Nk, dv], O [heads, N, dv], L [heads, N]. The
// products work on tiles of 32 x 32 with 32 x 8 threads, four elements a thread, one under another.
#include <metal_stdlib>
using namespace metal;

// -INFINITY masks what a row does not see: no fast math.
#pragma METAL fp math_mode(safe)

struct Params {
    int N, Nk, d, dv;
    int causal, q_start;  // row i stands at position q_start + i
    float scale;
};

constant constexpr int TILE = 32;
constant constexpr int TILE_ROWS = 8;  // of threads
constant constexpr int PER_THREAD = TILE / TILE_ROWS;
constant constexpr int PADDED = TILE + 1;  // a column of K's tile then lies in 32 banks
constant constexpr int ROW_THREADS = 128;

// Grid (ceil(Nk / 32), ceil(N / 32), heads), threadgroup (32, 8).
kernel void scores(device const float* Q [[buffer(0)]],
                   device const float* K [[buffer(1)]],
                   device float* S [[buffer(2)]],
                   constant Params& p [[buffer(3)]],
                   uint3 group [[threadgroup_position_in_grid]],
                   uint3 tid [[thread_position_in_threadgroup]]) {
    threadgroup float Qs[TILE][TILE];
    threadgroup float Ks[TILE][PADDED];
    const int x = int(tid.x);
    const int y = int(tid.y);
    const int col0 = int(group.x) * TILE;
    const int row0 = int(group.y) * TILE;
    device const float* q_head = Q + long(group.z) * p.N * p.d;
    device const float* k_head = K + long(group.z) * p.Nk * p.d;
    float acc[PER_THREAD] = {0.0f};

    for (int k0 = 0; k0 < p.d; k0 += TILE) {
        const int k = k0 + x;
#pragma clang loop unroll(full)
        for (int r = 0; r < PER_THREAD; ++r) {
            const int i = y + TILE_ROWS * r;
            Qs[i][x] = row0 + i < p.N && k < p.d ? q_head[long(row0 + i) * p.d + k] : 0.0f;
            Ks[i][x] = col0 + i < p.Nk && k < p.d ? k_head[long(col0 + i) * p.d + k] : 0.0f;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        const int depth = min(TILE, p.d - k0);
        for (int e = 0; e < depth; ++e) {
            const float key = Ks[x][e];
#pragma clang loop unroll(full)
            for (int r = 0; r < PER_THREAD; ++r) acc[r] = fma(Qs[y + TILE_ROWS * r][e], key, acc[r]);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }

    device float* s_head = S + long(group.z) * p.N * p.Nk;
    const int col = col0 + x;
    for (int r = 0; r < PER_THREAD; ++r) {
        const int row = row0 + y + TILE_ROWS * r;
        if (row >= p.N || col >= p.Nk) continue;
        const bool seen = !p.causal || col <= p.q_start + row;
        s_head[long(row) * p.Nk + col] = seen ? acc[r] * p.scale : -INFINITY;
    }
}

// Grid (N, heads), threadgroup 128: one row, three passes over it.
kernel void softmax(device const float* S [[buffer(0)]],
                    device float* P [[buffer(1)]],
                    device float* L [[buffer(2)]],
                    constant Params& p [[buffer(3)]],
                    uint3 group [[threadgroup_position_in_grid]],
                    uint tid [[thread_index_in_threadgroup]]) {
    threadgroup float part[ROW_THREADS];
    const int thread_index = int(tid);
    const long row = long(group.y) * p.N + group.x;
    device const float* s_row = S + row * p.Nk;
    device float* p_row = P + row * p.Nk;

    float m = -INFINITY;
    for (int col = thread_index; col < p.Nk; col += ROW_THREADS) m = max(m, s_row[col]);
    part[thread_index] = m;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int half_way = ROW_THREADS / 2; half_way > 0; half_way /= 2) {
        if (thread_index < half_way) part[thread_index] = max(part[thread_index], part[thread_index + half_way]);
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    m = part[0];
    // A row that sees no key has m = -inf, and -inf - -inf is NaN: measure from 0.
    const float shift = m > -INFINITY ? m : 0.0f;
    threadgroup_barrier(mem_flags::mem_threadgroup);

    float total = 0.0f;
    for (int col = thread_index; col < p.Nk; col += ROW_THREADS) total += exp(s_row[col] - shift);
    part[thread_index] = total;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int half_way = ROW_THREADS / 2; half_way > 0; half_way /= 2) {
        if (thread_index < half_way) part[thread_index] += part[thread_index + half_way];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    total = part[0];

    const float divisor = total == 0.0f ? 1.0f : total;
    for (int col = thread_index; col < p.Nk; col += ROW_THREADS) p_row[col] = exp(s_row[col] - shift) / divisor;
    if (thread_index == 0) L[row] = m + log(divisor);
}

// Grid (ceil(dv / 32), ceil(N / 32), heads), threadgroup (32, 8).
kernel void output(device const float* P [[buffer(0)]],
                   device const float* V [[buffer(1)]],
                   device float* O [[buffer(2)]],
                   constant Params& p [[buffer(3)]],
                   uint3 group [[threadgroup_position_in_grid]],
                   uint3 tid [[thread_position_in_threadgroup]]) {
    threadgroup float Ps[TILE][TILE];
    threadgroup float Vs[TILE][TILE];
    const int x = int(tid.x);
    const int y = int(tid.y);
    const int col = int(group.x) * TILE + x;
    const int row0 = int(group.y) * TILE;
    device const float* p_head = P + long(group.z) * p.N * p.Nk;
    device const float* v_head = V + long(group.z) * p.Nk * p.dv;
    float acc[PER_THREAD] = {0.0f};

    for (int j0 = 0; j0 < p.Nk; j0 += TILE) {
        const int j = j0 + x;
#pragma clang loop unroll(full)
        for (int r = 0; r < PER_THREAD; ++r) {
            const int i = y + TILE_ROWS * r;
            Ps[i][x] = row0 + i < p.N && j < p.Nk ? p_head[long(row0 + i) * p.Nk + j] : 0.0f;
            Vs[i][x] = j0 + i < p.Nk && col < p.dv ? v_head[long(j0 + i) * p.dv + col] : 0.0f;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        const int keys = min(TILE, p.Nk - j0);
        for (int e = 0; e < keys; ++e) {
            const float value = Vs[e][x];
#pragma clang loop unroll(full)
            for (int r = 0; r < PER_THREAD; ++r) {
                const int row = row0 + y + TILE_ROWS * r;
                // 0 * NaN is NaN: a key that the row does not see must not get in with weight 0.
                const bool seen = !p.causal || j0 + e <= p.q_start + row;
                acc[r] = fma(Ps[y + TILE_ROWS * r][e], seen ? value : 0.0f, acc[r]);
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }

    device float* o_head = O + long(group.z) * p.N * p.dv;
    for (int r = 0; r < PER_THREAD; ++r) {
        const int row = row0 + y + TILE_ROWS * r;
        if (row < p.N && col < p.dv) o_head[long(row) * p.dv + col] = acc[r];
    }
}
