// Reduction across rows: a block owns SPAN neighbouring columns, WIDTH per thread, and its ROWS lines of threads walk
// down one part of their terms together. Columns lie side by side (k1s is 1). Result (part, row) goes to out[part * k0
// * k1 + row].

#ifndef SPAN_THREADS
#define SPAN_THREADS 32
#endif
// The reduced axes are one.
#ifndef FLAT
#define FLAT 0
#endif
#include "reduction/terms.cuh"

#define SPAN (SPAN_THREADS * WIDTH)
#define ROWS (BLOCK / SPAN_THREADS)

KERNEL reduce_columns(const DTYPE *x, OUT_DTYPE *out, GEOMETRY) {
    __shared__ ACCUMULATOR shared[ROWS][SPAN];
    const uint64 chunks = (k1 + SPAN - 1) / SPAN;
    const uint64 slab = blockIdx.x / chunks, part = slab / k0, outer_kept = slab - part * k0;
    const uint32 me = threadIdx.x % SPAN_THREADS, line = threadIdx.x / SPAN_THREADS;
    const uint64 column = (blockIdx.x - slab * chunks) * SPAN + me * WIDTH;
    ACCUMULATOR total[WIDTH];
#pragma unroll
    for (int j = 0; j < WIDTH; j++) total[j] = IDENTITY;
    if (column < k1) {
        x += (int64)outer_kept * k0s + (int64)column;
        const uint64 end = smaller((part + 1) * part_length, length);
        for (uint64 first = part * part_length + line; first < end; first += CHAIN * ROWS) {
            ACCUMULATOR chain[WIDTH];
#pragma unroll
            for (int j = 0; j < WIDTH; j++) chain[j] = IDENTITY;
            const uint64 stop = smaller(first + CHAIN * ROWS, end);
#pragma unroll 4
            for (uint64 at = first; at < stop; at += ROWS) {
#if FLAT
                const DTYPE *from = x + (int64)at * r1s;
#else
                const uint64 outer = at / r1;
                const DTYPE *from = x + (int64)outer * r0s + (int64)(at - outer * r1) * r1s;
#endif
                const Pack<DTYPE, WIDTH> v = *(const Pack<DTYPE, WIDTH> *)from;
#pragma unroll
                for (int j = 0; j < WIDTH; j++) chain[j] = join(chain[j], term(v.at[j]));
            }
#pragma unroll
            for (int j = 0; j < WIDTH; j++) total[j] = join(total[j], chain[j]);
        }
    }
#pragma unroll
    for (int j = 0; j < WIDTH; j++) shared[line][j * SPAN_THREADS + me] = total[j];
    for (uint32 distance = ROWS / 2; distance > 0; distance /= 2) {
        __syncthreads();
        if (line < distance)
#pragma unroll
            for (int j = 0; j < WIDTH; j++) {
                const uint32 k = j * SPAN_THREADS + me;
                shared[line][k] = join(shared[line][k], shared[line + distance][k]);
            }
    }
    if (line == 0 && column < k1) {
        out += part * k0 * k1 + outer_kept * k1 + column;
#pragma unroll
        for (int j = 0; j < WIDTH; j++) out[j] = finished(shared[0][j * SPAN_THREADS + me], divisor);
    }
}
