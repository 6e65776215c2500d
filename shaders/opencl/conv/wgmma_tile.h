// Tiles of a convolution by wgmma: a group makes 64 * WARPGROUPS rows x WIDE columns, each warpgroup 64 rows of them in
// registers, from k-slices of DEPTH in local memory; see lib/wgmma.h and, for BF16_TERMS 3 (bf16x3), gemm/wgmma.cl.
// Copies of the next slices overlap with the multiplication of the current one, and one product stays in flight.
//
// The including kernel defines K_CONTIGUOUS, whether its operands are contiguous along k, and LINES_OF_ROWS: results are
// contiguous along rows if it is 1, else along columns. It also defines
//   LOAD_SLICE(slot)         begin to copy the next slice, zeros past the last one, to LEFT and RIGHT of a slot;
//   RECOMPUTE(row, column)   add the products of a result, one by one, to `sum`;
//   EXISTS(row, column) whether such a result exists;
//   LINE_OFFSET(line)        the offset in `to` of a vector that a work-item stores of a line, a row or column of the tile;
//   PLUS_BIAS(column) the expression added to it, such as a bias;
//   UNROLL_LINES             how far the loop over lines is unrolled.

#ifndef POLYHAL_CONV_WGMMA_TILE
#define POLYHAL_CONV_WGMMA_TILE

#ifndef DTYPE
#define DTYPE bfloat16
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE float32
#endif
#ifndef BF16_TERMS
#define BF16_TERMS 1
#endif
#ifndef WARPGROUPS
#define WARPGROUPS 1
#endif
#ifndef STAGES
#define STAGES 3
#endif
#ifndef DEPTH
#define DEPTH 32
#endif
#ifndef SPLIT
#define SPLIT 0
#endif
#ifndef BIAS
#define BIAS 0
#endif
// Contiguous results that are stored at once, to addresses aligned to them.
#ifndef OUT_LANES
#define OUT_LANES 1
#endif
#include "lib/wgmma.h"
#define ITEMS (WARPGROUP * WARPGROUPS)
#include "lib/staging.h"
#define WIDTH OUT_LANES
#define ALIGNED (OUT_LANES > 1)
#include "lib/vectors.h"

#define ROWS (64 * WARPGROUPS)
#define LEFT_WORDS (ROWS * DEPTH / 2)
#define RIGHT_WORDS (WIDE * DEPTH / 2)
#define SLOT_WORDS (BF16_TERMS * (LEFT_WORDS + RIGHT_WORDS))
#define LEFT(slot, term) (slices + (slot)*SLOT_WORDS + (term)*LEFT_WORDS)
#define RIGHT(slot, term) (slices + (slot)*SLOT_WORDS + BF16_TERMS * LEFT_WORDS + (term)*RIGHT_WORDS)
// Products that may be in flight when the next slice's begin, and slices that are copied ahead.
#define IN_FLIGHT (BF16_TERMS == 1)
#define AHEAD (STAGES - 1 - IN_FLIGHT)

// An element: the sum of its terms, at distance `term_size` elements.
static inline float sum_of_terms(__global const STORAGE(DTYPE) *x, const ulong term_size, const long at) {
    float sum = 0;
    for (int term = BF16_TERMS - 1; term >= 0; term--) sum += LOAD(DTYPE, x + term * term_size, at);
    return sum;
}

#define MULTIPLY_TERMS(acc, add, x, y)                                                                         \
    MULTIPLY_WIDE(acc, add, LEFT(now, x) + warpgroup * NEXT_64(K_CONTIGUOUS), K_CONTIGUOUS, RIGHT(now, y), \
                  K_CONTIGUOUS)
#if BF16_TERMS == 1
#define MULTIPLY MULTIPLY_TERMS(acc, 1, 0, 0)
#define ADD_PRODUCT WGMMA_WAIT(1);
#else
#define MULTIPLY                     \
    float product[SUMS];             \
    MULTIPLY_TERMS(product, 0, 2, 0) \
    MULTIPLY_TERMS(product, 1, 0, 2) \
    MULTIPLY_TERMS(product, 1, 1, 1) \
    MULTIPLY_TERMS(product, 1, 1, 0) \
    MULTIPLY_TERMS(product, 1, 0, 1) \
    MULTIPLY_TERMS(product, 1, 0, 0)
#define ADD_PRODUCT      \
    WGMMA_WAIT(0);       \
    WGMMA_READ(product); \
    _Pragma("unroll") for (uint i = 0; i < SUMS; i++) acc[i] += product[i];
#endif

