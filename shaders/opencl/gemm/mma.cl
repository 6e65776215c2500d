// out = a x b, finished by an epilogue, on NVIDIA's tensor cores, by mma.sync: a group makes a tile of TILE_ROWS x
// TILE_COLUMNS results, each of its warps a part of WARP_ROWS x WARP_COLUMNS in registers, from strips of DEPTH
// terms. Strips are copied to local memory asynchronously, STAGES of them being there or under way, at the end of a tile
// those of the group's next. With TENSOR_CORES 0 it is plain C of the same shape.
//
// Float16 and bfloat16 are multiplied as they are. PARTS says how float32 is: 1, rounded to TF32; 2, split into a
// high and a low TF32 number, of which three products give float32's accuracy. Infinities and numbers next to the
// largest cannot be split: gemm/bf16_repair.cl comes after.
//
// With SPLIT the groups of a tile share out the terms and write their sums to `out` (split, batch, m, n), which
// gemm/split_k_reduce.cl adds up in a fixed order.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#ifndef FLOAT32
#define FLOAT32 1
#endif
#ifndef PARTS
#define PARTS 1
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
// Whether an operand's terms are contiguous, or else its places (rows of a, columns of b), and how many bytes one
// copy moves.
#ifndef A_ALONG
#define A_ALONG 1
#endif
#ifndef B_ALONG
#define B_ALONG 0
#endif
#ifndef A_BYTES
#define A_BYTES 4
#endif
#ifndef B_BYTES
#define B_BYTES 4
#endif
// Whether two neighbouring results may be stored at once.
#ifndef PAIRS
#define PAIRS 0
#endif
#ifndef SPLIT
#define SPLIT 0
#endif
#include "lib/mma.h"

#define WARPS_DOWN (TILE_ROWS / WARP_ROWS)
#define WARPS_ACROSS (TILE_COLUMNS / WARP_COLUMNS)
#define ITEMS (WARP * WARPS_DOWN * WARPS_ACROSS)
#define BLOCKS_DOWN (WARP_ROWS / 16)
#define BLOCKS_ACROSS (WARP_COLUMNS / 16)

// See lib/mma.h for the distance between lines, in words.
#define PER_WORD (FLOAT32 ? 1 : 2)
#define PITCH(along, extent) ((along) ? DEPTH / PER_WORD + 4 : (extent) / PER_WORD + (FLOAT32 ? 8 : 4))
#define LINES(along, extent) ((along) ? (extent) : DEPTH)
#define WORDS(along, extent) (LINES(along, extent) * PITCH(along, extent))
#define WORD_OF(along, extent, line, at) ((line) * PITCH(along, extent) + (at) / PER_WORD)
#include "lib/staging.h"
#include "gemm/persistent_tiles.h"
#define ROW_QUADS (WARP_COLUMNS / 32)
#include "lib/fragment_store.h"

// The fragment of the 16 places from `place` and the terms of step `step` on, read by TERMS_FIRST or PLACES_FIRST.
#define FRAGMENT(TERMS_FIRST, PLACES_FIRST, along, extent, strip, place, step)                            \
    ((along) ? TERMS_FIRST(DTYPE, strip + (place) * PITCH(1, extent) + (step) * 8, PITCH(1, extent))       \
             : PLACES_FIRST(DTYPE, strip + (step) * TERMS(DTYPE) * PITCH(0, extent) + (place) / PER_WORD, \
                            PITCH(0, extent)))

#define STEPS (DEPTH / TERMS(DTYPE))

