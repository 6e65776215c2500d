// out = a x b with an epilogue, on NVIDIA's tensor cores by mma.sync. A group computes TILE_ROWS x TILE_COLUMNS results,
// each of its warps WARP_ROWS x WARP_COLUMNS of them in registers, from k-tiles of DEPTH terms. The k-tiles are copied to
// local memory asynchronously in a pipeline of STAGES, at the end of a tile those of the group's next tile. With
// TENSOR_CORES 0 this is a portable fallback in plain C of the same structure.
//
// Float16 and bfloat16 operands are multiplied directly. TF32_TERMS selects the method for float32: 1, rounded to TF32;
// 2, split into two TF32 numbers whose three largest products give float32's accuracy (3xTF32). Infinities and numbers
// next to the largest cannot be split; gemm/bf16_repair.cl recomputes those results.
//
// With SPLIT_K groups divide the terms of a tile and write partial sums to `out` (splits, batch, m, n), which
// gemm/split_k_reduce.cl reduces in a fixed order.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#ifndef FLOAT32
#define FLOAT32 1
#endif
#ifndef TF32_TERMS
#define TF32_TERMS 1
#endif
#ifndef TILE_ROWS
#define TILE_ROWS 64
#endif
#ifndef TILE_COLUMNS
#define TILE_COLUMNS 64
#endif
#ifndef WARP_ROWS
#define WARP_ROWS 32
#endif
#ifndef WARP_COLUMNS
#define WARP_COLUMNS 32
#endif
#ifndef DEPTH
#define DEPTH 16
#endif
#ifndef STAGES
#define STAGES 2
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
#define A_BYTES 4
#endif
#ifndef B_BYTES
#define B_BYTES 4
#endif
// 1: pairs of neighbouring results are stored at once.
#ifndef PAIRS
#define PAIRS 0
#endif
#ifndef SPLIT_K
#define SPLIT_K 0
#endif
#include "lib/mma.h"
#include "lib/dependent_launch.h"

#define WARPS_DOWN (TILE_ROWS / WARP_ROWS)
#define WARPS_ACROSS (TILE_COLUMNS / WARP_COLUMNS)
#define ITEMS (WARP * WARPS_DOWN * WARPS_ACROSS)
#define BLOCKS_DOWN (WARP_ROWS / 16)
#define BLOCKS_ACROSS (WARP_COLUMNS / 16)

// Words from one line to the next, free of bank conflicts (see lib/mma.h).
#define PER_WORD (FLOAT32 ? 1 : 2)
#define PITCH(k_major, extent) ((k_major) ? DEPTH / PER_WORD + 4 : (extent) / PER_WORD + (FLOAT32 ? 8 : 4))
#define LINES(k_major, extent) ((k_major) ? (extent) : DEPTH)
#define WORDS(k_major, extent) (LINES(k_major, extent) * PITCH(k_major, extent))
#define WORD_OF(k_major, extent, line, at) ((line) * PITCH(k_major, extent) + (at) / PER_WORD)
#include "lib/staging.h"
#include "gemm/persistent_tiles.h"
#define ROW_QUADS (WARP_COLUMNS / 32)
#include "lib/fragment_store.h"

// The fragment of 16 rows or columns from `place` and the terms of `step`, loaded by K_MAJOR_LOAD or MN_MAJOR_LOAD.
#define FRAGMENT(K_MAJOR_LOAD, MN_MAJOR_LOAD, k_major, extent, tile, place, step)                         \
    ((k_major) ? K_MAJOR_LOAD(DTYPE, tile + (place) * PITCH(1, extent) + (step) * 8, PITCH(1, extent))    \
             : MN_MAJOR_LOAD(DTYPE, tile + (step) * TERMS(DTYPE) * PITCH(0, extent) + (place) / PER_WORD, \
                            PITCH(0, extent)))

#define STEPS (DEPTH / TERMS(DTYPE))

