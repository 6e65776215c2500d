// Merge sort on CPUs, first part: a work-item sorts one block of SIZE elements of a row in registers, by a bitonic network whose
// comparisons all point the same way (the first step of each merge mirrors the second half). `blocks` to a row. Items go to
// items[row][position]; with LAST a block holds a whole row, and the first `keep` values and their indices are written instead.

#ifndef SIZE
#define SIZE 16
#endif
#ifndef LAST
#define LAST 0
#endif
#include "sort/items.h"

__kernel void sort_cpu_blocks(X_PARAMETER,
#if LAST
                              RESULT_PARAMETERS,
#else
                              __global ITEM *items,
#endif
                              const uint blocks, const SortGeometry geometry) {
    UNPACK_GEOMETRY
    ITEM block[SIZE];
    const ulong row = get_global_id(0) / blocks;
    const uint begin = get_global_id(0) % blocks * SIZE;
    x += ROW_BEGIN(x, row);
    for (uint i = 0; i < SIZE; i++) {
        const uint position = begin + i;
        block[i] = position < length ? item_of(x[(long)position * x_step], position) : LAST_ITEM;
    }
    for (uint run = 2; run <= SIZE; run *= 2) {
        for (uint reach = run / 2; reach > 0; reach /= 2) {
            for (uint i = 0; i < SIZE / 2; i++) {
                const uint first = i / reach * reach * 2 + i % reach;
                const uint second = reach == run / 2 ? first / run * run + run - 1 - first % run : first + reach;
                const ITEM a = block[first], b = block[second];
                const bool swap = PRECEDES(b, a);
                block[first] = swap ? b : a;
                block[second] = swap ? a : b;
            }
        }
    }
#if LAST
    values += ROW_BEGIN(values, row);
    indices += ROW_BEGIN(indices, row);
    for (uint i = 0; i < keep; i++) {
        const uint position = POSITION_OF(block[i]);
        values[(long)i * values_step] = x[(long)position * x_step];
        indices[(long)i * indices_step] = position;
    }
#else
    for (uint i = 0; i < SIZE && begin + i < length; i++) items[row * length + begin + i] = block[i];
#endif
}
