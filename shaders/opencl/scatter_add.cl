// out[index[i], :] += source[i, :], in the order of i, for contiguous arrays; an index out of range is skipped. One work-item
// owns one column, so that equal indices neither race nor change the order of additions.

#include "dtypes.h"

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef INDEX_DTYPE
#define INDEX_DTYPE int64
#endif

__kernel void scatter_add(__global const STORAGE(INDEX_DTYPE) *index, const ulong index_offset,
                          __global const STORAGE(DTYPE) *source, const ulong source_offset, __global STORAGE(DTYPE) *out,
                          const ulong out_offset, const ulong count, const ulong width, const ulong rows) {
    const ulong column = get_global_id(0);
    if (column >= width) return;
    for (ulong i = 0; i < count; i++) {
        const long row = (long)index[index_offset + i];
        if (row < 0 || (ulong)row >= rows) continue;
        const ulong at = out_offset + (ulong)row * width + column;
        const COMPUTE(DTYPE) sum = LOAD(DTYPE, out, at) + LOAD(DTYPE, source, source_offset + i * width + column);
        STORE(DTYPE, sum, out, at);
    }
}
