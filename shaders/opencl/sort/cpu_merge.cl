// Merge sort on CPUs, second part: sorted runs of `run` items of a row are merged in pairs, `pairs` to a row. Only the first `keep`
// items count, in the runs and in the result. A work-item merges CHUNK consecutive items, `chunks` to a pair: it finds where they
// begin in both runs by bisection along the diagonal of the merge (Odeh et al., Merge Path, 2012), then takes the smaller item
// each time.
//
// Items as in sort/cpu_blocks.cl. With LAST one pair is left, and values and indices are written.

#ifndef CHUNK
#define CHUNK 8
#endif
#ifndef LAST
#define LAST 0
#endif
#include "sort/items.h"

__kernel void sort_cpu_merge(__global const ITEM *items,
#if LAST
                             X_PARAMETER, RESULT_PARAMETERS,
#else
                             __global ITEM *merged,
#endif
                             const uint run, const uint pairs, const uint chunks, const SortGeometry geometry) {
    UNPACK_GEOMETRY
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
        const uint middle_a = (low + high) / 2;
        if (PRECEDES(a[middle_a], b[from - 1 - middle_a])) low = middle_a + 1;
        else high = middle_a;
    }
    uint i = low, j = from - low;
    ITEM head_a = i < a_length ? a[i] : LAST_ITEM, head_b = j < b_length ? b[j] : LAST_ITEM;
#if LAST
    x += ROW_BEGIN(x, row);
    values += ROW_BEGIN(values, row);
    indices += ROW_BEGIN(indices, row);
#endif
    for (uint k = from; k < to; k++) {
        const bool first = PRECEDES(head_a, head_b);
        const ITEM item = first ? head_a : head_b;
#if LAST
        const uint position = POSITION_OF(item);
        values[(long)k * values_step] = x[(long)position * x_step];
        indices[(long)k * indices_step] = position;
#else
        merged[row * length + begin + k] = item;
#endif
        i += first;
        j += !first;
        const bool more = first ? i < a_length : j < b_length;
        const ITEM loaded = more ? (first ? a[i] : b[j]) : LAST_ITEM;
        head_a = first ? loaded : head_a;
        head_b = first ? head_b : loaded;
    }
}
