// Sorting on CPUs, second part: sorted runs of `run` items of a row are merged in pairs, of which only the first `keep` items
// count, in the runs and in the result. A work-item makes CHUNK neighbouring items: it finds where they begin in both runs by
// bisection along the diagonal of the merge (Odeh et al., Merge Path, 2012), then takes the smaller item each time.
//
// Items as in sort/cpu_blocks.cl. With LAST one pair is left, and the values and positions themselves are written.

#ifndef CHUNK
#define CHUNK 8
#endif
#ifndef LAST
#define LAST 0
#endif
#include "sort/items.h"

__kernel void sort_cpu_merge(__global const ITEM *items,
#if LAST
                         OPERAND(x), RESULT(values), __global long *indices, const ulong indices_offset,
#else
                         __global ITEM *merged,
#endif
                         ROW_PARAMETERS,
#if LAST
                         STRIDES(x), STRIDES(values), STRIDES(indices),
#endif
                         const uint run, const uint keep, const uint pairs, const uint chunks) {
    const ulong task = get_global_id(0) / chunks;
    const uint from = get_global_id(0) % chunks * CHUNK;
    const ulong row = task / pairs;
    if (row >= rows) return;
    const uint begin = (uint)(task - row * pairs) * 2 * run;
    const uint middle = min(begin + run, length);
    const uint a_length = min(middle - begin, keep), b_length = min(min(middle + run, length) - middle, keep);
    const uint to = min(min(from + CHUNK, a_length + b_length), keep);
    if (from >= to) return;
    items += row * length;
    __global const ITEM *a = items + begin, *b = items + middle;
    uint low = from > b_length ? from - b_length : 0, high = min(from, a_length);
    while (low < high) {
        const uint half_way = (low + high) / 2;
        if (PRECEDES(a[half_way], b[from - 1 - half_way])) low = half_way + 1;
        else high = half_way;
    }
    uint i = low, j = from - low;
    ITEM next_a = i < a_length ? a[i] : LAST_ITEM, next_b = j < b_length ? b[j] : LAST_ITEM;
#if LAST
    const long x_at = ROW_OF(x, row), values_at = ROW_OF(values, row), indices_at = ROW_OF(indices, row);
#endif
    for (uint k = from; k < to; k++) {
        const bool first = PRECEDES(next_a, next_b);
        const ITEM item = first ? next_a : next_b;
#if LAST
        const uint place = PLACE_OF(item);
        PUT_RAW(values, values_at + (long)k * values_step, RAW_AT(x, x_at + (long)place * x_step));
        indices[indices_at + (long)k * indices_step] = place;
#else
        merged[row * length + begin + k] = item;
#endif
        i += first;
        j += !first;
        const bool more = first ? i < a_length : j < b_length;
        const ITEM loaded = more ? (first ? a[i] : b[j]) : LAST_ITEM;
        next_a = first ? loaded : next_a;
        next_b = first ? next_b : loaded;
    }
}
