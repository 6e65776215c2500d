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
#else
#define LANES_K 4
#define LANE_K (lane / LANES_N)
#define LANE_N (lane % LANES_N)
#define FIRST_DISTANCE LANES_N
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

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_few_rows(
    __global const STORAGE(DTYPE) *x, const ulong x_offset, __global const STORAGE(DTYPE) *y, const ulong y_offset,
    EPILOGUE_PARAMETERS __global TARGET *out, const ulong out_offset, const FewRowsGeometry geometry) {
    LOCATE_GROUP
    __local float memory[SLICES * ROUND * COLUMNS] __attribute__((aligned(16)));
    const uint lane_column = (across * LANES_N + LANE_N) * 4;
    const uint column = first_column + lane_column;
    float4 sums[ROWS];
#pragma unroll
    for (uint r = 0; r < ROWS; r++) sums[r] = (float4)(0);

    for (uint from = start; from < end; from += ALONG * UNROLL * STEP) {
        const uint mine = from + along * UNROLL * STEP + LANE_K * 4;
        float4 right[UNROLL][4];
#pragma unroll
        for (uint u = 0; u < UNROLL; u++) {
            const uint term = mine + u * STEP;
#pragma unroll
            for (uint i = 0; i < 4; i++) {
#if K_MAJOR
                const bool inside = term < end && column + i < n;
                __global const float *const place = y + ((column + i) * y_column + term);
#else
                const bool inside = term < end && column < n;
                __global const float *const place = y + ((term + i) * y_row + column);
#endif
                right[u][i] = inside ? *(__global const float4 *)place : (float4)(0);
            }
        }
#pragma unroll
        for (uint u = 0; u < UNROLL; u++) {
            const uint term = mine + u * STEP;
            if (term >= end) continue;
#pragma unroll
            for (uint r = 0; r < ROWS; r++) {
                const uint row = min(first_row + r, rows - 1);
                const float4 left = *(__global const float4 *)(x + (row * x_row + term));
#if K_MAJOR
                sums[r] += (float4)(dot(left, right[u][0]), dot(left, right[u][1]), dot(left, right[u][2]),
                                    dot(left, right[u][3]));
#else
                sums[r] += left.s0 * right[u][0] + left.s1 * right[u][1] + left.s2 * right[u][2] + left.s3 * right[u][3];
#endif
            }
        }
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
