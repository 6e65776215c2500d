// Matrix-vector products: out[r, c] = sum over i of x[r, i] * y[i, c] for up to ROWS rows of x. The matrix y is read once.
// Strides are arbitrary, so a matrix times a few column vectors uses this kernel with exchanged operands.
//
// K_MAJOR 1: the terms of a column of y are contiguous. A group of GROUP work-items computes COLUMNS columns; each
// work-item takes every GROUP-th vector of terms. K_MAJOR 0: the columns of y are contiguous. A group computes LANES *
// VECTORS vectors of columns; GROUP / LANES work-items divide the terms of each. Partial sums are reduced in local memory
// in a fixed order. With K_MAJOR there may be several matrices, and a norm before the product (gemm/joined.h).

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef WIDTH
#define WIDTH 4
#endif
#ifndef ROWS
#define ROWS 1
#endif
#ifndef K_MAJOR
#define K_MAJOR 1
#endif
#ifndef GROUP
#define GROUP 128
#endif
#ifndef LANES
#define LANES 32
#endif
#ifndef COLUMNS
#define COLUMNS 4
#endif
#ifndef VECTORS
#define VECTORS 1
#endif
// 1: operands are loaded in another type than REAL.
#ifndef WIDEN
#define WIDEN 0
#endif
#define ALIGNED 0
// On CPUs each column is prefetched while the one COLUMNS before is read: the next work-item's, usually on the same core.
#define PREFETCH_DISTANCE 1
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "lib/epilogue.h"
#include "gemm/joined.h"

typedef VEC(REAL) V;
#define SUM_LANE(v, j) (((__private REAL *)&(v))[j])
#if WIDEN
#define LOAD_VECTOR(p) CONVERT(REAL, LOADV(DTYPE, p))
#else
#define LOAD_VECTOR(p) LOADV(DTYPE, p)
#endif
#define LOAD_SCALAR(p, i) ((REAL)LOAD(DTYPE, p, i))

static inline REAL total(V v) {
    REAL sum = SUM_LANE(v, 0);
#pragma unroll
    for (uint j = 1; j < WIDTH; j++) sum += SUM_LANE(v, j);
    return sum;
}

// Strides are in elements.
typedef struct {
    long x_row, x_column, y_row, y_column, out_row, out_column;
    long x_batch[3], y_batch[3];  // from one matrix to the next along the three axes of the batch
    uint rows, n, k;              // out is rows x n; every sum has k terms
    uint batch1, batch2;          // lengths of the last two axes of the batch
} GemvGeometry;