// Accumulate the products of all slices of the k range `start` to `end` in `acc`. After the barrier no warpgroup has
// more than IN_FLIGHT unfinished products, so the slice before their slices is free.
#define ACCUMULATE                                                                  \
    float acc[SUMS];                                                                \
    _Pragma("unroll") for (uint i = 0; i < SUMS; i++) acc[i] = 0;                   \
    _Pragma("unroll") for (uint slot = 0; slot < AHEAD; slot++) {                   \
        LOAD_SLICE(slot)                                                            \
        COPIES_COMMIT();                                                            \
    }                                                                               \
    uint now = 0;                                                                   \
    for (uint from = start; from < end; from += DEPTH) {                            \
        COPIES_WAIT(AHEAD - 1);                                                     \
        WGMMA_SEE_COPIES();                                                         \
        barrier(CLK_LOCAL_MEM_FENCE);                                               \
        WGMMA_BEGIN();                                                              \
        MULTIPLY                                                                    \
        WGMMA_COMMIT();                                                             \
        const uint free_slot = now > IN_FLIGHT ? now - 1 - IN_FLIGHT : now + AHEAD; \
        LOAD_SLICE(free_slot)                                                       \
        COPIES_COMMIT();                                                            \
        ADD_PRODUCT                                                                 \
        now = now + 1 == STAGES ? 0 : now + 1;                                      \
    }                                                                               \
    WGMMA_WAIT(0);                                                                  \
    WGMMA_READ(acc);

// The results go through local memory, to which no copy is in flight any more, so that each work-item can store
// vectors: the same positions of several lines. The pitch avoids bank conflicts.
#define LINE_LENGTH (LINES_OF_ROWS ? ROWS : WIDE)
#define LINE_COUNT (LINES_OF_ROWS ? WIDE : ROWS)
#define EXCHANGE_PITCH (LINE_LENGTH + (LINES_OF_ROWS ? 4 : 8))
#define LINE_VECTORS (LINE_LENGTH / OUT_LANES)
#define FIRST_LINE (me / LINE_VECTORS)
#define LINE_POSITION (me % LINE_VECTORS * OUT_LANES)
#define EXCHANGE_ACC                                                                                      \
    __local float *exchanged = (__local float *)slices;                                                   \
    COPIES_WAIT(0);                                                                                       \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                         \
    _Pragma("unroll") for (uint i = 0; i < SUMS; i++) {                                                   \
        const uint row = warpgroup * 64 + SUM_ROW(i), column = SUM_COLUMN(i);                             \
        exchanged[LINES_OF_ROWS ? column * EXCHANGE_PITCH + row : row * EXCHANGE_PITCH + column] = acc[i]; \
    }                                                                                                     \
    barrier(CLK_LOCAL_MEM_FENCE);
#define ROW_OF(line, position) (first_row + (LINES_OF_ROWS ? (position) : (line)))
#define COLUMN_OF(line, position) (first_column + (LINES_OF_ROWS ? (line) : (position)))

#if SPLIT
#define TO_DTYPE float32
#else
#define TO_DTYPE OUT_DTYPE
#endif
// Store the exchanged results to `to`, vector by vector. An infinite element is not the sum of its terms, so results that are
// not finite are recomputed.
#define STORE_ACC                                                                                                \
    UNROLL_LINES for (uint line = FIRST_LINE; line < LINE_COUNT; line += ITEMS / LINE_VECTORS) {                 \
        if (!EXISTS(ROW_OF(line, LINE_POSITION), COLUMN_OF(line, LINE_POSITION))) continue;                      \
        __local float *vector = exchanged + line * EXCHANGE_PITCH + LINE_POSITION;                               \
        int finite = 1;                                                                                          \
        _Pragma("unroll") for (uint e = 0; e < OUT_LANES; e++) finite &= IS_FINITE(float, vector[e]);            \
        if (BF16_TERMS > 1 && !finite)                                                                           \
            _Pragma("unroll 1") for (uint e = 0; e < OUT_LANES; e++) {                                           \
                const uint row = ROW_OF(line, LINE_POSITION + e), column = COLUMN_OF(line, LINE_POSITION + e);   \
                if (IS_FINITE(float, vector[e])) continue;                                                       \
                float sum = 0;                                                                                   \
                RECOMPUTE(row, column)                                                                           \
                vector[e] = sum;                                                                                 \
            }                                                                                                    \
        const VEC(float) result = *(__local const VEC(float) *)vector PLUS_BIAS(COLUMN_OF(line, LINE_POSITION)); \
        STOREV(TO_DTYPE, result, to + LINE_OFFSET(line));                                                        \
    }

#endif
