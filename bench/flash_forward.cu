// kernels_sim/flash_forward.py in CUDA C++, loop for loop, to read its registers from ptxas.
//
// numba-cuda cannot ask for unrolling: at d = 64 it keeps the loops over d, and with them q and acc in local
// memory. Here they are unrolled, so the arrays are registers, which is what the simulator counts.
//
//   nvcc -cubin -arch=sm_90 --resource-usage -DD=64 -DBR=64 -DBC=64 -DCAUSAL=0 bench/flash_forward.cu -o /dev/null
//
// Each "Used N registers" line is an entry of REGISTERS in kernels_sim/flash_forward.py.
#include <math_constants.h>

constexpr int STRIP = 8, TILE = BC * D;

extern "C" __global__ void __launch_bounds__(BR)
flash_forward(const float *__restrict__ Q, const float *__restrict__ K, const float *__restrict__ V, float *O, float *L,
              float scale, long long q_start, long long n_rows, long long n_keys)
{
    extern __shared__ float tiles[];
    float *Ks = tiles, *Vs = tiles + TILE;
    float q[D], acc[D], s[STRIP];
    const long long head = blockIdx.y + (long long)gridDim.y * blockIdx.z;
    const int thread = threadIdx.x;
    const long long first_row = (long long)blockIdx.x * BR, row = first_row + thread;
    long long row_sees = n_keys, all_see = n_keys, some_see = n_keys;
    if (CAUSAL) {
        const long long last_row = min(first_row + BR, n_rows) - 1;
        row_sees = min(n_keys, q_start + row + 1);
        all_see = min(n_keys, q_start + first_row + 1);
        some_see = min(n_keys, q_start + last_row + 1);
    }
    Q += head * n_rows * D, O += head * n_rows * D, K += head * n_keys * D, V += head * n_keys * D, L += head * n_rows;

#pragma unroll 1
    for (int r0 = 0; r0 < BR; r0 += BC) {
        const long long start = (first_row + r0) * D;
        const long long end = min((long long)min(BC, BR - r0), n_rows - first_row - r0) * D;
        for (int e = thread; e < end; e += BR) {
            const int r = e / D;
            Ks[r * D + (e - r * D + r) % D] = Q[start + e];
        }
        __syncthreads();
        const int own = thread - r0;
        if (0 <= own && own < BC && row < n_rows)
#pragma unroll
            for (int k = 0; k < D; ++k) {
                q[k] = Ks[own * D + (k + own) % D] * scale;
                acc[k] = 0;
            }
        __syncthreads();
    }
    float m = -CUDART_INF_F, denominator = 0;

    for (long long j0 = 0; j0 < some_see; j0 += BC) {
        const long long start = j0 * D, end = min((long long)TILE, (n_keys - j0) * D);
        for (int e = thread; e < TILE; e += BR) {
            Ks[e] = e < end ? K[start + e] : 0.0f;
            Vs[e] = e < end ? V[start + e] : 0.0f;
        }
        __syncthreads();
        if (row < n_rows)
#pragma unroll 1
            for (int j = 0; j < min((long long)BC, some_see - j0); j += STRIP) {
                const long long key = j0 + j;
#pragma unroll
                for (int u = 0; u < STRIP; ++u) s[u] = 0;
#pragma unroll
                for (int k = 0; k < D; ++k)
#pragma unroll
                    for (int u = 0; u < STRIP; ++u) s[u] += q[k] * Ks[(j + u) * D + k];
                const bool masked = key + STRIP > all_see;
                if (masked)
#pragma unroll
                    for (int u = 0; u < STRIP; ++u) s[u] = key + u < row_sees ? s[u] : -CUDART_INF_F;
                float m_new = m;
#pragma unroll
                for (int u = 0; u < STRIP; ++u) m_new = fmaxf(m_new, s[u]);
                const float shift = m_new > -CUDART_INF_F ? m_new : 0.0f;
                const float alpha = expf(m - shift);
                m = m_new;
                float total = 0;
#pragma unroll
                for (int u = 0; u < STRIP; ++u) {
                    s[u] = expf(s[u] - shift);
                    total += s[u];
                }
                denominator = denominator * alpha + total;
                if (masked) {
#pragma unroll
                    for (int k = 0; k < D; ++k) {
                        float a = acc[k] * alpha;
#pragma unroll
                        for (int u = 0; u < STRIP; ++u) {
                            const float v = Vs[(j + u) * D + k];
                            a += s[u] * (key + u < row_sees ? v : 0.0f);
                        }
                        acc[k] = a;
                    }
                } else {
#pragma unroll
                    for (int k = 0; k < D; ++k) {
                        float a = acc[k] * alpha;
#pragma unroll
                        for (int u = 0; u < STRIP; ++u) a += s[u] * Vs[(j + u) * D + k];
                        acc[k] = a;
                    }
                }
            }
        __syncthreads();
    }
    const float divisor = denominator == 0 ? 1.0f : denominator;
    if (row < n_rows) L[row] = m + logf(divisor);
#pragma unroll 1
    for (int r0 = 0; r0 < BR; r0 += BC) {
        const int own = thread - r0;
        if (0 <= own && own < BC && row < n_rows)
#pragma unroll
            for (int k = 0; k < D; ++k) Ks[own * D + (k + own) % D] = acc[k] / divisor;
        __syncthreads();
        const long long start = (first_row + r0) * D;
        const long long end = min((long long)min(BC, BR - r0), n_rows - first_row - r0) * D;
        for (int e = thread; e < end; e += BR) {
            const int r = e / D;
            O[start + e] = Ks[r * D + (e - r * D + r) % D];
        }
        __syncthreads();
    }
}
