// Layer norm (CENTRED 1) or RMS norm (CENTRED 0) of rows, and the statistics that the gradient needs. A second pass sums the
// squares around the mean: a difference of sums would cancel.
//
// With CHANNELS, for group norm, a row is a group of whole channels of `inner` elements. `groups` of them make an image, and
// weight and bias have one element per channel of an image.

#ifndef CENTRED
#define CENTRED 1
#endif
#ifndef WEIGHT
#define WEIGHT 1
#endif
#ifndef BIAS
#define BIAS 1
#endif
#ifndef WEIGHT_DTYPE
#define WEIGHT_DTYPE DTYPE
#endif
#ifndef BIAS_DTYPE
#define BIAS_DTYPE DTYPE
#endif
#ifndef CHANNELS
#define CHANNELS 0
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#include "lib/rows.h"
#include "lib/dependent_launch.h"

#if WEIGHT
#define FACTOR(channel) (scale * LOAD(WEIGHT_DTYPE, weight, weight_offset + (channel)))
#else
#define FACTOR(channel) scale
#endif
#if BIAS
#define SHIFT(channel) LOAD(BIAS_DTYPE, bias, bias_offset + (channel))
#else
#define SHIFT(channel) (REAL)0
#endif
#define FACTOR_AND_SHIFT(channel) const REAL factor = FACTOR(channel), shift = SHIFT(channel);

typedef struct {
    STRIDE_MEMBERS(x);
    STRIDE_MEMBERS(out);
    ROW_MEMBERS;
#if CHANNELS
    uint groups, inner;
#endif
} NormGeometry;

__kernel REQUIRED_GROUP_SIZE void rowwise_norm(OPERAND(x),
#if WEIGHT
                                               __global const STORAGE(WEIGHT_DTYPE) *weight, const ulong weight_offset,
#endif
#if BIAS
                                               __global const STORAGE(BIAS_DTYPE) *bias, const ulong bias_offset,
#endif
                                               __global STORAGE(OUT_DTYPE) *out, const ulong out_offset,
#if CENTRED
                                               __global REAL *means, const ulong means_offset,
#endif
                                               __global REAL *scales, const ulong scales_offset, const REAL eps,
                                               const NormGeometry geometry) {
    START_NEXT
    AWAIT_INPUTS
    DECLARE_ROWS;
    DECLARE_STRIDES(x);
    DECLARE_STRIDES(out);
#if CHANNELS
    const uint groups = geometry.groups, inner = geometry.inner;
#endif
    GROUP_SCRATCH(REAL)
    DECLARE_ROW(x)
    FOR_ROWS {
        const long x_at = ROW_OF(x, row), out_at = ROW_OF(out, row);
        LOAD_ROW(x, x_at)
        REAL mean = 0;
#if CENTRED
        {
            DECLARE_ACCUMULATORS(sums, 0)
            FOR_VECTORS sums[k] += ROW_VALUE(x, x_at);
            mean = SUM_ACCUMULATORS(sums);
            FOR_TAIL mean += LOAD(DTYPE, x, x_at + i);
            GROUP_SUM(mean)
            mean /= length;
        }
#endif
        DECLARE_ACCUMULATORS(squares, 0)
        FOR_VECTORS {
            PREFETCH_NEXT_ROW(x, x_at)
            const V centred = ROW_VALUE(x, x_at) - mean;
            squares[k] += centred * centred;
        }
        REAL variance = SUM_ACCUMULATORS(squares);
        FOR_TAIL {
            const REAL centred = LOAD(DTYPE, x, x_at + i) - mean;
            variance += centred * centred;
        }
        GROUP_SUM(variance)
        const REAL scale = 1 / sqrt(variance / length + eps);
#if CHANNELS && !ROW_VECTORS
        for (uint c = 0; c < length / inner; c++) {
            const long plane_at = x_at + (long)c * inner, result_at = out_at + (long)c * inner;
            const uint channel = row % groups * (length / inner) + c;
            FACTOR_AND_SHIFT(channel)
            for (uint i = LANE_ID; i < inner / WIDTH; i += LANES) {
                WRITE_AS(OUT_DTYPE, out, (READ(x, plane_at, i) - mean) * factor + shift, result_at, i);
            }
            for (uint i = inner / WIDTH * WIDTH + LANE_ID; i < inner; i += LANES) {
                STORE(OUT_DTYPE, (LOAD(DTYPE, x, plane_at + i) - mean) * factor + shift, out, result_at + i);
            }
        }
#elif CHANNELS
        FOR_VECTORS {
            const uint channel = row % groups * (length / inner) + i * WIDTH / inner;
            FACTOR_AND_SHIFT(channel)
            WRITE_AS(OUT_DTYPE, out, (ROW_VALUE(x, x_at) - mean) * factor + shift, out_at, i);
        }
#else
        FOR_VECTORS {
            PREFETCH_NEXT_RESULT(out, out_at)
            V value = (ROW_VALUE(x, x_at) - mean) * scale;
#if WEIGHT
            value *= READ_SMALL(WEIGHT_DTYPE, weight, i);
#endif
#if BIAS
            value += READ_SMALL(BIAS_DTYPE, bias, i);
#endif
            WRITE_AS(OUT_DTYPE, out, value, out_at, i);
        }
        FOR_TAIL {
            REAL value = (LOAD(DTYPE, x, x_at + i) - mean) * scale;
#if WEIGHT
            value *= LOAD(WEIGHT_DTYPE, weight, weight_offset + i);
#endif
#if BIAS
            value += LOAD(BIAS_DTYPE, bias, bias_offset + i);
#endif
            STORE(OUT_DTYPE, value, out, out_at + i);
        }
#endif
        if (LANE_ID == 0) {
#if CENTRED
            means[means_offset + row] = mean;
#endif
            scales[scales_offset + row] = scale;
        }
    }
}
