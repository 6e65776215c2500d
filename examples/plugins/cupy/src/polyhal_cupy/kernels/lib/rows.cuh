// Rows of a tensor of any strides, along one axis and numbered over up to three outer axes of lengths (.., outer1, outer2).
//
// GROUP threads share a row: one (if adjacent rows are adjacent in memory), a warp, or the whole block. With VECTORS they keep
// the row in registers, VECTORS times WIDTH elements each, so that it is read once; without, every pass reads it again. Sums
// over a row have a fixed order.

#ifndef POLYHAL_ROWS
#define POLYHAL_ROWS

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef REAL
#define REAL float32
#endif
#ifndef WIDTH
#define WIDTH 4
#endif
#ifndef VECTORS
#define VECTORS 2
#endif
#ifndef GROUP
#define GROUP 32
#endif
#ifndef BLOCK
#define BLOCK 128
#endif
#include "lib/dtypes.cuh"

#define WARP 32
#define FULL_MASK 0xffffffffu
#define ROW_REGISTERS (VECTORS * WIDTH > 0 ? VECTORS * WIDTH : 1)
#define ROW_PARAMETERS const uint64 rows, const uint32 length, const uint32 outer1, const uint32 outer2
#define STRIDES(name) \
    const int64 name##_outer0, const int64 name##_outer1, const int64 name##_outer2, const int64 name##_step
#define ROW_OF(name, row) \
    (name + (int64)((row) / outer2 / outer1) * name##_outer0 + (int64)((row) / outer2 % outer1) * name##_outer1 + \
     (int64)((row) % outer2) * name##_outer2)

typedef REAL real;

inline uint32 lane_id() { return threadIdx.x % GROUP; }
inline uint64 row_id() { return (uint64)blockIdx.x * (BLOCK / GROUP) + threadIdx.x / GROUP; }

template <typename T> struct Row {
    const T *begin;
    int64 step;
    real registers[ROW_REGISTERS];

    inline Row(const T *begin, int64 step, uint32 length) : begin(begin), step(step) {
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
            const uint32 first = (v * GROUP + lane_id()) * WIDTH;
            if (first >= length) break;
#if WIDTH > 1
            const Pack<T, WIDTH> pack = *(const Pack<T, WIDTH> *)(begin + first);
#pragma unroll
            for (int j = 0; j < WIDTH; j++) registers[v * WIDTH + j] = (real)widen(pack.at[j]);
#else
            registers[v] = (real)widen(begin[first * step]);
#endif
        }
    }
    // Element i; if rows are in registers, it is in register `slot`.
    inline real operator()(int slot, uint32 i) const { return VECTORS ? registers[slot] : (real)widen(begin[i * step]); }
};

// Calls f(slot, i) for each element i of a row that belongs to this thread.
template <typename F> inline void for_row(uint32 length, F f) {
#if VECTORS
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        const uint32 first = (v * GROUP + lane_id()) * WIDTH;
        if (first >= length) break;
#pragma unroll
        for (int j = 0; j < WIDTH; j++) f(v * WIDTH + j, first + j);
    }
#else
#pragma unroll 4
    for (uint32 i = lane_id(); i < length; i += GROUP) f(0, i);
#endif
}

// Stores f(slot, i) to each element i of a row that belongs to this thread.
template <typename T, typename F> inline void write_row(T *out, int64 step, uint32 length, F f) {
#if VECTORS && WIDTH > 1
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        const uint32 first = (v * GROUP + lane_id()) * WIDTH;
        if (first >= length) break;
        Pack<T, WIDTH> pack;
#pragma unroll
        for (int j = 0; j < WIDTH; j++) pack.at[j] = narrow<T>((Register<T>)f(v * WIDTH + j, first + j));
        *(Pack<T, WIDTH> *)(out + first) = pack;
    }
#else
    for_row(length, [&](int slot, uint32 i) { out[i * step] = narrow<T>((Register<T>)f(slot, i)); });
#endif
}

// Combines one value per thread of the group; every thread receives the result. If GROUP exceeds a warp, the whole block must
// call it.
template <typename F> inline real group_reduce(real value, real identity, F combine) {
#if GROUP >= WARP
#pragma unroll
    for (int distance = WARP / 2; distance > 0; distance /= 2)
        value = combine(value, __shfl_xor_sync(FULL_MASK, value, distance));
#endif
#if GROUP > WARP
    __shared__ real warp_results[GROUP / WARP];
    __syncthreads();  // protects results of the previous reduction
    if (threadIdx.x % WARP == 0) warp_results[threadIdx.x / WARP] = value;
    __syncthreads();
    value = identity;
#pragma unroll
    for (int warp = 0; warp < GROUP / WARP; warp++) value = combine(value, warp_results[warp]);
#endif
    return value;
}

inline real group_sum(real value) {
    return group_reduce(value, 0, [](real a, real b) { return a + b; });
}
// May ignore NaN.
inline real group_max(real value) {
    return group_reduce(value, -INFINITY, [](real a, real b) { return fmax(a, b); });
}

#endif
