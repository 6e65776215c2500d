// Attention of few queries, as in token-by-token generation (flash decoding): bound by the memory traffic of keys and
// values, which are read in place, once for ROWS queries. A group takes these and a range of the keys of one head. It has
// KEY_LANES rows of FEATURE_LANES work-items; each row processes KEYS_PER_STEP keys at a time with an online softmax. Where
// several groups share the keys (SPLIT), attention/split_reduce.cl combines their partial results. With LENGTHS the keys are a cache, and
// only its filled positions are read: their number comes from memory, so that one captured launch serves all lengths.
// Source: Dao et al., Flash-Decoding for long-context inference, 2023.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
// Queries have the dtype of the results; keys and values of a cache may have another one.
#ifndef Q_DTYPE
#define Q_DTYPE DTYPE
#endif
#ifndef REAL
#define REAL float
#endif
// Contiguous features that a work-item reads at once; the features of keys and of values are multiples of it.
#ifndef WIDTH
#define WIDTH 4
#endif
#ifndef FEATURE_LANES
#define FEATURE_LANES 1
#endif
#ifndef KEY_LANES
#define KEY_LANES 1
#endif
#ifndef KEYS_PER_STEP
#define KEYS_PER_STEP 8
#endif
#ifndef ROWS
#define ROWS 1
#endif
// Vectors of a key and of a value per work-item.
#ifndef KEY_VECTORS
#define KEY_VECTORS 16
#endif
#ifndef VALUE_VECTORS
#define VALUE_VECTORS 16
#endif
#ifndef SPLIT
#define SPLIT 0
#endif
#ifndef TENSOR_CORES
#define TENSOR_CORES 0
#endif
// 1: scores x become softcap * tanh(x / softcap).
#ifndef SOFTCAP
#define SOFTCAP 0
#endif
// Dtype of the scales of keys and values that are integers, one for each row of features.
#ifdef SCALE_DTYPE
#define SCALES 1
#else
#define SCALES 0
#define SCALE_DTYPE float32
#endif
#include "attention/visibility.h"
#include "lib/vectors.h"
#include "lib/exponential.h"
#include "lib/dependent_launch.h"

typedef VEC(REAL) V;
#include "lib/lane_reduce.h"
#if SCALES
#define READ_FEATURES(p) CONVERT(REAL, LOADV(DTYPE, p))
// The offset of a head among the scales: its offset among the integers divided by their number in a row.
#define SCALES_OF_HEAD(name, x, features) \
    name += name##_offset + (i0 * geometry.x##_batch0 + i1 * geometry.x##_batch1 + i2 * geometry.x##_batch2) / (features)
#else
#define READ_FEATURES(p) LOADV(DTYPE, p)
#endif
#define GROUP (FEATURE_LANES * KEY_LANES)
// The steps of a group's loop for a number of keys.
#define GROUP_STEPS(keys) (((keys) + KEYS_PER_STEP * KEY_LANES - 1) / (KEYS_PER_STEP * KEY_LANES))
// A partial result: the accumulated features, then the maximum and the sum of exponentials.
#define PARTIAL_STATISTICS 2
#define VALUES (VALUE_VECTORS * FEATURE_LANES * WIDTH)

