// Elements along one axis by number: take copies x[.., index, ..] to out, the others add src to out[.., index, ..], which has
// been zeroed. Tensors count as (outer, axis, inner); numbers from the end are negative, and those outside are 0 or skipped.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef INDEX_DTYPE
#define INDEX_DTYPE int64
#endif
// Elements of 32 bits are added atomically.
#ifndef ATOMIC
#define ATOMIC 0
#endif
#include "lib/dtypes.h"
#if ATOMIC
#include "lib/atomic_add.h"
#endif

__kernel void take_along_axis(__global const STORAGE(DTYPE) *x, const ulong x_offset,
                              __global const STORAGE(INDEX_DTYPE) *index, const ulong index_offset,
                              __global STORAGE(DTYPE) *out, const ulong out_offset, const ulong size, const ulong picked,
                              const ulong inner, const long length, const long x_outer, const long x_axis,
                              const long x_inner, const long index_outer, const long index_axis, const long index_inner) {
    const ulong item = get_global_id(0);
    if (item >= size) return;
    const ulong i = item % inner, a = item / inner % picked, o = item / inner / picked;
    long at = (long)index[(long)index_offset + (long)o * index_outer + (long)a * index_axis + (long)i * index_inner];
    if (at < 0) at += length;
    const bool inside = at >= 0 && at < length;
    x += (long)x_offset + (long)o * x_outer + (long)i * x_inner;
    out[out_offset + item] = inside ? x[at * x_axis] : (STORAGE(DTYPE))0;
}

#if ATOMIC
// A work-item adds one element, `size` of them in all. Floats with equal numbers are added in no fixed order.
__kernel void scatter_atomically(__global const STORAGE(DTYPE) *src, const ulong src_offset,
                                 __global const STORAGE(INDEX_DTYPE) *index, const ulong index_offset,
                                 __global STORAGE(DTYPE) *out, const ulong out_offset, const ulong size, const ulong picked,
                                 const ulong inner, const long length, const long src_outer, const long src_axis,
                                 const long src_inner, const long index_outer, const long index_axis,
                                 const long index_inner) {
    const ulong item = get_global_id(0);
    if (item >= size) return;
    const ulong i = item % inner, a = item / inner % picked, o = item / inner / picked;
    long at = (long)index[(long)index_offset + (long)o * index_outer + (long)a * index_axis + (long)i * index_inner];
    if (at < 0) at += length;
    if (at < 0 || at >= length) return;
    src += (long)src_offset + (long)o * src_outer + (long)a * src_axis + (long)i * src_inner;
    add_atomically(out + out_offset + (o * length + at) * inner + i, *src);
}
#endif

// A work-item adds up one line, in order, so that equal numbers neither race nor change the order of additions.
__kernel void scatter_along_axis(__global const STORAGE(DTYPE) *src, const ulong src_offset,
                                 __global const STORAGE(INDEX_DTYPE) *index, const ulong index_offset,
                                 __global STORAGE(DTYPE) *out, const ulong out_offset, const ulong lines, const ulong picked,
                                 const ulong inner, const long length, const long src_outer, const long src_axis,
                                 const long src_inner, const long index_outer, const long index_axis,
                                 const long index_inner) {
    const ulong line = get_global_id(0);
    if (line >= lines) return;
    const ulong i = line % inner, o = line / inner;
    src += (long)src_offset + (long)o * src_outer + (long)i * src_inner;
    index += (long)index_offset + (long)o * index_outer + (long)i * index_inner;
    out += out_offset + o * length * inner + i;
    for (ulong a = 0; a < picked; a++) {
        long at = (long)index[(long)a * index_axis];
        if (at < 0) at += length;
        if (at < 0 || at >= length) continue;
        STORE(DTYPE, LOAD(DTYPE, out, at * inner) + LOAD(DTYPE, src, (long)a * src_axis), out, at * inner);
    }
}
