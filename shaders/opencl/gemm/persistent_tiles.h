// Persistent tile scheduler: few groups compute many work tiles, a work tile being an output tile and one split of its
// terms. At the end of a work tile, a group already copies the first k-tiles of its next one, so that neither memory nor
// tensor cores idle.
//
// Includers include lib/staging.h first, define TILE_ROWS and TILE_COLUMNS, and have the kernel parameters a, b,
// split_terms (the terms of a split), work_tiles (their number) and GemmGeometry. DECLARE_TILE_SCHEDULER comes before the
// other macros.

#ifndef POLYHAL_PERSISTENT_TILES
#define POLYHAL_PERSISTENT_TILES

#include "gemm/operands.h"
#include "gemm/tile_swizzle.h"

// An output tile of one matrix of the batch, (i0, i1, i2), and one split of its terms, from `start` to `end`. `matrix`
// numbers the matrices of results over splits and batch.
typedef struct {
    uint first_row, first_column, start, end, matrix, i0, i1, i2;
} WorkTile;

// The sources of this work-item's copies of the next k-tile, which belongs to work tile `number`, and the remaining
// rows of a, columns of b and terms, counted from the k-tile's first.
typedef struct {
    __global const STORAGE(DTYPE) *a, *b;
    int rows, columns, terms;
    uint number;
} TileLoader;

#define DECLARE_TILE_SCHEDULER                                       \
    const uint tiles_down = (m + TILE_ROWS - 1) / TILE_ROWS;         \
    const uint tiles_across = (n + TILE_COLUMNS - 1) / TILE_COLUMNS; \
    const uint batches = work_tiles / (tiles_down * tiles_across) / ((k + split_terms - 1) / split_terms);

#define GET_WORK_TILE(w, number)                                                                        \
    {                                                                                                   \
        w.matrix = (number) / (tiles_down * tiles_across);                                              \
        const uint2 tile =                                                                              \
            swizzled_tile((number) - w.matrix * (tiles_down * tiles_across), tiles_down, tiles_across); \
        w.first_row = tile.x * TILE_ROWS, w.first_column = tile.y * TILE_COLUMNS;                       \
        const uint batch = w.matrix % batches;                                                          \
        w.i2 = batch % batch2, w.i1 = batch / batch2 % batch1, w.i0 = batch / batch2 / batch1;          \
        w.start = w.matrix / batches * split_terms, w.end = min(w.start + split_terms, k);              \
    }

#define START_LOADER(loader)                                                                                            \
    if (loader.number < work_tiles) {                                                                                   \
        WorkTile w;                                                                                                     \
        GET_WORK_TILE(w, loader.number)                                                                                 \
        loader.rows = m - w.first_row, loader.columns = n - w.first_column, loader.terms = w.end - w.start;             \
        loader.a = first_chunk(MATRIX_OF_A(w.i0, w.i1, w.i2) + (w.first_row * a_row + w.start * a_column), a_row,       \
                            a_column, A_K_MAJOR, TILE_ROWS, A_BYTES);                                                   \
        loader.b = first_chunk(MATRIX_OF_B(w.i0, w.i1, w.i2) + (w.first_column * b_column + w.start * b_row), b_column, \
                            b_row, B_K_MAJOR, TILE_COLUMNS, B_BYTES);                                                   \
    }

// Starts copies `part` of `parts` of the next k-tile to `left` and `right` in local memory.
#define LOAD_K_TILE(loader, left, right, part, parts)                                                                 \
    if (loader.number < work_tiles) {                                                                                 \
        stage_chunks(left, loader.a, a_row, a_column, loader.rows, loader.terms, A_K_MAJOR, TILE_ROWS, A_BYTES, part, \
                     parts);                                                                                          \
        stage_chunks(right, loader.b, b_column, b_row, loader.columns, loader.terms, B_K_MAJOR, TILE_COLUMNS,         \
                     B_BYTES, part, parts);                                                                           \
    }

#define ADVANCE_LOADER(loader)                  \
    if (loader.number < work_tiles) {           \
        loader.a += DEPTH * a_column;           \
        loader.b += DEPTH * b_row;              \
        loader.terms -= DEPTH;                  \
        if (loader.terms <= 0) {                \
            loader.number += get_num_groups(0); \
            START_LOADER(loader)                \
        }                                       \
    }

#endif