__kernel void gemm_gemv(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global const STORAGE(DTYPE) *y,
                        const ulong y_offset, JOINED_PARAMETERS EPILOGUE_PARAMETERS
                        __global STORAGE(OUT_DTYPE) *out, const ulong out_offset, const GemvGeometry geometry) {
    const long x_row = geometry.x_row, x_column = geometry.x_column, y_row = geometry.y_row, y_column = geometry.y_column;
    const long out_row = geometry.out_row, out_column = geometry.out_column;
    const uint rows = geometry.rows, n = geometry.n, k = geometry.k, batch1 = geometry.batch1, batch2 = geometry.batch2;
    UNPACK_EPILOGUE
    const uint batch = get_global_id(1);
    const uint i2 = batch % batch2, i1 = batch / batch2 % batch1, i0 = batch / batch2 / batch1;
    x += x_offset + (long)i0 * geometry.x_batch[0] + (long)i1 * geometry.x_batch[1] + (long)i2 * geometry.x_batch[2];
    y += y_offset + (long)i0 * geometry.y_batch[0] + (long)i1 * geometry.y_batch[1] + (long)i2 * geometry.y_batch[2];
    out += out_offset + (ulong)batch * rows * n;
    const uint me = get_local_id(0);
#if K_MAJOR
#define RESULTS COLUMNS
    // One sum per row and column, with PAIRS two. x_column and y_row are 1.
#define SUMS_PER_COLUMN (PAIRS ? 2 : 1)
    const uint first = get_group_id(0) * (COLUMNS / SUMS_PER_COLUMN);
    SELECT_MATRIX(first)
    LOCATE_SCALE
#define TERMS_OF(c) (MATRIX_OF((c) % SUMS_PER_COLUMN) + min(first + (c) / SUMS_PER_COLUMN, n - 1) * y_column)
#if NORM
    REAL norms[ROWS];
#endif
    REAL sums[ROWS * COLUMNS];
    {
        V partial[ROWS][COLUMNS];
#pragma unroll
        for (uint r = 0; r < ROWS; r++)
#pragma unroll
            for (uint c = 0; c < COLUMNS; c++) partial[r][c] = (V)(0);
#if NORM
        V squares[ROWS];
#pragma unroll
        for (uint r = 0; r < ROWS; r++) squares[r] = (V)(0);
#endif
        const uint whole = k / WIDTH;
        for (uint i = me; i < whole; i += GROUP) {
            V left[ROWS];
#pragma unroll
            for (uint r = 0; r < ROWS; r++) left[r] = LOAD_VECTOR(x + min(r, rows - 1) * x_row + i * WIDTH);
#if NORM
            const V weights = LOAD_VECTOR(scale + i * WIDTH);
#pragma unroll
            for (uint r = 0; r < ROWS; r++) {
                squares[r] += left[r] * left[r];
                left[r] *= weights;
            }
#endif
#pragma unroll
            for (uint c = 0; c < COLUMNS; c++) {
                const V right = LOAD_VECTOR(TERMS_OF(c) + i * WIDTH);
                PREFETCH_READ(TERMS_OF(c) + COLUMNS / SUMS_PER_COLUMN * y_column + i * WIDTH)
#pragma unroll
                for (uint r = 0; r < ROWS; r++) partial[r][c] += left[r] * right;
            }
        }
#pragma unroll
        for (uint r = 0; r < ROWS; r++)
#pragma unroll
            for (uint c = 0; c < COLUMNS; c++) sums[r * COLUMNS + c] = total(partial[r][c]);
#if NORM
#pragma unroll
        for (uint r = 0; r < ROWS; r++) norms[r] = total(squares[r]);
#endif
        if (me == 0)
            for (uint i = whole * WIDTH; i < k; i++)
                for (uint r = 0; r < ROWS; r++) {
                    REAL left = LOAD_SCALAR(x, min(r, rows - 1) * x_row + i);
#if NORM
                    norms[r] += left * left;
                    left *= LOAD_SCALAR(scale, i);
#endif
                    for (uint c = 0; c < COLUMNS; c++) sums[r * COLUMNS + c] += left * LOAD_SCALAR(TERMS_OF(c), i);
                }
    }
    const uint slice = me;
#define SLICES GROUP
#else
#define SUMS_PER_COLUMN 1
#define RESULTS (VECTORS * WIDTH)
    // One sum per row and vector lane. y_column is 1.
    const uint first = (get_group_id(0) * LANES + me % LANES) * RESULTS;
    const uint slice = me / LANES;
#define SLICES (GROUP / LANES)
    REAL sums[ROWS * RESULTS];
    {
        V partial[ROWS][VECTORS];
#pragma unroll
        for (uint r = 0; r < ROWS; r++)
#pragma unroll
            for (uint s = 0; s < VECTORS; s++) partial[r][s] = (V)(0);
        if (first + RESULTS <= n) {
            for (uint i = slice; i < k; i += SLICES) {
                V left[ROWS];
#pragma unroll
                for (uint r = 0; r < ROWS; r++) left[r] = (V)(LOAD_SCALAR(x, min(r, rows - 1) * x_row + i * x_column));
#pragma unroll
                for (uint s = 0; s < VECTORS; s++) {
                    const V right = LOAD_VECTOR(y + i * y_row + first + s * WIDTH);
#pragma unroll
                    for (uint r = 0; r < ROWS; r++) partial[r][s] += left[r] * right;
                }
            }
        } else if (first < n) {
            for (uint i = slice; i < k; i += SLICES)
                for (uint j = 0; j < n - first; j++) {
                    const REAL right = LOAD_SCALAR(y, i * y_row + first + j);
#pragma unroll
                    for (uint r = 0; r < ROWS; r++)
                        SUM_LANE(partial[r], j) += LOAD_SCALAR(x, min(r, rows - 1) * x_row + i * x_column) * right;
                }
        }
#pragma unroll
        for (uint r = 0; r < ROWS; r++)
#pragma unroll
            for (uint j = 0; j < RESULTS; j++) sums[r * RESULTS + j] = SUM_LANE(partial[r], j);
    }
#endif
#if GROUP > 1
    __local REAL shared[GROUP];
#define REDUCE(value)                                                                              \
    {                                                                                              \
        barrier(CLK_LOCAL_MEM_FENCE);                                                              \
        shared[me] = value;                                                                        \
        for (uint half_size = SLICES / 2; half_size > 0; half_size /= 2) {                         \
            barrier(CLK_LOCAL_MEM_FENCE);                                                          \
            if (slice < half_size) shared[me] += shared[me + half_size * (GROUP / SLICES)];        \
        }                                                                                          \
        value = shared[me];                                                                        \
    }
#else
#define REDUCE(value)
#endif
#pragma unroll
    for (uint r = 0; r < ROWS; r++) {
#if NORM
        REDUCE(norms[r])
        const REAL factor = NORM_FACTOR(norms[r], k);
#else
        const REAL factor = 1;
#endif
        // The results of a row, a vector at a time.
#pragma unroll
        for (uint c = 0; c < RESULTS / SUMS_PER_COLUMN; c += WIDTH) {
            V sum = (V)(0), other = (V)(0);
#pragma unroll
            for (uint j = 0; j < WIDTH && c + j < RESULTS / SUMS_PER_COLUMN; j++) {
                REAL value = sums[r * RESULTS + (c + j) * SUMS_PER_COLUMN];
                REDUCE(value)
                SUM_LANE(sum, j) = value * factor;
#if PAIRS
                REAL paired_value = sums[r * RESULTS + (c + j) * SUMS_PER_COLUMN + 1];
                REDUCE(paired_value)
                SUM_LANE(other, j) = paired_value * factor;
#endif
            }
            if (slice == 0 && r < rows && first + c < n) {
                const uint left = min(min((uint)WIDTH, (uint)RESULTS / SUMS_PER_COLUMN - c), n - first - c);
                EPILOGUE_STEPS(sum, r, first + c, i0, i1, i2, left)
#pragma unroll
                for (uint j = 0; j < WIDTH; j++)
                    if (j < left) STORE(OUT_DTYPE, SUM_LANE(sum, j), out, r * out_row + (first + c + j) * out_column);
            }
        }
    }
}
