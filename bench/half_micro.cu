// What an H200 makes of 16- and 8-bit floats: one operation a kernel, on all 65,536 codes (or on numbers of
// all sizes), by the functions of CUDA's headers. Writes values.bin, the results of each kernel in turn, and
// values.idx, their names and bytes a result. bench/record_half.py runs it; docs/h200_facts.md has fact 41.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

using h = __half;
using b = __nv_bfloat16;
using u8 = uint8_t;
const int N = 65536;

__device__ unsigned second(unsigned i) { return (i * 40503u + 12345u) & 0xffff; }
__device__ unsigned third(unsigned i) { return (i * 60493u + 54321u) & 0xffff; }

#define ONE(name, FROM, TO, expression)                                     \
  extern "C" __global__ void name(const FROM *in, TO *out) {                \
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;                     \
    FROM x = in[i];                                                         \
    out[i] = expression;                                                    \
  }
#define TWO(name, T, expression)                                            \
  extern "C" __global__ void name(const T *in, T *out) {                    \
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;                     \
    T x = in[i], y = in[second(i)];                                         \
    out[i] = expression;                                                    \
  }
#define THREE(name, T, expression)                                          \
  extern "C" __global__ void name(const T *in, T *out) {                    \
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;                     \
    T x = in[i], y = in[second(i)], z = in[third(i)];                       \
    out[i] = expression;                                                    \
  }
#define BOTH(f) ONE(h_##f, h, h, f(x)) ONE(b_##f, b, b, f(x))

ONE(h_f, h, float, __half2float(x))
ONE(b_f, b, float, __bfloat162float(x))
ONE(f_h, float, h, __float2half_rn(x))
ONE(f_b, float, b, __float2bfloat16_rn(x))
ONE(d_h, double, h, __double2half(x))
ONE(d_b, double, b, __double2bfloat16(x))
ONE(i_h, int, h, __int2half_rn(x))
ONE(i_b, int, b, __int2bfloat16_rn(x))
ONE(l_h, long long, h, __ll2half_rn(x))
ONE(l_b, long long, b, __ll2bfloat16_rn(x))
ONE(h_i, h, int, __half2int_rz(x))
ONE(b_i, b, int, __bfloat162int_rz(x))
ONE(h_l, h, long long, __half2ll_rz(x))
ONE(h_d, h, double, (double)__half2float(x))
ONE(h_b, h, b, __float2bfloat16_rn(__half2float(x)))
ONE(b_h, b, h, __float2half_rn(__bfloat162float(x)))
ONE(e4_f, u8, float, __half2float(__half(__nv_cvt_fp8_to_halfraw(x, __NV_E4M3))))
ONE(e5_f, u8, float, __half2float(__half(__nv_cvt_fp8_to_halfraw(x, __NV_E5M2))))
ONE(f_e4, float, u8, __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3))
ONE(f_e5, float, u8, __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E5M2))
ONE(h_e4, h, u8, __nv_cvt_halfraw_to_fp8(x, __NV_SATFINITE, __NV_E4M3))
ONE(h_e5, h, u8, __nv_cvt_halfraw_to_fp8(x, __NV_SATFINITE, __NV_E5M2))
ONE(f_e4n, float, u8, __nv_cvt_float_to_fp8(x, __NV_NOSAT, __NV_E4M3))
ONE(d_e4, double, u8, __nv_cvt_double_to_fp8(x, __NV_SATFINITE, __NV_E4M3))
BOTH(hexp) BOTH(hexp2) BOTH(hexp10) BOTH(hlog) BOTH(hlog2) BOTH(hlog10) BOTH(hsqrt) BOTH(hrsqrt) BOTH(hrcp)
BOTH(hsin) BOTH(hcos) BOTH(htanh) BOTH(hfloor) BOTH(hceil) BOTH(htrunc) BOTH(hrint) BOTH(__hneg) BOTH(__habs)
TWO(h_add, h, __hadd(x, y)) TWO(h_sub, h, __hsub(x, y)) TWO(h_mul, h, __hmul(x, y)) TWO(h_div, h, __hdiv(x, y))
TWO(h_max, h, __hmax(x, y)) TWO(h_min, h, __hmin(x, y)) TWO(h_maxnan, h, __hmax_nan(x, y))
TWO(b_add, b, __hadd(x, y)) TWO(b_sub, b, __hsub(x, y)) TWO(b_mul, b, __hmul(x, y)) TWO(b_div, b, __hdiv(x, y))
TWO(b_max, b, __hmax(x, y)) TWO(b_min, b, __hmin(x, y)) TWO(b_maxnan, b, __hmax_nan(x, y))
THREE(h_fma, h, __hfma(x, y, z)) THREE(b_fma, b, __hfma(x, y, z))
THREE(h_mul_add, h, __hadd(__hmul(x, y), z)) THREE(b_mul_add, b, __hadd(__hmul(x, y), z))
THREE(h_mul_add_rn, h, __hadd_rn(__hmul_rn(x, y), z))

