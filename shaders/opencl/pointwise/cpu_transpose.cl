// out[b, r, c] = x[b, c, r] for CPUs. Each work-item moves a block of SIDE x SIDE elements in tiles of 16 x 16, which it
// transposes in registers. Whole cache lines are read and written, neighbouring ones soon after each other, because
// each row of a large matrix is in another page. Elements are moved as bits; strides are in elements.

#ifndef UNIT
#define UNIT uint
#endif
#ifndef SIDE
#define SIDE 64
#endif
#define TILE 16
#define WIDTH TILE
#include "lib/dtypes.h"
#include "lib/vectors.h"

typedef VEC(UNIT) V;
#define INTERLEAVE_LOW(a, b) \
    (V)(a.s0, b.s0, a.s1, b.s1, a.s2, b.s2, a.s3, b.s3, a.s4, b.s4, a.s5, b.s5, a.s6, b.s6, a.s7, b.s7)
#define INTERLEAVE_HIGH(a, b) \
    (V)(a.s8, b.s8, a.s9, b.s9, a.sa, b.sa, a.sb, b.sb, a.sc, b.sc, a.sd, b.sd, a.se, b.se, a.sf, b.sf)

// The index of an element has eight bits, four of its row and four of its column. Interleaving vector i with vector i + 8 rotates
// them by one bit; after four rotations rows are columns.
#define INTERLEAVE(from, to) \
    _Pragma("unroll") for (uint i = 0; i < TILE / 2; i++) { \
        to[2 * i] = INTERLEAVE_LOW(from[i], from[i + TILE / 2]); \
        to[2 * i + 1] = INTERLEAVE_HIGH(from[i], from[i + TILE / 2]); \
    }

static inline void move_tile(__global const UNIT *x, const long x_column, __global UNIT *out, const long out_row) {
    V a[TILE], b[TILE];
#pragma unroll
    for (uint c = 0; c < TILE; c++) a[c] = VECTOR_LOAD(UNIT, x + c * x_column);
    INTERLEAVE(a, b)
    INTERLEAVE(b, a)
    INTERLEAVE(a, b)
    INTERLEAVE(b, a)
#pragma unroll
    for (uint r = 0; r < TILE; r++) VECTOR_STORE(UNIT, a[r], out + r * out_row);
}

// NO_AUTOVEC keeps compilers from also vectorizing over work-items.
__kernel NO_AUTOVEC void pointwise_cpu_transpose(
    __global const UNIT *x, const ulong x_offset, __global UNIT *out, const ulong out_offset, const ulong rows, const ulong columns,
    const long x_column, const long out_row, const ulong b1, const long x_b0, const long x_b1, const long out_b0, const long out_b1) {
    const ulong across = (columns + SIDE - 1) / SIDE;
    const ulong down = (rows + SIDE - 1) / SIDE;
    const ulong item = get_global_id(0);
    const ulong batch = item / (across * down);
    const ulong block = item - batch * across * down;
    const ulong first_row = block / across * SIDE, first_column = block % across * SIDE;
    const uint height = min((ulong)SIDE, rows - first_row), width = min((ulong)SIDE, columns - first_column);
    x += (long)x_offset + (long)(batch / b1) * x_b0 + (long)(batch % b1) * x_b1 + (long)first_column * x_column + (long)first_row;
    out += (long)out_offset + (long)(batch / b1) * out_b0 + (long)(batch % b1) * out_b1 + (long)first_row * out_row + (long)first_column;
    for (uint column = 0; column < width; column += TILE) {
        for (uint row = 0; row < height; row += TILE) {
            __global const UNIT *from = x + column * x_column + row;
            __global UNIT *to = out + row * out_row + column;
            if (row + TILE <= height && column + TILE <= width) {
                move_tile(from, x_column, to, out_row);
            } else {
                for (uint r = 0; r < min((uint)TILE, height - row); r++) {
                    for (uint c = 0; c < min((uint)TILE, width - column); c++) to[r * out_row + c] = from[c * x_column + r];
                }
            }
        }
    }
}
