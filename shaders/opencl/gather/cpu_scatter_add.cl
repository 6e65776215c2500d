// out[index[i], :] += source[i, :] in the order of i, for CPUs: a work-item owns `span` columns and walks all indices, so that there is
// nothing to synchronise and results do not vary. An index out of range is skipped.

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
#ifndef OUT_IS_WORKSPACE
#define OUT_IS_WORKSPACE 0
#endif
#include "lib/dtypes.h"
#include "lib/vectors.h"

__kernel void gather_cpu_scatter_add(__global const STORAGE(INDEX_DTYPE) *index, const ulong index_offset,
                          __global const STORAGE(SOURCE_DTYPE) *source, const ulong source_offset, __global STORAGE(DTYPE) *out,
#if !OUT_IS_WORKSPACE
                          const ulong out_offset,
#endif
                          const uint count, const uint width, const ulong rows, const uint span, const long index_step,
                          const long source_row, const long source_column) {
    index += index_offset;
    source += source_offset;
#if !OUT_IS_WORKSPACE
    out += out_offset;
#endif
    const uint first = get_global_id(0) * span;
    const uint last = min(first + span, width);
    for (uint i = 0; i < count; i++) {
        const long row = (long)index[i * index_step];
        if (row < 0 || (ulong)row >= rows) continue;
        __global STORAGE(DTYPE) *target = out + (ulong)row * width;
        __global const STORAGE(SOURCE_DTYPE) *from = source + i * source_row;
        uint c = first;
        if (source_column == 1) {
#if WIDTH > 1
            for (; c + WIDTH <= last; c += WIDTH)
                STOREV(DTYPE, LOADV(DTYPE, target + c) + LOADV(SOURCE_DTYPE, from + c), target + c);
#endif
            for (; c < last; c++) STORE(DTYPE, LOAD(DTYPE, target, c) + LOAD(SOURCE_DTYPE, from, c), target, c);
        } else {
            for (; c < last; c++)
                STORE(DTYPE, LOAD(DTYPE, target, c) + LOAD(SOURCE_DTYPE, from, c * source_column), target, c);
        }
    }
}