uint64_t state = 88172645463325252ull;
uint64_t random_bits() {
  state ^= state << 13;
  state ^= state >> 7;
  return state ^= state << 17;
}

struct Inputs {
  std::vector<uint16_t> codes;
  std::vector<float> floats;
  std::vector<double> doubles;
  std::vector<int> ints;
  std::vector<long long> longs;
  std::vector<u8> bytes;
};

// Numbers of sizes from 2^-100 to 2^99, half of them with few bits, so that ties are among them.
Inputs make_inputs() {
  Inputs made;
  const float edges[8] = {INFINITY, -INFINITY, NAN, 464.f, 464.01f, 1e5f, -1000.f, -0.f};
  for (int i = 0; i < N; i++) {
    uint64_t r = random_bits(), m = random_bits();
    if (r & (1 << 20)) m &= ~0ull << 41;
    double v = ldexp(1.0 + (m >> 12) * 0x1p-52, (int)(r % 60) - 32);
    if (i % 97 == 0) v = ldexp(v, i % 200 - 100);
    if (r & (1 << 21)) v = -v;
    if (i < 8) v = edges[i];
    int whole = (int)(random_bits() >> (32 + r % 31));
    long long wide = (long long)(random_bits() >> (1 + r % 62));
    made.codes.push_back(i);
    made.floats.push_back((float)v);
    made.doubles.push_back(v);
    made.ints.push_back(r & (1 << 22) ? -whole : whole);
    made.longs.push_back(r & (1 << 22) ? -wide : wide);
    made.bytes.push_back(i);
  }
  return made;
}

struct Writer {
  FILE *values = fopen("values.bin", "wb"), *names = fopen("values.idx", "w");
  void *in, *out;

  template <class From, class To, class Held>
  void run(const char *name, void (*kernel)(const From *, To *), const std::vector<Held> &inputs) {
    static_assert(sizeof(From) == sizeof(Held), "inputs are handed over as bits");
    std::vector<char> results(N * sizeof(To));
    cudaMemcpy(in, inputs.data(), N * sizeof(From), cudaMemcpyHostToDevice);
    kernel<<<N / 256, 256>>>((const From *)in, (To *)out);
    cudaMemcpy(results.data(), out, results.size(), cudaMemcpyDeviceToHost);
    fwrite(results.data(), 1, results.size(), values);
    fprintf(names, "%s %zu\n", name, sizeof(To));
  }
};

#define RUN(name, inputs) writer.run(#name, name, made.inputs);
#define CODES(f) RUN(h_##f, codes) RUN(b_##f, codes)

int main() {
  Inputs made = make_inputs();
  Writer writer;
  cudaMalloc(&writer.in, N * 8);
  cudaMalloc(&writer.out, N * 8);
  CODES(f) RUN(f_h, floats) RUN(f_b, floats) RUN(d_h, doubles) RUN(d_b, doubles)
  RUN(i_h, ints) RUN(i_b, ints) RUN(l_h, longs) RUN(l_b, longs)
  CODES(i) RUN(h_l, codes) RUN(h_d, codes) RUN(h_b, codes) RUN(b_h, codes)
  RUN(e4_f, bytes) RUN(e5_f, bytes) RUN(f_e4, floats) RUN(f_e5, floats) RUN(h_e4, codes) RUN(h_e5, codes)
  RUN(f_e4n, floats) RUN(d_e4, doubles)
  CODES(hexp) CODES(hexp2) CODES(hexp10) CODES(hlog) CODES(hlog2) CODES(hlog10) CODES(hsqrt) CODES(hrsqrt)
  CODES(hrcp) CODES(hsin) CODES(hcos) CODES(htanh) CODES(hfloor) CODES(hceil) CODES(htrunc) CODES(hrint)
  CODES(__hneg) CODES(__habs) CODES(add) CODES(sub) CODES(mul) CODES(div) CODES(max) CODES(min) CODES(maxnan)
  CODES(fma) CODES(mul_add) RUN(h_mul_add_rn, codes)
  fclose(writer.values);
  fclose(writer.names);
  cudaError_t error = cudaDeviceSynchronize();
  if (error != cudaSuccess) fprintf(stderr, "%s\n", cudaGetErrorString(error));
  return error != cudaSuccess;
}
