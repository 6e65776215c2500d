// out = a x b (+ bias) on a CPU: one work-item makes a block of `block_rows` rows by `block_columns` columns, as register tiles of
// MR rows by NR columns. `b` has been packed by matmul_pack.cl into panels of NR columns; the rows of `a` are packed here, MR at a
// time, into memory of the work-item, which stays in the first-level cache while all the block's panels of `b` pass by.
//
// Sums run over DEPTH terms at a time. Between the parts, results wait in `partial`, which is `out` itself where that has the
// type of the sums (SPLIT 0), and a workspace where it is narrower (SPLIT 1). With `accumulate` the product is added to
// what `out` holds. `first_batch` is where in `out` the first batch of this launch belongs.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#ifndef REAL
#define REAL float
#define REAL_DTYPE float32
#endif
#ifndef WIDTH
#define WIDTH 16
#endif
// Registers: MR * VECTORS sums, VECTORS of b and one of a; 26 of AVX-512's 32.
#ifndef MR
#define MR 12
#endif
#ifndef VECTORS
#define VECTORS 2
#endif
#ifndef DEPTH
#define DEPTH 384
#endif
// 1: one number per column; 2: one per row, for each of the `batch2` operands on the last batch axis.
#ifndef BIAS
#define BIAS 0
#endif
#ifndef SPLIT
#define SPLIT 0
#endif
#define ALIGNED 0
#include "dtypes.h"
#include "vectors.h"

#define NR (VECTORS * WIDTH)
typedef VEC(REAL) V;
#define VECTOR_PRIVATE_STORE(v, p) CONCAT(vstore, WIDTH)(v, 0, p)

// MR rows of `a`, `depth` columns, as panel[column * MR + row]. Rows past the end repeat the last one; they are not stored.
inline void pack_rows(__global const STORAGE(DTYPE) *a, const long row_step, const long column_step, const uint rows,
                      const uint depth, __private REAL *panel) {
    if (rows == MR && column_step == 1) {
        // Squares of 4 by 4, turned in registers.
        uint p = 0;
        for (; p + 4 <= depth; p += 4) {
            for (uint r = 0; r < MR; r += 4) {
                __global const STORAGE(DTYPE) *at = a + r * row_step + p;
                REAL square[4][4];
                for (uint i = 0; i < 4; i++)
                    for (uint j = 0; j < 4; j++) square[i][j] = LOAD(DTYPE, at + i * row_step, j);
                for (uint j = 0; j < 4; j++)
                    for (uint i = 0; i < 4; i++) panel[(p + j) * MR + r + i] = square[i][j];
            }
        }
        for (; p < depth; p++)
            for (uint r = 0; r < MR; r++) panel[p * MR + r] = LOAD(DTYPE, a, r * row_step + p);
    } else if (rows == MR && row_step == 1) {
        for (uint p = 0; p < depth; p++)
            for (uint r = 0; r < MR; r++) panel[p * MR + r] = LOAD(DTYPE, a + p * column_step, r);
    } else {
        for (uint r = 0; r < MR; r++) {
            __global const STORAGE(DTYPE) *row = a + min(r, rows - 1) * row_step;
            for (uint p = 0; p < depth; p++) panel[p * MR + r] = LOAD(DTYPE, row, p * column_step);
        }
    }
}