// Accumulates the product of one step of terms.
static inline void multiply(float sums[BLOCKS_DOWN][BLOCKS_ACROSS][SUMS], Fragment rows[BLOCKS_DOWN],
                            Fragment columns[BLOCKS_ACROSS]) {
#if TF32_TERMS == 2
    Fragment low_columns[BLOCKS_ACROSS];
#pragma unroll
    for (uint j = 0; j < BLOCKS_ACROSS; j++) {
        const Fragment high = high_term(columns[j]);
        low_columns[j] = low_term(columns[j], high);
        columns[j] = high;
    }
#pragma unroll
    for (uint i = 0; i < BLOCKS_DOWN; i++) {
        const Fragment high = high_term(rows[i]), low = low_term(rows[i], high);
        // The products of one kind come first, then the next kind, so that no instruction depends on the previous one.
        float products[BLOCKS_ACROSS][SUMS];
#pragma unroll
        for (uint j = 0; j < BLOCKS_ACROSS; j++)
#pragma unroll
            for (uint s = 0; s < SUMS; s++) products[j][s] = 0;
#pragma unroll
        for (uint j = 0; j < BLOCKS_ACROSS; j++) multiply_float32(products[j], low, columns[j]);
#pragma unroll
        for (uint j = 0; j < BLOCKS_ACROSS; j++) multiply_float32(products[j], high, low_columns[j]);
#pragma unroll
        for (uint j = 0; j < BLOCKS_ACROSS; j++) multiply_float32(products[j], high, columns[j]);
#pragma unroll
        for (uint j = 0; j < BLOCKS_ACROSS; j++)
#pragma unroll
            for (uint s = 0; s < SUMS; s++) sums[i][j][s] += products[j][s];
    }
#else
#if FLOAT32
#pragma unroll
    for (uint i = 0; i < BLOCKS_DOWN; i++) rows[i] = rounded(rows[i]);
#pragma unroll
    for (uint j = 0; j < BLOCKS_ACROSS; j++) columns[j] = rounded(columns[j]);
#endif
#pragma unroll
    for (uint i = 0; i < BLOCKS_DOWN; i++)
#pragma unroll
        for (uint j = 0; j < BLOCKS_ACROSS; j++) MULTIPLY(DTYPE, sums[i][j], rows[i], columns[j]);
#endif
}

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_mma(
    __global const STORAGE(DTYPE) *a, const ulong a_offset, __global const STORAGE(DTYPE) *b, const ulong b_offset,
    EPILOGUE_PARAMETERS
    __global TARGET *out, const ulong out_offset, const uint split_terms, const uint work_tiles,
    const GemmGeometry geometry) {
    START_NEXT
    AWAIT_INPUTS
    UNPACK_GEOMETRY
    __local uint left[STAGES * WORDS(A_K_MAJOR, TILE_ROWS)] __attribute__((aligned(16)));
    __local uint right[STAGES * WORDS(B_K_MAJOR, TILE_COLUMNS)] __attribute__((aligned(16)));
    DECLARE_TILE_SCHEDULER
    const uint warp = get_local_id(0) / WARP;
    const uint warp_row = warp / WARPS_ACROSS * WARP_ROWS, warp_column = warp % WARPS_ACROSS * WARP_COLUMNS;

#define LEFT(number) (left + (number) * WORDS(A_K_MAJOR, TILE_ROWS))
#define RIGHT(number) (right + (number) * WORDS(B_K_MAJOR, TILE_COLUMNS))
#define READ(side, number, step)                                                                               \
    _Pragma("unroll") for (uint i = 0; i < BLOCKS_DOWN; i++) rows[side][i] = FRAGMENT(                         \
        A_FRAGMENT_K_MAJOR, A_FRAGMENT_MN_MAJOR, A_K_MAJOR, TILE_ROWS, LEFT(number), warp_row + i * 16, step); \
    _Pragma("unroll") for (uint j = 0; j < BLOCKS_ACROSS; j++) columns[side][j] = FRAGMENT(                    \
        B_FRAGMENT_K_MAJOR, B_FRAGMENT_MN_MAJOR, B_K_MAJOR, TILE_COLUMNS, RIGHT(number), warp_column + j * 16, step);

    a += a_offset;
    b += b_offset;
    out += out_offset;
    TileLoader loader;
    loader.number = get_group_id(0);
    START_LOADER(loader)
#pragma unroll
    for (uint s = 0; s < STAGES - 1; s++) {
        LOAD_K_TILE(loader, LEFT(s), RIGHT(s), 0, 1)
        ADVANCE_LOADER(loader)
        COPIES_COMMIT();
    }
    COPIES_WAIT(STAGES - 2);
    barrier(CLK_LOCAL_MEM_FENCE);
    // Fragments are loaded one step ahead of their products, also across k-tiles, and copies are issued in between.
    Fragment rows[2][BLOCKS_DOWN], columns[2][BLOCKS_ACROSS];
    READ(0, 0, 0)
    uint stage = 0;
    for (uint number = get_group_id(0); number < work_tiles; number += get_num_groups(0)) {
        WorkTile w;
        GET_WORK_TILE(w, number)
        float sums[BLOCKS_DOWN][BLOCKS_ACROSS][SUMS];
#pragma unroll
        for (uint i = 0; i < BLOCKS_DOWN; i++)
#pragma unroll
            for (uint j = 0; j < BLOCKS_ACROSS; j++)
#pragma unroll
                for (uint s = 0; s < SUMS; s++) sums[i][j][s] = 0;

        for (uint from = w.start; from < w.end; from += DEPTH) {
            const uint free = stage == 0 ? STAGES - 1 : stage - 1, next = stage + 1 == STAGES ? 0 : stage + 1;
#pragma unroll
            for (uint step = 0; step < STEPS; step++) {
                const uint side = step % 2;
                if (step + 1 == STEPS) {
                    COPIES_WAIT(STAGES - 2);
                    barrier(CLK_LOCAL_MEM_FENCE);
                    READ(side ^ 1, next, 0)
                } else {
                    READ(side ^ 1, stage, step + 1)
                    LOAD_K_TILE(loader, LEFT(free), RIGHT(free), step, STEPS - 1)
                    if (step + 2 == STEPS) {
                        ADVANCE_LOADER(loader)
                        COPIES_COMMIT();
                    }
                }
                multiply(sums, rows[side], columns[side]);
            }
#if !TENSOR_CORES
            barrier(CLK_LOCAL_MEM_FENCE);  // the fallback reads a k-tile later than tensor cores do, when others refill it
#endif
            stage = next;
        }

        const uint i0 = w.i0, i1 = w.i1, i2 = w.i2;
        const uint column = w.first_column + warp_column + SUM_COLUMN(0);
        __global TARGET *const to = out + (ulong)w.matrix * m * n + column;
#pragma unroll
        for (uint i = 0; i < 2 * BLOCKS_DOWN; i++) {
            const uint row = w.first_row + warp_row + i / 2 * 16 + SUM_ROW(i % 2 * 2);
#define FIRST(j) sums[i / 2][(j) / 2][(j) % 2 * 4 + i % 2 * 2]
#define SECOND(j) sums[i / 2][(j) / 2][(j) % 2 * 4 + i % 2 * 2 + 1]
            FINISH_ROW(to + (ulong)row * n, row, column, 2 * BLOCKS_ACROSS, FIRST, SECOND)
        }
    }
}
