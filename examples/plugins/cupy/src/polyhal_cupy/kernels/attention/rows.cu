// The rows of attention between its matrix products: scores become probabilities in place, and in the gradient the
// slopes of the probabilities become those of the scores.
//
// Scores are (batch, queries, keys), contiguous; row `number` belongs to query `number % queries`. With CAUSAL, query
// t sees the keys up to t + keys - queries, and of a row only the keys that the last query of its `band` sees are read
// and written. Where the products that follow take half precision, probabilities and slopes are handed on as sums of
// two numbers, high and low, that together have the precision of float32 (SPLIT).

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
#define MASK_PARAMETER const MASK_DTYPE *mask,
#else
#define MASK_PARAMETER
#endif
#define GEOMETRY \
    const uint64 rows, const uint32 keys, const uint32 queries, const uint32 band, const uint32 batch1, \
        const uint32 batch2, const int64 mask0, const int64 mask1, const int64 mask2, const int64 mask_row, \
        const int64 mask_column

// This thread's row, its query, how many keys that sees and how many its band sees; then the row of the mask.
#define LOCATE \
    const uint64 number = row_number(); \
    if (number >= rows) return; \
    const uint32 query = number % queries; \
    const int64 most = (int64)query + keys - queries + 1; \
    const uint32 seen = !CAUSAL || most > keys ? keys : most < 0 ? 0 : (uint32)most; \
    const int64 last = (int64)(query / band + 1) * band + keys - queries; \
    const uint32 reach = !CAUSAL || last > keys ? keys : (uint32)last;
#if MASK
#define LOCATE_MASK \
    const int64 batch = number / queries; \
    mask += \
        batch / batch2 / batch1 * mask0 + batch / batch2 % batch1 * mask1 + batch % batch2 * mask2 + query * mask_row;
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
#define HAND_ON(name, to, f) \
    write_row(name##_high + number * keys, 1, reach, f); \
    write_row(name##_low + number * keys, 1, reach, [&](int slot, uint32 i) { \
        const real value = f(slot, i); \
        return value - (real)widen(narrow<SPLIT_DTYPE>(value)); \
    });
#else
#define SPLIT_PARAMETERS(name)
#define HAND_ON(name, to, f) write_row(to, 1, reach, f);
#endif

KERNEL attention_softmax(real *scores, MASK_PARAMETER real *lse, SPLIT_PARAMETERS(p) GEOMETRY) {
    LOCATE
    LOCATE_MASK
    real *at = scores + number * keys;
    const Row<real> row(at, 1, seen);
    const auto score = [&](int slot, uint32 i) { return i < seen ? MASKED(row(slot, i), i) : -INFINITY; };
    real top = -INFINITY, sum = 0;
    for_row(seen, [&](int slot, uint32 i) { top = fmax(top, score(slot, i)); });
    top = group_max(top);
    // A row that sees nothing has no largest element to subtract, and gives zeros.
    if (isinf(top)) top = 0;
    for_row(seen, [&](int slot, uint32 i) { sum += exp(score(slot, i) - top); });
    sum = group_sum(sum);
    if (lane() == 0) lse[number] = log(sum) + top;
    const real scale = sum == 0 ? 0 : 1 / sum;
    const auto probability = [&](int slot, uint32 i) { return exp(score(slot, i) - top) * scale; };
    HAND_ON(p, at, probability)
}

// With p the probabilities, each row of slopes becomes p * (slopes - sum(p * slopes)).
KERNEL attention_softmax_grad(real *scores, real *slopes, MASK_PARAMETER const real *lse,
                              SPLIT_PARAMETERS(p) SPLIT_PARAMETERS(d) GEOMETRY) {
    LOCATE
    LOCATE_MASK
    real *p_at = scores + number * keys, *d_at = slopes + number * keys;
    const Row<real> row(p_at, 1, seen), slope(d_at, 1, seen);
    const real total = lse[number];
    const bool blind = total == -INFINITY;
    const auto probability = [&](int slot, uint32 i) {
        return blind || i >= seen ? (real)0 : exp(MASKED(row(slot, i), i) - total);
    };
    real sum = 0;
    for_row(seen, [&](int slot, uint32 i) { sum += i < seen ? probability(slot, i) * slope(slot, i) : 0; });
    sum = group_sum(sum);
    const auto score_slope = [&](int slot, uint32 i) {
        return i < seen ? probability(slot, i) * (slope(slot, i) - sum) : (real)0;
    };
    // The slopes first: they are made from the scores that the probabilities replace.
    HAND_ON(d, d_at, score_slope)
    HAND_ON(p, p_at, probability)
}
