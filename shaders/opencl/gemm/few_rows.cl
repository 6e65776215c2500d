// Products of few rows of float32 with a matrix that is read once (gemm/few_rows.h).
//
// A work-item loads 4 columns by 4 terms of the matrix in vectors of 4 and multiplies them by 4 terms of every row. The 32
// work-items of a warp are arranged so that their vectors are contiguous: LANES_K divide the terms and the rest the columns.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef ROWS
#define ROWS 4
#endif
// 1: lanes exchange sums by NVIDIA's shuffles.
#ifndef TENSOR_CORES
#define TENSOR_CORES 0
#endif
#include "gemm/few_rows.h"

#if K_MAJOR
#define LANES_K 8
#define LANE_K (lane % LANES_K)
#define LANE_N (lane / LANES_K)
#define FIRST_DISTANCE 1
#define LINE_STEP y_column
#else
#define LANES_K 4
#define LANE_K (lane / LANES_N)
#define LANE_N (lane % LANES_N)
#define FIRST_DISTANCE LANES_N
#define LINE_STEP y_row
#endif
#define LANES_N (32 / LANES_K)
#define COLUMNS (ACROSS * LANES_N * 4)
#define STEP (LANES_K * 4)
// Rows whose sums are in local memory at a time.
#define ROUND (ROWS < 8 ? ROWS : 8)

#if TENSOR_CORES
#define SLICES ALONG
static inline float sum_over_terms(float value) {
#pragma unroll
    for (uint distance = FIRST_DISTANCE; distance < FIRST_DISTANCE * LANES_K; distance *= 2) {
        float other;
        asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(other) : "f"(value), "r"(distance));
        value += other;
    }
    return value;
}
#else
#define SLICES (ALONG * LANES_K)
static inline float sum_over_terms(float value) { return value; }
#endif

// Adds `count` steps of terms from `term`; x and y point to this work-item's first row and column, `last_row` and
// `last_column` are the last ones counted from these, and y_line is the stride of the axis of y that is not contiguous.
FORCE_INLINE void add_terms(float4 *sums, __global const float *x, __global const float *y, const long x_row,
                            const long y_line, const uint last_row, const uint term, const uint count,
                            const uint last_column) {
    float4 right[UNROLL][4];
#pragma unroll
    for (uint u = 0; u < count; u++)
#pragma unroll
        for (uint i = 0; i < 4; i++) {
            const uint at = term + u * STEP;
            right[u][i] = *(__global const float4 *)(y + (K_MAJOR ? min(i, last_column) * y_line + at : (at + i) * y_line));
        }
#pragma unroll
    for (uint u = 0; u < count; u++)
#pragma unroll
        for (uint r = 0; r < ROWS; r++) {
            const float4 left = *(__global const float4 *)(x + (min(r, last_row) * x_row + term + u * STEP));
#if K_MAJOR
            sums[r] += (float4)(dot(left, right[u][0]), dot(left, right[u][1]), dot(left, right[u][2]),
                                dot(left, right[u][3]));
#else
            sums[r] += left.s0 * right[u][0] + left.s1 * right[u][1] + left.s2 * right[u][2] + left.s3 * right[u][3];
#endif
        }
}

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_few_rows(
    __global const STORAGE(DTYPE) *x, const ulong x_offset, __global const STORAGE(DTYPE) *y, const ulong y_offset,
    EPILOGUE_PARAMETERS __global TARGET *out, const ulong out_offset, const FewRowsGeometry geometry) {
    LOCATE_GROUP
    const uint row_blocks = (rows + ROWS - 1) / ROWS;
    const uint first_row = get_group_id(0) % row_blocks * ROWS, first_column = get_group_id(0) / row_blocks * COLUMNS;
    __local float memory[SLICES * ROUND * COLUMNS] __attribute__((aligned(16)));
    const uint lane_column = (across * LANES_N + LANE_N) * 4;
    // Loads beyond the last row or column are moved inside instead of skipped, so that nothing separates them.
    const uint column = min(first_column + lane_column, K_MAJOR ? n - 1 : n - 4), last_column = n - 1 - column;
    x += first_row * x_row;
    y += K_MAJOR ? column * y_column : column;
    float4 sums[ROWS];
#pragma unroll
    for (uint r = 0; r < ROWS; r++) sums[r] = (float4)(0);

    uint from = start;
    for (; from + ALONG * UNROLL * STEP <= end; from += ALONG * UNROLL * STEP)
        add_terms(sums, x, y, x_row, LINE_STEP, rows - 1 - first_row, from + along * UNROLL * STEP + LANE_K * 4, UNROLL,
                  last_column);
    for (; from < end; from += ALONG * STEP) {
        const uint term = from + along * STEP + LANE_K * 4;
        if (term < end) add_terms(sums, x, y, x_row, LINE_STEP, rows - 1 - first_row, term, 1, last_column);
    }
#pragma unroll
    for (uint first = 0; first < ROWS; first += ROUND) {
        barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
        for (uint r = 0; r < ROUND; r++) {
            float4 sum = sums[first + r];
            sum = (float4)(sum_over_terms(sum.s0), sum_over_terms(sum.s1), sum_over_terms(sum.s2), sum_over_terms(sum.s3));
#if TENSOR_CORES
            if (LANE_K) continue;
            const uint slice = along;
#else
            const uint slice = along * LANES_K + LANE_K;
#endif
            *(__local float4 *)&memory[(slice * ROUND + r) * COLUMNS + lane_column] = sum;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        FINISH_ROWS(first, ROUND)
    }
}
