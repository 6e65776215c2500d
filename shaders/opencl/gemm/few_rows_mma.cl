// Products of few rows with a matrix that is read once, for 16-bit operands on NVIDIA's tensor cores (gemm/few_rows.h).
//
// An mma.sync of 16 x 8 results takes 16 columns of y and 8 rows of x, so that up to 8 rows need no padding of the
// instruction's longer side. Fragments are loaded from global memory in their final layout, 16 bytes at a time and without
// local memory, because the order of the terms is free as long as both operands have the same: a lane holds 8 neighbouring
// terms of a step of 32. If the columns of y are contiguous, a lane holds neighbouring columns of 8 terms and packs pairs
// of terms. With TENSOR_CORES 0 this is a portable fallback in plain C of the same structure.
//
// A warp has a share of the terms, and loads UNROLL steps of the matrix at a time. With PERSISTENT, groups take several blocks
// of columns in turn, and a warp that has multiplied a step loads the one UNROLL steps later, also of the next block, so that
// the memory is busy while sums are reduced and stored. With STAGED_TERMS the rows of x go through local memory: by
// asynchronous copies, or multiplied by the weights of a norm once.

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
#ifndef PERSISTENT
#define PERSISTENT 0
#endif
// Terms of a group if the rows of x go through local memory, and their number, a power of two; 0: they do not.
#ifndef STAGED_TERMS
#define STAGED_TERMS 0
#endif
#ifndef X_ROWS
#define X_ROWS 1
#endif
// 1: the windows of all warps end where their shares of the terms do.
#ifndef WHOLE
#define WHOLE 0
#endif
#define SUM_FACTOR(row) ROW_FACTOR(row)
#include "gemm/few_rows.h"
#include "lib/async_copy.h"
#include "lib/mma.h"
#include "lib/dependent_launch.h"

#define ROWS (8 * ROW_BLOCKS)
#define WARP_COLUMNS (16 * COLUMN_BLOCKS)
#define COLUMNS (WARP_COLUMNS * ACROSS)
#define SLICES ALONG
#define STEP 32

#if STAGED_TERMS
// Items of a group that load a row of x, shares of its sum of squares, and words from one row to the next.
#define ROW_ITEMS (ITEMS / X_ROWS)
#define SHARES 8
#define PITCH (STAGED_TERMS / 2 + 16)
// Vectors of x that a work-item loads before it multiplies them by the weights of a norm.
#define OWN_VECTORS ((STAGED_TERMS / 8 + ROW_ITEMS - 1) / ROW_ITEMS)
#define VECTORS (OWN_VECTORS < 8 ? OWN_VECTORS : 8)
#endif
#if NORM
#include "gemm/normed_words.h"
// From the shares of the work-items that loaded a row's terms.
static inline float squares_of(__local const float *shares, uint row) {
    float sum = 0;
#if STAGED_TERMS
    for (uint i = 0; i < SHARES; i++) sum += shares[row * SHARES + i];
#else
    for (uint at = 0; at < 4 * ALONG; at++) sum += shares[at / 4 * 32 + row % 8 * 4 + at % 4];
#endif
    return sum;
}
#define ROW_FACTOR(row) NORM_FACTOR(squares_of(shares, row), geometry.k)
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
// Where a work-item's columns of a block begin.
typedef struct {
    __global const STORAGE(DTYPE) *at[K_MAJOR ? LOADS : 1];
} Lines;

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

// Loads LOAD_WORDS words.
static inline void load_words(uint *words, __global const STORAGE(DTYPE) *from) {
#if LOAD_WORDS == 4 && STREAMED && TENSOR_CORES
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
        : "l"((ulong)(size_t)from));
#elif LOAD_WORDS == 4
    const uint4 v = *(__global const uint4 *)from;
    words[0] = v.s0, words[1] = v.s1, words[2] = v.s2, words[3] = v.s3;
#elif LOAD_WORDS == 2
    const uint2 v = *(__global const uint2 *)from;
    words[0] = v.s0, words[1] = v.s1;
#else
    words[0] = *(__global const uint *)from;
#endif
}

