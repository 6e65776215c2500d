// Update of a key-value cache (b0, b1, capacity, width): in sequence i, rows from `positions[i]` on are replaced by the `rows` rows of
// `value`, which may have any strides. WIDTH elements per work-item, `size` in all. Rows outside are dropped. WIDTH divides `width`;
// if it is not 1, the columns of `value` are contiguous.

#ifndef UNIT
#define UNIT uint
#endif
#ifndef WIDTH
#define WIDTH 1
#endif
#include "lib/dtypes.h"
#include "lib/vectors.h"
#if WIDTH == 1
#define KERNEL_HINT
#else
#define KERNEL_HINT NO_AUTOVEC
#endif

__kernel KERNEL_HINT void gather_store_rows(__global const UNIT *value, const ulong value_offset, __global const int *positions,
                                const ulong positions_offset, __global UNIT *out, const ulong out_offset,
                                const uint size, const uint rows, const uint width, const uint capacity, const uint b1,
                                const long value_b0, const long value_b1, const long value_row, const long value_column,
                                const long positions_step) {
    const uint item = get_global_id(0) * WIDTH;
    if (item >= size) return;
    const uint column = item % width, row = item / width % rows, batch = item / width / rows;
    const long to = (long)positions[(long)positions_offset + batch / b1 * positions_step] + row;
    if (to < 0 || to >= capacity) return;
    const long from = (long)(batch / b1) * value_b0 + (long)(batch % b1) * value_b1 + row * value_row + column * value_column;
    VECTOR_STORE(UNIT, VECTOR_LOAD(UNIT, value + (long)value_offset + from),
                 out + out_offset + ((ulong)batch * capacity + to) * width + column);
}
