// The order of rows that the exchanges of an LU factorization make: out[i] is the row that moves to row i. A group has one matrix; its
// first work-item exchanges one row after another, from `first_row`. Pivots count rows from `start` rows before these.

#include "linear_algebra/matrices.h"

// 1: the order is in local memory, up to SIZE rows; 0: in the result.
#ifndef LOCAL_ORDER
#define LOCAL_ORDER 1
#endif

// Pivots that the group reads at once.
#define CHUNK 256
#if GROUP == 1
#define WAIT
#else
#define WAIT barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#endif

__kernel void linear_algebra_row_order(__global const int *pivots, const ulong pivots_offset, RESULT(int32, out),
                                       const uint rows, const uint steps, const uint first_row,
                                       const int start, const long matrix_step, const long step) {
    const ulong matrix = get_group_id(0);
    out += out_offset + matrix * rows;
    pivots += (long)pivots_offset + (long)matrix * matrix_step;
#if LOCAL_ORDER
    __local int order[SIZE];
#else
    __global int *order = out;
#endif
    __local int staged[CHUNK];
    FOR_OWN(i, 0, rows) order[i] = i;
    for (uint first = 0; first < steps; first += CHUNK) {
        const uint end = min(first + CHUNK, steps);
        WAIT;
        FOR_OWN(j, first, end) staged[j - first] = pivots[(long)j * step] - 1 - start;
        WAIT;
        if (ITEM == 0) {
            for (uint j = first; j < end; j++) {
                const int chosen = staged[j - first], moved = order[first_row + j];
                if (chosen >= 0 && chosen < (int)rows) {
                    order[first_row + j] = order[chosen];
                    order[chosen] = moved;
                }
            }
        }
    }
    WAIT;
#if LOCAL_ORDER
    FOR_OWN(i, 0, rows) out[i] = order[i];
#endif
}
