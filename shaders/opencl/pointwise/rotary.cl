// Pairs of features rotated by angles that depend on the position: WIDTH pairs per work-item, `size` in all. `x` (b0, b1, rows,
// 2 half) and the tables of cosines and sines (broadcast, half) may have any strides; `out` is contiguous. WIDTH divides `half`,
// and if it is not 1, the features of all three are contiguous and pairs are not neighbours.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef TABLE_DTYPE
#define TABLE_DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
// 1: neighbouring features are pairs.
#ifndef INTERLEAVED
#define INTERLEAVED 0
#endif
#ifndef WIDTH
#define WIDTH 1
#endif
#include "lib/dtypes.h"
#include "lib/vectors.h"

typedef VEC(REAL) V;
#if WIDTH == 1
#define LOAD_PAIRS(D, p, i) LOAD(D, p, i)
#define STORE_PAIRS(D, v, p, i) STORE(D, v, p, i)
#define KERNEL_HINT
#else
#define LOAD_PAIRS(D, p, i) LOADV(D, (p) + (i))
#define STORE_PAIRS(D, v, p, i) STOREV(D, v, (p) + (i))
#define KERNEL_HINT NO_AUTOVEC
#endif

__kernel KERNEL_HINT void pointwise_rotary(__global const STORAGE(DTYPE) *x, const ulong x_offset,
                               __global const STORAGE(TABLE_DTYPE) *cosines, const ulong cosines_offset,
                               __global const STORAGE(TABLE_DTYPE) *sines, const ulong sines_offset,
                               __global STORAGE(DTYPE) *out, const ulong out_offset, const uint size, const uint half_,
                               const uint rows, const uint b1, const long x_b0, const long x_b1, const long x_row,
                               const long x_column, const long cosines_b0, const long cosines_b1,
                               const long cosines_row, const long cosines_column, const long sines_b0,
                               const long sines_b1, const long sines_row, const long sines_column) {
    const uint item = get_global_id(0) * WIDTH;
    if (item >= size) return;
    const uint pair = item % half_, line = item / half_, row = line % rows, batch = line / rows;
    const long i0 = batch / b1, i1 = batch % b1;
    const V c = LOAD_PAIRS(TABLE_DTYPE, cosines, (long)cosines_offset + i0 * cosines_b0 + i1 * cosines_b1 +
                                                  row * cosines_row + pair * cosines_column);
    const V s = LOAD_PAIRS(TABLE_DTYPE, sines,
                        (long)sines_offset + i0 * sines_b0 + i1 * sines_b1 + row * sines_row + pair * sines_column);
#if INTERLEAVED
    const uint first = 2 * pair, second = first + 1;
#else
    const uint first = pair, second = pair + half_;
#endif
    const long from = (long)x_offset + i0 * x_b0 + i1 * x_b1 + row * x_row;
    const V a = LOAD_PAIRS(DTYPE, x, from + first * x_column), b = LOAD_PAIRS(DTYPE, x, from + second * x_column);
    const ulong to = out_offset + (ulong)line * 2 * half_;
    STORE_PAIRS(DTYPE, a * c - b * s, out, to + first);
    STORE_PAIRS(DTYPE, b * c + a * s, out, to + second);
}
