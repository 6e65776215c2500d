// Gather and scatter along one axis. The indices have the shape (outer, count, inner), x and the result (outer, length, inner):
// take_along_axis copies x[o, index[o, a, i], i] to out[o, a, i], the others add src[o, a, i] to out[o, index[o, a, i], i], which
// has been zeroed. Negative indices count from the end; those out of range give 0 or are skipped.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef INDEX_DTYPE
#define INDEX_DTYPE int64
#endif
// 1: elements of 32 bits are added atomically.
#ifndef ATOMIC
#define ATOMIC 0
#endif
// 1: sum_parts adds to the elements of the result; 0: it replaces them.
#ifndef ONTO
#define ONTO 0
#endif
// The type of index arithmetic: dividing 64-bit integers takes many instructions on GPUs.
#ifndef POSITION
#define POSITION ulong
#endif
#include "lib/dtypes.h"
#if ATOMIC
#include "lib/atomic_add.h"
#endif

// One element per work-item, `size` of them.
__kernel void take_along_axis(__global const STORAGE(DTYPE) *x, const ulong x_offset,
                              __global const STORAGE(INDEX_DTYPE) *index, const ulong index_offset,
                              __global STORAGE(DTYPE) *out, const ulong out_offset, const ulong size, const ulong count,
                              const ulong inner, const long length, const long x_outer, const long x_axis,
                              const long x_inner, const long index_outer, const long index_axis, const long index_inner) {
    const POSITION item = get_global_id(0), across = inner, down = count;
    if (item >= size) return;
    const POSITION line = item / across, i = item - line * across, o = line / down, a = line - o * down;
    long at = (long)index[(long)index_offset + (long)o * index_outer + (long)a * index_axis + (long)i * index_inner];
    if (at < 0) at += length;
    const bool inside = at >= 0 && at < length;
    x += (long)x_offset + (long)o * x_outer + (long)i * x_inner;
    STORE(DTYPE, inside ? LOAD(DTYPE, x, at * x_axis) : (COMPUTE(DTYPE))0, out, out_offset + item);
}

#if ATOMIC
// One element of src per work-item, `size` of them. Floats with equal indices are added in no fixed order.
__kernel void scatter_along_axis_atomic(__global const STORAGE(DTYPE) *src, const ulong src_offset,
                                        __global const STORAGE(INDEX_DTYPE) *index, const ulong index_offset,
                                        __global STORAGE(DTYPE) *out, const ulong out_offset, const ulong size,
                                        const ulong count, const ulong inner, const long length, const long src_outer,
                                        const long src_axis, const long src_inner, const long index_outer,
                                        const long index_axis, const long index_inner) {
    const POSITION item = get_global_id(0), across = inner, down = count;
    if (item >= size) return;
    const POSITION line = item / across, i = item - line * across, o = line / down, a = line - o * down;
    long at = (long)index[(long)index_offset + (long)o * index_outer + (long)a * index_axis + (long)i * index_inner];
    if (at < 0) at += length;
    if (at < 0 || at >= length) return;
    src += (long)src_offset + (long)o * src_outer + (long)a * src_axis + (long)i * src_inner;
    add_atomically(out + out_offset + (o * length + at) * inner + i, *src);
}
#endif

// One of `lines` lines along the axis per work-item, in order: equal indices neither race nor change the order of additions.
__kernel void scatter_along_axis(__global const STORAGE(DTYPE) *src, const ulong src_offset,
                                 __global const STORAGE(INDEX_DTYPE) *index, const ulong index_offset,
                                 __global STORAGE(DTYPE) *out, const ulong out_offset, const ulong lines, const ulong count,
                                 const ulong inner, const long length, const long src_outer, const long src_axis,
                                 const long src_inner, const long index_outer, const long index_axis,
                                 const long index_inner) {
    const ulong line = get_global_id(0);
    if (line >= lines) return;
    const ulong i = line % inner, o = line / inner;
    src += (long)src_offset + (long)o * src_outer + (long)i * src_inner;
    index += (long)index_offset + (long)o * index_outer + (long)i * index_inner;
    out += out_offset + o * length * inner + i;
    for (ulong a = 0; a < count; a++) {
        long at = (long)index[(long)a * index_axis];
        if (at < 0) at += length;
        if (at < 0 || at >= length) continue;
        STORE(DTYPE, LOAD(DTYPE, out, at * inner) + LOAD(DTYPE, src, (long)a * src_axis), out, at * inner);
    }
}

// Add positions `first_a` to `last_a` along the axis of lines `first` to `last`, which are neighbors in memory.
FORCE_INLINE void add_lines(__global const STORAGE(DTYPE) *src, __global const STORAGE(INDEX_DTYPE) *index,
                            __global STORAGE(DTYPE) *out, const ulong first_a, const ulong last_a, const ulong first,
                            const ulong last, const ulong inner, const long length, const long src_axis,
                            const long src_inner, const long index_axis, const long index_inner) {
    for (ulong a = first_a; a < last_a; a++) {
        __global const STORAGE(DTYPE) *from = src + (long)a * src_axis;
        __global const STORAGE(INDEX_DTYPE) *at = index + (long)a * index_axis;
        for (ulong i = first; i < last; i++) {
            long row = (long)at[(long)i * index_inner];
            if (row < 0) row += length;
            if (row < 0 || row >= length) continue;
            const ulong to = row * inner + i;
            STORE(DTYPE, LOAD(DTYPE, out, to) + LOAD(DTYPE, from, (long)i * src_inner), out, to);
        }
    }
}

