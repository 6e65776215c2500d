// out[index[i], :] += source[i, :] for elements of 32 bits, one work-item per element of the source. Floats with equal
// indices are added in no fixed order. An index out of range is skipped.

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
    const uint item = get_global_id(0);
    const uint i = item / width, column = item - i * width;
    if (i >= count) return;
    const long row = (long)index[index_offset + i * index_step];
    if (row < 0 || (ulong)row >= rows) return;
    const STORAGE(DTYPE) value = source[source_offset + i * source_row + column * source_column];
    add_atomically(out + out_offset + (ulong)row * width + column, value);
}
