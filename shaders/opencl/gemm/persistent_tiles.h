// How few groups make many tiles of a batched product: each takes a tile of one matrix and a share of its terms, a work,
// after the other, and copies the first strips of the next one while it still finishes the one before, so that neither
// the memory nor the units wait at the ends of tiles.
//
// Whoever includes this, after lib/staging.h, defines TILE_ROWS and TILE_COLUMNS, has the kernel parameters a, b, m, n, k,
// GEMM geometry, `terms`, those of a share, and `works`, how many there are, and says DECLARE_WORKS before the rest.

#ifndef POLYHAL_WORKS
#define POLYHAL_WORKS

#include "gemm/operands.h"
#include "gemm/tile_swizzle.h"

// The first place in either direction, the terms from `start` to `end`, the matrix that the sums belong to, counted over
// shares and batch, and in which matrix of the batch.
typedef struct {
    uint first_row, first_column, start, end, matrix, i0, i1, i2;
} Work;

// This work-item's pieces of the strip that is copied next, of work `number`, and how many places and terms of the
// matrices there are from its first on.
typedef struct {
    __global const STORAGE(DTYPE) *a, *b;
    int rows, columns, terms;
    uint number;
} Copied;

#define DECLARE_WORKS                                                                      \
    const uint tiles_down = (m + TILE_ROWS - 1) / TILE_ROWS;                               \
    const uint tiles_across = (n + TILE_COLUMNS - 1) / TILE_COLUMNS;                       \
    const uint batches = works / (tiles_down * tiles_across) / ((k + terms - 1) / terms);

#define FIND_WORK(w, number)                                                                                  \
    {                                                                                                         \
        w.matrix = (number) / (tiles_down * tiles_across);                                                    \
        const uint2 tile =                                                                                    \
            place_of_tile((number) - w.matrix * (tiles_down * tiles_across), tiles_down, tiles_across);       \
        w.first_row = tile.x * TILE_ROWS, w.first_column = tile.y * TILE_COLUMNS;                             \
        const uint batch = w.matrix % batches;                                                                \
        w.i2 = batch % batch2, w.i1 = batch / batch2 % batch1, w.i0 = batch / batch2 / batch1;                \
        w.start = w.matrix / batches * terms, w.end = min(w.start + terms, k);                                \
    }

#define BEGIN_COPIES(copied)                                                                                          \
    if (copied.number < works) {                                                                                      \
        Work w;                                                                                                       \
        FIND_WORK(w, copied.number)                                                                                   \
        copied.rows = m - w.first_row, copied.columns = n - w.first_column, copied.terms = w.end - w.start;           \
        copied.a = first_chunk(MATRIX_OF_A(w.i0, w.i1, w.i2) + (w.first_row * a_row + w.start * a_column), a_row,         \
                            a_column, A_ALONG, TILE_ROWS, A_BYTES);                                                   \
        copied.b = first_chunk(MATRIX_OF_B(w.i0, w.i1, w.i2) + (w.first_column * b_column + w.start * b_row), b_column,   \
                            b_row, B_ALONG, TILE_COLUMNS, B_BYTES);                                                   \
    }

// Begins to copy share `part` of `parts` of a strip to the places `left` and `right`.
#define COPY_STRIP(copied, left, right, part, parts)                                                                \
    if (copied.number < works) {                                                                                    \
        stage_chunks(left, copied.a, a_row, a_column, copied.rows, copied.terms, A_ALONG, TILE_ROWS, A_BYTES, part, \
                     parts);                                                                                        \
        stage_chunks(right, copied.b, b_column, b_row, copied.columns, copied.terms, B_ALONG, TILE_COLUMNS,         \
                     B_BYTES, part, parts);                                                                         \
    }

#define NEXT_STRIP(copied)                     \
    if (copied.number < works) {               \
        copied.a += DEPTH * a_column;          \
        copied.b += DEPTH * b_row;             \
        copied.terms -= DEPTH;                 \
        if (copied.terms <= 0) {               \
            copied.number += get_num_groups(0); \
            BEGIN_COPIES(copied)               \
        }                                      \
    }

#endif