// Adding on CPUs, where neighbors in memory belong to one work-item: it takes `units_each` units, each of `inner_each`
// neighboring lines, and walks along the axis with all lines of a unit.
__kernel NO_AUTOVEC void scatter_along_axis_cpu(__global const STORAGE(DTYPE) *src, const ulong src_offset,
                                                __global const STORAGE(INDEX_DTYPE) *index, const ulong index_offset,
                                                __global STORAGE(DTYPE) *out, const ulong out_offset, const ulong units,
                                                const ulong units_each, const ulong inner_each, const ulong count,
                                                const ulong inner, const long length, const long src_outer,
                                                const long src_axis, const long src_inner, const long index_outer,
                                                const long index_axis, const long index_inner) {
    const ulong across = (inner + inner_each - 1) / inner_each, last = min((get_global_id(0) + 1) * units_each, units);
    for (ulong unit = get_global_id(0) * units_each; unit < last; unit++) {
        const ulong o = unit / across, first = (unit - o * across) * inner_each, end = min(first + inner_each, inner);
        add_lines(src + (long)src_offset + (long)o * src_outer, index + (long)index_offset + (long)o * index_outer,
                  out + out_offset + o * length * inner, 0, count, first, end, inner, length, src_axis, src_inner,
                  index_axis, index_inner);
    }
}

// The sum of no terms: adding it changes no number, not even -0.0.
#define NO_TERM ((COMPUTE(DTYPE))-0.0f)

// Adding on CPUs for few lines along a long axis: each of `parts` work-items adds a range of the axis to sums of its
// own, which sum_parts adds up in a fixed order.
__kernel NO_AUTOVEC void scatter_along_axis_parts(__global const STORAGE(DTYPE) *src, const ulong src_offset,
                                                  __global const STORAGE(INDEX_DTYPE) *index, const ulong index_offset,
                                                  __global STORAGE(DTYPE) *sums, const ulong parts, const ulong outer,
                                                  const ulong count, const ulong inner, const long length,
                                                  const long src_outer, const long src_axis, const long src_inner,
                                                  const long index_outer, const long index_axis, const long index_inner) {
    const ulong part = get_global_id(0), first = part * count / parts, last = (part + 1) * count / parts;
    sums += part * outer * length * inner;
    for (ulong i = 0; i < outer * length * inner; i++) STORE(DTYPE, NO_TERM, sums, i);
    for (ulong o = 0; o < outer; o++, sums += length * inner)
        add_lines(src + (long)src_offset + (long)o * src_outer, index + (long)index_offset + (long)o * index_outer, sums,
                  first, last, 0, inner, inner, length, src_axis, src_inner, index_axis, index_inner);
}

// One element of the result per work-item, `size` of them.
__kernel void sum_parts(__global const STORAGE(DTYPE) *sums, __global STORAGE(DTYPE) *out, const ulong out_offset,
                        const ulong size, const ulong parts) {
    const ulong i = get_global_id(0);
    if (i >= size) return;
    COMPUTE(DTYPE) sum = ONTO ? LOAD(DTYPE, out, out_offset + i) : (COMPUTE(DTYPE))0;
    for (ulong part = 0; part < parts; part++) sum += LOAD(DTYPE, sums, part * size + i);
    STORE(DTYPE, sum, out, out_offset + i);
}

// Taking on CPUs: a work-item takes `units_each` rows of `inner` neighbors in memory, without a division per element.
__kernel NO_AUTOVEC void take_along_axis_cpu(__global const STORAGE(DTYPE) *x, const ulong x_offset,
                                             __global const STORAGE(INDEX_DTYPE) *index, const ulong index_offset,
                                             __global STORAGE(DTYPE) *out, const ulong out_offset, const ulong units,
                                             const ulong units_each, const ulong count, const ulong inner,
                                             const long length, const long x_outer, const long x_axis, const long x_inner,
                                             const long index_outer, const long index_axis, const long index_inner) {
    const ulong begin = get_global_id(0) * units_each, end = min(begin + units_each, units);
    ulong o = begin / count, a = begin - o * count;
    for (ulong unit = begin; unit < end; unit++) {
        __global const STORAGE(DTYPE) *from = x + (long)x_offset + (long)o * x_outer;
        __global const STORAGE(INDEX_DTYPE) *at = index + (long)index_offset + (long)o * index_outer + (long)a * index_axis;
        __global STORAGE(DTYPE) *to = out + out_offset + unit * inner;
        for (ulong i = 0; i < inner; i++) {
            long row = (long)at[(long)i * index_inner];
            if (row < 0) row += length;
            const bool inside = row >= 0 && row < length;
            STORE(DTYPE, inside ? LOAD(DTYPE, from, row * x_axis + (long)i * x_inner) : (COMPUTE(DTYPE))0, to, i);
        }
        if (++a == count) {
            a = 0;
            o++;
        }
    }
}
