// Row update: out[index[i], :] = source[i, :], in the memory of `out`. Where several indices name a row, the last one wins, unless
// DISTINCT promises that none do: each work-item then reads all later indices, so that the order of work-items does not matter.
// One element per work-item; source may have any strides. Indices out of range are skipped; with WRAP, negative ones count from
// the end.

#ifndef INDEX_DTYPE
#define INDEX_DTYPE int64
#endif
#ifndef UNIT
#define UNIT uint
#endif
#ifndef WRAP
#define WRAP 0
#endif
#ifndef DISTINCT
#define DISTINCT 0
#endif
#include "lib/dtypes.h"

static inline long row_at(__global const STORAGE(INDEX_DTYPE) *index, const long step, const uint i, const ulong rows) {
    const long row = (long)index[(long)i * step];
    return WRAP && row < 0 ? row + (long)rows : row;
}

__kernel void gather_replace_rows(__global const STORAGE(INDEX_DTYPE) *index, const ulong index_offset,
                                  __global const UNIT *source, const ulong source_offset, __global UNIT *out,
                                  const ulong out_offset, const uint count, const uint width, const ulong rows,
                                  const long index_step, const long source_row, const long source_column) {
    const uint item = get_global_id(0), i = item / width, column = item - i * width;
    if (i >= count) return;
    index += index_offset;
    const long row = row_at(index, index_step, i, rows);
    if (row < 0 || (ulong)row >= rows) return;
#if !DISTINCT
    for (uint j = i + 1; j < count; j++) {
        if (row_at(index, index_step, j, rows) == row) return;
    }
#endif
    out[out_offset + (ulong)row * width + column] = source[(long)source_offset + i * source_row + column * source_column];
}
