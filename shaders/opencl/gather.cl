// out[i, :] = x[index[i], :] for contiguous arrays; an index out of range gives a row of zeros.

#include "dtypes.h"

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef INDEX_DTYPE
#define INDEX_DTYPE int64
#endif

__kernel void gather(__global const STORAGE(INDEX_DTYPE) *index, const ulong index_offset, __global const STORAGE(DTYPE) *x,
                     const ulong x_offset, __global STORAGE(DTYPE) *out, const ulong out_offset, const ulong count,
                     const ulong width, const ulong rows) {
    const ulong item = get_global_id(0);
    if (item >= count * width) return;
    const ulong i = item / width;
    const ulong column = item - i * width;
    const long row = (long)index[index_offset + i];
    const bool inside = row >= 0 && (ulong)row < rows;
    const COMPUTE(DTYPE) value = inside ? LOAD(DTYPE, x, x_offset + (ulong)row * width + column) : (COMPUTE(DTYPE))0;
    STORE(DTYPE, value, out, out_offset + item);
}
