// out = a x b, finished by an epilogue, for float16 and bfloat16 on Hopper's tensor cores, by wgmma: a group makes a
// tile of 64 * TEAMS x WIDE results, each team of four warps 64 rows of it in registers, from strips of DEPTH terms
// in local memory, in the order that wgmma.h asks for. While the units multiply one strip, the next ones are copied;
// they keep one product waiting, so that they never run dry. With TENSOR_CORES 0 it is plain C of the same shape.
//
// With PARTS 3 each operand comes as three bfloat16 numbers, `a_part` and `b_part` apart, that add up to a float32
// (see matmul_split.cl), and six of their nine products give float32's accuracy, the others being too small to count.
// The units cut off what does not fit while they add, always towards zero; so that this does not pile up, the product
// of a strip starts at zero and is added to the sums by an ordinary, rounding addition.
//
// With SPLIT the groups of a tile share out the terms and write their sums to `partial` (split, batch, m, n), which
// matmul_sum.cl adds up in a fixed order.

#ifndef DTYPE
#define DTYPE float16
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#ifndef PARTS
#define PARTS 1
#endif
#ifndef TEAMS
#define TEAMS 1
#endif
#ifndef STAGES
#define STAGES 3
#endif
// Whether an operand's terms are contiguous, or else its places (rows of a, columns of b), and how many bytes one
// copy moves.
#ifndef A_ALONG
#define A_ALONG 1
#endif
#ifndef B_ALONG
#define B_ALONG 0
#endif
#ifndef A_BYTES
#define A_BYTES 2
#endif
#ifndef B_BYTES
#define B_BYTES 2
#endif
// Whether two neighbouring results may be stored at once.
#ifndef PAIRS
#define PAIRS 0
#endif
#ifndef SPLIT
#define SPLIT 0
#endif
#define DEPTH 64
#include "wgmma.h"
#include "tile_order.h"
#define ITEMS (TEAM * TEAMS)
#include "staging.h"
#include "pairs.h"

#define ROWS (64 * TEAMS)
#define LEFT_WORDS (ROWS * LINE_WORDS)
#define RIGHT_WORDS (WIDE * LINE_WORDS)
#define WORDS (PARTS * (LEFT_WORDS + RIGHT_WORDS))
// Products that may still be under way when the next strip's begin, and strips that are there or copied besides theirs.
#define WAITING (PARTS == 1)
#define AHEAD (STAGES - 1 - WAITING)

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void matmul_wgmma(
    __global const STORAGE(DTYPE) *a, const ulong a_offset, __global const STORAGE(DTYPE) *b, const ulong b_offset,
    EPILOGUE_PARAMETERS
#if SPLIT
    __global float *partial,
#else
    __global STORAGE(OUT_DTYPE) *out, const ulong out_offset,
#endif
    const uint m, const uint n, const uint k, const uint terms, const long a_row, const long a_column, const long b_row,
    const long b_column, const uint batch1, const uint batch2, const long a_batch0, const long a_batch1,
    const long a_batch2, const long b_batch0, const long b_batch1, const long b_batch2, const long a_part,
    const long b_part) {
    __local uint strips[STAGES * WORDS] __attribute__((aligned(1024)));
    const uint2 tile = place_of_tile(get_group_id(0), (m + ROWS - 1) / ROWS, (n + WIDE - 1) / WIDE);
    const uint first_row = tile.x * ROWS, first_column = tile.y * WIDE;
    const uint batch = get_group_id(2);
    const uint i2 = batch % batch2, i1 = batch / batch2 % batch1, i0 = batch / batch2 / batch1;
    a += a_offset + (long)i0 * a_batch0 + (long)i1 * a_batch1 + (long)i2 * a_batch2;
    b += b_offset + (long)i0 * b_batch0 + (long)i1 * b_batch1 + (long)i2 * b_batch2;
    const uint start = get_group_id(1) * terms;
    const uint end = min(start + terms, k);
    const uint team_row = get_local_id(0) / TEAM * 64;

#define STAGE(number, from)                                                                                       \
    _Pragma("unroll") for (uint part = 0; part < PARTS; part++) {                                                 \
        stage(LEFT(number, part), a + part * a_part, a_row, a_column, first_row, m, from, end, A_ALONG, ROWS,     \
              A_BYTES, 0, 1);                                                                                     \
        stage(RIGHT(number, part), b + part * b_part, b_column, b_row, first_column, n, from, end, B_ALONG, WIDE, \
              B_BYTES, 0, 1);                                                                                     \
    }
#define LEFT(number, part) (strips + (number) * WORDS + (part) * LEFT_WORDS)
#define RIGHT(number, part) (strips + (number) * WORDS + PARTS * LEFT_WORDS + (part) * RIGHT_WORDS)
#define MULTIPLY_PARTS(to, add, x, y)                                                                         \
    MULTIPLY_WIDE(to, add, LEFT(now, x) + (A_ALONG ? team_row : team_row / LINE * DEPTH) * LINE_WORDS, A_ALONG, \
                  RIGHT(now, y), B_ALONG)

    float sums[SUMS];
#pragma unroll
    for (uint i = 0; i < SUMS; i++) sums[i] = 0;

#pragma unroll
    for (uint s = 0; s < AHEAD; s++) {
        if (start + s * DEPTH < end) {
            STAGE(s, start + s * DEPTH)
        }
        COPIES_COMMIT();
    }
    uint now = 0;
    for (uint from = start; from < end; from += DEPTH) {
        COPIES_WAIT(AHEAD - 1);
        WGMMA_SEE_COPIES();
        barrier(CLK_LOCAL_MEM_FENCE);
        WGMMA_BEGIN();
#if PARTS == 1
        MULTIPLY_PARTS(sums, 1, 0, 0)
#else
        float product[SUMS];
        MULTIPLY_PARTS(product, 0, 2, 0)
        MULTIPLY_PARTS(product, 1, 0, 2)
        MULTIPLY_PARTS(product, 1, 1, 1)
        MULTIPLY_PARTS(product, 1, 1, 0)
        MULTIPLY_PARTS(product, 1, 0, 1)
        MULTIPLY_PARTS(product, 1, 0, 0)
#endif
        WGMMA_COMMIT();
        // Past the barrier no team is behind with more than WAITING products: the strip before those is free.
        const uint free = now > WAITING ? now - 1 - WAITING : now + AHEAD;
        if (from + AHEAD * DEPTH < end) {
            STAGE(free, from + AHEAD * DEPTH)
        }
        COPIES_COMMIT();
#if PARTS == 1
        WGMMA_WAIT(1);
#else
        WGMMA_WAIT(0);
        WGMMA_READ(product);
#pragma unroll
        for (uint i = 0; i < SUMS; i++) sums[i] += product[i];
#endif
        now = now + 1 == STAGES ? 0 : now + 1;
    }
    WGMMA_WAIT(0);
    WGMMA_READ(sums);

#if SPLIT
    partial += ((ulong)get_group_id(1) * get_num_groups(2) + batch) * m * n;
#else
    out += out_offset + (ulong)batch * m * n;
#endif
#pragma unroll
    for (uint i = 0; i < SUMS; i += 2) {
        const uint row = first_row + team_row + SUM_ROW(i), column = first_column + SUM_COLUMN(i);
        FINISH_PAIR(sums[i], sums[i + 1], row, column)
    }
}
