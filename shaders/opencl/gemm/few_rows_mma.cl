// Products of few rows with a matrix that is read once, for 16-bit operands on NVIDIA's tensor cores (gemm/few_rows.h).
//
// An mma.sync of 16 x 8 results takes 16 columns of y and 8 rows of x, so that up to 8 rows need no padding of the
// instruction's longer side. Fragments are loaded from global memory in their final layout, 16 bytes at a time and without
// local memory, because the order of the terms is free as long as both operands have the same: a lane holds 8 neighbouring
// terms of a step of 32. If the columns of y are contiguous, a lane holds neighbouring columns of 8 terms and packs pairs
// of terms. With TENSOR_CORES 0 this is a portable fallback in plain C of the same structure.

#ifndef DTYPE
#define DTYPE float16
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#ifndef REAL
#define REAL float
#endif
// Blocks of 8 rows of x, and of 16 columns of y per warp: 1, 2 or 4.
#ifndef ROW_BLOCKS
#define ROW_BLOCKS 1
#endif
#ifndef COLUMN_BLOCKS
#define COLUMN_BLOCKS 2
#endif
// 1: the matrix is loaded past the first-level cache, which then keeps x.
#ifndef STREAMED
#define STREAMED 0
#endif
#define SUM_FACTOR(row) ROW_FACTOR(row)
#include "gemm/few_rows.h"
#include "lib/mma.h"
#include "lib/dependent_launch.h"

#define ROWS (8 * ROW_BLOCKS)
#define WARP_COLUMNS (16 * COLUMN_BLOCKS)
#define COLUMNS (WARP_COLUMNS * ACROSS)
#define SLICES ALONG
#define STEP 32

#if NORM
#include "gemm/normed_words.h"
// From the sums of squares of a row by the work-items that loaded its terms.
static inline float squares_of(__local const float *squares, uint row) {
    float sum = 0;
    for (uint at = 0; at < 4 * ALONG; at++) sum += squares[at / 4 * 32 + row * 4 + at % 4];
    return sum;
}
#define ROW_FACTOR(row) NORM_FACTOR(squares_of(squares, row), geometry.k)
#else
#define ROW_FACTOR(row) 1
#endif

// The words of one load of y, and the number of loads per step.
#if K_MAJOR
#define LOADS (2 * COLUMN_BLOCKS)
#define LOAD_WORDS 4
#else
#define LOADS 8
#define LOAD_WORDS COLUMN_BLOCKS
#endif
typedef struct {
    uint words[LOADS][LOAD_WORDS];
} Step;

#if TENSOR_CORES
#define MMA_float16(sums, a, b0, b1) MMA("m16n8k16", "f16", sums, a, b0, b1)
#define MMA_bfloat16(sums, a, b0, b1) MMA("m16n8k16", "bf16", sums, a, b0, b1)
#define BLOCK_PRODUCT(sums, a, b0, b1) CONCAT(MMA_, DTYPE)(sums, a, b0, b1)
typedef Fragment Columns;

static inline uint low_halves(uint first, uint second) {
    uint word;
    asm("prmt.b32 %0, %1, %2, 0x5410;" : "=r"(word) : "r"(first), "r"(second));
    return word;
}
static inline uint high_halves(uint first, uint second) {
    uint word;
    asm("prmt.b32 %0, %1, %2, 0x7632;" : "=r"(word) : "r"(first), "r"(second));
    return word;
}
#else
typedef struct {
    uint r[4];
} Columns;

static inline uint low_halves(uint first, uint second) { return (first & 0xffff) | second << 16; }
static inline uint high_halves(uint first, uint second) { return first >> 16 | (second & 0xffff0000); }

// Element `at` of a fragment's words: lane 4 * line + pair holds elements 2 * pair and 2 * pair + 1 of each word's half.
static inline float element(__local const uint *words, uint lane, uint word, uint at) {
    return LOAD(DTYPE, (__local const STORAGE(DTYPE) *)&words[lane * 6 + word], at);
}

// Exchanges the fragments of a warp in local memory and computes this lane's four sums of the 16 x 8 block.
#define BLOCK_PRODUCT(sums, a, b0, b1)                                                                \
    {                                                                                                 \
        __local uint *const words = exchanged + me / 32 * 32 * 6;                                     \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                 \
        for (uint i = 0; i < 4; i++) words[lane * 6 + i] = (a).r[i];                                  \
        words[lane * 6 + 4] = b0;                                                                     \
        words[lane * 6 + 5] = b1;                                                                     \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                 \
        for (uint i = 0; i < 4; i++)                                                                  \
            for (uint term = 0; term < 16; term++)                                                    \
                (sums)[i] += element(words, lane / 4 * 4 + term / 2 % 4, term / 8 * 2 + i / 2, term % 2) * \
                             element(words, (lane % 4 * 2 + i % 2) * 4 + term / 2 % 4, 4 + term / 8, term % 2); \
    }
#endif

static inline uint4 load_four(__global const STORAGE(DTYPE) *from) {
#if STREAMED && TENSOR_CORES
    uint4 v;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.s0), "=r"(v.s1), "=r"(v.s2), "=r"(v.s3)
        : "l"((ulong)(size_t)from));
    return v;
#else
    return *(__global const uint4 *)from;
#endif
}

// Loads LOAD_WORDS words.
static inline void load_words(uint *words, __global const STORAGE(DTYPE) *from) {
#if LOAD_WORDS == 4
    const uint4 v = load_four(from);
    words[0] = v.s0, words[1] = v.s1, words[2] = v.s2, words[3] = v.s3;
#elif LOAD_WORDS == 2
    const uint2 v = *(__global const uint2 *)from;
    words[0] = v.s0, words[1] = v.s1;
#else
    words[0] = *(__global const uint *)from;
#endif
}

