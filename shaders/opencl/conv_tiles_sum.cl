// The second stage of a convolution whose terms were shared out: result (row, column) of a group = sum over splits of
// partial[split][group][row][column] (+ bias), in order; see conv_places.h.

#ifndef OUT_DTYPE
#define OUT_DTYPE float32
#endif
#ifndef DTYPE
#define DTYPE OUT_DTYPE
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef BIAS
#define BIAS 0
#endif
#include "dtypes.h"
#include "conv_places.h"

__kernel void conv_tiles_sum(__global const REAL *partial,
#if BIAS
                             __global const STORAGE(DTYPE) *bias, const ulong bias_offset,
#endif
                             __global STORAGE(OUT_DTYPE) *out, const ulong out_offset, const uint size, const uint m,
                             const uint n, const uint splits, PLACES) {
    const uint i = get_global_id(0);
    if (i >= size) return;
    REAL sum = partial[i];
    for (uint s = 1; s < splits; s++) sum += partial[(ulong)s * size + i];
    const uint group = i / n / m;
    PLACE_ROW(i / n % m)
    PLACE_COLUMN(i % n)
#if BIAS
    sum += LOAD(DTYPE, bias, bias_offset + i / n);
#endif
    if (PLACE_EXISTS) STORE(OUT_DTYPE, sum, out, (long)out_offset + group * out_group + row_place + column_place);
}
