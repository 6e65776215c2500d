// Gradients of attention on a GPU without tensor cores, from the saved logsumexp: the probabilities are computed again, tile by tile, and
// are never in memory. See attention/grad_arguments.h for who gathers what.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
#include "attention/grad_arguments.h"
#include "attention/local_tile.h"
#if ALL
#include "lib/atomic_add.h"
// Vectors of columns that a work-item gathers, of COLUMNS / DOWN columns.
#define TURNED (COLUMNS / DOWN / 4)
#endif

// The macros of attention/local_tile.h make names of their arguments.
#define LOAD_NAMED(memory, features, name, first, count, limit, length) \
    LOAD_ROWS(DTYPE, memory, features, name, first, count, limit, length)
#define STORE_NAMED(D, values, factor, name, first, limit, length, features) \
    STORE_ROWS(D, values, factor, name, first, limit, length, features)

#if ALL
// results[4 * i + c][j] = over all rows, the weights of column 4 * (team + i * DOWN) + c times vector me + j * LANES of `left`'s rows.
inline void gather_columns(Quad results[4 * TURNED][VECTORS(FEATURES)], __local const REAL *weights, __local const REAL *left) {
    const uint me = get_local_id(0) % LANES, team = get_local_id(0) / LANES;
#pragma unroll
    for (uint i = 0; i < 4 * TURNED; i++)
#pragma unroll
        for (uint j = 0; j < VECTORS(FEATURES); j++) results[i][j] = (Quad)(0);
#pragma unroll 4
    for (uint r = 0; r < ROWS; r++) {
#pragma unroll
        for (uint j = 0; j < VECTORS(FEATURES); j++) {
            const uint at = min((uint)(me + j * LANES), (uint)(FEATURES / 4 - 1)) * 4;
            const Quad y = QUAD(left, r * PITCH(FEATURES) + at);
#pragma unroll
            for (uint i = 0; i < TURNED; i++) {
                const Quad x = QUAD(weights, r * WEIGHTS_PITCH + (team + i * DOWN) * 4);
                results[4 * i][j] += x.s0 * y;
                results[4 * i + 1][j] += x.s1 * y;
                results[4 * i + 2][j] += x.s2 * y;
                results[4 * i + 3][j] += x.s3 * y;
            }
        }
    }
}
#endif

// `statistics` are what attention/delta.cl makes of each query: its logsumexp, for a power of two, and delta.
__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(GROUP, 1, 1))) void attention_tiles_grad(
    OPERANDS, MASK_OPERAND __global const REAL *statistics, GRADIENTS(DTYPE), LENGTHS, GRADIENT_PLACES, ALL_STRIDES MASK_STRIDES) {
    __local REAL own_first[ROWS * PITCH(FEATURES)] __attribute__((aligned(32)));
    __local REAL own_second[ROWS * PITCH(VALUES)] __attribute__((aligned(32)));
    __local REAL other_first[COLUMNS * PITCH(FEATURES)] __attribute__((aligned(32)));
    __local REAL other_second[COLUMNS * PITCH(VALUES)] __attribute__((aligned(32)));
    __local REAL weights[ROWS * WEIGHTS_PITCH] __attribute__((aligned(32)));
    const uint me = get_local_id(0) % LANES, team = get_local_id(0) / LANES;
    const uint head = get_group_id(1);
    HEAD_NUMBERS(head);
    FIND_OPERANDS;
    statistics += (ulong)head * t * 2;
    const uint first = FIRST_ROW, begin = FIRST_COLUMN(first), end = END_OF_COLUMNS(first);
#if ALL
    FIND(dq);
#endif
    const REAL factor = scale * LOG2E;
    Quad first_results[R][VECTORS(FEATURES)];
#pragma unroll
    for (uint i = 0; i < R; i++)
#pragma unroll
        for (uint j = 0; j < VECTORS(FEATURES); j++) first_results[i][j] = (Quad)(0);
#if KEYS
    Quad second_results[R][VECTORS(VALUES)];
#pragma unroll
    for (uint i = 0; i < R; i++)
#pragma unroll
        for (uint j = 0; j < VECTORS(VALUES); j++) second_results[i][j] = (Quad)(0);
#endif
    LOAD_NAMED(own_first, FEATURES, OWN_FIRST, first, ROWS, OWN_LENGTH, d);
    LOAD_NAMED(own_second, VALUES, OWN_SECOND, first, ROWS, OWN_LENGTH, e);
    for (uint column = begin; column < end; column += COLUMNS) {
        barrier(CLK_LOCAL_MEM_FENCE);
        LOAD_NAMED(other_first, FEATURES, OTHER_FIRST, column, COLUMNS, OTHER_LENGTH, d);
        COPIES_COMMIT();
        LOAD_NAMED(other_second, VALUES, OTHER_SECOND, column, COLUMNS, OTHER_LENGTH, e);
        COPIES_COMMIT();
        COPIES_WAIT(1);
        barrier(CLK_LOCAL_MEM_FENCE);
        REAL p[R][C], ds[R][C];
        multiply_rows(own_first, other_first, FEATURES, p);
        COPIES_WAIT(0);
        barrier(CLK_LOCAL_MEM_FENCE);
        multiply_rows(own_second, other_second, VALUES, ds);
        const bool whole = TILE_SEEN(first, ROWS, column, COLUMNS);
#pragma unroll
        for (uint i = 0; i < R; i++)
#pragma unroll
            for (uint j = 0; j < C; j++) {
                const uint own = first + team + i * DOWN, other = column + me + j * LANES;
                const uint at = 2 * min(KEYS ? other : own, t - 1);
                REAL score = p[i][j] * factor;
                if (!whole) {
                    if (!PAIR_SEEN(own, other)) score = -INFINITY;
#if MASK == 2
                    else score += LOG2E * PAIR_ADDED(own, other);
#endif
                }
                p[i][j] = power_of_two(score - statistics[at]);
                ds[i][j] = p[i][j] * (ds[i][j] - statistics[at + 1]);
            }
        spread_weights(ds, weights);
        barrier(CLK_LOCAL_MEM_FENCE);
        GATHER_ROWS(first_results, weights, other_first, FEATURES);
#if ALL
        Quad turned[4 * TURNED][VECTORS(FEATURES)];
        gather_columns(turned, weights, own_first);
#pragma unroll
        for (uint i = 0; i < 4 * TURNED; i++) {
            const uint query = column + (team + i / 4 * DOWN) * 4 + i % 4;
#pragma unroll
            for (uint j = 0; j < VECTORS(FEATURES); j++) {
                const uint feature = (me + j * LANES) * 4;
                const float line[4] = {turned[i][j].s0, turned[i][j].s1, turned[i][j].s2, turned[i][j].s3};
#pragma unroll
                for (uint k_ = 0; k_ < 4; k_++)
                    if (query < t && feature + k_ < d) add_atomically(dq + query * dq_row + feature + k_, line[k_] * scale);
            }
        }
#endif
#if KEYS
        barrier(CLK_LOCAL_MEM_FENCE);
        spread_weights(p, weights);
        barrier(CLK_LOCAL_MEM_FENCE);
        GATHER_ROWS(second_results, weights, other_second, VALUES);
#endif
    }
    FIND_NAMED(FIRST_GRADIENT);
    STORE_NAMED(DTYPE, first_results, scale, FIRST_GRADIENT, first, OWN_LENGTH, d, FEATURES);
#if KEYS
    FIND(dv);
    STORE_ROWS(DTYPE, second_results, (REAL)1, dv, first, s, e, VALUES);
#endif
}
