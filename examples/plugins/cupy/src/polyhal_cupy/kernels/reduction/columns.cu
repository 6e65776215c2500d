// Column reduction: a block owns SPAN adjacent columns, WIDTH per thread; its ROWS rows of threads share the terms of one split.
// Columns are adjacent in memory (k1s is 1). Result (split, row) goes to out[split * k0 * k1 + row].

#ifndef SPAN_THREADS
#define SPAN_THREADS 32
#endif
// True if there is only one reduced axis.
#ifndef FLAT
#define FLAT 0
#endif
#include "reduction/terms.cuh"

#define SPAN (SPAN_THREADS * WIDTH)
#define ROWS (BLOCK / SPAN_THREADS)

KERNEL reduce_columns(const DTYPE *x, OUT_DTYPE *out, GEOMETRY) {
    __shared__ ACCUMULATOR shared[ROWS][SPAN];
    const uint64 spans = (k1 + SPAN - 1) / SPAN;
    const uint64 slice = blockIdx.x / spans, split = slice / k0, outer_kept = slice - split * k0;
    const uint32 column_id = threadIdx.x % SPAN_THREADS, row_id = threadIdx.x / SPAN_THREADS;
    const uint64 column = (blockIdx.x - slice * spans) * SPAN + column_id * WIDTH;
    ACCUMULATOR total[WIDTH];
#pragma unroll
    for (int j = 0; j < WIDTH; j++) total[j] = IDENTITY;
    if (column < k1) {
        x += (int64)outer_kept * k0s + (int64)column;
        const uint64 end = smaller((split + 1) * split_length, length);
        for (uint64 first = split * split_length + row_id; first < end; first += CHAIN * ROWS) {
            ACCUMULATOR chain[WIDTH];
#pragma unroll
            for (int j = 0; j < WIDTH; j++) chain[j] = IDENTITY;
            const uint64 stop = smaller(first + CHAIN * ROWS, end);
#pragma unroll 4
            for (uint64 at = first; at < stop; at += ROWS) {
#if FLAT
                const DTYPE *source = x + (int64)at * r1s;
#else
                const uint64 outer = at / r1;
                const DTYPE *source = x + (int64)outer * r0s + (int64)(at - outer * r1) * r1s;
#endif
                const Pack<DTYPE, WIDTH> v = *(const Pack<DTYPE, WIDTH> *)source;
#pragma unroll
                for (int j = 0; j < WIDTH; j++) chain[j] = combine(chain[j], term(v.at[j]));
            }
#pragma unroll
            for (int j = 0; j < WIDTH; j++) total[j] = combine(total[j], chain[j]);
        }
    }
#pragma unroll
    for (int j = 0; j < WIDTH; j++) shared[row_id][j * SPAN_THREADS + column_id] = total[j];
    for (uint32 distance = ROWS / 2; distance > 0; distance /= 2) {
        __syncthreads();
        if (row_id < distance)
#pragma unroll
            for (int j = 0; j < WIDTH; j++) {
                const uint32 k = j * SPAN_THREADS + column_id;
                shared[row_id][k] = combine(shared[row_id][k], shared[row_id + distance][k]);
            }
    }
    if (row_id == 0 && column < k1) {
        out += split * k0 * k1 + outer_kept * k1 + column;
#pragma unroll
        for (int j = 0; j < WIDTH; j++) out[j] = finish(shared[0][j * SPAN_THREADS + column_id], divisor);
    }
}
