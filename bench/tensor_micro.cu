// Microbenchmarks behind facts 33 to 40 of docs/h200_facts.md: one warp a launch, one instruction 64 times.
//
//   nvcc -O3 -arch=sm_90 -o tensor_micro bench/tensor_micro.cu && ./tensor_micro
//
// bench/record_tensor_micro.py builds it, runs it under ncu and writes tests/data/h200_tensor_micro.csv.
// With a file name as argument it launches nothing to be counted, but writes the bits of single mma.sync
// instructions on random bit patterns to that file: for each type fragments, C and D (tests/data/h200_mma.npz).
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>

#define CHECK(call)                                                                     \
    do {                                                                                \
        cudaError_t error = (call);                                                     \
        if (error) {                                                                    \
            std::fprintf(stderr, "line %d: %s\n", __LINE__, cudaGetErrorString(error)); \
            std::exit(1);                                                               \
        }                                                                               \
    } while (0)

constexpr int TIMES = 64, SHARED_BYTES = 40960;
extern __shared__ __align__(128) unsigned char shared[];
__device__ unsigned place(int byte) { return (unsigned)__cvta_generic_to_shared(shared) + byte; }

// ---------------------------------------------------------------- ldmatrix: lane l gives the row at rows[l]

template <int MATRICES, bool TRANS> __global__ void ldmatrix(const int *rows, unsigned *out)
{
    const unsigned row = place(rows[threadIdx.x]);
    unsigned a = 0, b = 0, c = 0, d = 0, sum = 0;
#pragma unroll 1
    for (int k = 0; k < TIMES; ++k) {
        if (MATRICES == 1)
            asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(a) : "r"(row) : "memory");
        if (MATRICES == 2)
            asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(row) : "memory");
        if (MATRICES == 4 && !TRANS)
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(row) : "memory");
        if (MATRICES == 4 && TRANS)
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(row) : "memory");
        sum += a ^ b ^ c ^ d;
    }
    out[threadIdx.x] = sum;
}

// ---------------------------------------------------------------- cp.async: lane l copies from[l] to to[l]

template <int BYTES, bool PAST_L1>
__global__ void cp_async(const unsigned char *data, const int *from, const int *to, const int *source_bytes, unsigned *out)
{
    const unsigned target = place(to[threadIdx.x]);
    const unsigned char *source = data + from[threadIdx.x];
    const int n = source_bytes[threadIdx.x];
#pragma unroll 1
    for (int k = 0; k < TIMES; ++k) {
        if (PAST_L1)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(source), "r"(n) : "memory");
        else
            asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(target), "l"(source), "n"(BYTES), "r"(n) : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
        asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    __syncwarp();
    out[threadIdx.x] = *(unsigned *)(shared + to[threadIdx.x]);
}

// ---------------------------------------------------------------- mma.sync: a lane's a[4], b[2] and c[4]

enum Type { F16, BF16, TF32, E4M3, E5M2 };
#define MMA(name)                                                                                        \
    asm volatile("mma.sync.aligned." name " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                        \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[4]), "r"(a[5]))
template <Type TYPE> __device__ void multiply(const unsigned *a, float *c)
{
    if (TYPE == F16) MMA("m16n8k16.row.col.f32.f16.f16.f32");
    if (TYPE == BF16) MMA("m16n8k16.row.col.f32.bf16.bf16.f32");
    if (TYPE == TF32) MMA("m16n8k8.row.col.f32.tf32.tf32.f32");
    if (TYPE == E4M3) MMA("m16n8k32.row.col.f32.e4m3.e4m3.f32");
    if (TYPE == E5M2) MMA("m16n8k32.row.col.f32.e5m2.e5m2.f32");
}

template <Type TYPE> __global__ void mma(const unsigned *ab, const float *before, float *after, int times)
{
    const int thread = blockIdx.x * 32 + threadIdx.x;
    unsigned a[6];
    float c[4];
    for (int i = 0; i < 6; ++i) a[i] = ab[thread * 6 + i];
    for (int i = 0; i < 4; ++i) c[i] = before[thread * 4 + i];
#pragma unroll 1
    for (int k = 0; k < times; ++k) multiply<TYPE>(a, c);
    for (int i = 0; i < 4; ++i) after[thread * 4 + i] = c[i];
}

// ---------------------------------------------------------------- wide stores, constants, 16-bit arithmetic

template <int FLOATS> __global__ void store(float *data, const int *index)
{
    float *p = data + index[threadIdx.x], x = threadIdx.x;
#pragma unroll 1
    for (int k = 0; k < TIMES; ++k) {
        if (FLOATS == 2) asm volatile("st.global.v2.f32 [%0], {%1, %1};" ::"l"(p), "f"(x) : "memory");
        if (FLOATS == 4) asm volatile("st.global.v4.f32 [%0], {%1, %1, %1, %1};" ::"l"(p), "f"(x) : "memory");
    }
}
template <int FLOATS> __global__ void load(const float *data, const int *index, float *out)
{
    const float *p = data + index[threadIdx.x];
    float x = 0, y = 0, z = 0, w = 0;
    if (FLOATS == 2) asm volatile("ld.global.v2.f32 {%0, %1}, [%2];" : "=f"(x), "=f"(y) : "l"(p) : "memory");
    if (FLOATS == 4) asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(x), "=f"(y), "=f"(z), "=f"(w) : "l"(p) : "memory");
    out[threadIdx.x] = x + y + z + w;
}
__constant__ float constants[8192];
__global__ void load_constant(const int *index, float *out) { out[threadIdx.x] = constants[index[threadIdx.x]]; }

