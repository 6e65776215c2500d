// Sorting on CPUs, first part: a work-item sorts one block of SIZE elements of a row by a bitonic network whose comparisons
// all point the same way (the first of each merge mirrors the second half). Items go to items[row * length + i]. Rows and
// strides as in lib/rows.h. With LAST a block holds a whole row, and the first `keep` values and positions are written instead.

#ifndef SIZE
#define SIZE 16
#endif
#ifndef LAST
#define LAST 0
#endif
#include "sort/items.h"

__kernel void sort_cpu_blocks(OPERAND(x),
#if LAST
                          RESULT(values), __global long *indices, const ulong indices_offset,
#else
                          __global ITEM *items,
#endif
                          ROW_PARAMETERS, STRIDES(x),
#if LAST
                          STRIDES(values), STRIDES(indices), const uint keep,
#endif
                          const uint blocks) {
    ITEM block[SIZE];
    const ulong row = get_global_id(0) / blocks;
    const uint begin = get_global_id(0) % blocks * SIZE;
    const long x_at = ROW_OF(x, row);
    for (uint i = 0; i < SIZE; i++) {
        const uint place = begin + i;
        block[i] = place < length ? item_of(RAW_AT(x, x_at + (long)place * x_step), place) : LAST_ITEM;
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
    const long values_at = ROW_OF(values, row), indices_at = ROW_OF(indices, row);
    for (uint i = 0; i < keep; i++) {
        const uint place = PLACE_OF(block[i]);
        PUT_RAW(values, values_at + (long)i * values_step, RAW_AT(x, x_at + (long)place * x_step));
        indices[indices_at + (long)i * indices_step] = place;
    }
#else
    for (uint i = 0; i < SIZE && begin + i < length; i++) items[row * length + begin + i] = block[i];
#endif
}