__kernel void matmul_panels(__global const STORAGE(DTYPE) *a, const ulong a_offset, __global const REAL *packed,
#if BIAS
                            __global const STORAGE(DTYPE) *bias, const ulong bias_offset,
#endif
#if SPLIT
                            __global REAL *partial,
#endif
                            __global STORAGE(OUT_DTYPE) *out, const ulong out_offset, const uint m, const uint n,
                            const uint k, const uint block_rows, const uint block_columns, const long a_row,
                            const long a_column, const uint batch1, const uint batch2, const long a_batch0,
                            const long a_batch1, const long a_batch2, const uint packed_batch0, const uint packed_batch1,
                            const uint packed_batch2, const uint first_batch, const uint accumulate) {
    const uint first_row = get_global_id(0) * block_rows;
    const uint first_column = get_global_id(1) * block_columns;
    const uint batch = get_global_id(2);
    if (first_row >= m || first_column >= n) return;
    const uint i2 = batch % batch2, i1 = batch / batch2 % batch1, i0 = batch / batch2 / batch1;
    a += a_offset + (long)i0 * a_batch0 + (long)i1 * a_batch1 + (long)i2 * a_batch2;
    const ulong panels = (n + NR - 1) / NR;
    packed += (ulong)(i0 * packed_batch0 + i1 * packed_batch1 + i2 * packed_batch2) * panels * NR * k;
    out += out_offset + (ulong)(first_batch + batch) * m * n;
#if SPLIT
    partial += (ulong)batch * m * n;
#endif
    const uint last_row = min(first_row + block_rows, m);
    const uint last_column = min(first_column + block_columns, n);
    REAL panel[DEPTH * MR];
    for (uint start = 0; start < k; start += DEPTH) {
        const uint depth = min((uint)DEPTH, k - start);
        for (uint row = first_row; row < last_row; row += MR) {
            const uint rows = min((uint)MR, last_row - row);
            pack_rows(a + row * a_row + start * a_column, a_row, a_column, rows, depth, panel);
            for (uint column = first_column; column < last_column; column += NR) {
                const uint columns = min((uint)NR, last_column - column);
                __global const V *right = (__global const V *)(packed + (ulong)column * k + (ulong)start * NR);
                V sums[MR][VECTORS];
#pragma unroll
                for (uint r = 0; r < MR; r++)
#pragma unroll
                    for (uint v = 0; v < VECTORS; v++) sums[r][v] = (V)(0);
                __private const REAL *left = panel;
                for (uint p = 0; p < depth; p++) {
                    V b[VECTORS];
#pragma unroll
                    for (uint v = 0; v < VECTORS; v++) b[v] = right[v];
#pragma unroll
                    for (uint r = 0; r < MR; r++) {
                        const V x = (V)(left[r]);
#pragma unroll
                        for (uint v = 0; v < VECTORS; v++) sums[r][v] += x * b[v];
                    }
                    right += VECTORS;
                    left += MR;
                }
                // What was summed so far, or the bias.
                const bool last = start + DEPTH >= k;
                const ulong at = (ulong)row * n + column;
                if (columns == NR) {
#if BIAS == 1
                    V shift[VECTORS];
#pragma unroll
                    for (uint v = 0; v < VECTORS; v++)
                        shift[v] = start ? (V)(0) : LOADV(DTYPE, bias + bias_offset + column + v * WIDTH);
#endif
#pragma unroll
                    for (uint r = 0; r < MR; r++) {
                        if (r < rows) {
#pragma unroll
                            for (uint v = 0; v < VECTORS; v++) {
                                const ulong i = at + (ulong)r * n + v * WIDTH;
                                V sum = sums[r][v];
#if BIAS == 1
                                sum += shift[v];
#elif BIAS == 2
                                if (!start) sum += LOAD(DTYPE, bias, bias_offset + i2 * m + row + r);
#endif
#if SPLIT
                                if (start) sum += LOADV(REAL_DTYPE, partial + i);
                                if (!last) STOREV(REAL_DTYPE, sum, partial + i);
                                else STOREV(OUT_DTYPE, sum, out + i);
#else
                                if (start || accumulate) sum += LOADV(OUT_DTYPE, out + i);
                                STOREV(OUT_DTYPE, sum, out + i);
#endif
                            }
                        }
                    }
                } else {
                    REAL spilled[MR * NR];
#pragma unroll
                    for (uint r = 0; r < MR; r++)
#pragma unroll
                        for (uint v = 0; v < VECTORS; v++) VECTOR_PRIVATE_STORE(sums[r][v], spilled + r * NR + v * WIDTH);
                    for (uint r = 0; r < rows; r++)
                        for (uint c = 0; c < columns; c++) {
                            const ulong i = at + (ulong)r * n + c;
                            REAL sum = spilled[r * NR + c];
#if BIAS == 1
                            if (!start) sum += LOAD(DTYPE, bias, bias_offset + column + c);
#elif BIAS == 2
                            if (!start) sum += LOAD(DTYPE, bias, bias_offset + i2 * m + row + r);
#endif
#if SPLIT
                            if (start) sum += partial[i];
                            if (!last) partial[i] = sum;
                            else STORE(OUT_DTYPE, sum, out, i);
#else
                            if (start || accumulate) sum += LOAD(OUT_DTYPE, out, i);
                            STORE(OUT_DTYPE, sum, out, i);
#endif
                        }
                }
            }
        }
    }
}
