// out[i, :] = x[index[i], :]; an index out of range gives a row of zeros. Elements are only moved, so that one program serves every
// type of a size, and rows may be moved in elements wider than their own.
//
// EACH_ROW 1, for CPUs: a work-item takes `each` rows, in vectors where the row's neighbours lie together. EACH_ROW 0, for GPUs: a
// work-item takes `each` elements that lie a whole launch apart, which keeps that many loads under way.

#ifndef INDEX_DTYPE
#define INDEX_DTYPE int64
#endif
// An unsigned type as wide as an element.
#ifndef ELEMENT
#define ELEMENT uint
#endif
#ifndef WIDTH
#define WIDTH 16
#endif
#ifndef EACH_ROW
#define EACH_ROW 1
#endif
#ifndef EACH
#define EACH 4
#endif
// The tensors' own elements in one ELEMENT: offsets count those.
#ifndef UNITS
#define UNITS 1
#endif
#include "lib/dtypes.h"

#define VECTOR_LOAD(p) CONCAT(vload, WIDTH)(0, p)
#define VECTOR_STORE(v, p) CONCAT(vstore, WIDTH)(v, 0, p)

__kernel void gather_gather(__global const STORAGE(INDEX_DTYPE) *index, const ulong index_offset, __global const ELEMENT *x,
                     const ulong x_offset, __global ELEMENT *out, const ulong out_offset, const uint count, const uint width,
                     const ulong rows, const uint each, const long index_step, const long x_row, const long x_column) {
    index += index_offset;
    x += x_offset / UNITS;
    out += out_offset / UNITS;
#if EACH_ROW
    const uint first = get_global_id(0) * each;
    const uint last = min(first + each, count);
    for (uint i = first; i < last; i++) {
        const long row = (long)index[(long)i * index_step];
        const bool inside = row >= 0 && (ulong)row < rows;
        __global const ELEMENT *source = x + (inside ? row : 0) * x_row;
        __global ELEMENT *target = out + (ulong)i * width;
        uint c = 0;
        if (!inside) {
            for (; c < width; c++) target[c] = 0;
        } else if (x_column == 1) {
            for (; c + WIDTH <= width; c += WIDTH) VECTOR_STORE(VECTOR_LOAD(source + c), target + c);
            for (; c < width; c++) target[c] = source[c];
        } else {
            for (; c < width; c++) target[c] = source[c * x_column];
        }
    }
#else
    const ulong size = (ulong)count * width, stride = get_global_size(0);
#pragma unroll
    for (uint k = 0; k < EACH; k++) {
        const ulong at = get_global_id(0) + k * stride;
        if (at < size) {
            const uint i = at / width, c = at - (ulong)i * width;
            const long row = (long)index[(long)i * index_step];
            ELEMENT value = (ELEMENT)(0);
            if (row >= 0 && (ulong)row < rows) value = x[row * x_row + c * x_column];
            out[at] = value;
        }
    }
#endif
}
