// The online softmax of attention on matrix units: per query a running maximum and a running sum over the blocks of keys.
// Source: Milakov and Gimelshein, arXiv:1805.02867.

#ifndef POLYHAL_ATTENTION_ONLINE_SOFTMAX
#define POLYHAL_ATTENTION_ONLINE_SOFTMAX

#include "attention/mma_tile.h"

// Turns the scores of a block into weights, relative to the largest score of all blocks so far. `rescale` is the factor for
// the sums over earlier blocks; running_sum is multiplied here.
FORCE_INLINE void online_softmax(float scores[ROW_TILES][BLOCKS][SUMS], float running_max[ROW_TILES][HALVES],
                                  float running_sum[ROW_TILES][HALVES], float rescale[ROW_TILES][HALVES],
                                  const float score_scale, __local uint *scratch) {
    float new_max[ROW_TILES][HALVES];
    UNROLL for (uint t_ = 0; t_ < ROW_TILES; t_++)
        UNROLL for (uint h = 0; h < HALVES; h++) {
            new_max[t_][h] = running_max[t_][h];
            UNROLL for (uint n = 0; n < BLOCKS; n++)
                UNROLL for (uint i = 0; i < SUMS; i += 2)
                    if (HALF_OF(i) == h)
                        new_max[t_][h] = fmax(new_max[t_][h], fmax(scores[t_][n][i], scores[t_][n][i + 1]));
        }
    reduce_rows_max(new_max, scratch);
    UNROLL for (uint t_ = 0; t_ < ROW_TILES; t_++)
        UNROLL for (uint h = 0; h < HALVES; h++) {
            // While all keys so far are masked, 0 is subtracted: 2^(-inf - 0) is 0.
            const float shift = new_max[t_][h] == -INFINITY ? 0 : new_max[t_][h] * score_scale;
            rescale[t_][h] = WEIGHT(running_max[t_][h] * score_scale - shift);
            running_max[t_][h] = new_max[t_][h];
            running_sum[t_][h] *= rescale[t_][h];
            UNROLL for (uint n = 0; n < BLOCKS; n++)
                UNROLL for (uint i = 0; i < SUMS; i += 2)
                    if (HALF_OF(i) == h) {
                        scores[t_][n][i] = WEIGHT(scores[t_][n][i] * score_scale - shift);
                        scores[t_][n][i + 1] = WEIGHT(scores[t_][n][i + 1] * score_scale - shift);
                        running_sum[t_][h] += scores[t_][n][i] + scores[t_][n][i + 1];
                    }
        }
}

// Multiply accumulators by one factor per row.
#define RESCALE(acc, rescale, features)                      \
    UNROLL for (uint t_ = 0; t_ < ROW_TILES; t_++)           \
        UNROLL for (uint n_ = 0; n_ < (features) / 16; n_++) \
            UNROLL for (uint i_ = 0; i_ < SUMS; i_++) acc[t_][n_][i_] *= rescale[t_][HALF_OF(i_)]

// Scores are scaled within the exponent, unless an added mask requires scaling before.
#if MASK == 2
#define SCORE_SCALE 1
#define MASKED_SCORE(score, row, column) (VISIBLE(row, column) ? (score) * scale + MASK_BIAS(row, column) : -INFINITY)
#else
#define SCORE_SCALE (scale * SCORE_UNIT)
#define MASKED_SCORE(score, row, column) (VISIBLE(row, column) ? (score) : -INFINITY)
#endif
// Hide pairs of the block of keys that begins at `key`. PREPARE_MASK(key) comes before, where it overlaps with a product.
#define PREPARE_MASK(key) LOAD_BITS(bits, warp_row, key, t)
#if MASK == 3
#define APPLY_MASK(scores, key)                                                \
    UNROLL for (uint t_ = 0; t_ < ROW_TILES; t_++)                             \
        UNROLL for (uint n = 0; n < BLOCKS; n++)                               \
            UNROLL for (uint i = 0; i < SUMS; i++)                             \
                if (!BIT(bits, t_, n, i)) scores[t_][n][i] = -INFINITY;
#else
#define APPLY_MASK(scores, key)                                                                      \
    UNROLL for (uint t_ = 0; t_ < ROW_TILES; t_++)                                                   \
        UNROLL for (uint n = 0; n < BLOCKS; n++)                                                     \
            UNROLL for (uint i = 0; i < SUMS; i++) {                                                 \
                const uint row = warp_row + TILE_ROW(t_, i), column = (key) + TILE_COLUMN(n, i);     \
                scores[t_][n][i] = MASKED_SCORE(scores[t_][n][i], row, column);                      \
            }
#endif

// The largest score of a query, in natural units.
#define NATURAL_MAX(t, h) (running_max[t][h] == -INFINITY ? -INFINITY : running_max[t][h] * score_scale / SCORE_UNIT)
// Sum the weights over the four work-items of a row, and store the results of the warp's rows.
#define INVERSE(t, h) (running_sum[t][h] == 0 ? 0 : 1 / running_sum[t][h])
#if LENGTHS
#define STORE_ATTENTION(acc) STORE_ROWS(acc, INVERSE, out, warp_row, t, e, VALUES);
#else
#define STORE_ATTENTION(acc)                                                                                    \
    STORE_ROWS(acc, INVERSE, out, warp_row, t, e, VALUES);                                                      \
    if (WARP_LANE % 4 == 0)                                                                                     \
        UNROLL for (uint t_ = 0; t_ < ROW_TILES; t_++)                                                          \
            UNROLL for (uint h = 0; h < HALVES; h++) {                                                          \
                const uint row = warp_row + TILE_ROW(t_, 2 * h);                                                \
                if (row < t)                                                                                    \
                    STORE_LOGSUMEXP(lse + lse_offset + 2 * ((ulong)head * t + row), NATURAL_MAX(t_, h),         \
                                    running_sum[t_][h])                                                         \
            }
#endif

#endif
