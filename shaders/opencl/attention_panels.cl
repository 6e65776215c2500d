// softmax(q k^T * scale + mask) v on a CPU, without ever holding the scores: a work-item takes tiles of MR queries and passes over the
// keys NR at a time, with a running maximum, sum and result per query that are rescaled when the maximum grows.
// Source: Dao et al., arXiv:2205.14135, and Milakov and Gimelshein, arXiv:1805.02867.
//
// matmul_pack.cl has packed k^T into panels of NR keys and, unless IN_PLACE, v into panels of features, zeros past the ends.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#ifndef REAL
#define REAL float
#endif
#include "heads.h"
#include "head_panels.h"

GATHER_PANELS(gather_values, VALUE_VECTORS, *factors[r])

__kernel void attention_panels(OPERAND(DTYPE, q), __global const REAL *keys,
#if IN_PLACE
                               OPERAND(DTYPE, v),
#else
                               __global const REAL *v,
#endif
                               MASK_OPERAND RESULT(OUT_DTYPE, out), __global REAL *lse, const ulong lse_offset, LENGTHS,
                               const uint rows_each, STRIDES(q), STRIDES(v) MASK_STRIDES) {
    const uint head = get_global_id(1);
    HEAD_NUMBERS(head);
    FIND(q);
    FIND_MASK;
    const uint value_panels = (e + VALUE_PANEL - 1) / VALUE_PANEL;
    keys += (ulong)head * ((s + NR - 1) / NR) * NR * d;
#if IN_PLACE
    FIND(v);
    const ulong pitch = v_row, next = VALUE_PANEL;
#else
    v += (ulong)head * value_panels * VALUE_PANEL * s;
    const ulong pitch = VALUE_PANEL, next = (ulong)s * VALUE_PANEL;
#endif
    out += out_offset + (ulong)head * t * e;
    lse += lse_offset + (ulong)head * t;
    const uint first = get_global_id(0) * rows_each;
    const uint last = min(first + rows_each, t);
    REAL queries[MAX_FEATURES * MR];
    V results[MR * MAX_VALUES / WIDTH];
    REAL tile[MR * NR] __attribute__((aligned(64)));
    for (uint row = first; row < last; row += MR) {
        const uint rows = min((uint)MR, last - row);
        READ_ROWS(DTYPE, queries, q, row, t, d, scale)
        const uint held = value_panels * VALUE_VECTORS;
        for (uint i = 0; i < MR * held; i++) results[i] = (V)(0);
        REAL tops[MR], totals[MR], shrinks[MR];
        for (uint r = 0; r < MR; r++) {
            tops[r] = -INFINITY;
            totals[r] = 0;
        }
        const uint stop = KEYS_SEEN(row + rows);
        for (uint key = 0; key < stop; key += NR) {
            const uint columns = min((uint)NR, s - key);
            multiply_panel(queries, keys + (ulong)key * d, d, tile);
            if (!ALL_SEEN(row, MR, key, NR))
                for (uint r = 0; r < rows; r++)
                    for (uint c = 0; c < NR; c++) {
#if MASK == 2
                        tile[r * NR + c] = SEEN(row + r, key + c) ? tile[r * NR + c] + ADDED(row + r, key + c) : -INFINITY;
#else
                        tile[r * NR + c] = SEEN(row + r, key + c) ? tile[r * NR + c] : -INFINITY;
#endif
                    }
            for (uint r = 0; r < MR; r++) {
                __private V *scores = (__private V *)tile + r * VECTORS;
                V high = scores[0];
#pragma unroll
                for (uint v = 1; v < VECTORS; v++) high = LARGER(high, scores[v]);
                const REAL top = fmax(tops[r], LANES_MAX(high));
                // While everything was masked there is nothing to subtract: exp(-inf - 0) is 0.
                const REAL shift = top == -INFINITY ? 0 : top;
                shrinks[r] = tops[r] == -INFINITY ? 0 : EXP_PART1(tops[r] - shift);
                V sum = (V)(0);
#pragma unroll
                for (uint v = 0; v < VECTORS; v++) {
                    const V p = EXP_PART(scores[v] - shift);
                    sum += p;
                    scores[v] = p;
                }
                totals[r] = totals[r] * shrinks[r] + LANES_SUM(sum);
                tops[r] = top;
            }
            gather_values(tile, v + key * pitch, value_panels, next, pitch, min(columns, stop - key), shrinks, results);
        }
        for (uint r = 0; r < rows; r++) {
            const REAL inverse = totals[r] == 0 ? 0 : 1 / totals[r];
            __private const REAL *from = (__private const REAL *)(results + r * held);
            for (uint c = 0; c < e; c++) STORE(OUT_DTYPE, from[c] * inverse, out, (ulong)(row + r) * e + c);
            lse[row + r] = log(totals[r]) + (tops[r] == -INFINITY ? 0 : tops[r]);
        }
    }
}
