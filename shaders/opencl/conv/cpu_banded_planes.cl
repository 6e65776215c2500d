// Two banded matrices times planes (conv/banded_arguments.h), on CPUs. A work-item makes a block of rows of one plane, CHUNK columns at a time. It
// resamples every line of x that they need along the line once, which gathers, and adds up such lines with whole vectors.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef WIDTH
#define WIDTH 16
#endif
// Columns that a work-item makes at a time.
#ifndef CHUNK
#define CHUNK 128
#endif
#define ALIGNED 0
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "conv/banded_arguments.h"

typedef VEC(REAL) V;

// The columns of a chunk: the first index that each reads, and its weights by tap.
typedef struct {
    int from[CHUNK];
    V weights[TAPS_ACROSS][CHUNK / WIDTH];
} Columns;

// Resample `count` columns of a line of x. Those beyond, up to the next whole vector, repeat the last one.
FORCE_INLINE void resample_line(V *to, __global const STORAGE(DTYPE) *line, const Columns *columns, const long x_across,
                                const uint count) {
    for (uint v = 0; v * WIDTH < count; v++) {
        V sum = (V)(0);
        UNROLLED(u, TAPS_ACROSS) {
            V value;
            UNROLLED(l, WIDTH)
                ((REAL *)&value)[l] = LOAD(DTYPE, line, (long)(columns->from[v * WIDTH + l] + (int)u) * x_across);
            const V weight = columns->weights[u][v];
            sum += weight == (V)(0) ? (V)(0) : weight * value;
        }
        to[v] = sum;
    }
}

// Items are (blocks of rows, planes).
__kernel NO_AUTOVEC void cpu_banded_planes(BANDED_PLANES_PARAMETERS) {
    const uint first = get_global_id(0) * rows_each, last = min(first + rows_each, rows), plane = get_global_id(1);
    x += (long)x_offset + (long)plane * x_plane;
    down_starts += down_starts_offset;
    down_weights += down_weights_offset;
    for (uint begin = 0; begin < columns; begin += CHUNK) {
        const uint count = min((uint)CHUNK, columns - begin);
        Columns chunk;
        for (uint c = 0; c < (count + WIDTH - 1) / WIDTH * WIDTH; c++) {
            const uint column = begin + min(c, count - 1);
            chunk.from[c] = across_starts[across_starts_offset + column];
            UNROLLED(u, TAPS_ACROSS)
                ((REAL *)chunk.weights[u])[c] =
                    LOAD(WEIGHT_DTYPE, across_weights, across_weights_offset + column * TAPS_ACROSS + u);
        }
        // Line i of x is kept in lines[i % TAPS_DOWN]; those before `ready` have been resampled.
        V lines[TAPS_DOWN][CHUNK / WIDTH];
        int ready = 0;
        for (uint row = first; row < last; row++) {
            const int start = down_starts[row], end = start + TAPS_DOWN;
            // Rows usually read later lines than the one before.
            for (int i = start >= ready - TAPS_DOWN ? max(start, ready) : start; i < end; i++)
                resample_line(lines[i % TAPS_DOWN], x + i * x_down, &chunk, x_across, count);
            ready = end;
            __global STORAGE(DTYPE) *to = out + out_offset + ((ulong)plane * rows + row) * columns + begin;
            for (uint v = 0; v * WIDTH < count; v++) {
                V sum = (V)(0);
                UNROLLED(t, TAPS_DOWN) {
                    const REAL weight = LOAD(WEIGHT_DTYPE, down_weights, row * TAPS_DOWN + t);
                    if (weight != 0) sum += weight * lines[(start + t) % TAPS_DOWN][v];
                }
                if ((v + 1) * WIDTH <= count) {
                    STOREV(DTYPE, sum, to + v * WIDTH);
                } else {
                    for (uint c = v * WIDTH; c < count; c++) STORE(DTYPE, ((REAL *)&sum)[c - v * WIDTH], to, c);
                }
            }
        }
    }
}
