// Columns of matrices of any strides, NR at a time, in the order in which matmul_panels.cl reads them: for each batch, panel and
// row, NR elements in the type of the sums. Columns past the end are zeros. A work-item packs ROWS rows of one panel.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef NR
#define NR 32
#endif
#ifndef ROWS
#define ROWS 32
#endif
#include "dtypes.h"

__kernel void matmul_pack(__global const STORAGE(DTYPE) *b, const ulong b_offset, __global REAL *packed, const uint n,
                          const uint k, const long b_row, const long b_column, const uint batch1, const uint batch2,
                          const long b_batch0, const long b_batch1, const long b_batch2) {
    const uint panels = (n + NR - 1) / NR;
    const uint first = get_global_id(0) * ROWS;
    const uint panel = get_global_id(1);
    const uint batch = get_global_id(2);
    if (first >= k || panel >= panels) return;
    const uint i2 = batch % batch2, i1 = batch / batch2 % batch1, i0 = batch / batch2 / batch1;
    b += b_offset + (long)i0 * b_batch0 + (long)i1 * b_batch1 + (long)i2 * b_batch2;
    b += (long)(panel * NR) * b_column + (long)first * b_row;
    packed += (((ulong)batch * panels + panel) * k + first) * NR;
    const uint rows = min((uint)ROWS, k - first);
    const uint columns = min((uint)NR, n - panel * NR);
    if (columns < NR) {
        for (uint p = 0; p < rows; p++)
            for (uint c = 0; c < NR; c++)
                packed[p * NR + c] = c < columns ? LOAD(DTYPE, b, p * b_row + c * b_column) : (REAL)0;
    } else if (b_column == 1) {
        for (uint p = 0; p < rows; p++)
            for (uint c = 0; c < NR; c++) packed[p * NR + c] = LOAD(DTYPE, b + p * b_row, c);
    } else if (b_row == 1 && rows == ROWS) {
        // Squares of 4 by 4, turned in registers.
        for (uint c = 0; c < NR; c += 4)
            for (uint p = 0; p < ROWS; p += 4) {
                __global const STORAGE(DTYPE) *at = b + c * b_column + p;
                REAL square[4][4];
                for (uint i = 0; i < 4; i++)
                    for (uint j = 0; j < 4; j++) square[i][j] = LOAD(DTYPE, at + i * b_column, j);
                for (uint j = 0; j < 4; j++)
                    for (uint i = 0; i < 4; i++) packed[(p + j) * NR + c + i] = square[i][j];
            }
    } else {
        for (uint p = 0; p < rows; p++)
            for (uint c = 0; c < NR; c++) packed[p * NR + c] = LOAD(DTYPE, b, p * b_row + c * b_column);
    }
}