// Adds the product of one step to a warp's sums.
inline void multiply(float sums[BLOCKS_DOWN][BLOCKS_ACROSS][SUMS], Fragment rows[BLOCKS_DOWN],
                     Fragment columns[BLOCKS_ACROSS]) {
#if PARTS == 2
    Fragment low_columns[BLOCKS_ACROSS];
#pragma unroll
    for (uint j = 0; j < BLOCKS_ACROSS; j++) {
        const Fragment high = high_part(columns[j]);
        low_columns[j] = low_part(columns[j], high);
        columns[j] = high;
    }
#pragma unroll
    for (uint i = 0; i < BLOCKS_DOWN; i++) {
        const Fragment high = high_part(rows[i]), low = low_part(rows[i], high);
        // Product by product, so that no unit waits for its own result.
        float products[BLOCKS_ACROSS][SUMS];
#pragma unroll
        for (uint j = 0; j < BLOCKS_ACROSS; j++)
#pragma unroll
            for (uint s = 0; s < SUMS; s++) products[j][s] = 0;
#pragma unroll
        for (uint j = 0; j < BLOCKS_ACROSS; j++) multiply_paired_float32(products[j], low, columns[j]);
#pragma unroll
        for (uint j = 0; j < BLOCKS_ACROSS; j++) multiply_paired_float32(products[j], high, low_columns[j]);
#pragma unroll
        for (uint j = 0; j < BLOCKS_ACROSS; j++) multiply_paired_float32(products[j], high, columns[j]);
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
        for (uint j = 0; j < BLOCKS_ACROSS; j++) MULTIPLY_PAIRED(DTYPE, sums[i][j], rows[i], columns[j]);
#endif
}

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_mma(
    __global const STORAGE(DTYPE) *a, const ulong a_offset, __global const STORAGE(DTYPE) *b, const ulong b_offset,
    EPILOGUE_PARAMETERS
    __global TARGET *out, const ulong out_offset, const uint terms, const uint works, const GemmGeometry geometry) {
    UNPACK_GEOMETRY
    __local uint left[STAGES * WORDS(A_ALONG, TILE_ROWS)] __attribute__((aligned(16)));
    __local uint right[STAGES * WORDS(B_ALONG, TILE_COLUMNS)] __attribute__((aligned(16)));
    DECLARE_WORKS
    const uint warp = get_local_id(0) / WARP;
    const uint warp_row = warp / WARPS_ACROSS * WARP_ROWS, warp_column = warp % WARPS_ACROSS * WARP_COLUMNS;

#define LEFT(number) (left + (number) * WORDS(A_ALONG, TILE_ROWS))
#define RIGHT(number) (right + (number) * WORDS(B_ALONG, TILE_COLUMNS))
#define READ(side, number, step)                                                                                       \
    _Pragma("unroll") for (uint i = 0; i < BLOCKS_DOWN; i++) rows[side][i] = FRAGMENT(                                 \
        ALONG_TERMS, ALONG_PLACES, A_ALONG, TILE_ROWS, LEFT(number), warp_row + i * 16, step);                     \
    _Pragma("unroll") for (uint j = 0; j < BLOCKS_ACROSS; j++) columns[side][j] = FRAGMENT(                            \
        RIGHT_ALONG_TERMS, RIGHT_ALONG_PLACES, B_ALONG, TILE_COLUMNS, RIGHT(number), warp_column + j * 16, step);

    a += a_offset;
    b += b_offset;
    out += out_offset;
    Copied copied;
    copied.number = get_group_id(0);
    BEGIN_COPIES(copied)
#pragma unroll
    for (uint s = 0; s < STAGES - 1; s++) {
        COPY_STRIP(copied, LEFT(s), RIGHT(s), 0, 1)
        NEXT_STRIP(copied)
        COPIES_COMMIT();
    }
    COPIES_WAIT(STAGES - 2);
    barrier(CLK_LOCAL_MEM_FENCE);
    // Fragments are read one step ahead of their products, also from one strip to the next, and copies begin in between.
    Fragment rows[2][BLOCKS_DOWN], columns[2][BLOCKS_ACROSS];
    READ(0, 0, 0)
    uint now = 0;
    for (uint number = get_group_id(0); number < works; number += get_num_groups(0)) {
        Work w;
        FIND_WORK(w, number)
        float sums[BLOCKS_DOWN][BLOCKS_ACROSS][SUMS];
#pragma unroll
        for (uint i = 0; i < BLOCKS_DOWN; i++)
#pragma unroll
            for (uint j = 0; j < BLOCKS_ACROSS; j++)
#pragma unroll
                for (uint s = 0; s < SUMS; s++) sums[i][j][s] = 0;

        for (uint from = w.start; from < w.end; from += DEPTH) {
            const uint free = now == 0 ? STAGES - 1 : now - 1, next = now + 1 == STAGES ? 0 : now + 1;
#pragma unroll
            for (uint step = 0; step < STEPS; step++) {
                const uint side = step % 2;
                if (step + 1 == STEPS) {
                    COPIES_WAIT(STAGES - 2);
                    barrier(CLK_LOCAL_MEM_FENCE);
                    READ(side ^ 1, next, 0)
                } else {
                    READ(side ^ 1, now, step + 1)
                    COPY_STRIP(copied, LEFT(free), RIGHT(free), step, STEPS - 1)
                    if (step + 2 == STEPS) {
                        NEXT_STRIP(copied)
                        COPIES_COMMIT();
                    }
                }
                multiply(sums, rows[side], columns[side]);
            }
#if !TENSOR_CORES
            barrier(CLK_LOCAL_MEM_FENCE);  // the twin reads a strip later than the units, which others then begin to fill
#endif
            now = next;
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