#define SCALAR(name, instruction)                                                                          \
    __global__ void name(const unsigned *in, unsigned *out)                                                \
    {                                                                                                      \
        unsigned short x = in[threadIdx.x], y = in[threadIdx.x + 32];                                      \
        _Pragma("unroll 1") for (int k = 0; k < TIMES; ++k) asm volatile(instruction : "+h"(x) : "h"(y));   \
        out[threadIdx.x] = x;                                                                              \
    }
SCALAR(add_f16, "add.rn.f16 %0, %0, %1;")
SCALAR(mul_f16, "mul.rn.f16 %0, %0, %1;")
SCALAR(fma_f16, "fma.rn.f16 %0, %0, %1, %1;")
SCALAR(max_f16, "max.f16 %0, %0, %1;")
SCALAR(add_bf16, "add.rn.bf16 %0, %0, %1;")
SCALAR(mul_bf16, "mul.rn.bf16 %0, %0, %1;")
SCALAR(fma_bf16, "fma.rn.bf16 %0, %0, %1, %1;")

// ---------------------------------------------------------------- the launches

struct Pattern { const char *name; std::function<int(int)> of; };
static int *upload(const std::function<int(int)> &of)
{
    int host[32], *device;
    for (int lane = 0; lane < 32; ++lane) host[lane] = of(lane);
    CHECK(cudaMalloc(&device, sizeof host));
    CHECK(cudaMemcpy(device, host, sizeof host, cudaMemcpyHostToDevice));
    return device;
}
template <class Launch> static void run(const std::string &name, Launch launch)
{
    std::printf("CASE %s\n", name.c_str());
    launch();
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
}

static const std::vector<Pattern> ROWS = {
    {"rows*16", [](int l) { return l * 16; }}, {"rows*32", [](int l) { return l * 32; }},
    {"rows*64", [](int l) { return l * 64; }}, {"rows*128", [](int l) { return l * 128; }},
    {"rows*144", [](int l) { return l * 144; }}, {"rows*256", [](int l) { return l * 256; }},
    {"rows*128 xor", [](int l) { return l * 128 + (l & 7) * 16; }},
    {"rows*64 xor", [](int l) { return l * 64 + (l >> 1 & 3) * 16; }}, {"same row", [](int) { return 0; }},
    {"rows/2*128", [](int l) { return l / 2 * 128; }}, {"rows%4*128", [](int l) { return l % 4 * 128; }}};
static const std::vector<Pattern> PLACES = {
    {"16*lane", [](int l) { return l * 16; }}, {"32*lane", [](int l) { return l * 32; }},
    {"128*lane", [](int l) { return l * 128; }}, {"144*lane", [](int l) { return l * 144; }},
    {"xor rows of 128", [](int l) { return l / 8 * 128 + ((l % 8) ^ (l / 8)) * 16; }}, {"same", [](int) { return 0; }},
    {"rows of 64 B apart 1024", [](int l) { return l / 4 * 1024 + l % 4 * 16; }}};
