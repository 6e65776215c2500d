// Gradients of attention on a CPU, from the saved logsumexp: the probabilities are computed again, tile by tile, and are never in
// memory. A work-item takes tiles of MR rows and passes over the columns NR at a time, adding to the rows' gradients.
//
// ROWS_ARE_KEYS 0: rows are queries, columns keys; a row gathers dq = sum over keys of ds * k. ROWS_ARE_KEYS 1: rows are keys, columns
// queries; a row gathers dk = sum over queries of ds * q and dv = sum over queries of p * g. Here
// p = exp(scale * q k^T + mask - lse) and ds = scale * p * (g v^T - delta), with delta = sum(g * out) of each query.
//
// `first` is q or k by rows and `second` is g or v by rows, both in place; matmul_pack.cl has packed the columns' counterparts:
// `first_columns` (k^T or q^T) and `second_columns` (v^T or g^T) into panels of NR columns, and `first_rows` (k or q)
// and `second_rows` (g, for ROWS_ARE_KEYS only) into panels of features.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef GRADIENT_DTYPE
#define GRADIENT_DTYPE DTYPE
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef WIDTH
#define WIDTH 16
#endif
#ifndef MR
#define MR 6
#endif
#ifndef VECTORS
#define VECTORS 4
#endif
// Vectors per panel of the features of keys and of values.
#ifndef KEY_VECTORS
#define KEY_VECTORS 4
#endif
#ifndef VALUE_VECTORS
#define VALUE_VECTORS 4
#endif
#ifndef MAX_FEATURES
#define MAX_FEATURES 64
#endif
#ifndef MAX_VALUES
#define MAX_VALUES 64
#endif
#ifndef ROWS_ARE_KEYS
#define ROWS_ARE_KEYS 0
#endif
#ifndef CAUSAL
#define CAUSAL 0
#endif
// 0: none; 1: bool, True keeps; 2: added.
#ifndef MASK
#define MASK 0
#endif
#ifndef MASK_DTYPE
#define MASK_DTYPE bool_
#endif
#define ALIGNED 0
#include "dtypes.h"
#include "vectors.h"
#include "exponential.h"

typedef VEC(REAL) V;
#define NR (VECTORS * WIDTH)

#if ROWS_ARE_KEYS
#define FIRST_DTYPE DTYPE
#define SECOND_DTYPE DTYPE
#else
#define FIRST_DTYPE DTYPE
#define SECOND_DTYPE GRADIENT_DTYPE
#endif

// tile = left x panel: MR rows by NR columns over `depth` features.
inline void multiply(__private const REAL *left, __global const REAL *panel, const uint depth, __private REAL *tile) {
    V sums[MR][VECTORS];
#pragma unroll
    for (uint r = 0; r < MR; r++)
#pragma unroll
        for (uint v = 0; v < VECTORS; v++) sums[r][v] = (V)(0);
    __global const V *right = (__global const V *)panel;
    for (uint c = 0; c < depth; c++) {
        V b[VECTORS];
#pragma unroll
        for (uint v = 0; v < VECTORS; v++) b[v] = right[v];
#pragma unroll
        for (uint r = 0; r < MR; r++)
#pragma unroll
            for (uint v = 0; v < VECTORS; v++) sums[r][v] += (V)(left[r]) * b[v];
        right += VECTORS;
        left += MR;
    }
#pragma unroll
    for (uint r = 0; r < MR; r++)
#pragma unroll
        for (uint v = 0; v < VECTORS; v++) ((__private V *)tile)[r * VECTORS + v] = sums[r][v];
}

// results += tile x panels, where the panels hold `columns` rows of features, VECTORS_OF vectors each, `length` rows per panel.
#define GATHER(name, VECTORS_OF) \
    inline void name(__private const REAL *tile, __global const REAL *panels, const uint count, const uint length, \
                     const uint columns, __private V *results) { \
        const uint held = count * VECTORS_OF; \
        for (uint panel = 0; panel < count; panel++) { \
            __global const V *right = (__global const V *)(panels + (ulong)panel * length * (VECTORS_OF * WIDTH)); \
            V sums[MR][VECTORS_OF]; \
            _Pragma("unroll") for (uint r = 0; r < MR; r++) \
                _Pragma("unroll") for (uint v = 0; v < VECTORS_OF; v++) sums[r][v] = results[r * held + panel * VECTORS_OF + v]; \
            for (uint c = 0; c < columns; c++) { \
                V b[VECTORS_OF]; \
                _Pragma("unroll") for (uint v = 0; v < VECTORS_OF; v++) b[v] = right[v]; \
                _Pragma("unroll") for (uint r = 0; r < MR; r++) \
                    _Pragma("unroll") for (uint v = 0; v < VECTORS_OF; v++) sums[r][v] += (V)(tile[r * NR + c]) * b[v]; \
                right += VECTORS_OF; \
            } \
            _Pragma("unroll") for (uint r = 0; r < MR; r++) \
                _Pragma("unroll") for (uint v = 0; v < VECTORS_OF; v++) results[r * held + panel * VECTORS_OF + v] = sums[r][v]; \
        } \
    }