// Loads a step of a block's columns, `step` terms behind `from`, of terms before `end`. Loads beyond it are moved inside
// instead of skipped, so that nothing separates them.
FORCE_INLINE void load_step(Step *step, const Lines *lines, uint from, uint distance, uint end, long y_row) {
    const size_t term = WHOLE ? (size_t)from + distance : min(from + distance, end - 8);
#pragma unroll
    for (uint i = 0; i < LOADS; i++)
        load_words(step->words[i], K_MAJOR ? lines->at[i] + term : lines->at[0] + (term + i) * y_row);
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

// Points `lines` to the columns of block `block`: columns beyond the last one repeat it and are not stored.
#if PAIRS
#define LINE_OF(i, column) (MATRIX_OF((i) % 2) + min((column) + (i) / 2 * 8 + line, n - 1) * y_column)
#elif K_MAJOR
#define LINE_OF(i, column) (y + min((column) + COLUMN_OF((i) / 2, (i) % 2 * 8 + line), n - 1) * y_column)
#else
#define LINE_OF(i, column) (y + min((column) + COLUMN_OF(0, line), n - 2 * COLUMN_BLOCKS))
#endif
#define LOCATE_LINES(block)                                                             \
    {                                                                                   \
        __global const STORAGE(DTYPE) *y = matrices;                                    \
        const uint column_of_group = (block) * RESULT_COLUMNS(COLUMNS);                 \
        SELECT_MATRIX(column_of_group)                                                  \
        const uint column_of_warp = column_of_group + across * RESULT_COLUMNS(WARP_COLUMNS); \
        _Pragma("unroll") for (uint i = 0; i < (K_MAJOR ? LOADS : 1); i++)              \
            lines.at[i] = LINE_OF(i, column_of_warp);                                   \
    }

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_few_rows_mma(
    __global const STORAGE(DTYPE) *x, const ulong x_offset, __global const STORAGE(DTYPE) *y, const ulong y_offset,
    JOINED_PARAMETERS EPILOGUE_PARAMETERS __global TARGET *out, const ulong out_offset, const FewRowsGeometry geometry) {
    START_NEXT
    LOCATE_GROUP
    LOCATE_SCALE
    // Of blocks in turn, so that a barrier per block suffices.
    __local float buffers[2][SLICES * 8 * COLUMNS];
    uint turn = 0;
#if STAGED_TERMS
    __local uint staged[X_ROWS * PITCH] __attribute__((aligned(16)));
#endif
#if NORM && STAGED_TERMS
    __local float squares[ITEMS], shares[X_ROWS * SHARES];
#elif NORM
    __local float squares[2][ITEMS];
#endif
#if !TENSOR_CORES
    __local uint exchanged[ITEMS * 6];
#endif
    const uint line = lane / 4, terms = lane % 4 * 8, first_row = 0;
    const uint blocks = (n + RESULT_COLUMNS(COLUMNS) - 1) / RESULT_COLUMNS(COLUMNS), groups = get_num_groups(0);
    const uint share = (geometry.split_terms + ALONG * STEP - 1) / (ALONG * STEP) * STEP;
    const uint begin = start + along * share + terms, limit = min(start + (along + 1) * share, end);
    __global const STORAGE(DTYPE) *const matrices = y;
    Lines lines;
    Step window[UNROLL];
    LOCATE_LINES(get_group_id(0))
#pragma unroll
    for (uint u = 0; u < UNROLL; u++) load_step(&window[u], &lines, begin, u * STEP, end, y_row);
    AWAIT_INPUTS
#if STAGED_TERMS
    {
        const uint r = me / ROW_ITEMS;
        __global const STORAGE(DTYPE) *const from = x + min(r, rows - 1) * x_row;
#if NORM
        float mine = 0;
#endif
#if NORM
        for (uint first = me % ROW_ITEMS; first < STAGED_TERMS / 8; first += VECTORS * ROW_ITEMS) {
            uint4 words[VECTORS];
#pragma unroll
            for (uint i = 0; i < VECTORS; i++)
                words[i] = *(__global const uint4 *)(from + min(start + (first + i * ROW_ITEMS) * 8, end - 8));
#pragma unroll
            for (uint i = 0; i < VECTORS; i++) {
                const uint at = first + i * ROW_ITEMS;
                if (at >= STAGED_TERMS / 8) continue;
                const uint4 weights = *(__global const uint4 *)(scale + min(start + at * 8, end - 8));
                *(__local uint4 *)(staged + r * PITCH + at * 4) = normed_words(words[i], weights, &mine);
            }
        }
#else
        for (uint at = me % ROW_ITEMS; at < STAGED_TERMS / 8; at += ROW_ITEMS)
            COPY16(staged + r * PITCH + at * 4, from + min(start + at * 8, end - 8), true);
#endif
#if NORM
        squares[me] = mine;
#else
        COPIES_COMMIT();
        COPIES_WAIT(0);
#endif
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#if NORM
    for (uint at = me; at < X_ROWS * SHARES; at += ITEMS) {
        float sum = 0;
        for (uint i = at % SHARES; i < ROW_ITEMS; i += SHARES) sum += squares[at / SHARES * ROW_ITEMS + i];
        shares[at] = sum;
    }
#endif
#endif
    for (uint block = get_group_id(0); block < blocks; block += groups) {
        const uint first_column = block * RESULT_COLUMNS(COLUMNS);
        float sums[COLUMN_BLOCKS][ROW_BLOCKS][4];
#pragma unroll
        for (uint c = 0; c < COLUMN_BLOCKS; c++)
#pragma unroll
            for (uint r = 0; r < ROW_BLOCKS; r++)
#pragma unroll
                for (uint i = 0; i < 4; i++) sums[c][r][i] = 0;
#if NORM && !STAGED_TERMS
        float norms[ROW_BLOCKS];
#pragma unroll
        for (uint r = 0; r < ROW_BLOCKS; r++) norms[r] = 0;
#endif

        for (uint from = 0; from < share; from += UNROLL * STEP) {
#if PERSISTENT
            uint ahead = from + UNROLL * STEP;
            bool more = true;
            if (ahead >= share) {
                ahead = 0;
                more = block + groups < blocks;
                if (more) LOCATE_LINES(block + groups)
            }
#else
            if (from)
#pragma unroll
                for (uint u = 0; u < UNROLL; u++) load_step(&window[u], &lines, begin + from, u * STEP, end, y_row);
#endif
#pragma unroll
            for (uint u = 0; u < UNROLL; u++) {
                const bool inside = WHOLE || begin + from + u * STEP < limit;
                const uint term = WHOLE ? begin + from + u * STEP : min(begin + from + u * STEP, end - 8);
                uint4 left[ROW_BLOCKS];
#if NORM && !STAGED_TERMS
                const uint4 weights = *(__global const uint4 *)(scale + term);
#endif
#pragma unroll
                for (uint r = 0; r < ROW_BLOCKS; r++) {
                    const uint row = r * 8 + line;
#if STAGED_TERMS
                    left[r] = *(__local const uint4 *)(staged + min(row, (uint)X_ROWS - 1) * PITCH + (term - start) / 2);
#else
                    left[r] = *(__global const uint4 *)(x + (min(row, rows - 1) * x_row + term));
#endif
                    left[r] = inside ? left[r] : (uint4)(0);
#if NORM && !STAGED_TERMS
                    left[r] = normed_words(left[r], weights, &norms[r]);
#endif
                }
                // An infinite number of the matrix times zero would not be zero.
#pragma unroll
                for (uint i = 0; i < LOADS; i++)
#pragma unroll
                    for (uint w = 0; w < LOAD_WORDS; w++) window[u].words[i][w] = inside ? window[u].words[i][w] : 0;
#pragma unroll
                for (uint half_step = 0; half_step < 2; half_step++)
#pragma unroll
                    for (uint c = 0; c < COLUMN_BLOCKS; c++) {
                        const Columns columns = columns_of(&window[u], c, half_step);
#pragma unroll
                        for (uint r = 0; r < ROW_BLOCKS; r++) {
                            const uint2 pairs = half_step ? left[r].hi : left[r].lo;
                            BLOCK_PRODUCT(sums[c][r], columns, pairs.s0, pairs.s1);
                        }
                    }
#if PERSISTENT
                if (more) load_step(&window[u], &lines, begin + ahead, u * STEP, end, y_row);
#endif
            }
        }
#pragma unroll
        for (uint r = 0; r < ROW_BLOCKS; r++, turn ^= 1) {
            __local float *const memory = buffers[turn];
#pragma unroll
            for (uint c = 0; c < COLUMN_BLOCKS; c++)
#pragma unroll
                for (uint i = 0; i < 4; i++)
                    memory[(along * 8 + lane % 4 * 2 + i % 2) * COLUMNS + across * WARP_COLUMNS +
                           COLUMN_OF(c, line + i / 2 * 8)] = sums[c][r][i];
#if NORM && !STAGED_TERMS
            __local float *const shares = squares[turn];
            shares[me] = norms[r];
#endif
            barrier(CLK_LOCAL_MEM_FENCE);
            FINISH_ROWS(r * 8, 8)
        }
    }
}
