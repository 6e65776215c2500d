// Embedding lookup: out[i, :] = x[index[i], :]; an index out of range yields a row of zeros. Elements are moved as bits
// in units as wide as an element or wider, so one program serves every dtype of a size.
//
// WHOLE_ROWS 1, for CPUs: a work-item copies `rows_each` rows, in vectors where the elements of a row are contiguous.
// WHOLE_ROWS 0, for GPUs: a work-item copies LOADS units at a stride of the whole launch, to keep that many loads in
// flight.
//
// `count` indices; x has `rows` rows of `width` units. Strides are in units.

#ifndef INDEX_DTYPE
#define INDEX_DTYPE int64
#endif
// An unsigned type, or a vector of one.
#ifndef UNIT
#define UNIT uint
#endif
#ifndef ELEMENTS_PER_UNIT
#define ELEMENTS_PER_UNIT 1
#endif
#ifndef WIDTH
#define WIDTH 16
#endif
#ifndef WHOLE_ROWS
#define WHOLE_ROWS 1
#endif
#ifndef LOADS
#define LOADS 4
#endif
#include "lib/dtypes.h"
#include "lib/dependent_launch.h"

#define LOAD_UNITS(p) CONCAT(vload, WIDTH)(0, p)
#define STORE_UNITS(v, p) CONCAT(vstore, WIDTH)(v, 0, p)

__kernel void gather_gather(__global const STORAGE(INDEX_DTYPE) *index, const ulong index_offset, __global const UNIT *x,
                            const ulong x_offset, __global UNIT *out, const ulong out_offset, const uint count,
                            const uint width, const ulong rows, const uint rows_each, const long index_step,
                            const long x_row, const long x_column) {
    START_NEXT
    AWAIT_INPUTS
    index += index_offset;
    x += x_offset / ELEMENTS_PER_UNIT;
    out += out_offset / ELEMENTS_PER_UNIT;
#if WHOLE_ROWS
    const uint first = get_global_id(0) * rows_each;
    const uint last = min(first + rows_each, count);
    for (uint i = first; i < last; i++) {
        const long row = (long)index[(long)i * index_step];
        const bool inside = row >= 0 && (ulong)row < rows;
        __global const UNIT *source = x + (inside ? row : 0) * x_row;
        __global UNIT *target = out + (ulong)i * width;
        uint c = 0;
        if (!inside) {
            for (; c < width; c++) target[c] = 0;
        } else if (x_column == 1) {
            for (; c + WIDTH <= width; c += WIDTH) STORE_UNITS(LOAD_UNITS(source + c), target + c);
            for (; c < width; c++) target[c] = source[c];
        } else {
            for (; c < width; c++) target[c] = source[c * x_column];
        }
    }
#else
    const ulong size = (ulong)count * width, stride = get_global_size(0);
#pragma unroll
    for (uint k = 0; k < LOADS; k++) {
        const ulong at = get_global_id(0) + k * stride;
        if (at < size) {
            const uint i = at / width, c = at - (ulong)i * width;
            const long row = (long)index[(long)i * index_step];
            UNIT value = (UNIT)(0);
            if (row >= 0 && (ulong)row < rows) value = x[row * x_row + c * x_column];
            out[at] = value;
        }
    }
#endif
}