// Sum a score over the feature lanes.
#if FEATURE_LANES == 1
#define SUM_FEATURE_LANES(value, index)
#elif TENSOR_CORES
static inline float sum_over_warp(float value) {
#pragma unroll
    for (uint distance = FEATURE_LANES / 2; distance > 0; distance /= 2) {
        float other;
        asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(other) : "f"(value), "r"(distance));
        value += other;
    }
    return value;
}
#define SUM_FEATURE_LANES(value, index) value = sum_over_warp(value)
#else
// Reduce through local memory, all scores of a step at once: see below.
#define SUM_FEATURE_LANES(value, index) lane_sums[index * GROUP + get_local_id(0)] = value
#define SUM_IN_LOCAL_MEMORY
#endif

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void attention_decode(
    OPERAND(Q_DTYPE, q), OPERAND(DTYPE, k), OPERAND(DTYPE, v), MASK_OPERAND
#if LENGTHS
    __global const int *lengths, const ulong lengths_offset, const CacheGeometry cache,
#if SCALES
    OPERAND(SCALE_DTYPE, key_scales), OPERAND(SCALE_DTYPE, value_scales),
#endif
#else
    const uint keys_per_group,
#endif
#if SOFTCAP
    const REAL softcap,
#endif
#if SPLIT
    __global REAL *partial,
#else
    RESULT(OUT_DTYPE, out),
#if !LENGTHS
    __global REAL *lse, const ulong lse_offset,
#endif
#endif
    const REAL scale, const AttentionGeometry geometry) {
#if KEY_LANES > 1
    __local REAL shared_acc[KEY_LANES * VALUES], shared_max[KEY_LANES], shared_sum[KEY_LANES];
#endif
#ifdef SUM_IN_LOCAL_MEMORY
    __local REAL lane_sums[KEYS_PER_STEP * ROWS * GROUP];
#endif
    START_NEXT
    AWAIT_INPUTS
    const uint head = get_group_id(1), first_row = get_group_id(2) * ROWS;
#if LENGTHS
    const uint t = geometry.t, d = geometry.d, e = geometry.e;
    SELECT_LENGTH(head);
#else
    DECLARE_LENGTHS;
#endif
    const uint lane = get_local_id(0) % FEATURE_LANES, key_lane = get_local_id(0) / FEATURE_LANES;
    HEAD_INDICES(head);
#if SCALES
    SCALES_OF_HEAD(key_scales, k, d);
    SCALES_OF_HEAD(value_scales, v, e);
#endif
    SELECT_HEAD(q);
    SELECT_HEAD(k);
    SELECT_HEAD(v);
    SELECT_MASK;
    const uint visible_keys = VISIBLE_KEYS(min(first_row + ROWS, t));
#if LENGTHS
    // Groups share the visible keys equally, in whole steps.
    const uint first_key = FIRST_KEY(first_row), steps = GROUP_STEPS(visible_keys - first_key);
    const uint keys_per_group = (steps + get_num_groups(0) - 1) / get_num_groups(0) * (KEYS_PER_STEP * KEY_LANES);
    const uint begin = first_key + get_group_id(0) * keys_per_group;
#else
    const uint begin = get_group_id(0) * keys_per_group;
#endif
    const uint end = min(min(begin + keys_per_group, s), visible_keys);
#if !SPLIT
    SELECT_RESULT(out);
#endif
    V queries[ROWS][KEY_VECTORS], acc[ROWS][VALUE_VECTORS];
    REAL running_max[ROWS], running_sum[ROWS];
#pragma unroll
    for (uint r = 0; r < ROWS; r++) {
        running_max[r] = -INFINITY;
        running_sum[r] = 0;
#pragma unroll
        for (uint j = 0; j < KEY_VECTORS; j++) {
            const uint c = (lane + j * FEATURE_LANES) * WIDTH;
            queries[r][j] = first_row + r < t && c < d ? LOADV(Q_DTYPE, q + (first_row + r) * q_row + c) * scale : (V)(0);
        }
#pragma unroll
        for (uint j = 0; j < VALUE_VECTORS; j++) acc[r][j] = (V)(0);
    }
    // Every key lane makes the same number of steps, because a step may contain barriers.
    for (uint step = begin; step < end; step += KEYS_PER_STEP * KEY_LANES) {
        const uint first = step + key_lane * KEYS_PER_STEP;
        REAL scores[ROWS][KEYS_PER_STEP];
#pragma unroll
        for (uint i = 0; i < KEYS_PER_STEP; i++) {
            __global const STORAGE(DTYPE) *key = k + (long)min(first + i, end - 1) * k_row;
            V product[ROWS];
#pragma unroll
            for (uint r = 0; r < ROWS; r++) product[r] = (V)(0);
#pragma unroll
            for (uint j = 0; j < KEY_VECTORS; j++) {
                const uint c = (lane + j * FEATURE_LANES) * WIDTH;
                const V x = READ_FEATURES(key + (c < d ? c : 0));
#pragma unroll
                for (uint r = 0; r < ROWS; r++) product[r] += queries[r][j] * x;
            }
#pragma unroll
            for (uint r = 0; r < ROWS; r++) {
                scores[r][i] = LANES_SUM(product[r]);
                SUM_FEATURE_LANES(scores[r][i], (r * KEYS_PER_STEP + i));
            }
        }
#ifdef SUM_IN_LOCAL_MEMORY
        // Each feature lane sums some of the scores of its key lane, in place.
        barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll 1
        for (uint n = lane; n < ROWS * KEYS_PER_STEP; n += FEATURE_LANES) {
            __local REAL *const parts = lane_sums + n * GROUP + key_lane * FEATURE_LANES;
            REAL sum = 0;
            for (uint other = 0; other < FEATURE_LANES; other++) sum += parts[other];
            parts[0] = sum;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
        for (uint r = 0; r < ROWS; r++)
#pragma unroll
            for (uint i = 0; i < KEYS_PER_STEP; i++)
                scores[r][i] = lane_sums[(r * KEYS_PER_STEP + i) * GROUP + key_lane * FEATURE_LANES];
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
#pragma unroll
        for (uint r = 0; r < ROWS; r++) {
            REAL new_max = running_max[r];
#pragma unroll
            for (uint i = 0; i < KEYS_PER_STEP; i++) {
                const uint key = first + i;
#if SCALES
                scores[r][i] *= LOAD(SCALE_DTYPE, key_scales, min(key, end - 1) * (k_row / d));
#endif
#if SOFTCAP
                scores[r][i] = softcap * tanh(scores[r][i] / softcap);
#endif
                const bool visible = key < end && VISIBLE(first_row + r, key);
#if MASK == 2
                if (visible) scores[r][i] += MASK_BIAS(first_row + r, key);
#endif
                scores[r][i] = visible ? scores[r][i] : -INFINITY;
                new_max = LARGER(new_max, scores[r][i]);
            }
            // While all keys so far are masked, 0 is subtracted: exp(-inf - 0) is 0.
            const REAL shift = new_max == -INFINITY ? 0 : new_max;
            const REAL rescale = exp(running_max[r] - shift);
            running_max[r] = new_max;
            running_sum[r] *= rescale;
#pragma unroll
            for (uint i = 0; i < KEYS_PER_STEP; i++) {
                scores[r][i] = exp(scores[r][i] - shift);
                running_sum[r] += scores[r][i];
            }
#pragma unroll
            for (uint j = 0; j < VALUE_VECTORS; j++) acc[r][j] *= rescale;
        }
#pragma unroll
        for (uint i = 0; i < KEYS_PER_STEP; i++) {
            __global const STORAGE(DTYPE) *value = v + (long)min(first + i, end - 1) * v_row;
#if SCALES
            const REAL value_scale = LOAD(SCALE_DTYPE, value_scales, min(first + i, end - 1) * (v_row / e));
#pragma unroll
            for (uint r = 0; r < ROWS; r++) scores[r][i] *= value_scale;
#endif
#pragma unroll
            for (uint j = 0; j < VALUE_VECTORS; j++) {
                const uint c = (lane + j * FEATURE_LANES) * WIDTH;
                const V x = READ_FEATURES(value + (c < e ? c : 0));
#pragma unroll
                for (uint r = 0; r < ROWS; r++) acc[r][j] += scores[r][i] * x;
            }
        }
    }
#pragma unroll
    for (uint r = 0; r < ROWS; r++) {
        // Combine the key lanes.
#if KEY_LANES > 1
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane == 0) {
            shared_max[key_lane] = running_max[r];
            shared_sum[key_lane] = running_sum[r];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        REAL total_max = shared_max[0];
        for (uint other = 1; other < KEY_LANES; other++) total_max = fmax(total_max, shared_max[other]);
        const REAL shift = total_max == -INFINITY ? 0 : total_max;
        REAL total_sum = 0;
        for (uint other = 0; other < KEY_LANES; other++) total_sum += shared_sum[other] * exp(shared_max[other] - shift);
        const REAL rescale = exp(running_max[r] - shift);
#else
        const REAL total_max = running_max[r], total_sum = running_sum[r], rescale = 1;
#endif
#if SPLIT
        __global REAL *to = partial + (((ulong)head * t + first_row + r) * get_num_groups(0) + get_group_id(0)) *
                                          (e + PARTIAL_STATISTICS);
        const REAL inverse = 1;
#else
        const REAL inverse = total_sum == 0 ? 0 : 1 / total_sum;
#endif
        REAL line[VALUE_VECTORS * WIDTH];
#pragma unroll
        for (uint j = 0; j < VALUE_VECTORS; j++) *(__private V *)&line[j * WIDTH] = acc[r][j] * (rescale * inverse);
#if KEY_LANES > 1
#pragma unroll
        for (uint j = 0; j < VALUE_VECTORS; j++)
#pragma unroll
            for (uint i = 0; i < WIDTH; i++)
                shared_acc[key_lane * VALUES + (lane + j * FEATURE_LANES) * WIDTH + i] = line[j * WIDTH + i];
        barrier(CLK_LOCAL_MEM_FENCE);
#define FIRST_FEATURE get_local_id(0)
#define FEATURE_STEP GROUP
#else
#define FIRST_FEATURE 0
#define FEATURE_STEP 1
#endif
        if (first_row + r < t) {
            for (uint c = FIRST_FEATURE; c < e; c += FEATURE_STEP) {
#if KEY_LANES > 1
                REAL value = 0;
                for (uint other = 0; other < KEY_LANES; other++) value += shared_acc[other * VALUES + c];
#else
                const REAL value = line[c];
#endif
#if SPLIT
                to[c] = value;
#else
                STORE(OUT_DTYPE, value, out, (first_row + r) * out_row + c);
#endif
            }
            if (get_local_id(0) == 0) {
#if SPLIT
                to[e] = total_max;
                to[e + 1] = total_sum;
#elif !LENGTHS
                STORE_LOGSUMEXP(lse + lse_offset + 2 * ((ulong)head * t + first_row + r), total_max, total_sum)
#endif
            }
        }
    }
}
