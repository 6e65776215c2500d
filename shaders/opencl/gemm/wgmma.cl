// out = a x b with an epilogue, for float16 and bfloat16 on Hopper's tensor cores by wgmma. A group computes a tile of 64 *
// WARPGROUPS x WIDE results, each warpgroup (four warps) 64 rows of it in registers, from k-tiles of DEPTH terms in local
// memory in the layout of lib/wgmma.h. While one k-tile is multiplied the next ones are copied, at the end of a tile those
// of the group's next tile; one product stays in flight so that the tensor cores never idle. With TENSOR_CORES 0 this is a
// portable fallback in plain C of the same structure.
//
// With BF16_TERMS 3 each float32 operand is passed as three bfloat16 terms that add up to it (gemm/bf16_split.cl);
// a_term_stride and b_term_stride are the distances of terms in elements. Six of the nine products give float32's
// accuracy; the other three are too small to matter. Tensor cores truncate while they accumulate; to keep these errors
// from accumulating, the product of each k-tile starts at zero and is added to the sums by an ordinary, rounding
// addition.
//
// With SPLIT_K groups divide the terms of a tile and write partial sums to `out` (splits, batch, m, n), which
// gemm/split_k_reduce.cl reduces in a fixed order.

#ifndef DTYPE
#define DTYPE float16
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
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
// Layout of each operand: 1, K-major: the terms of a row of a, or of a column of b, are contiguous; 0, MN-major: the rows
// of a, or the columns of b, are. A_BYTES and B_BYTES are the bytes of one asynchronous copy.
#ifndef A_K_MAJOR
#define A_K_MAJOR 1
#endif
#ifndef B_K_MAJOR
#define B_K_MAJOR 0
#endif
#ifndef A_BYTES
#define A_BYTES 2
#endif
#ifndef B_BYTES
#define B_BYTES 2
#endif
// 1: pairs of neighbouring results are stored at once.
#ifndef PAIRS
#define PAIRS 0
#endif
#ifndef SPLIT_K
#define SPLIT_K 0
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
#define WORDS (BF16_TERMS * (LEFT_WORDS + RIGHT_WORDS))
// Products that may be in flight when the product of the next k-tile starts, and k-tiles that are copied ahead of them.
#define IN_FLIGHT (BF16_TERMS == 1)
#define STAGES_AHEAD (STAGES - 1 - IN_FLIGHT)

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_wgmma(
    __global const STORAGE(DTYPE) *a, const ulong a_offset, __global const STORAGE(DTYPE) *b, const ulong b_offset,
    EPILOGUE_PARAMETERS
    __global TARGET *out, const ulong out_offset, const uint split_terms, const long a_term_stride,
    const long b_term_stride, const uint work_tiles, const GemmGeometry geometry) {
    UNPACK_GEOMETRY
    __local uint k_tiles[STAGES * WORDS] __attribute__((aligned(1024)));
    const uint warpgroup_row = get_local_id(0) / WARPGROUP * 64;
    DECLARE_TILE_SCHEDULER
#define STAGE(number)                                                               \
    _Pragma("unroll") for (uint term = 0; term < BF16_TERMS; term++) {              \
        LOAD_K_TILE(loader, LEFT(number, term), RIGHT(number, term), 0, 1)          \
        loader.a += a_term_stride, loader.b += b_term_stride;                       \
    }                                                                               \
    loader.a -= BF16_TERMS * a_term_stride, loader.b -= BF16_TERMS * b_term_stride; \
    ADVANCE_LOADER(loader)                                                          \
    COPIES_COMMIT();
#define LEFT(number, term) (k_tiles + (number) * WORDS + (term) * LEFT_WORDS)
#define RIGHT(number, term) (k_tiles + (number) * WORDS + BF16_TERMS * LEFT_WORDS + (term) * RIGHT_WORDS)
#define A_OF_WARPGROUP ((A_K_MAJOR ? warpgroup_row : warpgroup_row / LINE * DEPTH) * LINE_WORDS)
#define MULTIPLY_TERMS(to, add, x, y) \
    MULTIPLY_WIDE(to, add, LEFT(stage, x) + A_OF_WARPGROUP, A_K_MAJOR, RIGHT(stage, y), B_K_MAJOR)

    a += a_offset;
    b += b_offset;
    out += out_offset;
    TileLoader loader;
    loader.number = get_group_id(0);
    START_LOADER(loader)
#pragma unroll
    for (uint s = 0; s < STAGES_AHEAD; s++) {
        STAGE(s)
    }
    uint stage = 0;
    for (uint number = get_group_id(0); number < work_tiles; number += get_num_groups(0)) {
        WorkTile w;
        GET_WORK_TILE(w, number)
        float sums[SUMS];
#pragma unroll
        for (uint i = 0; i < SUMS; i++) sums[i] = 0;
        for (uint from = w.start; from < w.end; from += DEPTH) {
            COPIES_WAIT(STAGES_AHEAD - 1);
            WGMMA_SEE_COPIES();
            barrier(CLK_LOCAL_MEM_FENCE);
            WGMMA_BEGIN();
#if BF16_TERMS == 1
            MULTIPLY_TERMS(sums, 1, 0, 0)
#else
            float product[SUMS];
            MULTIPLY_TERMS(product, 0, 2, 0)
            MULTIPLY_TERMS(product, 1, 0, 2)
            MULTIPLY_TERMS(product, 1, 1, 1)
            MULTIPLY_TERMS(product, 1, 1, 0)
            MULTIPLY_TERMS(product, 1, 0, 1)
            MULTIPLY_TERMS(product, 1, 0, 0)
#endif
            WGMMA_COMMIT();
            // After the barrier no warpgroup has more than IN_FLIGHT unfinished products: the k-tile before theirs is
            // free.
            const uint free = stage > IN_FLIGHT ? stage - 1 - IN_FLIGHT : stage + STAGES_AHEAD;
            STAGE(free)
#if BF16_TERMS == 1
            WGMMA_WAIT(1);
#else
            WGMMA_WAIT(0);
            WGMMA_READ(product);
#pragma unroll
            for (uint i = 0; i < SUMS; i++) sums[i] += product[i];
#endif
            stage = stage + 1 == STAGES ? 0 : stage + 1;
        }
        WGMMA_WAIT(0);
        WGMMA_READ(sums);

        const uint i0 = w.i0, i1 = w.i1, i2 = w.i2;
        const uint column = w.first_column + SUM_COLUMN(0);
        __global TARGET *const to = out + (ulong)w.matrix * m * n + column;
#pragma unroll
        for (uint r = 0; r < 2; r++) {
            const uint row = w.first_row + warpgroup_row + SUM_ROW(2 * r);
#define FIRST(j) sums[4 * (j) + 2 * r]
#define SECOND(j) sums[4 * (j) + 2 * r + 1]
            FINISH_ROW(to + (ulong)row * n, row, column, SUMS / 4, FIRST, SECOND)
        }
    }
}
