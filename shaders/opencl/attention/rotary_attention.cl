// Attention of one new position per sequence to a key-value cache, in one launch: queries and the new key are rotated, key and
// value are stored, and the queries that share them attend to all filled positions. A group takes ROWS queries of a head of the
// cache; it has KEY_LANES rows of FEATURE_LANES work-items, which read KEYS keys each at a time. The groups of a cluster share
// the keys, as many of them as these need, so that short caches need no exchange. The first keys and values are read before
// the inputs are complete: no other kernel of a token writes them.
// Source: Dao et al., Flash-Decoding for long-context inference, 2023.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef CACHE_DTYPE
#define CACHE_DTYPE float32
#endif
#ifndef TABLE_DTYPE
#define TABLE_DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
// Features of a head; those that are not rotated follow the others.
#ifndef HEAD_SIZE
#define HEAD_SIZE 16
#endif
// Contiguous features that a work-item reads at once, a divisor of HEAD_SIZE.
#ifndef WIDTH
#define WIDTH 4
#endif
#ifndef FEATURE_LANES
#define FEATURE_LANES 4
#endif
#ifndef KEY_LANES
#define KEY_LANES 8
#endif
#ifndef KEYS
#define KEYS 4
#endif
#ifndef ROWS
#define ROWS 1
#endif
// 1: neighbouring features are pairs.
#ifndef INTERLEAVED
#define INTERLEAVED 0
#endif
// 1: queries attend to the last `window` positions only.
#ifndef WINDOW
#define WINDOW 0
#endif
// 1: scores x become softcap * tanh(x / softcap).
#ifndef SOFTCAP
#define SOFTCAP 0
#endif
#ifndef TENSOR_CORES
#define TENSOR_CORES 0
#endif
#include "attention/geometry.h"
#include "attention/warp.h"
#include "lib/clusters.h"
#include "lib/dependent_launch.h"
#include "lib/vectors.h"

typedef VEC(REAL) V;
#include "lib/lane_reduce.h"
#define GROUP (FEATURE_LANES * KEY_LANES)
#define STEP (KEYS * KEY_LANES)
#define PAIRS (HEAD_SIZE / 2)
#define WARP 32
// Pairs of a line of the second-level cache.
#define LINE_PAIRS (128 / sizeof(STORAGE(TABLE_DTYPE)))
// Parts of a group's sums that are combined in local memory, and the features that a work-item has of one.
#if TENSOR_CORES
#define PARTS (GROUP / WARP)
#define PART (me / WARP)
#define FIRST_OF_PART (me % WARP < FEATURE_LANES)
#define SHARE (WIDTH * FEATURE_LANES / WARP)
#else
#define PARTS KEY_LANES
#define PART key_lane
#define FIRST_OF_PART true
#define SHARE WIDTH
#endif
#define FACTOR(maximum, largest) ((maximum) == -INFINITY ? 0 : fast_exp2((maximum) - (largest)))

// Strides are in elements.
typedef struct {
    long q_b0, q_b1, q_column, k_b0, k_b1, k_column, v_b0, v_b1, v_column;
    long cosines_b0, cosines_column, sines_b0, sines_column, lengths_step;
    // Queries that share a head of the cache, heads of the cache, and rotated pairs.
    uint shared, cached, half_, capacity, window;
} RotaryAttentionGeometry;

// Keys and values wait for their use as they are in the cache, 16 bytes in four registers.
#if TENSOR_CORES
typedef uint4 Held;
#define HELD_AT(p) (*(__global const uint4 *)(p))
#define WIDENED_float32(words) as_float4(words)
#define WIDENED_float16(words) floats_of_halves(as_ushort8(words))
#define WIDENED_bfloat16(words) floats_of_words(words)
#define WIDENED(words) CONCAT(WIDENED_, CACHE_DTYPE)(words)
#else
typedef V Held;
#define HELD_AT(p) LOADV(CACHE_DTYPE, p)
#define WIDENED(v) (v)
#endif

// As it is after storing it.
#define ROUNDED(D, value, result)                                \
    {                                                            \
        REAL stored_;                                            \
        STORE(D, value, (__private STORAGE(D) *)&stored_, 0);    \
        result = LOAD(D, (__private STORAGE(D) *)&stored_, 0);   \
    }

// The sum of a score over the feature lanes.
#if TENSOR_CORES
static inline float sum_over_features(float value) {
#pragma unroll
    for (uint distance = FEATURE_LANES / 2; distance > 0; distance /= 2) value += shuffle_xor(value, distance);
    return value;
}
#define SUM_FEATURES(scores, count)    \
    _Pragma("unroll") for (uint r = 0; r < ROWS; r++) _Pragma("unroll") for (uint i = 0; i < count; i++) scores[r][i] = \
        sum_over_features(scores[r][i]);
