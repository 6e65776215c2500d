// Second stage of a split-K convolution: result (row, column) of a group = sum over splits of
// partial[split][group][row][column] (+ bias), in order. conv/output_index.h defines its address.

#ifndef OUT_DTYPE
#define OUT_DTYPE float32
#endif
#ifndef DTYPE
#define DTYPE OUT_DTYPE
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef BIAS
#define BIAS 0
#endif
#include "lib/dtypes.h"
#include "lib/dependent_launch.h"
#include "conv/output_index.h"

#define ITEMS 64
// Columns of a work-item.
#ifndef COLUMNS
#define COLUMNS 4
#endif
// Splits whose partial sums are read at once.
#define UNROLLED_SPLITS (16 / COLUMNS)

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void conv_split_k_reduce(
    __global const REAL *partial,
#if BIAS
    __global const STORAGE(DTYPE) *bias, const ulong bias_offset,
#endif
    __global STORAGE(OUT_DTYPE) *out, const ulong out_offset, const uint size, const uint rows, const uint columns,
    const uint splits, const OutputGeometry output) {
    START_NEXT
    AWAIT_INPUTS
    // A group stays in one row, so that work-items index only columns.
    const uint blocks = (columns + ITEMS * COLUMNS - 1) / (ITEMS * COLUMNS);
    const uint line = get_group_id(0) / blocks, first = get_group_id(0) % blocks * (ITEMS * COLUMNS) + get_local_id(0);
    const uint group = line / rows, row = line % rows;
    partial += line * columns;
    REAL sums[COLUMNS];
#pragma unroll
    for (uint c = 0; c < COLUMNS; c++) sums[c] = 0;
    for (uint from = 0; from < splits; from += UNROLLED_SPLITS) {
#pragma unroll
        for (uint s = from; s < from + UNROLLED_SPLITS; s++)
#pragma unroll
            for (uint c = 0; c < COLUMNS; c++)
                if (s < splits && first + c * ITEMS < columns) sums[c] += partial[(ulong)s * size + first + c * ITEMS];
    }
    INDEX_ROW(row)
#pragma unroll
    for (uint c = 0; c < COLUMNS; c++) {
        const uint column = first + c * ITEMS;
        if (column >= columns) break;
        INDEX_COLUMN(column)
#if BIAS
        sums[c] += LOAD(DTYPE, bias, bias_offset + line);
#endif
        if (OUTPUT_EXISTS)
            STORE(OUT_DTYPE, sums[c], out, (long)out_offset + group * output.out_group + row_offset + column_offset);
    }
}
