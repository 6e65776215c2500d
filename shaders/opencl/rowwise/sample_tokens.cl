// Token ids drawn from rows of logits: temperature, top-k, top-p, min-p and typical sampling. A group takes one row. Nothing is
// sorted: each filter is a threshold, found by bisection over the bits of the weights, whose order as integers is their order as
// numbers. Weights are kept in `weights` (rows, size).

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef GROUP
#define GROUP 1
#endif
#define LANES GROUP
#include "lib/dtypes.h"
#include "lib/group_reduce.h"
#include "lib/philox.h"

// Bits of 1.0, the largest weight, and of infinity.
#define ONE_BITS 0x3f800000u
#define INFINITE_BITS 0x7f800000u

#if GROUP == 1
#define LANE 0u
#else
#define LANE ((uint)get_local_id(0))
#endif
#define FOR_ELEMENTS for (uint i = LANE; i < size; i += GROUP)
// The sum over the group of `term` over the elements for which `condition` holds.
#define GROUP_TOTAL(result, condition, term) \
    {                                        \
        float sum_ = 0;                      \
        FOR_ELEMENTS if (condition) sum_ += term; \
        GROUP_REDUCE(sum_, PLUS)             \
        result = sum_;                       \
    }
#define PLUS(a, b) ((a) + (b))
#define SMALLER(a, b) fmin(a, b)
#define GREATER(a, b) fmax(a, b)

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void rowwise_sample_tokens(
    __global const STORAGE(DTYPE) *logits, const ulong logits_offset, __global const float *temperature,
    const ulong temperature_offset, __global const int *top_k, const ulong top_k_offset, __global const float *top_p,
    const ulong top_p_offset, __global const float *min_p, const ulong min_p_offset, __global const float *typical_p,
    const ulong typical_p_offset, __global const int *seeds, const ulong seeds_offset, __global const int *counters,
    const ulong counters_offset, __global int *out, const ulong out_offset, __global float *weights, const long pitch,
    const uint size) {
    GROUP_SCRATCH(float)
#if GROUP > 1
    __local float parts[GROUP];
    __local uint chosen;
#endif
    const uint row = get_group_id(0);
    const ulong at = logits_offset + (ulong)((long)row * pitch);
    weights += (ulong)row * size;
    // Every row reaches all barriers; filters that are off are loops without iterations. Conditions around barriers confuse some
    // compilers.
    const float temperature_of_row = temperature[temperature_offset + row];
    const bool greedy = temperature_of_row == 0;
    const float heat = greedy ? 1 : temperature_of_row;
    float top = -INFINITY;
    FOR_ELEMENTS top = fmax(top, LOAD(DTYPE, logits, at + i));
    GROUP_REDUCE(top, GREATER)
    float first = size - 1;
    FOR_ELEMENTS if (LOAD(DTYPE, logits, at + i) == top) first = fmin(first, (float)i);
    GROUP_REDUCE(first, SMALLER)
    FOR_ELEMENTS weights[i] = exp((LOAD(DTYPE, logits, at + i) - top) / heat);
    uint threshold = 0;
    const int k = top_k[top_k_offset + row];
    uint limit = k > 0 && k < (int)size && !greedy ? ONE_BITS + 1 : 0;
    while (limit - threshold > 1 && limit) {
        const uint middle = threshold + (limit - threshold) / 2;
        float count;
        GROUP_TOTAL(count, as_uint(weights[i]) >= middle, 1)
        const bool enough = count >= k;
        threshold = enough ? middle : threshold;
        limit = enough ? limit : middle;
    }
    float total;
    GROUP_TOTAL(total, as_uint(weights[i]) >= threshold, weights[i])
    const float p = top_p[top_p_offset + row], wanted_mass = p * total;
    limit = p < 1 && !greedy ? ONE_BITS + 1 : 0;
    while (limit - threshold > 1 && limit) {
        const uint middle = threshold + (limit - threshold) / 2;
        float sum;
        GROUP_TOTAL(sum, as_uint(weights[i]) >= middle, weights[i])
        const bool enough = sum >= wanted_mass;
        threshold = enough ? middle : threshold;
        limit = enough ? limit : middle;
    }
    threshold = max(threshold, as_uint(fmax(min_p[min_p_offset + row], 0.0f)));
    // Information of a token relative to its mean: the logarithm of a weight is its shifted logit.
#define SHIFTED(i) ((LOAD(DTYPE, logits, at + (i)) - top) / heat)
#define KEPT(i) (as_uint(weights[i]) >= threshold && weights[i] > 0)
#define DISTANCE(i) as_uint(fabs(mean - SHIFTED(i)))
    float mean;
    GROUP_TOTAL(total, KEPT(i), weights[i])
    GROUP_TOTAL(mean, KEPT(i), weights[i] * SHIFTED(i))
    mean /= total;
    const float typical = typical_p[typical_p_offset + row], wanted = typical * total;
    uint least = 0;
    limit = typical < 1 && !greedy ? INFINITE_BITS : 0;
    while (least < limit) {
        const uint middle = least + (limit - least) / 2;
        float sum;
        GROUP_TOTAL(sum, KEPT(i) && DISTANCE(i) <= middle, weights[i])
        const bool enough = sum >= wanted;
        limit = enough ? middle : limit;
        least = enough ? least : middle + 1;
    }
    FOR_ELEMENTS if (!(KEPT(i) && (typical >= 1 || DISTANCE(i) <= least))) weights[i] = 0;
    // Each work-item sums consecutive weights; the one in whose part the drawn number falls walks it.
    uint words[4];
    const ulong key = seeds_offset + 2 * (ulong)row;
    philox((uint)counters[counters_offset + row], (ulong)(uint)seeds[key] | (ulong)(uint)seeds[key + 1] << 32, words);
    const float fraction = (words[0] >> 8) * 0x1p-24f;
    const uint share = (size + GROUP - 1) / GROUP;
    const uint begin = min(LANE * share, size), end = min(begin + share, size);
#if GROUP > 1
    barrier(CLK_GLOBAL_MEM_FENCE);
#endif
    float part = 0;
    for (uint i = begin; i < end; i++) part += weights[i];
#if GROUP > 1
    parts[LANE] = part;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (LANE == 0) {
        float sum = 0;
        uint last = 0;
        for (uint lane = 0; lane < GROUP; lane++) {
            if (parts[lane] > 0) last = lane;
            sum += parts[lane];
        }
        const float target = fraction * sum;
        float before = 0;
        uint lane = 0;
        while (lane < last && before + parts[lane] <= target) before += parts[lane++];
        chosen = lane;
        parts[0] = target - before;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const float target = parts[0];
#else
    const float target = fraction * part;
#endif
    float sum = 0;
    uint token = begin;
    for (uint i = begin; i < end && sum <= target; i++) {
        sum += weights[i];
        token = weights[i] > 0 ? i : token;
    }
#if GROUP > 1
    if (LANE == chosen)
#endif
    out[out_offset + row] = greedy ? (uint)first : token;
}
