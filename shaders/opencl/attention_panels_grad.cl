// Gradients of attention on a CPU, from the saved logsumexp: the probabilities are computed again, tile by tile, and are never in
// memory. A work-item takes tiles of MR rows and passes over the columns NR at a time, adding to the rows' gradients.
//
// KEYS 0: rows are queries, columns keys; a row gathers dq = sum over keys of ds * k. KEYS 1: rows are keys, columns queries; a row gathers
// dk = sum over queries of ds * q and dv = sum over queries of p * g. Here p = exp(scale * q k^T + mask - lse) and
// ds = scale * p * (g v^T - delta), with delta = sum(g * out) of each query.
//
// `first` is q or k by rows and `second` is g or v by rows, both in place; matmul_pack.cl has packed the columns' counterparts:
// `first_columns` (k^T or q^T) and `second_columns` (v^T or g^T) into panels of NR columns, and, unless IN_PLACE, `gathered`
// (k or q) and `slopes` (g, for KEYS only) into panels of features.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef KEYS
#define KEYS 0
#endif
#include "heads.h"
#include "head_panels.h"

GATHER_PANELS(gather_keys, KEY_VECTORS, )
GATHER_PANELS(gather_values, VALUE_VECTORS, )

__kernel void attention_panels_grad(OPERAND(DTYPE, first), OPERAND(DTYPE, second), __global const REAL *first_columns,
                                    __global const REAL *second_columns,
#if IN_PLACE
                                    OPERAND(DTYPE, gathered),
#if KEYS
                                    OPERAND(DTYPE, slopes),
#endif
#else
                                    __global const REAL *gathered,
#if KEYS
                                    __global const REAL *slopes,
#endif
#endif
                                    MASK_OPERAND __global const REAL *lse, const ulong lse_offset, __global const REAL *delta,
                                    RESULT(DTYPE, first_grad),
#if KEYS
                                    RESULT(DTYPE, second_grad),
#endif
                                    LENGTHS, const uint rows_each, STRIDES(first), STRIDES(second), STRIDES(gathered),
                                    STRIDES(slopes) MASK_STRIDES) {
    const uint head = get_global_id(1);
    HEAD_NUMBERS(head);
    FIND(first);
    FIND(second);
    FIND_MASK;
    const uint own = KEYS ? s : t, other = KEYS ? t : s;
    const ulong padded = (other + NR - 1) / NR * NR;
    const uint key_panels = (d + KEY_PANEL - 1) / KEY_PANEL, value_panels = (e + VALUE_PANEL - 1) / VALUE_PANEL;
    first_columns += head * padded * d;
    second_columns += head * padded * e;
#if IN_PLACE
    FIND(gathered);
    const ulong pitch = gathered_row, next = KEY_PANEL;
#else
    gathered += (ulong)head * key_panels * KEY_PANEL * other;
    const ulong pitch = KEY_PANEL, next = (ulong)other * KEY_PANEL;
#endif
    first_grad += first_grad_offset + (ulong)head * own * d;
#if KEYS
#if IN_PLACE
    FIND(slopes);
    const ulong slope_pitch = slopes_row, slope_next = VALUE_PANEL;
#else
    slopes += (ulong)head * value_panels * VALUE_PANEL * other;
    const ulong slope_pitch = VALUE_PANEL, slope_next = (ulong)other * VALUE_PANEL;
#endif
    second_grad += second_grad_offset + (ulong)head * own * e;
#endif
    lse += lse_offset + (ulong)head * t;
    delta += (ulong)head * t;
    const uint begin = get_global_id(0) * rows_each;
    const uint end = min(begin + rows_each, own);
    REAL left[MAX_FEATURES * MR], right[MAX_VALUES * MR];
    V first_results[MR * MAX_FEATURES / WIDTH];
#if KEYS
    V second_results[MR * MAX_VALUES / WIDTH];
#endif
    REAL p[MR * NR] __attribute__((aligned(64)));
    REAL ds[MR * NR] __attribute__((aligned(64)));
    for (uint row = begin; row < end; row += MR) {
        const uint rows = min((uint)MR, end - row);
        READ_ROWS(DTYPE, left, first, row, own, d, scale)
        READ_ROWS(DTYPE, right, second, row, own, e, 1)
        for (uint i = 0; i < MR * key_panels * KEY_VECTORS; i++) first_results[i] = (V)(0);
#if KEYS
        for (uint i = 0; i < MR * value_panels * VALUE_VECTORS; i++) second_results[i] = (V)(0);
#endif
        const uint from = KEYS ? FIRST_QUERY(row) / NR * NR : 0, to = KEYS ? other : KEYS_SEEN(row + rows);
        for (uint column = from; column < to; column += NR) {
            const uint columns = min((uint)NR, other - column);
            multiply_panel(left, first_columns + (ulong)column * d, d, p);
            multiply_panel(right, second_columns + (ulong)column * e, e, ds);
            if (!(KEYS ? ALL_SEEN(column, NR, row, MR) : ALL_SEEN(row, MR, column, NR)))
                for (uint r = 0; r < rows; r++)
                    for (uint c = 0; c < NR; c++) {
                        const uint query = KEYS ? column + c : row + r, key = KEYS ? row + r : column + c;
#if MASK == 2
                        p[r * NR + c] = SEEN(query, key) ? p[r * NR + c] + ADDED(query, key) : -INFINITY;
#else
                        p[r * NR + c] = SEEN(query, key) ? p[r * NR + c] : -INFINITY;
#endif
                    }
            // A query that sees nothing has an lse of minus infinity; its scores are too, and so are taken away as 0.
#if KEYS
            REAL lses[NR] __attribute__((aligned(64))), deltas[NR] __attribute__((aligned(64)));
            for (uint c = 0; c < NR; c++) {
                const REAL value = c < columns ? lse[column + c] : 0;
                lses[c] = value == -INFINITY ? 0 : value;
                deltas[c] = c < columns ? delta[column + c] : 0;
            }
#endif
            for (uint r = 0; r < MR; r++) {
#if !KEYS
                const REAL value = lse[min(row + r, own - 1)];
                const V subtracted = (V)(value == -INFINITY ? 0 : value);
                const V centre = (V)(delta[min(row + r, own - 1)]);
#endif
#pragma unroll
                for (uint v = 0; v < VECTORS; v++) {
#if KEYS
                    const V subtracted = ((__private V *)lses)[v], centre = ((__private V *)deltas)[v];
#endif
                    __private V *probability = (__private V *)p + r * VECTORS + v, *slope = (__private V *)ds + r * VECTORS + v;
                    const V share = EXP_PART(*probability - subtracted);
                    *probability = share;
                    *slope = share * (*slope - centre) * scale;
                }
            }
            // What no row sees adds nothing: the first queries of the first tile, and the last keys of the last one.
            const uint skipped = KEYS ? max(FIRST_QUERY(row), column) - column : 0, seen = min(columns, to - column) - skipped;
            gather_keys(ds + skipped, gathered + (column + skipped) * pitch, key_panels, next, pitch, seen, 0, first_results);
#if KEYS
            gather_values(p + skipped, slopes + (column + skipped) * slope_pitch, value_panels, slope_next, slope_pitch, seen, 0,
                          second_results);
#endif
        }
        for (uint r = 0; r < rows; r++) {
            __private const REAL *result = (__private const REAL *)(first_results + r * key_panels * KEY_VECTORS);
            for (uint c = 0; c < d; c++) STORE(DTYPE, result[c], first_grad, (ulong)(row + r) * d + c);
#if KEYS
            result = (__private const REAL *)(second_results + r * value_panels * VALUE_VECTORS);
            for (uint c = 0; c < e; c++) STORE(DTYPE, result[c], second_grad, (ulong)(row + r) * e + c);
#endif
        }
    }
}
