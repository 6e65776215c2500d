// Sorting, first part: a group of GROUP work-items sorts one block of SIZE elements of a row in local memory, by a bitonic network whose
// comparisons all point the same way (the first of each merge mirrors the second half). An ITEM is the element as an unsigned KEY
// that orders as wanted, and its position, which makes every item differ: the order is stable, whatever the network does.
//
// With PACKED both fit in 64 bits. Keys: the sign bit of integers is flipped; floats of either sign are made to count upwards, -0
// counts as 0 and NaN as the largest; DESCENDING inverts all bits. Rows and strides as in rows.h. Items go to items[row * length + i].
// With LAST a block holds a whole row, and the first `keep` values and positions are written instead.

#ifndef SIZE
#define SIZE 512
#endif
#ifndef LAST
#define LAST 0
#endif
#include "sort_items.h"

__kernel void sort_blocks(OPERAND(x),
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
#if GROUP == 1
    ITEM block[SIZE];
#else
    __local ITEM block[SIZE];
#endif
    const ulong row = get_group_id(0) / blocks;
    const uint begin = get_group_id(0) % blocks * SIZE;
    const long x_at = ROW_OF(x, row);
    for (uint i = GROUP_ME; i < SIZE; i += GROUP) {
        const uint place = begin + i;
        block[i] = place < length ? item_of(LOAD(DTYPE, x, x_at + (long)place * x_step), place) : LAST_ITEM;
    }
    for (uint run = 2; run <= SIZE; run *= 2) {
        for (uint reach = run / 2; reach > 0; reach /= 2) {
#if GROUP > 1
            barrier(CLK_LOCAL_MEM_FENCE);
#endif
            for (uint i = GROUP_ME; i < SIZE / 2; i += GROUP) {
                const uint first = i / reach * reach * 2 + i % reach;
                const uint second = reach == run / 2 ? first / run * run + run - 1 - first % run : first + reach;
                const ITEM a = block[first], b = block[second];
                const bool swap = PRECEDES(b, a);
                block[first] = swap ? b : a;
                block[second] = swap ? a : b;
            }
        }
    }
#if GROUP > 1
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
#if LAST
    const long values_at = ROW_OF(values, row), indices_at = ROW_OF(indices, row);
    for (uint i = GROUP_ME; i < keep; i += GROUP) {
        const uint place = PLACE_OF(block[i]);
        MOVE(x, x_at + (long)place * x_step, values, values_at + (long)i * values_step);
        indices[indices_at + (long)i * indices_step] = place;
    }
#else
    for (uint i = GROUP_ME; i < SIZE && begin + i < length; i += GROUP) items[row * length + begin + i] = block[i];
#endif
}