// The columns of block `block` for half `half_step` of a step.
static inline Columns columns_of(const Step *step, uint block, uint half_step) {
    Columns c;
#if K_MAJOR
#pragma unroll
    for (uint i = 0; i < 4; i++) c.r[i] = step->words[2 * block + i % 2][2 * half_step + i / 2];
#else
#pragma unroll
    for (uint i = 0; i < 2; i++) {
        const uint first = step->words[4 * half_step + 2 * i][block], second = step->words[4 * half_step + 2 * i + 1][block];
        c.r[2 * i] = low_halves(first, second);
        c.r[2 * i + 1] = high_halves(first, second);
    }
#endif
    return c;
}

// Column of the warp that `line` of block `block` is.
#if K_MAJOR
#define COLUMN_OF(block, line) ((block) * 16 + (line))
#else
#define COLUMN_OF(block, line) ((line) % 8 * (2 * COLUMN_BLOCKS) + 2 * (block) + (line) / 8)
#endif

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_few_rows_mma(
    __global const STORAGE(DTYPE) *x, const ulong x_offset, __global const STORAGE(DTYPE) *y, const ulong y_offset,
    JOINED_PARAMETERS EPILOGUE_PARAMETERS __global TARGET *out, const ulong out_offset, const FewRowsGeometry geometry) {
    START_NEXT
    LOCATE_GROUP
    SELECT_MATRIX(first_column)
    LOCATE_SCALE
    __local float memory[SLICES * 8 * COLUMNS];
#if NORM
    __local float squares[ITEMS];
    float norms[ROW_BLOCKS];
#pragma unroll
    for (uint r = 0; r < ROW_BLOCKS; r++) norms[r] = 0;
#endif
#if !TENSOR_CORES
    __local uint exchanged[ITEMS * 6];
#endif
    const uint line = lane / 4, terms = lane % 4 * 8;
    // Loads beyond the edges are moved inside instead of skipped, so that nothing separates them; a row or column that
    // repeats is not stored.
    const uint warp_column = first_column + across * RESULT_COLUMNS(WARP_COLUMNS);
    float sums[COLUMN_BLOCKS][ROW_BLOCKS][4];
#pragma unroll
    for (uint c = 0; c < COLUMN_BLOCKS; c++)
#pragma unroll
        for (uint r = 0; r < ROW_BLOCKS; r++)
#pragma unroll
            for (uint i = 0; i < 4; i++) sums[c][r][i] = 0;

    for (uint from = start; from < end; from += ALONG * UNROLL * STEP) {
        const uint mine = from + along * UNROLL * STEP + terms;
        Step steps[UNROLL];
#pragma unroll
        for (uint u = 0; u < UNROLL; u++) {
            const uint term = min(mine + u * STEP, end - 8);
#pragma unroll
            for (uint i = 0; i < LOADS; i++) {
#if PAIRS
                const uint column = min(warp_column + i / 2 * 8 + line, n - 1);
                load_words(steps[u].words[i], MATRIX_OF(i % 2) + (column * y_column + term));
#elif K_MAJOR
                const uint column = min(warp_column + COLUMN_OF(i / 2, i % 2 * 8 + line), n - 1);
                load_words(steps[u].words[i], y + (column * y_column + term));
#else
                const uint column = min(warp_column + COLUMN_OF(0, line), n - 2 * COLUMN_BLOCKS);
                load_words(steps[u].words[i], y + ((term + i) * y_row + column));
#endif
            }
        }
        if (from == start) { AWAIT_INPUTS }
#pragma unroll
        for (uint u = 0; u < UNROLL; u++) {
            const bool inside = mine + u * STEP < end;
            const uint term = inside ? mine + u * STEP : end - 8;
            uint4 left[ROW_BLOCKS];
#if NORM
            const uint4 weights = *(__global const uint4 *)(scale + term);
#endif
#pragma unroll
            for (uint r = 0; r < ROW_BLOCKS; r++) {
                const uint row = min(first_row + r * 8 + line, rows - 1);
                const uint4 loaded = *(__global const uint4 *)(x + (row * x_row + term));
                left[r] = inside ? loaded : (uint4)(0);
#if NORM
                left[r] = normed_words(left[r], weights, &norms[r]);
#endif
            }
            // An infinite number of the matrix times zero would not be zero.
#pragma unroll
            for (uint i = 0; i < LOADS; i++)
#pragma unroll
                for (uint w = 0; w < LOAD_WORDS; w++) steps[u].words[i][w] = inside ? steps[u].words[i][w] : 0;
#pragma unroll
            for (uint half_step = 0; half_step < 2; half_step++)
#pragma unroll
                for (uint c = 0; c < COLUMN_BLOCKS; c++) {
                    const Columns columns = columns_of(&steps[u], c, half_step);
#pragma unroll
                    for (uint r = 0; r < ROW_BLOCKS; r++) {
                        const uint2 pairs = half_step ? left[r].hi : left[r].lo;
                        BLOCK_PRODUCT(sums[c][r], columns, pairs.s0, pairs.s1);
                    }
                }
        }
    }
    AWAIT_INPUTS  // of a group without terms
#pragma unroll
    for (uint r = 0; r < ROW_BLOCKS; r++) {
        barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
        for (uint c = 0; c < COLUMN_BLOCKS; c++)
#pragma unroll
            for (uint i = 0; i < 4; i++)
                memory[(along * 8 + lane % 4 * 2 + i % 2) * COLUMNS + across * WARP_COLUMNS +
                       COLUMN_OF(c, line + i / 2 * 8)] = sums[c][r][i];
#if NORM
        squares[me] = norms[r];
#endif
        barrier(CLK_LOCAL_MEM_FENCE);
        FINISH_ROWS(r * 8, 8)
    }
}
