// out = a x b, finished by an epilogue, for float16 and bfloat16 on Hopper's tensor cores, by wgmma: a group makes a
// tile of 64 * WARPGROUPS x WIDE results, each team of four warps 64 rows of it in registers, from strips of DEPTH terms
// in local memory, in the order that lib/wgmma.h asks for. While the units multiply one strip, the next ones are copied,
// at the end of a tile those of the group's next; they keep one product waiting, so that they never run dry. With
// TENSOR_CORES 0 it is plain C of the same shape.
//
// With PARTS 3 each operand comes as three bfloat16 numbers, `a_part` and `b_part` apart, that add up to a float32
// (see gemm/bf16_split.cl), and six of their nine products give float32's accuracy, the others being too small to count.
// The units cut off what does not fit while they add, always towards zero; so that this does not pile up, the product
// of a strip starts at zero and is added to the sums by an ordinary, rounding addition.
//
// With SPLIT the groups of a tile share out the terms and write their sums to `out` (split, batch, m, n), which
// gemm/split_k_reduce.cl adds up in a fixed order.

#ifndef DTYPE
#define DTYPE float16
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
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
#include "lib/wgmma.h"
#define ITEMS (WARPGROUP * WARPGROUPS)
#define TILE_ROWS (64 * WARPGROUPS)
#define TILE_COLUMNS WIDE
#include "lib/staging.h"
#include "gemm/persistent_tiles.h"
#include "lib/fragment_store.h"

#define LEFT_WORDS (TILE_ROWS * LINE_WORDS)
#define RIGHT_WORDS (TILE_COLUMNS * LINE_WORDS)
#define WORDS (PARTS * (LEFT_WORDS + RIGHT_WORDS))
// Products that may still be under way when the next strip's begin, and strips that are there or copied besides theirs.
#define WAITING (PARTS == 1)
#define AHEAD (STAGES - 1 - WAITING)

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_wgmma(
    __global const STORAGE(DTYPE) *a, const ulong a_offset, __global const STORAGE(DTYPE) *b, const ulong b_offset,
    EPILOGUE_PARAMETERS
    __global TARGET *out, const ulong out_offset, const uint terms, const long a_part,
    const long b_part, const uint works, const GemmGeometry geometry) {
    UNPACK_GEOMETRY
    __local uint strips[STAGES * WORDS] __attribute__((aligned(1024)));
    const uint team_row = get_local_id(0) / WARPGROUP * 64;
    DECLARE_WORKS
#define STAGE(number)                                                                    \
    _Pragma("unroll") for (uint part = 0; part < PARTS; part++) {                        \
        COPY_STRIP(copied, LEFT(number, part), RIGHT(number, part), 0, 1)                \
        copied.a += a_part, copied.b += b_part;                                          \
    }                                                                                    \
    copied.a -= PARTS * a_part, copied.b -= PARTS * b_part;                              \
    NEXT_STRIP(copied)                                                                   \
    COPIES_COMMIT();
#define LEFT(number, part) (strips + (number) * WORDS + (part) * LEFT_WORDS)
#define RIGHT(number, part) (strips + (number) * WORDS + PARTS * LEFT_WORDS + (part) * RIGHT_WORDS)
#define MULTIPLY_PARTS(to, add, x, y)                                                                         \
    MULTIPLY_WIDE(to, add, LEFT(now, x) + (A_ALONG ? team_row : team_row / LINE * DEPTH) * LINE_WORDS, A_ALONG, \
                  RIGHT(now, y), B_ALONG)

    a += a_offset;
    b += b_offset;
    out += out_offset;
    Copied copied;
    copied.number = get_group_id(0);
    BEGIN_COPIES(copied)
#pragma unroll
    for (uint s = 0; s < AHEAD; s++) {
        STAGE(s)
    }
    uint now = 0;
    for (uint number = get_group_id(0); number < works; number += get_num_groups(0)) {
        Work w;
        FIND_WORK(w, number)
        float sums[SUMS];
#pragma unroll
        for (uint i = 0; i < SUMS; i++) sums[i] = 0;
        for (uint from = w.start; from < w.end; from += DEPTH) {
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
            STAGE(free)
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

        const uint i0 = w.i0, i1 = w.i1, i2 = w.i2;
        const uint column = w.first_column + SUM_COLUMN(0);
        __global TARGET *const to = out + (ulong)w.matrix * m * n + column;
#pragma unroll
        for (uint r = 0; r < 2; r++) {
            const uint row = w.first_row + team_row + SUM_ROW(2 * r);
#define FIRST(j) sums[4 * (j) + 2 * r]
#define SECOND(j) sums[4 * (j) + 2 * r + 1]
            FINISH_ROW(to + (ulong)row * n, row, column, SUMS / 4, FIRST, SECOND)
        }
    }
}