static const std::vector<Pattern> FLOATS = {
    {"2*lane", [](int l) { return 2 * l; }}, {"4*lane", [](int l) { return 4 * l; }}, {"8*lane", [](int l) { return 8 * l; }},
    {"32*lane", [](int l) { return 32 * l; }}, {"4*(lane/2)", [](int l) { return l / 2 * 4; }}, {"same", [](int) { return 0; }},
    {"4*lane+4", [](int l) { return 4 * l + 4; }}};

static void count_copies(const unsigned char *data, unsigned *out)
{
    const auto whole = [](int n) { return upload([n](int) { return n; }); };
    const auto wide = [&](const std::string &name, int *from, int *to, int *bytes) {
        run("cp.async.cg 16 " + name, [&] { cp_async<16, true><<<1, 32, SHARED_BYTES>>>(data, from, to, bytes, out); });
        run("cp.async.ca 16 " + name, [&] { cp_async<16, false><<<1, 32, SHARED_BYTES>>>(data, from, to, bytes, out); });
    };
    int *side_by_side = upload(PLACES[0].of);
    for (const auto &p : PLACES) wide(std::string("src 16*lane dst ") + p.name, side_by_side, upload(p.of), whole(16));
    for (const auto &p : PLACES) wide(std::string("dst 16*lane src ") + p.name, upload(p.of), side_by_side, whole(16));
    wide("upper half src-size 0", side_by_side, side_by_side, upload([](int l) { return l < 16 ? 16 : 0; }));
    wide("src-size 4", side_by_side, side_by_side, whole(4));
    for (const auto &[name, step] : {std::pair{"dst 4*lane", 4}, std::pair{"dst 32*lane", 32}})
        run(std::string("cp.async.ca 4 src 4*lane ") + name, [&, step = step] {
            cp_async<4, false><<<1, 32, SHARED_BYTES>>>(data, upload([](int l) { return 4 * l; }), upload([step](int l) { return step * l; }), whole(4), out);
        });
    for (const auto &[name, step] : {std::pair{"dst 8*lane", 8}, std::pair{"dst 128*lane", 128}})
        run(std::string("cp.async.ca 8 src 8*lane ") + name, [&, step = step] {
            cp_async<8, false><<<1, 32, SHARED_BYTES>>>(data, upload([](int l) { return 8 * l; }), upload([step](int l) { return step * l; }), whole(8), out);
        });
}

static void count_everything()
{
    float *data;
    unsigned *out;
    CHECK(cudaMalloc(&data, 64 << 20));
    CHECK(cudaMalloc(&out, 1 << 20));
    CHECK(cudaMemset(data, 0, 64 << 20));
    CHECK(cudaProfilerStart());
    for (const auto &p : ROWS) {
        int *rows = upload(p.of);
        const std::string name = p.name;
        run("ldmatrix x1 " + name, [&] { ldmatrix<1, false><<<1, 32, SHARED_BYTES>>>(rows, out); });
        run("ldmatrix x2 " + name, [&] { ldmatrix<2, false><<<1, 32, SHARED_BYTES>>>(rows, out); });
        run("ldmatrix x4 " + name, [&] { ldmatrix<4, false><<<1, 32, SHARED_BYTES>>>(rows, out); });
        run("ldmatrix x4.trans " + name, [&] { ldmatrix<4, true><<<1, 32, SHARED_BYTES>>>(rows, out); });
    }
    count_copies((unsigned char *)data, out);
    const unsigned *ab = (unsigned *)data;
    run("mma m16n8k16 f16", [&] { mma<F16><<<1, 32>>>(ab, data, (float *)out, TIMES); });
    run("mma m16n8k16 bf16", [&] { mma<BF16><<<1, 32>>>(ab, data, (float *)out, TIMES); });
    run("mma m16n8k8 tf32", [&] { mma<TF32><<<1, 32>>>(ab, data, (float *)out, TIMES); });
    run("mma m16n8k32 e4m3", [&] { mma<E4M3><<<1, 32>>>(ab, data, (float *)out, TIMES); });
    run("mma m16n8k32 e5m2", [&] { mma<E5M2><<<1, 32>>>(ab, data, (float *)out, TIMES); });
    for (const auto &p : FLOATS) {
        int *index = upload(p.of);
        const std::string name = p.name;
        if (p.of(1) % 4 == 0) {
            run("ldg128 " + name, [&] { load<4><<<1, 32>>>(data, index, (float *)out); });
            run("stg128 " + name, [&] { store<4><<<1, 32>>>(data, index); });
        }
        run("ldg64 " + name, [&] { load<2><<<1, 32>>>(data, index, (float *)out); });
        run("stg64 " + name, [&] { store<2><<<1, 32>>>(data, index); });
        run("ldc " + name, [&] { load_constant<<<1, 32>>>(index, (float *)out); });
    }
    run("ldc lane", [&] { load_constant<<<1, 32>>>(upload([](int l) { return l; }), (float *)out); });
    run("ldc lane/8", [&] { load_constant<<<1, 32>>>(upload([](int l) { return l / 8; }), (float *)out); });
#define SCALAR_CASE(name) run(#name, [&] { name<<<1, 32>>>(ab, out); })
    SCALAR_CASE(add_f16); SCALAR_CASE(mul_f16); SCALAR_CASE(fma_f16); SCALAR_CASE(max_f16);
    SCALAR_CASE(add_bf16); SCALAR_CASE(mul_bf16); SCALAR_CASE(fma_bf16);
    CHECK(cudaProfilerStop());
}

