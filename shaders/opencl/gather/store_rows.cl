// Rows of a tensor (outer, capacity, width) replaced from row `position` on by those of `value`, which may have any layout: a
// work-item moves one element. Rows that have no place are left out.

#ifndef ELEMENT
#define ELEMENT uint
#endif

__kernel void gather_store_rows(__global const ELEMENT *value, const ulong value_offset, __global ELEMENT *out, const ulong out_offset,
                         const int position, const uint size, const uint rows, const uint width, const uint capacity,
                         const uint inner, const long outer_step, const long inner_step, const long row_step,
                         const long step) {
    const uint item = get_global_id(0);
    if (item >= size) return;
    const uint i = item % width, row = item / width % rows, batch = item / width / rows;
    const long at = (long)position + row;
    if (at < 0 || at >= capacity) return;
    const long from = (long)(batch / inner) * outer_step + (long)(batch % inner) * inner_step + row * row_step + i * step;
    out[out_offset + ((ulong)batch * capacity + at) * width + i] = value[(long)value_offset + from];
}
