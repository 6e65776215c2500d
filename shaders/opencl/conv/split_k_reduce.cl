// The second stage of a convolution whose terms were shared out: result (row, column) of a group = sum over splits of
// partial[split][group][row][column] (+ bias), in order; see conv/output_index.h.

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
#include "conv/output_index.h"

#define ITEMS 64
// Columns of a work-item. So many partial sums are read at once.
#ifndef COLUMNS
#define COLUMNS 4
#endif
#define TOGETHER (16 / COLUMNS)

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void conv_split_k_reduce(
    __global const REAL *partial,
#if BIAS
    __global const STORAGE(DTYPE) *bias, const ulong bias_offset,
#endif
    __global STORAGE(OUT_DTYPE) *out, const ulong out_offset, const uint size, const uint m, const uint n,
    const uint splits, PLACES) {
    // A group is in one row, so that only columns are taken apart for each work-item.
    const uint blocks = (n + ITEMS * COLUMNS - 1) / (ITEMS * COLUMNS);
    const uint line = get_group_id(0) / blocks, first = get_group_id(0) % blocks * (ITEMS * COLUMNS) + get_local_id(0);
    const uint group = line / m, row = line % m;
    partial += line * n;
    REAL sums[COLUMNS];
#pragma unroll
    for (uint c = 0; c < COLUMNS; c++) sums[c] = 0;
    for (uint from = 0; from < splits; from += TOGETHER) {
#pragma unroll
        for (uint s = from; s < from + TOGETHER; s++)
#pragma unroll
            for (uint c = 0; c < COLUMNS; c++)
                if (s < splits && first + c * ITEMS < n) sums[c] += partial[(ulong)s * size + first + c * ITEMS];
    }
    PLACE_ROW(row)
#pragma unroll
    for (uint c = 0; c < COLUMNS; c++) {
        const uint column = first + c * ITEMS;
        if (column >= n) break;
        PLACE_COLUMN(column)
#if BIAS
        sums[c] += LOAD(DTYPE, bias, bias_offset + line);
#endif
        if (PLACE_EXISTS) STORE(OUT_DTYPE, sums[c], out, (long)out_offset + group * out_group + row_place + column_place);
    }
}
