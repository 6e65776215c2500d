// out[i, :] = x[index[i], :]; an index out of range gives a row of zeros. Elements are only moved, so one program serves every
// type of the same size. The first axis of work-items walks a row, the second takes `each` rows.

#ifndef INDEX_DTYPE
#define INDEX_DTYPE int64
#endif
// An unsigned type as wide as an element.
#ifndef ELEMENT
#define ELEMENT uint
#endif
#include "dtypes.h"

__kernel void gather(__global const STORAGE(INDEX_DTYPE) *index, const ulong index_offset, __global const ELEMENT *x,
                     const ulong x_offset, __global ELEMENT *out, const ulong out_offset, const uint count, const uint width,
                     const ulong rows, const uint each, const long index_step, const long x_row, const long x_column) {
    const uint first = get_global_id(1) * each;
    const uint last = min(first + each, count);
    const uint me = get_global_id(0), stride = get_global_size(0);
    for (uint i = first; i < last; i++) {
        const long row = (long)index[(long)index_offset + (long)i * index_step];
        __global ELEMENT *target = out + out_offset + (ulong)i * width;
        if (row < 0 || (ulong)row >= rows) {
            for (uint c = me; c < width; c += stride) target[c] = 0;
        } else {
            __global const ELEMENT *source = x + x_offset + row * x_row;
            if (x_column == 1)
                for (uint c = me; c < width; c += stride) target[c] = source[c];
            else
                for (uint c = me; c < width; c += stride) target[c] = source[c * x_column];
        }
    }
}