GATHER(gather_keys, KEY_VECTORS)
GATHER(gather_values, VALUE_VECTORS)

// delta[query] = sum over features of g * out.
__kernel void attention_delta(__global const STORAGE(GRADIENT_DTYPE) *g, const ulong g_offset,
                              __global const STORAGE(GRADIENT_DTYPE) *out, const ulong out_offset, __global REAL *delta,
                              const uint rows, const uint t, const uint e, const uint batch1, const uint batch2,
                              const long g_batch0, const long g_batch1, const long g_batch2, const long g_row,
                              const long g_column) {
    const uint row = get_global_id(0);
    if (row >= rows) return;
    const uint batch = row / t;
    const uint i2 = batch % batch2, i1 = batch / batch2 % batch1, i0 = batch / batch2 / batch1;
    g += (long)g_offset + (long)i0 * g_batch0 + (long)i1 * g_batch1 + (long)i2 * g_batch2 + (long)(row % t) * g_row;
    REAL sum = 0;
    for (uint c = 0; c < e; c++)
        sum += LOAD(GRADIENT_DTYPE, g, c * g_column) * LOAD(GRADIENT_DTYPE, out, out_offset + (ulong)row * e + c);
    delta[row] = sum;
}

__kernel void attention_grad(__global const STORAGE(FIRST_DTYPE) *first, const ulong first_offset,
                             __global const STORAGE(SECOND_DTYPE) *second, const ulong second_offset,
                             __global const REAL *first_columns, __global const REAL *second_columns,
                             __global const REAL *first_rows,
#if ROWS_ARE_KEYS
                             __global const REAL *second_rows,
#endif
#if MASK
                             __global const STORAGE(MASK_DTYPE) *mask, const ulong mask_offset,
#endif
                             __global const REAL *lse, const ulong lse_offset, __global const REAL *delta,
                             __global STORAGE(DTYPE) *first_grad, const ulong first_grad_offset,
#if ROWS_ARE_KEYS
                             __global STORAGE(DTYPE) *second_grad, const ulong second_grad_offset,
#endif
                             const uint t, const uint s, const uint d, const uint e, const uint rows_each, const REAL scale,
                             const uint batch1, const uint batch2, const long first_batch0, const long first_batch1,
                             const long first_batch2, const long first_row, const long first_column,
                             const long second_batch0, const long second_batch1, const long second_batch2,
                             const long second_row, const long second_column
#if MASK
                             , const long mask_batch0, const long mask_batch1, const long mask_batch2, const long mask_row,
                             const long mask_column
#endif
) {
    const uint batch = get_global_id(1);
    const uint i2 = batch % batch2, i1 = batch / batch2 % batch1, i0 = batch / batch2 / batch1;
    first += (long)first_offset + (long)i0 * first_batch0 + (long)i1 * first_batch1 + (long)i2 * first_batch2;
    second += (long)second_offset + (long)i0 * second_batch0 + (long)i1 * second_batch1 + (long)i2 * second_batch2;
#if MASK
    mask += (long)mask_offset + (long)i0 * mask_batch0 + (long)i1 * mask_batch1 + (long)i2 * mask_batch2;
#endif
    const uint own = ROWS_ARE_KEYS ? s : t, other = ROWS_ARE_KEYS ? t : s;
    const ulong padded = (other + NR - 1) / NR * NR;
    const uint key_panels = (d + KEY_VECTORS * WIDTH - 1) / (KEY_VECTORS * WIDTH);
    const uint value_panels = (e + VALUE_VECTORS * WIDTH - 1) / (VALUE_VECTORS * WIDTH);
    first_columns += batch * padded * d;
    second_columns += batch * padded * e;
    first_rows += (ulong)batch * key_panels * (KEY_VECTORS * WIDTH) * other;
    first_grad += first_grad_offset + (ulong)batch * own * d;
#if ROWS_ARE_KEYS
    second_rows += (ulong)batch * value_panels * (VALUE_VECTORS * WIDTH) * other;
    second_grad += second_grad_offset + (ulong)batch * own * e;
#endif
    lse += lse_offset + (ulong)batch * t;
    delta += (ulong)batch * t;
    // Query i sees keys up to i + shift.
    const long shift = (long)s - (long)t;
    const uint begin = get_global_id(0) * rows_each;
    const uint end = min(begin + rows_each, own);
    REAL left[MAX_FEATURES * MR], right[MAX_VALUES * MR];
    V first_results[MR * MAX_FEATURES / WIDTH];
#if ROWS_ARE_KEYS
    V second_results[MR * MAX_VALUES / WIDTH];
#endif
    REAL p[MR * NR] __attribute__((aligned(64)));
    REAL ds[MR * NR] __attribute__((aligned(64)));
    for (uint row = begin; row < end; row += MR) {
        const uint rows = min((uint)MR, end - row);
        for (uint r = 0; r < MR; r++) {
            const uint at = min(row + r, own - 1);
            for (uint c = 0; c < d; c++) left[c * MR + r] = LOAD(FIRST_DTYPE, first, at * first_row + c * first_column) * scale;
            for (uint c = 0; c < e; c++) right[c * MR + r] = LOAD(SECOND_DTYPE, second, at * second_row + c * second_column);
        }
        for (uint i = 0; i < MR * key_panels * KEY_VECTORS; i++) first_results[i] = (V)(0);
#if ROWS_ARE_KEYS
        for (uint i = 0; i < MR * value_panels * VALUE_VECTORS; i++) second_results[i] = (V)(0);
#endif
        uint from = 0, to = other;
#if CAUSAL && ROWS_ARE_KEYS
        // The first query that sees the tile's first key.
        from = (long)row > shift ? (uint)min((long)row - shift, (long)other) / NR * NR : 0;
#elif CAUSAL
        const long seen = (long)row + rows + shift;
        to = seen <= 0 ? 0 : (uint)min(seen, (long)other);
#endif
        for (uint column = from; column < to; column += NR) {
            const uint columns = min((uint)NR, other - column);
            multiply(left, first_columns + (ulong)column * d, d, p);
            multiply(right, second_columns + (ulong)column * e, e, ds);
#if MASK || CAUSAL
#if !MASK && ROWS_ARE_KEYS
            // Only tiles that the diagonal crosses hide anything.
            if ((long)row + rows - 1 > (long)column + shift)
#elif !MASK
            if ((long)column + columns - 1 > (long)row + shift)
#endif
                for (uint r = 0; r < rows; r++)
                    for (uint c = 0; c < columns; c++) {
                        const uint query = ROWS_ARE_KEYS ? column + c : row + r, key = ROWS_ARE_KEYS ? row + r : column + c;
#if MASK == 1
                        if (!mask[query * mask_row + key * mask_column]) p[r * NR + c] = -INFINITY;
#elif MASK == 2
                        p[r * NR + c] += LOAD(MASK_DTYPE, mask, query * mask_row + key * mask_column);
#endif
#if CAUSAL
                        if ((long)key > (long)query + shift) p[r * NR + c] = -INFINITY;
#endif
                    }
#endif
            if (columns < NR)
                for (uint r = 0; r < MR; r++)
                    for (uint c = columns; c < NR; c++) p[r * NR + c] = -INFINITY;
            // A query that sees nothing has an lse of minus infinity; its scores are too, and so are taken away as 0.
#if ROWS_ARE_KEYS
            REAL lses[NR] __attribute__((aligned(64))), deltas[NR] __attribute__((aligned(64)));
            for (uint c = 0; c < NR; c++) {
                const REAL value = c < columns ? lse[column + c] : 0;
                lses[c] = value == -INFINITY ? 0 : value;
                deltas[c] = c < columns ? delta[column + c] : 0;
            }
#endif
            for (uint r = 0; r < MR; r++) {
#if !ROWS_ARE_KEYS
                const REAL value = lse[min(row + r, own - 1)];
                const V subtracted = (V)(value == -INFINITY ? 0 : value);
                const V centre = (V)(delta[min(row + r, own - 1)]);
#endif
#pragma unroll
                for (uint v = 0; v < VECTORS; v++) {
#if ROWS_ARE_KEYS
                    const V subtracted = ((__private V *)lses)[v], centre = ((__private V *)deltas)[v];
#endif
                    __private V *probability = (__private V *)p + r * VECTORS + v, *slope = (__private V *)ds + r * VECTORS + v;
                    const V e_value = EXP(*probability - subtracted);
                    *probability = e_value;
                    *slope = e_value * (*slope - centre) * scale;
                }
            }
            gather_keys(ds, first_rows + (ulong)column * (KEY_VECTORS * WIDTH), key_panels, other, columns, first_results);
#if ROWS_ARE_KEYS
            gather_values(p, second_rows + (ulong)column * (VALUE_VECTORS * WIDTH), value_panels, other, columns,
                          second_results);
#endif
        }
        for (uint r = 0; r < rows; r++) {
            __private const REAL *result = (__private const REAL *)(first_results + r * key_panels * KEY_VECTORS);
            for (uint c = 0; c < d; c++) STORE(DTYPE, result[c], first_grad, (ulong)(row + r) * d + c);
#if ROWS_ARE_KEYS
            result = (__private const REAL *)(second_results + r * value_panels * VALUE_VECTORS);
            for (uint c = 0; c < e; c++) STORE(DTYPE, result[c], second_grad, (ulong)(row + r) * e + c);
#endif
        }
    }
}
