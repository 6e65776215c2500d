// out[index[i], :] += source[i, :] in the order of i, without atomics, so that results do not vary; an index out of range is skipped.
//
// BY_COLUMNS 1, for CPUs: a work-item owns `span` columns and walks all indices. BY_COLUMNS 0, for GPUs: a group owns the row of
// the first of equal indices, which it finds by comparing all of them, and sums that row in registers.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef INDEX_DTYPE
#define INDEX_DTYPE int64
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef BY_COLUMNS
#define BY_COLUMNS 1
#endif
#ifndef GROUP
#define GROUP 128
#endif
#include "dtypes.h"

__kernel void scatter_add(__global const STORAGE(INDEX_DTYPE) *index, const ulong index_offset,
                          __global const STORAGE(DTYPE) *source, const ulong source_offset, __global STORAGE(DTYPE) *out,
                          const ulong out_offset, const uint count, const uint width, const ulong rows, const uint span,
                          const long index_step, const long source_row, const long source_column) {
    index += index_offset;
    source += source_offset;
    out += out_offset;
#if BY_COLUMNS
    const uint first = get_global_id(0) * span;
    const uint last = min(first + span, width);
    for (uint i = 0; i < count; i++) {
        const long row = (long)index[i * index_step];
        if (row < 0 || (ulong)row >= rows) continue;
        __global STORAGE(DTYPE) *target = out + (ulong)row * width;
        __global const STORAGE(DTYPE) *from = source + i * source_row;
        if (source_column == 1)
            for (uint c = first; c < last; c++) STORE(DTYPE, LOAD(DTYPE, target, c) + LOAD(DTYPE, from, c), target, c);
        else
            for (uint c = first; c < last; c++)
                STORE(DTYPE, LOAD(DTYPE, target, c) + LOAD(DTYPE, from, c * source_column), target, c);
    }
#else
    __local uint earlier;
    __local uint found;
    __local uchar matches[GROUP];
    const uint me = get_local_id(0);
    const uint mine = get_group_id(1);
    const long row = (long)index[mine * index_step];
    if (row < 0 || (ulong)row >= rows) return;
    if (me == 0) earlier = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = me; i < mine; i += GROUP)
        if ((long)index[i * index_step] == row) earlier = 1;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (earlier) return;
    const uint column = get_group_id(0) * GROUP + me;
    REAL sum = 0;
    if (column < width) sum = LOAD(DTYPE, out, (ulong)row * width + column);
    for (uint from = mine; from < count; from += GROUP) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (me == 0) found = 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        const bool match = from + me < count && (long)index[(from + me) * index_step] == row;
        matches[me] = match;
        if (match) found = 1;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (found && column < width)
            for (uint i = 0; i < GROUP; i++)
                if (matches[i]) sum += LOAD(DTYPE, source, (from + i) * source_row + column * source_column);
    }
    if (column < width) STORE(DTYPE, sum, out, (ulong)row * width + column);
#endif
}
