// The tiles of a convolution by wgmma: a group makes 64 * WARPGROUPS rows x WIDE columns of sums, each team of four warps 64
// rows of them in registers, from strips of DEPTH terms in local memory; see lib/wgmma.h and, for PARTS 3, gemm/wgmma.cl.
// While the units multiply one strip the next ones are copied, and the units keep one product waiting.
//
// The kernel that includes this says ALONG, whether the terms of its operands lie side by side; if so the rows of its
// results do, or else their columns. It has
//   BRING(slot)          to begin copying the next strip, zeros past the last, into LEFT and RIGHT of a slot;
//   AGAIN(row, column)   to add the products of a result, one by one, to `sum`;
//   EXISTS(row, column)  whether there is such a result;
//   SUM_AT(line)         where the vector goes that a work-item makes of that line, a row or column of the tile;
//   PLUS_BIAS(column)    what else is added;
//   EACH_LINE            how far the loop over lines is unrolled.

#ifndef POLYHAL_CONV_TEAMS
#define POLYHAL_CONV_TEAMS

#ifndef DTYPE
#define DTYPE bfloat16
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE float32
#endif
#ifndef PARTS
#define PARTS 1
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
// Neighbouring results that are stored at once, to addresses that are aligned to them.
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
#define SLOT_WORDS (PARTS * (LEFT_WORDS + RIGHT_WORDS))
#define LEFT(slot, part) (strips + (slot)*SLOT_WORDS + (part)*LEFT_WORDS)
#define RIGHT(slot, part) (strips + (slot)*SLOT_WORDS + PARTS * LEFT_WORDS + (part)*RIGHT_WORDS)
// Products that may still be under way when the next strip's begin, and strips that are there or copied besides theirs.
#define WAITING (PARTS == 1)
#define EARLY (STAGES - 1 - WAITING)

// An element, of all its parts.
inline float whole(__global const STORAGE(DTYPE) *x, const ulong part_size, const long at) {
    float sum = 0;
    for (int part = PARTS - 1; part >= 0; part--) sum += LOAD(DTYPE, x + part * part_size, at);
    return sum;
}

#define MULTIPLY_PARTS(sums, add, x, y) \
    MULTIPLY_WIDE(sums, add, LEFT(now, x) + team * NEXT_PLACES(ALONG), ALONG, RIGHT(now, y), ALONG)
#if PARTS == 1
#define MULTIPLY MULTIPLY_PARTS(sums, 1, 0, 0)
#define ADD_PRODUCT WGMMA_WAIT(1);
#else
#define MULTIPLY                     \
    float product[SUMS];             \
    MULTIPLY_PARTS(product, 0, 2, 0) \
    MULTIPLY_PARTS(product, 1, 0, 2) \
    MULTIPLY_PARTS(product, 1, 1, 1) \
    MULTIPLY_PARTS(product, 1, 1, 0) \
    MULTIPLY_PARTS(product, 1, 0, 1) \
    MULTIPLY_PARTS(product, 1, 0, 0)
#define ADD_PRODUCT      \
    WGMMA_WAIT(0);       \
    WGMMA_READ(product); \
    _Pragma("unroll") for (uint i = 0; i < SUMS; i++) sums[i] += product[i];
#endif

// The products of all strips from term `start` to `end`, in `sums`. Past the barrier no team is behind with more than
// WAITING products: the strip before those is free.
#define ADD_STRIPS                                                           \
    float sums[SUMS];                                                        \
    _Pragma("unroll") for (uint i = 0; i < SUMS; i++) sums[i] = 0;           \
    _Pragma("unroll") for (uint slot = 0; slot < EARLY; slot++) {            \
        BRING(slot)                                                          \
        COPIES_COMMIT();                                                     \
    }                                                                        \
    uint now = 0;                                                            \
    for (uint from = start; from < end; from += DEPTH) {                     \
        COPIES_WAIT(EARLY - 1);                                              \
        WGMMA_SEE_COPIES();                                                  \
        barrier(CLK_LOCAL_MEM_FENCE);                                        \
        WGMMA_BEGIN();                                                       \
        MULTIPLY                                                             \
        WGMMA_COMMIT();                                                      \
        const uint vacant = now > WAITING ? now - 1 - WAITING : now + EARLY; \
        BRING(vacant)                                                        \
        COPIES_COMMIT();                                                     \
        ADD_PRODUCT                                                          \
        now = now + 1 == STAGES ? 0 : now + 1;                               \
    }                                                                        \
    WGMMA_WAIT(0);                                                           \
    WGMMA_READ(sums);

// The sums pass through local memory, where nothing is copied any more. From there each work-item takes vectors of
// lines, the same places of each. The pitch keeps banks apart.
#define LINE_LENGTH (ALONG ? ROWS : WIDE)
#define LINE_COUNT (ALONG ? WIDE : ROWS)
#define SUM_PITCH (LINE_LENGTH + (ALONG ? 4 : 8))
#define VECTORS (LINE_LENGTH / OUT_LANES)
#define MY_LINE (me / VECTORS)
#define MY_PLACE (me % VECTORS * OUT_LANES)
#define EXCHANGE_SUMS                                                                     \
    __local float *exchanged = (__local float *)strips;                                   \
    COPIES_WAIT(0);                                                                       \
    barrier(CLK_LOCAL_MEM_FENCE);                                                         \
    _Pragma("unroll") for (uint i = 0; i < SUMS; i++) {                                   \
        const uint row = team * 64 + SUM_ROW(i), column = SUM_COLUMN(i);                  \
        exchanged[ALONG ? column * SUM_PITCH + row : row * SUM_PITCH + column] = sums[i]; \
    }                                                                                     \
    barrier(CLK_LOCAL_MEM_FENCE);
#define ROW_OF(line, place) (first_row + (ALONG ? (place) : (line)))
#define COLUMN_OF(line, place) (first_column + (ALONG ? (line) : (place)))

#if SPLIT
#define TO_DTYPE float32
#else
#define TO_DTYPE OUT_DTYPE
#endif
// Stores the exchanged sums, vector by vector, to `to`. Infinity is not the sum of its parts' products: what is not
// finite is added up again.
#define PUT_SUMS                                                                                         \
    EACH_LINE for (uint line = MY_LINE; line < LINE_COUNT; line += ITEMS / VECTORS) {                    \
        if (!EXISTS(ROW_OF(line, MY_PLACE), COLUMN_OF(line, MY_PLACE))) continue;                        \
        __local float *mine = exchanged + line * SUM_PITCH + MY_PLACE;                                   \
        int finite = 1;                                                                                  \
        _Pragma("unroll") for (uint e = 0; e < OUT_LANES; e++) finite &= isfinite(mine[e]);              \
        if (PARTS > 1 && !finite)                                                                        \
            _Pragma("unroll 1") for (uint e = 0; e < OUT_LANES; e++) {                                   \
                const uint row = ROW_OF(line, MY_PLACE + e), column = COLUMN_OF(line, MY_PLACE + e);     \
                if (isfinite(mine[e])) continue;                                                         \
                float sum = 0;                                                                           \
                AGAIN(row, column)                                                                       \
                mine[e] = sum;                                                                           \
            }                                                                                            \
        const VEC(float) found = *(__local const VEC(float) *)mine PLUS_BIAS(COLUMN_OF(line, MY_PLACE)); \
        STOREV(TO_DTYPE, found, to + SUM_AT(line));                                                      \
    }

#endif
