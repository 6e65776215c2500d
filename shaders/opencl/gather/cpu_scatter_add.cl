// out[index[i], :] += source[i, :] in the order of i, for CPUs. A work-item owns `columns` columns and walks all `count` indices,
// so nothing needs synchronization and results are reproducible. An index out of range is skipped.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef SOURCE_DTYPE
#define SOURCE_DTYPE DTYPE
#endif
#ifndef INDEX_DTYPE
#define INDEX_DTYPE int64
#endif
#ifndef WIDTH
#define WIDTH 16
#endif
#include "lib/dtypes.h"
#include "lib/vectors.h"

__kernel void gather_cpu_scatter_add(__global const STORAGE(INDEX_DTYPE) *index, const ulong index_offset,
                                     __global const STORAGE(SOURCE_DTYPE) *source, const ulong source_offset,
                                     __global STORAGE(DTYPE) *out, const ulong out_offset, const uint count,
                                     const uint width, const ulong rows, const uint columns, const long index_step,
                                     const long source_row, const long source_column) {
    index += index_offset;
    source += source_offset;
    out += out_offset;
    const uint first = get_global_id(0) * columns;
    const uint last = min(first + columns, width);
    for (uint i = 0; i < count; i++) {
        const long row = (long)index[i * index_step];
        if (row < 0 || (ulong)row >= rows) continue;
        __global STORAGE(DTYPE) *target = out + (ulong)row * width;
        __global const STORAGE(SOURCE_DTYPE) *terms = source + i * source_row;
        uint c = first;
        if (source_column == 1) {
#if WIDTH > 1
            for (; c + WIDTH <= last; c += WIDTH)
                STOREV(DTYPE, LOADV(DTYPE, target + c) + LOADV(SOURCE_DTYPE, terms + c), target + c);
#endif
            for (; c < last; c++) STORE(DTYPE, LOAD(DTYPE, target, c) + LOAD(SOURCE_DTYPE, terms, c), target, c);
        } else {
            for (; c < last; c++)
                STORE(DTYPE, LOAD(DTYPE, target, c) + LOAD(SOURCE_DTYPE, terms, c * source_column), target, c);
        }
    }
}
