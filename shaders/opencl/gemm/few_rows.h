// Products of few rows x (rows, k) with a large matrix y (k, n), which is read once: the position of a group and the
// reduction of its sums.
//
// A block is ROWS rows by COLUMNS columns of the result, which a group computes. Its warps divide both the columns (ACROSS) and the terms (ALONG); with
// SPLIT_K, groups divide the terms as well and write partial sums to `out` (splits, batch, rows, n), in the strides of
// the result, which gemm/split_k_reduce.cl reduces in a fixed order.

#ifndef POLYHAL_FEW_ROWS
#define POLYHAL_FEW_ROWS

// Layout of y: 1, K-major: the terms of a column are contiguous; 0: the columns of a term are. The terms of x are.
#ifndef K_MAJOR
#define K_MAJOR 1
#endif
// Warps of a group along the terms and across the columns.
#ifndef ALONG
#define ALONG 4
#endif
#ifndef ACROSS
#define ACROSS 2
#endif
// Steps of terms whose loads are in flight at a time.
#ifndef UNROLL
#define UNROLL 2
#endif
#ifndef SPLIT_K
#define SPLIT_K 0
#endif
#define WIDTH 1
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "lib/epilogue.h"
#include "gemm/joined.h"

#if SPLIT_K
#define TARGET float
#define STORE_RESULT(value, at) (out[at] = (value))
#else
#define TARGET STORAGE(OUT_DTYPE)
#define STORE_RESULT(value, at) STORE(OUT_DTYPE, value, out, at)
#endif
#define ITEMS (32 * ALONG * ACROSS)
// Columns of the result that COLUMNS columns of sums become. With PAIRS blocks of 8 columns of the matrices alternate.
#if PAIRS
#define RESULT_COLUMNS(columns) ((columns) / 2)
#define SUM_OF(column) ((column) / 8 * 16 + (column) % 8)
#else
#define RESULT_COLUMNS(columns) (columns)
#define SUM_OF(column) (column)
#endif
#ifndef SUM_FACTOR
// Factor of the sums of row `row` of `memory`.
#define SUM_FACTOR(row) 1
#endif

// Strides are in elements.
typedef struct {
    long x_row, x_column, y_row, y_column, out_row, out_column;
    long x_batch[3], y_batch[3];  // from one matrix to the next along the three axes of the batch
    uint rows, n, k, split_terms;  // out is rows x n; every sum has k terms, a split split_terms of them
    uint batch1, batch2;           // lengths of the last two axes of the batch
} FewRowsGeometry;

// Declares the group's terms, and moves x, y and out to the matrices of its batch.
#define LOCATE_GROUP                                                                                                   \
    const long x_row = geometry.x_row, y_row = geometry.y_row, y_column = geometry.y_column;                           \
    const uint rows = geometry.rows, n = geometry.n;                                                                   \
    UNPACK_EPILOGUE                                                                                                    \
    const uint batch = get_group_id(1), i2 = batch % geometry.batch2, i1 = batch / geometry.batch2 % geometry.batch1,  \
               i0 = batch / geometry.batch2 / geometry.batch1;                                                         \
    const uint start = get_group_id(2) * geometry.split_terms, end = min(start + geometry.split_terms, geometry.k);    \
    x += x_offset + i0 * geometry.x_batch[0] + i1 * geometry.x_batch[1] + i2 * geometry.x_batch[2];                    \
    y += y_offset + i0 * geometry.y_batch[0] + i1 * geometry.y_batch[1] + i2 * geometry.y_batch[2];                    \
    out += out_offset + ((ulong)get_group_id(2) * get_num_groups(1) + batch) * rows * n;                               \
    const uint me = get_local_id(0), lane = me % 32, along = me / 32 % ALONG, across = me / 32 / ALONG;

// Reduces `memory`, SLICES x COUNT rows x COLUMNS, over slices in a fixed order and stores the rows from `from`.
#define SUM_SLICES(sum, at)       \
    float sum = memory[at];       \
    _Pragma("unroll") for (uint s = 1; s < SLICES; s++) sum += memory[s * finished_ * COLUMNS + (at)];
#if PAIRS
#define SUM_PAIRED(at, factor)                  \
    SUM_SLICES(other, (at) + 8)                 \
    other *= factor;
#else
#define SUM_PAIRED(at, factor)
#endif
#define FINISH_ROWS(from, COUNT)                                                                         \
    for (uint at = me; at < (COUNT) * RESULT_COLUMNS(COLUMNS); at += ITEMS) {                            \
        const uint line_ = at / RESULT_COLUMNS(COLUMNS), column_ = at % RESULT_COLUMNS(COLUMNS);         \
        const uint row = first_row + (from) + line_, column = first_column + column_;                    \
        if (row >= rows || column >= n) continue;                                                        \
        const uint finished_ = COUNT, place = line_ * COLUMNS + SUM_OF(column_);                     \
        const float factor = SUM_FACTOR((from) + line_);                                                 \
        SUM_SLICES(sum, place)                                                                           \
        sum *= factor;                                                                                   \
        SUM_PAIRED(place, factor)                                                                        \
        EPILOGUE_STEPS(sum, row, column, i0, i1, i2, 1)                                                  \
        STORE_RESULT(sum, row * geometry.out_row + column * geometry.out_column);                        \
    }

#endif
