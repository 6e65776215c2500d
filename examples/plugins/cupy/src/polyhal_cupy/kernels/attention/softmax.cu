// The row operations of attention between its matrix products: softmax of masked scores, in place, and in the backward
// pass the gradients of the scores from the gradients of the probabilities.
//
// Scores are (batch, queries, keys), contiguous; row `row_index` belongs to query `row_index % queries`. With CAUSAL,
// query t attends to the keys up to t + keys - queries; only the keys visible to the band_limit query of its `band` are
// read and written. If the following products use half precision, results are stored as sums of two terms, high and
// low, with the precision of float32 (SPLIT).

#ifndef CAUSAL
#define CAUSAL 1
#endif
// 0: none; 1: keep where true; 2: added.
#ifndef MASK
#define MASK 0
#endif
#ifndef MASK_DTYPE
#define MASK_DTYPE float32
#endif
#ifndef SPLIT
#define SPLIT 0
#endif
#ifndef SPLIT_DTYPE
#define SPLIT_DTYPE bfloat16
#endif
#include "lib/rows.cuh"

#if MASK
#define MASK_PARAMETER const MASK_DTYPE *mask, const int64 mask_offset,
#else
#define MASK_PARAMETER
#endif
#define GEOMETRY \
    const uint64 rows, const uint32 keys, const uint32 queries, const uint32 band, const uint32 batch1, \
        const uint32 batch2, const int64 mask0, const int64 mask1, const int64 mask2, const int64 mask_row, \
        const int64 mask_column

// This thread's row and query, the number of keys visible to the query and to its band, and the row of the mask.
#define LOCATE \
    const uint64 row_index = row_id(); \
    if (row_index >= rows) return; \
    const uint32 query = row_index % queries; \
    const int64 limit = (int64)query + keys - queries + 1; \
    const uint32 visible = !CAUSAL || limit > keys ? keys : limit < 0 ? 0 : (uint32)limit; \
    const int64 band_limit = (int64)(query / band + 1) * band + keys - queries; \
    const uint32 band_keys = !CAUSAL || band_limit > keys ? keys : (uint32)band_limit;
#if MASK
#define LOCATE_MASK \
    const int64 batch = row_index / queries; \
    mask += mask_offset + batch / batch2 / batch1 * mask0 + batch / batch2 % batch1 * mask1 + batch % batch2 * mask2 + \
            query * mask_row;
#else
#define LOCATE_MASK
#endif
#if MASK == 1
#define MASKED(score, i) (widen(mask[(i) * mask_column]) ? (score) : -INFINITY)
#elif MASK == 2
#define MASKED(score, i) ((score) + (real)widen(mask[(i) * mask_column]))
#else
#define MASKED(score, i) (score)
#endif

#if SPLIT
#define SPLIT_PARAMETERS(name) SPLIT_DTYPE *name##_high, SPLIT_DTYPE *name##_low,
#define STORE_TERMS(name, to, f) \
    write_row(name##_high + row_index * keys, 1, band_keys, f); \
    write_row(name##_low + row_index * keys, 1, band_keys, [&](int slot, uint32 i) { \
        const real value = f(slot, i); \
        return value - (real)widen(narrow<SPLIT_DTYPE>(value)); \
    });
#else
#define SPLIT_PARAMETERS(name)
#define STORE_TERMS(name, to, f) write_row(to, 1, band_keys, f);
#endif

KERNEL attention_softmax(real *scores, MASK_PARAMETER real *lse, const int64 lse_offset,
                         SPLIT_PARAMETERS(p) GEOMETRY) {
    LOCATE
    LOCATE_MASK
    real *scores_row = scores + row_index * keys;
    const Row<real> row(scores_row, 1, visible);
    const auto score = [&](int slot, uint32 i) { return i < visible ? MASKED(row(slot, i), i) : -INFINITY; };
    real maximum = -INFINITY, sum = 0;
    for_row(visible, [&](int slot, uint32 i) { maximum = fmax(maximum, score(slot, i)); });
    maximum = group_max(maximum);
    // A fully masked row has no maximum to subtract, and results in zeros.
    if (maximum == -INFINITY) maximum = 0;
    for_row(visible, [&](int slot, uint32 i) { sum += exp(score(slot, i) - maximum); });
    sum = group_sum(sum);
    // Stored as two parts: their sum would lose the logarithm if a mask makes the scores large.
    if (lane_id() == 0) {
        real *parts = lse + lse_offset + 2 * (int64)row_index;
        parts[0] = maximum;
        parts[1] = sum == 0 ? 0 : log(sum);
    }
    const real scale = sum == 0 ? 0 : 1 / sum;
    const auto probability = [&](int slot, uint32 i) { return exp(score(slot, i) - maximum) * scale; };
    STORE_TERMS(p, scores_row, probability)
}

// With p the probabilities, each row of gradients dp becomes p * (dp - sum(p * dp)).
KERNEL attention_softmax_grad(real *scores, real *gradients, MASK_PARAMETER const real *lse,
                              const int64 lse_offset, SPLIT_PARAMETERS(p) SPLIT_PARAMETERS(d) GEOMETRY) {
    LOCATE
    LOCATE_MASK
    real *p_at = scores + row_index * keys, *d_at = gradients + row_index * keys;
    const Row<real> row(p_at, 1, visible), gradient(d_at, 1, visible);
    const real *parts = lse + lse_offset + 2 * (int64)row_index;
    const real maximum = parts[0], logarithm = parts[1];
    const auto probability = [&](int slot, uint32 i) {
        return i >= visible ? (real)0 : exp(MASKED(row(slot, i), i) - maximum - logarithm);
    };
    real sum = 0;
    for_row(visible, [&](int slot, uint32 i) { sum += i < visible ? probability(slot, i) * gradient(slot, i) : 0; });
    sum = group_sum(sum);
    const auto score_gradient = [&](int slot, uint32 i) {
        return i < visible ? probability(slot, i) * (gradient(slot, i) - sum) : (real)0;
    };
    // Gradients first: they depend on the scores, which the probabilities replace.
    STORE_TERMS(d, d_at, score_gradient)
    STORE_TERMS(p, p_at, probability)
}