#else
#define SUM_FEATURES(scores, count)                                                                     \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                       \
    for (uint r = 0; r < ROWS; r++)                                                                     \
        for (uint i = 0; i < count; i++) lane_sums[(r * KEYS + i) * GROUP + me] = scores[r][i];         \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                       \
    for (uint r = 0; r < ROWS; r++)                                                                     \
        for (uint i = 0; i < count; i++) {                                                              \
            scores[r][i] = 0;                                                                           \
            for (uint other = 0; other < FEATURE_LANES; other++)                                        \
                scores[r][i] += lane_sums[(r * KEYS + i) * GROUP + key_lane * FEATURE_LANES + other];   \
        }
#endif
// In units of log(2).
#if SOFTCAP
#define QUERY_SCALE scale
#define CAPPED(score) (softcap * tanh((score) / softcap) * LOG2E)
#else
#define QUERY_SCALE (scale * LOG2E)
#define CAPPED(score) (score)
#endif

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void attention_rotary_attention(
    OPERAND(DTYPE, q), OPERAND(DTYPE, k), OPERAND(DTYPE, v), __global const int *lengths, const ulong lengths_offset,
    OPERAND(TABLE_DTYPE, cosines), OPERAND(TABLE_DTYPE, sines), OPERAND(CACHE_DTYPE, keys), OPERAND(CACHE_DTYPE, values),
    RESULT(CACHE_DTYPE, stored_keys), RESULT(CACHE_DTYPE, stored_values), RESULT(DTYPE, out),
#if SOFTCAP
    const REAL softcap,
#endif
    const REAL scale, const RotaryAttentionGeometry geometry) {
    // Rotated queries, the rotated new key, and the new value.
    __local REAL rows[(ROWS + 2) * HEAD_SIZE] __attribute__((aligned(64)));
    __local REAL part_sums[PARTS * ROWS * HEAD_SIZE], part_max[PARTS * ROWS], part_total[PARTS * ROWS];
    __local REAL group_sums[ROWS * HEAD_SIZE], group_max[ROWS], group_total[ROWS];
#if !TENSOR_CORES
    __local REAL lane_sums[KEYS * ROWS * GROUP];
#endif
    START_NEXT
    const uint me = get_local_id(0), lane = me % FEATURE_LANES, key_lane = me / FEATURE_LANES;
    const uint batch = get_group_id(1) / geometry.cached, kept = get_group_id(1) % geometry.cached;
    const uint first_row = get_group_id(2) * ROWS, rank = cluster_rank();
    const int place = lengths[(long)lengths_offset + (long)batch * geometry.lengths_step];
    // The positions before the new one.
    const uint end = (uint)clamp(place, 0, (int)geometry.capacity);
#if WINDOW
    const uint first = (uint)clamp(place - (int)geometry.window + 1, 0, (int)end);
#else
    const uint first = 0;
#endif
    const uint active = clamp((end - first + STEP - 1) / STEP, 1u, (uint)CLUSTER);
    if (rank >= active) return;  // group 0 of the cluster awaits the inputs
    const uint steps = (end - first + STEP * active - 1) / (STEP * active);
    const ulong head = ((ulong)batch * geometry.cached + kept) * geometry.capacity * HEAD_SIZE;
    keys += keys_offset + head;
    values += values_offset + head;
    const uint feature = lane * WIDTH;
    const bool has_features = feature < HEAD_SIZE;
    Held held_keys[KEYS], held_values[KEYS];
#define POSITION(step, i) (first + (((step) * KEYS + (i)) * active + rank) * KEY_LANES + key_lane)
#define LOAD_STEP(step)                                                                                          \
    _Pragma("unroll") for (uint i = 0; i < KEYS; i++) {                                                          \
        const ulong from = (ulong)min(POSITION(step, i), end - 1) * HEAD_SIZE + (has_features ? feature : 0);    \
        held_keys[i] = HELD_AT(keys + from);                                                                     \
        held_values[i] = HELD_AT(values + from);                                                                 \
    }
    if (steps) { LOAD_STEP(0) }
    for (uint pair = me * LINE_PAIRS; pair < geometry.half_; pair += GROUP * LINE_PAIRS) {
        PREFETCH(cosines + (long)cosines_offset + batch * geometry.cosines_b0 + pair * geometry.cosines_column)
        PREFETCH(sines + (long)sines_offset + batch * geometry.sines_b0 + pair * geometry.sines_column)
    }
    AWAIT_INPUTS
    const bool stored = place >= 0 && place < (int)geometry.capacity;
    for (uint item = me; item < (ROWS + 2) * PAIRS; item += GROUP) {
        const uint row = item / PAIRS, pair = item % PAIRS;
        const bool is_query = row < ROWS, is_key = row == ROWS, turned = pair < geometry.half_ && (is_query || is_key);
#if INTERLEAVED
        const uint one = 2 * pair, other = one + 1;
#else
        // Pairs of features that are not rotated are neighbours.
        const bool in_halves = pair < geometry.half_;
        const uint one = in_halves ? pair : 2 * pair, other = in_halves ? pair + geometry.half_ : one + 1;
#endif
        __global const STORAGE(DTYPE) *x = v + v_offset + (batch * geometry.v_b0 + kept * geometry.v_b1);
        long column = geometry.v_column;
        if (is_query) {
            const uint shared = min(first_row + row, geometry.shared - 1);
            x = q + q_offset + (batch * geometry.q_b0 + (kept * geometry.shared + shared) * geometry.q_b1);
            column = geometry.q_column;
        } else if (is_key) {
            x = k + k_offset + (batch * geometry.k_b0 + kept * geometry.k_b1);
            column = geometry.k_column;
        }
        REAL a = LOAD(DTYPE, x, one * column), b = LOAD(DTYPE, x, other * column);
        if (turned) {
            const REAL c = LOAD(TABLE_DTYPE, cosines, (long)cosines_offset + batch * geometry.cosines_b0 + pair * geometry.cosines_column);
            const REAL s = LOAD(TABLE_DTYPE, sines, (long)sines_offset + batch * geometry.sines_b0 + pair * geometry.sines_column);
            const REAL along = a * c - b * s;
            b = b * c + a * s;
            a = along;
        }
        if (is_query) {
            ROUNDED(DTYPE, a, a)
            ROUNDED(DTYPE, b, b)
        } else {
            ROUNDED(CACHE_DTYPE, a, a)
            ROUNDED(CACHE_DTYPE, b, b)
            if (stored && rank == 0 && first_row == 0) {
                const ulong to = head + (ulong)place * HEAD_SIZE;
                __global STORAGE(CACHE_DTYPE) *cache = is_key ? stored_keys + stored_keys_offset : stored_values + stored_values_offset;
                STORE(CACHE_DTYPE, a, cache, to + one);
                STORE(CACHE_DTYPE, b, cache, to + other);
            }
        }
        rows[row * HEAD_SIZE + one] = a;
        rows[row * HEAD_SIZE + other] = b;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#define ROW_VECTOR(row) (*(__local const V *)&rows[(row) * HEAD_SIZE + (has_features ? feature : 0)])
    V queries[ROWS], acc[ROWS];
    REAL running_max[ROWS], running_sum[ROWS], new_scores[ROWS][1];
    const V new_key = ROW_VECTOR(ROWS);
#pragma unroll
    for (uint r = 0; r < ROWS; r++) {
        queries[r] = has_features ? ROW_VECTOR(r) * QUERY_SCALE : (V)(0);
        new_scores[r][0] = LANES_SUM(queries[r] * new_key);
    }
    SUM_FEATURES(new_scores, 1)
    // One row of work-items begins with the new position.
    const bool begins = stored && rank == 0 && key_lane == 0;
#pragma unroll
    for (uint r = 0; r < ROWS; r++) {
        running_max[r] = begins ? CAPPED(new_scores[r][0]) : -INFINITY;
        running_sum[r] = begins ? 1 : 0;
        acc[r] = begins ? ROW_VECTOR(ROWS + 1) : (V)(0);
    }
    for (uint step = 0; step < steps; step++) {
        REAL scores[ROWS][KEYS];
#pragma unroll
        for (uint i = 0; i < KEYS; i++) {
            const V key = WIDENED(held_keys[i]);
#pragma unroll
            for (uint r = 0; r < ROWS; r++) scores[r][i] = LANES_SUM(queries[r] * key);
        }
        SUM_FEATURES(scores, KEYS)
#pragma unroll
        for (uint r = 0; r < ROWS; r++) {
            REAL new_max = running_max[r];
#pragma unroll
            for (uint i = 0; i < KEYS; i++) {
                scores[r][i] = POSITION(step, i) < end ? CAPPED(scores[r][i]) : -INFINITY;
                new_max = fmax(new_max, scores[r][i]);
            }
            // While a lane has had no key, 0 is subtracted: 2^(-inf - 0) is 0.
            const REAL shift = new_max == -INFINITY ? 0 : new_max, rescale = fast_exp2(running_max[r] - shift);
            running_max[r] = new_max;
            running_sum[r] *= rescale;
            acc[r] *= rescale;
#pragma unroll
            for (uint i = 0; i < KEYS; i++) {
                const REAL weight = fast_exp2(scores[r][i] - shift);
                running_sum[r] += weight;
                acc[r] += weight * WIDENED(held_values[i]);
            }
        }
        if (step + 1 < steps) { LOAD_STEP(step + 1) }
    }
    REAL line[ROWS][WIDTH];
#pragma unroll
    for (uint r = 0; r < ROWS; r++) {
#if TENSOR_CORES
        // Combine the rows of work-items of a warp; each keeps a share of the features.
        REAL largest = running_max[r];
#pragma unroll
        for (uint distance = FEATURE_LANES; distance < WARP; distance *= 2)
            largest = fmax(largest, shuffle_xor(largest, distance));
        const REAL factor = FACTOR(running_max[r], largest);
        running_max[r] = largest;
        running_sum[r] *= factor;
        acc[r] *= factor;
#pragma unroll
        for (uint distance = FEATURE_LANES; distance < WARP; distance *= 2)
            running_sum[r] += shuffle_xor(running_sum[r], distance);
#endif
        *(__private V *)line[r] = acc[r];
    }
    uint kept_feature = feature;
#if TENSOR_CORES
#pragma unroll
    for (uint distance = FEATURE_LANES, half_ = WIDTH / 2; distance < WARP; distance *= 2, half_ /= 2) {
        const bool upper = me & distance;
#pragma unroll
        for (uint r = 0; r < ROWS; r++)
#pragma unroll
            for (uint i = 0; i < half_; i++) {
                const REAL given = upper ? line[r][i] : line[r][half_ + i];
                line[r][i] = (upper ? line[r][half_ + i] : line[r][i]) + shuffle_xor(given, distance);
            }
        kept_feature += upper ? half_ : 0;
    }
#endif
#pragma unroll
    for (uint r = 0; r < ROWS; r++) {
        const uint part = PART * ROWS + r;
        if (has_features)
#pragma unroll
            for (uint i = 0; i < SHARE; i++) part_sums[part * HEAD_SIZE + kept_feature + i] = line[r][i];
        if (lane == 0 && FIRST_OF_PART) {
            part_max[part] = running_max[r];
            part_total[part] = running_sum[r];
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    out += out_offset + ((ulong)(batch * geometry.cached + kept) * geometry.shared + first_row) * HEAD_SIZE;
    const uint count = min(geometry.shared - first_row, (uint)ROWS) * HEAD_SIZE;
    for (uint at = me; at < ROWS * HEAD_SIZE; at += GROUP) {
        const uint row = at / HEAD_SIZE;
        REAL largest = -INFINITY, total = 0, sum = 0;
#pragma unroll
        for (uint p = 0; p < PARTS; p++) largest = fmax(largest, part_max[p * ROWS + row]);
#pragma unroll
        for (uint p = 0; p < PARTS; p++) {
            const REAL factor = FACTOR(part_max[p * ROWS + row], largest);
            total += factor * part_total[p * ROWS + row];
            sum += factor * part_sums[p * ROWS * HEAD_SIZE + at];
        }
        if (active == 1) {
            if (at < count) STORE(DTYPE, total == 0 ? 0 : sum / total, out, at);
            continue;
        }
        group_sums[at] = sum;
        if (at % HEAD_SIZE == 0) {
            group_max[row] = largest;
            group_total[row] = total;
        }
    }
#if CLUSTER > 1
    if (active == 1) return;
    // Combine the groups of the cluster. Each takes some of the results.
    CLUSTER_EXCHANGE();
    for (uint at = rank * GROUP + me; at < count; at += active * GROUP) {
        const uint row = at / HEAD_SIZE;
        REAL largest = -INFINITY, total = 0, sum = 0;
        for (uint other = 0; other < active; other++) largest = fmax(largest, value_of_group(group_max + row, other));
        for (uint other = 0; other < active; other++) {
            const REAL factor = FACTOR(value_of_group(group_max + row, other), largest);
            total += factor * value_of_group(group_total + row, other);
            sum += factor * value_of_group(group_sums + at, other);
        }
        STORE(DTYPE, total == 0 ? 0 : sum / total, out, at);
    }
    // The local memory of a group exists until all others have read it.
    CLUSTER_BARRIER();
#endif
}
