// out[index[i], :] += source[i, :] for elements of 32 bits, one work-item per element of the source, or with QUAD_ATOMICS
// per four of them. Floats with equal indices are added in no fixed order. An index out of range is skipped.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef INDEX_DTYPE
#define INDEX_DTYPE int64
#endif
#include "lib/dtypes.h"
#include "lib/atomic_add.h"

__kernel void gather_scatter_add_atomic(__global const STORAGE(INDEX_DTYPE) *index, const ulong index_offset,
                                        __global const STORAGE(DTYPE) *source, const ulong source_offset,
                                        __global STORAGE(DTYPE) *out, const ulong out_offset, const uint count,
                                        const uint width, const ulong rows, const long index_step, const long source_row,
                                        const long source_column) {
    const uint each = QUAD_ATOMICS ? 4 : 1, units = width / each;
    const uint item = get_global_id(0);
    const uint i = item / units, column = (item - i * units) * each;
    if (i >= count) return;
    const long row = (long)index[index_offset + i * index_step];
    if (row < 0 || (ulong)row >= rows) return;
    __global STORAGE(DTYPE) *target = out + out_offset + (ulong)row * width + column;
    source += source_offset + i * source_row + column * source_column;
#if QUAD_ATOMICS
    add_quad_atomically(target, *(__global const float4 *)source);
#else
    add_atomically(target, *source);
#endif
}
