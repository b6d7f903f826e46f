// What the flash_row kernels share: sizes, where a row lies, and which keys and rows see one another.
//
// Arrays lie as the projections leave them, float: Q, O, dO, dQ are [B, T, H, HEAD_DIM], K, V, dK, dV are
// [B, Tk, HKV, HEAD_DIM], L and D are [B, H, T]. Query head h uses K/V head h / (H / HKV). Row i stands at
// position q_start + i; a causal row sees no key after its position, and with a window none that lies `window`
// or more before it.
#pragma once
#include <metal_stdlib>
using namespace metal;

// Rows of infinities and exponentials that underflow to 0 are part of the algorithm: no fast math.
#pragma METAL fp math_mode(safe)

// A compile-time constant, so that a thread's rows stay in registers.
#ifndef HEAD_DIM
#define HEAD_DIM 64
#endif

struct Params {
    int T, Tk, H, HKV;
    int causal, q_start, window;  // window 0: all keys
    float scale;
};

struct Range {
    int begin, end;
};

// First element of a row of one head in an array [B, rows, heads, HEAD_DIM].
inline long row_at(int b, int rows, int row, int heads, int head) {
    return ((long(b) * rows + row) * heads + head) * HEAD_DIM;
}

// First element of one head in an array [B, H, T].
inline long head_at(constant Params& p, int b, int h) {
    return (long(b) * p.H + h) * p.T;
}

// Keys that a row sees.
inline Range keys_of(constant Params& p, int row) {
    Range keys = {0, p.Tk};
    if (p.causal) keys.end = min(p.Tk, p.q_start + row + 1);
    if (p.window > 0) keys.begin = max(0, p.q_start + row + 1 - p.window);
    return keys;
}

// Rows that see a key.
inline Range rows_of(constant Params& p, int key) {
    Range rows = {0, p.T};
    if (p.causal) rows.begin = max(0, key - p.q_start);
    if (p.window > 0) rows.end = min(p.T, key - p.q_start + p.window);
    return rows;
}
