// The product of x with a banded matrix along each of its last two axes, in one pass, which is how planes are resampled
// (conv/banded_arguments.h). A work-item makes LANES columns of `rows_each` rows. It keeps the elements of a line of x
// in registers for all rows that need them: these rows are consecutive.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef LANES
#define LANES 1
#endif
#define WIDTH LANES
#define ALIGNED 1
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "conv/banded_arguments.h"

static inline REAL weighted(const REAL weight, const REAL value) { return weight == 0 ? (REAL)0 : weight * value; }

// Items are (columns / LANES, blocks of rows, planes).
__kernel void banded_planes(BANDED_PLANES_PARAMETERS) {
    const uint column = get_global_id(0) * LANES, first = get_global_id(1) * rows_each, plane = get_global_id(2);
    if (column >= columns || first >= rows) return;
    const uint last = min(first + rows_each, rows);
    x += (long)x_offset + (long)plane * x_plane;
    out += out_offset + ((ulong)plane * rows + first) * columns + column;
    down_starts += down_starts_offset;
    down_weights += down_weights_offset;
    int from[LANES];
    REAL across[LANES][TAPS_ACROSS];
    UNROLLED(l, LANES) {
        from[l] = across_starts[across_starts_offset + column + l] * (int)x_across;
        UNROLLED(u, TAPS_ACROSS)
            across[l][u] = LOAD(WEIGHT_DTYPE, across_weights, across_weights_offset + (column + l) * TAPS_ACROSS + u);
    }
    REAL lines[TAPS_DOWN][LANES];
    int held = -2;  // the line of x that lines[0] comes from
    for (uint row = first; row < last; row++, out += columns) {
        const int start = down_starts[row];
        if (start != held) {
            const bool next = start == held + 1;
            UNROLLED(t, TAPS_DOWN) {
                if (next && t + 1 < TAPS_DOWN) {
                    UNROLLED(l, LANES) lines[t][l] = lines[min(t + 1, (uint)TAPS_DOWN - 1)][l];
                    continue;
                }
                __global const STORAGE(DTYPE) *line = x + (start + (int)t) * x_down;
                UNROLLED(l, LANES) {
                    REAL sum = 0;
                    UNROLLED(u, TAPS_ACROSS)
                        sum += weighted(across[l][u], LOAD(DTYPE, line, from[l] + (int)u * (int)x_across));
                    lines[t][l] = sum;
                }
            }
            held = start;
        }
        VEC(REAL) sums = (VEC(REAL))(0);
        UNROLLED(t, TAPS_DOWN) {
            const REAL weight = LOAD(WEIGHT_DTYPE, down_weights, row * TAPS_DOWN + t);
            UNROLLED(l, LANES) ((__private REAL *)&sums)[l] += weighted(weight, lines[t][l]);
        }
        STOREV(DTYPE, sums, out);
    }
}