// ---------------------------------------------------------------- bits of mma.sync on random patterns

static uint64_t state = 88172645463325252ull;
static uint32_t random_bits()
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (uint32_t)(state >> 16);
}

// kind 0: any finite bits; 1: some infinities and NaN; 2: subnormal and small; 3: near one, so that sums
// cancel; 4: half of them zeros of both signs.
static unsigned pattern(int kind, int bits, int exponent_bits)
{
    const int mantissa_bits = bits - 1 - exponent_bits, last = (1 << exponent_bits) - 1, one = last >> 1;
    unsigned sign = random_bits() & 1, mantissa = random_bits() & ((1u << mantissa_bits) - 1);
    int exponent = random_bits() & last;
    if (exponent == last && (kind == 0 || (kind == 1 && random_bits() % 8))) exponent = last - 1;
    if (kind == 2) exponent = random_bits() % 3;
    if (kind == 3) exponent = one - 1 + random_bits() % 3;
    if (kind == 4) exponent = random_bits() % 2 ? 0 : one + random_bits() % 4;
    if (kind == 4 && !exponent) mantissa = 0;
    return sign << (bits - 1) | exponent << mantissa_bits | mantissa;
}
static unsigned packed(Type type, int kind)
{
    if (type == TF32) return pattern(kind, 19, 8) << 13;
    if (type == F16 || type == BF16) {
        const int exponent_bits = type == F16 ? 5 : 8;
        return pattern(kind, 16, exponent_bits) | pattern(kind, 16, exponent_bits) << 16;
    }
    unsigned word = 0;
    for (int k = 0; k < 4; ++k) word |= pattern(kind, 8, type == E4M3 ? 4 : 5) << 8 * k;
    return word;
}

template <Type TYPE> static void write_bits(std::FILE *file)
{
    constexpr int BLOCKS = 320, THREADS = BLOCKS * 32;
    std::vector<unsigned> ab(THREADS * 6), c(THREADS * 4), d(THREADS * 4);
    for (int i = 0; i < THREADS * 6; ++i) ab[i] = packed(TYPE, i / (64 * 32 * 6));
    for (int i = 0; i < THREADS * 4; ++i) c[i] = pattern(i / (64 * 32 * 4), 32, 8);
    unsigned *device_ab;
    float *before, *after;
    CHECK(cudaMalloc(&device_ab, ab.size() * 4));
    CHECK(cudaMalloc(&before, c.size() * 4));
    CHECK(cudaMalloc(&after, d.size() * 4));
    CHECK(cudaMemcpy(device_ab, ab.data(), ab.size() * 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(before, c.data(), c.size() * 4, cudaMemcpyHostToDevice));
    mma<TYPE><<<BLOCKS, 32>>>(device_ab, before, after, 1);
    CHECK(cudaMemcpy(d.data(), after, d.size() * 4, cudaMemcpyDeviceToHost));
    for (const auto *part : {&ab, &c, &d}) std::fwrite(part->data(), 4, part->size(), file);
}

int main(int n, char **arguments)
{
    if (n < 2) {
        count_everything();
        return 0;
    }
    std::FILE *file = std::fopen(arguments[1], "wb");
    if (!file) return std::perror(arguments[1]), 1;
    write_bits<F16>(file), write_bits<BF16>(file), write_bits<TF32>(file), write_bits<E4M3>(file), write_bits<E5M2>(file);
    return std::fclose(file);
}
