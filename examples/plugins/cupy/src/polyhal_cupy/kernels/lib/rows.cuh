// Rows of a tensor of any strides: `rows` lines along one axis, numbered over up to three further axes of lengths (..,
// rows1, rows2).
//
// GROUP threads share a row: one (where neighbouring rows are neighbours in memory), a warp, or the whole block. With
// VECTORS they keep the row in registers, VECTORS times WIDTH elements each, so that it is read from memory once;
// without, elements are read again whenever they are asked for. Sums over a row have a fixed order.

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
#define EVERYONE 0xffffffffu
#define HELD (VECTORS * WIDTH > 0 ? VECTORS * WIDTH : 1)
#define ROW_PARAMETERS const uint64 rows, const uint32 length, const uint32 rows1, const uint32 rows2
#define STRIDES(name) const int64 name##0, const int64 name##1, const int64 name##2, const int64 name##_step
#define ROW_OF(name, row) \
    (name + (int64)((row) / rows2 / rows1) * name##0 + (int64)((row) / rows2 % rows1) * name##1 + \
     (int64)((row) % rows2) * name##2)

typedef REAL real;

inline uint32 lane() { return threadIdx.x % GROUP; }
inline uint64 row_number() { return (uint64)blockIdx.x * (BLOCK / GROUP) + threadIdx.x / GROUP; }

template <typename T> struct Row {
    const T *from;
    int64 step;
    real held[HELD];

    inline Row(const T *from, int64 step, uint32 length) : from(from), step(step) {
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
            const uint32 first = (v * GROUP + lane()) * WIDTH;
            if (first >= length) break;
#if WIDTH > 1
            const Pack<T, WIDTH> pack = *(const Pack<T, WIDTH> *)(from + first);
#pragma unroll
            for (int j = 0; j < WIDTH; j++) held[v * WIDTH + j] = (real)widen(pack.at[j]);
#else
            held[v] = (real)widen(from[first * step]);
#endif
        }
    }
    // Element i, which this thread may keep in `slot`.
    inline real operator()(int slot, uint32 i) const { return VECTORS ? held[slot] : (real)widen(from[i * step]); }
};

// Calls f(slot, i) for every element i of a row that is this thread's.
template <typename F> inline void for_row(uint32 length, F f) {
#if VECTORS
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        const uint32 first = (v * GROUP + lane()) * WIDTH;
        if (first >= length) break;
#pragma unroll
        for (int j = 0; j < WIDTH; j++) f(v * WIDTH + j, first + j);
    }
#else
#pragma unroll 4
    for (uint32 i = lane(); i < length; i += GROUP) f(0, i);
#endif
}

// Writes f(slot, i) to every element i of a row that is this thread's.
template <typename T, typename F> inline void write_row(T *to, int64 step, uint32 length, F f) {
#if VECTORS && WIDTH > 1
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        const uint32 first = (v * GROUP + lane()) * WIDTH;
        if (first >= length) break;
        Pack<T, WIDTH> pack;
#pragma unroll
        for (int j = 0; j < WIDTH; j++) pack.at[j] = narrow<T>((Register<T>)f(v * WIDTH + j, first + j));
        *(Pack<T, WIDTH> *)(to + first) = pack;
    }
#else
    for_row(length, [&](int slot, uint32 i) { to[i * step] = narrow<T>((Register<T>)f(slot, i)); });
#endif
}

// Joins one value per thread of the group; all of them learn the result. With a GROUP of the whole block, all must
// call it.
template <typename F> inline real group_reduce(real value, real identity, F join) {
#if GROUP >= WARP
#pragma unroll
    for (int distance = WARP / 2; distance > 0; distance /= 2)
        value = join(value, __shfl_xor_sync(EVERYONE, value, distance));
#endif
#if GROUP > WARP
    __shared__ real of_warps[GROUP / WARP];
    __syncthreads();  // until all have read the results of the reduction before
    if (threadIdx.x % WARP == 0) of_warps[threadIdx.x / WARP] = value;
    __syncthreads();
    value = identity;
#pragma unroll
    for (int warp = 0; warp < GROUP / WARP; warp++) value = join(value, of_warps[warp]);
#endif
    return value;
}

inline real group_sum(real value) {
    return group_reduce(value, 0, [](real a, real b) { return a + b; });
}
// May pass over a NaN.
inline real group_max(real value) {
    return group_reduce(value, -INFINITY, [](real a, real b) { return fmax(a, b); });
}

#endif
