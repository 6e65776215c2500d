// out = a x b on a CPU: one work-item makes one of `blocks_down` x `blocks_across` blocks of the result, as register tiles of
// MR rows by NR columns. Up to DEPTH terms at a time, it packs its columns of `b` panel by panel, of which one stays in the
// first-level cache while all its rows of `a` pass by from the second-level cache. They are read where they lie, or are first
// copied there as they lie (COPIED), in slabs, where that cache could not hold them otherwise or they must be converted.
//
// The sums of the rows of `a` go to `row_sums` where they are wanted (ROW_SUMS, with lines that are columns, SPLIT 0).
//
// Between the parts, sums wait in `partial`, which is `out` itself where that has the type of the sums (SPLIT 0), and a
// workspace where it is narrower (SPLIT 1).

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#ifndef REAL
#define REAL float
#define REAL_DTYPE float32
#endif
// Whether operands are read in another type than that of the sums.
#ifndef WIDEN
#define WIDEN 0
#endif
#ifndef WIDTH
#define WIDTH 16
#endif
// Registers: MR * VECTORS sums, VECTORS of b and one of a; 29 of AVX-512's 32.
#ifndef MR
#define MR 6
#endif
#ifndef VECTORS
#define VECTORS 4
#endif
#ifndef DEPTH
#define DEPTH 128
#endif
#ifndef COPIED
#define COPIED 1
#endif
// Rows of `a` that are copied or fetched at once: whole tiles, and whole vectors.
#ifndef SLAB
#define SLAB 48
#endif
// Most rows of a block.
#ifndef BLOCK_ROWS
#define BLOCK_ROWS 528
#endif
// Whether lines of `a`, in which neighbours lie side by side, are its rows or its columns. What is not copied has such lines.
#ifndef BY_ROWS
#define BY_ROWS 1
#endif
// Where a copy of `a` lies: CPUs have local memory in ordinary memory, one for each core, and say how much.
#ifndef IN_LOCAL
#define IN_LOCAL 0
#endif
#ifndef SPLIT
#define SPLIT 0
#endif
#ifndef ROW_SUMS
#define ROW_SUMS 0
#endif
#define ALIGNED 0
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "gemm/operands.h"

typedef VEC(REAL) V;
#include "lib/register_transpose.h"

#define NR (VECTORS * WIDTH)
// The distances of lines, rows and terms of `a`. Lines of a copy are an odd number of cache lines apart, so that those of a
// tile do not drive each other from the cache.
#if !COPIED
#define ROW_STEP (BY_ROWS ? a_row : 1)
#define TERM_STEP (BY_ROWS ? 1 : a_column)
#elif BY_ROWS
#define PITCH (DEPTH + WIDTH)
#define ROW_STEP PITCH
#define TERM_STEP 1
#define SLAB_SIZE (SLAB * PITCH)
#else
#define PITCH SLAB
#define ROW_STEP 1
#define TERM_STEP PITCH
#define SLAB_SIZE (DEPTH * PITCH)
#endif
#if !COPIED
#define LEFT_SPACE __global
#elif IN_LOCAL
#define LEFT_SPACE __local
#else
#define LEFT_SPACE __private
#endif
#define TILE_LANE(v, j) (((__private REAL *)&(v))[j])
#if WIDEN
#define ONE(p, i) ((REAL)LOAD(DTYPE, p, i))
#define SOME(p) CONVERT(REAL, LOADV(DTYPE, p))
#else
#define ONE(p, i) LOAD(DTYPE, p, i)
#define SOME(p) LOADV(DTYPE, p)
#endif
// At any multiple of a real.
#define BLOCK_STORE(v, p) CONCAT(vstore, WIDTH)(v, 0, p)
#include "lib/prefetch.h"
// Columns that are read where they lie have each term in a cache line of its own, from the second-level cache.
#if COPIED || BY_ROWS
#define FETCH_TERM(p)
#else
#define TERMS_AHEAD 16
#define FETCH_TERM(p) PREFETCH_L1(p);
#endif
// What an epilogue reads beside a row of a tile.
#define FETCH_BROADCAST(D, name, slot, p, row, column)
#define FETCH_STRIDED(D, name, slot, p, row, column)
#define FETCH_CONTIGUOUS(D, name, slot, p, row, column) PREFETCH_L1((p) + (column) + WIDTH - 1);
#define FETCH_PAIR FETCH_CONTIGUOUS
#define FETCH_WHOLE FETCH_CONTIGUOUS
#if SPLIT
#define WAITING partial
#else
#define WAITING out
#endif
// Up to whole tiles.
#define WHOLE(rows) (((rows) + MR - 1) / MR * MR)
#define STARTS(count, part, parts) ((uint)((ulong)(count) * (part) / (parts)))

#include "gemm/cpu_lhs_slab.h"

// NR columns of `b`, `depth` rows, row by row. Columns past the end repeat the last one; they are not stored.
FORCE_INLINE void pack_columns(__global const STORAGE(DTYPE) *b, const long row_step, const long column_step, const uint columns,
                          const uint depth, __private V *panel) {
    uint p = 0;
    if (column_step == 1 && columns == NR) {
        for (; p < depth; p++)
#pragma unroll
            for (uint v = 0; v < VECTORS; v++) panel[p * VECTORS + v] = SOME(b + p * row_step + v * WIDTH);
    } else if (row_step == 1) {
        for (; p + WIDTH <= depth; p += WIDTH)
            for (uint v = 0; v < VECTORS; v++) {
                V square[WIDTH];
#pragma unroll
                for (uint i = 0; i < WIDTH; i++) square[i] = SOME(b + min(v * WIDTH + i, columns - 1) * column_step + p);
                TRANSPOSE(square)
#pragma unroll
                for (uint i = 0; i < WIDTH; i++) panel[(p + i) * VECTORS + v] = square[i];
            }
    }
    __private REAL *single = (__private REAL *)panel;
    for (; p < depth; p++)
        for (uint c = 0; c < NR; c++) single[p * NR + c] = ONE(b, min(c, columns - 1) * column_step + p * row_step);
}

__kernel NO_AUTOVEC void gemm_cpu_panels(__global const STORAGE(DTYPE) *a, const ulong a_offset,
                            __global const STORAGE(DTYPE) *b, const ulong b_offset, EPILOGUE_PARAMETERS
#if SPLIT
                            __global REAL *partial,
#endif
                            __global STORAGE(OUT_DTYPE) *out, const ulong out_offset,
#if ROW_SUMS
                            __global STORAGE(OUT_DTYPE) *row_sums, const ulong row_sums_offset,
#endif
                            const uint blocks_down, const uint blocks_across, const GemmGeometry geometry) {
    UNPACK_GEOMETRY
    const uint down = get_global_id(0), across = get_global_id(1), batch = get_global_id(2);
    if (down >= blocks_down || across >= blocks_across) return;
    const uint tiles_down = (m + MR - 1) / MR, tiles_across = (n + NR - 1) / NR;
    const uint first_row = STARTS(tiles_down, down, blocks_down) * MR;
    const uint last_row = min(STARTS(tiles_down, down + 1, blocks_down) * MR, m);
    const uint first_column = STARTS(tiles_across, across, blocks_across) * NR;
    const uint last_column = min(STARTS(tiles_across, across + 1, blocks_across) * NR, n);
    const uint i2 = batch % batch2, i1 = batch / batch2 % batch1, i0 = batch / batch2 / batch1;
    a = MATRIX_OF_A(i0, i1, i2) + a_offset;
    b = MATRIX_OF_B(i0, i1, i2) + b_offset;
    out += out_offset + (ulong)batch * m * n;
#if SPLIT
    partial += (ulong)batch * m * n;
#endif
    V panel[DEPTH * VECTORS];
    // Parts of equal length, in whole vectors.
    const uint parts = (k + DEPTH - 1) / DEPTH;
    const uint step = parts ? ((k + parts - 1) / parts + WIDTH - 1) / WIDTH * WIDTH : 1;
    // While the tiles of a slab are computed for the first time, the next one is copied and the one after that is fetched, some
    // lines of it with every MR-th of a tile. A part's slabs leave one place free for that. Where lines are columns, a whole
    // part of them is fetched in the time of the one before: longer runs arrive faster.
    const uint slabs = (last_row - first_row + SLAB - 1) / SLAB;
    const uint tiles = WHOLE(last_row - first_row) / MR, panels = (last_column - first_column + NR - 1) / NR;
    Slab coming = slab_of(0, slabs, first_row, last_row, step, k);
    Lines soon = slab_lines(a, a_row, a_column, coming, 1), later = soon;
#if !BY_ROWS
    later = lines_of(a + first_row * a_row, a_column, min(step, k), last_row - first_row, 1);
    prefetch_some(&later);
#endif
#if COPIED
    LEFT_SPACE REAL block[(BLOCK_ROWS / SLAB + 1) * SLAB_SIZE];
    copy_some(&soon, soon.lines, BY_ROWS ? a_column : a_row, coming.rows, block);
    uint copied_at_once = 0;
#endif
#if ROW_SUMS
    row_sums += row_sums_offset;
    Lines adding = soon;
    V totals[SLAB / WIDTH];
#endif
    for (uint start = 0, part = 0; start < k; start += step, part++) {
        const uint depth = min(step, k - start);
        const bool last = start + step >= k;
#if !BY_ROWS
        later = lines_of(a + first_row * a_row + (start + depth) * a_column, a_column, min(step, k - start - depth),
                         last_row - first_row, tiles * MR * panels);
#endif
        for (uint column = first_column; column < last_column; column += NR) {
            const uint columns = min((uint)NR, last_column - column);
            // So is what the next panel is packed from: rows of it, or columns.
            const bool more = column + NR < last_column, by_rows = b_column == 1;
            const uint next_column = more ? column + NR : first_column, next_start = more ? start : min(start + step, k);
            const uint next_columns = min((uint)NR, last_column - next_column), next_depth = min(step, k - next_start);
            Lines next = lines_of(b + next_column * b_column + next_start * b_row, by_rows ? b_row : b_column,
                                  by_rows ? next_depth : next_columns, by_rows ? next_columns : next_depth, tiles * MR);
            pack_columns(b + column * b_column + start * b_row, b_row, b_column, columns, depth, panel);
            for (uint row = first_row; row < last_row; row += MR) {
                const uint rows = min((uint)MR, last_row - row);
                const uint number = part * slabs + (row - first_row) / SLAB, inside = (row - first_row) % SLAB;
                if (column == first_column && inside == 0) {
                    const uint times = min((uint)SLAB, WHOLE(last_row - row));
#if COPIED
                    coming = slab_of(number + 1, slabs, first_row, last_row, step, k);
                    soon = slab_lines(a, a_row, a_column, coming, times);
                    copied_at_once = (soon.lines + times - 1) / times;
#endif
#if ROW_SUMS
                    adding = slab_lines(a, a_row, a_column, slab_of(number, slabs, first_row, last_row, step, k), times);
                    adding.at_once = (adding.lines + times - 1) / times;
                    for (uint v = 0; v < SLAB / WIDTH; v++) totals[v] = (V)(0);
#endif
#if BY_ROWS
                    const Slab fetched = slab_of(number + 1 + COPIED, slabs, first_row, last_row, step, k);
                    later = slab_lines(a, a_row, a_column, fetched, times);
#endif
                }
                const ulong at = (ulong)row * n + column;
                V sums[MR][VECTORS];
#pragma unroll
                for (uint r = 0; r < MR; r++)
#pragma unroll
                    for (uint v = 0; v < VECTORS; v++) sums[r][v] = (V)(0);
#if COPIED
                LEFT_SPACE const REAL *from = block + number % (slabs + 1) * SLAB_SIZE + inside * ROW_STEP;
                LEFT_SPACE REAL *place = block + (number + 1) % (slabs + 1) * SLAB_SIZE;
#else
                LEFT_SPACE const REAL *from = a + row * a_row + start * a_column;
#endif
                long reach[MR];
#pragma unroll
                for (uint r = 0; r < MR; r++) reach[r] = (COPIED ? r : min(r, rows - 1)) * ROW_STEP;
                __private const V *over = panel;
                for (uint ahead = 0, p = 0; ahead < MR; ahead++) {
#if COPIED
                    if (column == first_column)
                        copy_some(&soon, copied_at_once, BY_ROWS ? a_column : a_row, coming.rows, place);
#endif
#if ROW_SUMS
                    if (column == 0) add_some(&adding, totals);
#endif
                    if (!BY_ROWS || column == first_column) prefetch_some(&later);
                    prefetch_some(&next);
                    // Sums that wait, and what the epilogue reads, come from the last cache or from memory: they arrive while
                    // the tile is computed, row by row, since the first cache waits for few lines at once. A line that begins
                    // in the panel before is near since then, so the ends of vectors are named.
                    const uint fetched_row = min(ahead, rows - 1);
#pragma unroll
                    for (uint v = 1; v <= VECTORS; v++) PREFETCH_L1_WRITE(WAITING + at + (ulong)fetched_row * n + v * WIDTH - 1);
#if EPILOGUE
                    if (last) {
#pragma unroll
                        for (uint v = 0; v < VECTORS; v++) {
                            EPILOGUE_FETCH(0, row + fetched_row, column + v * WIDTH, i0, i1, i2)
                        }
                    }
#endif
                    for (const uint until = depth * (ahead + 1) / MR; p < until; p++) {
                        V y[VECTORS];
#pragma unroll
                        for (uint v = 0; v < VECTORS; v++) y[v] = over[v];
#pragma unroll
                        for (uint r = 0; r < MR; r++) {
                            const V x = (V)(from[reach[r]]);
#pragma unroll
                            for (uint v = 0; v < VECTORS; v++) sums[r][v] += x * y[v];
                        }
                        FETCH_TERM(from + TERMS_AHEAD * TERM_STEP + MR - 1)
                        from += TERM_STEP;
                        over += VECTORS;
                    }
                }
#if ROW_SUMS
                if (column == 0 && (inside + MR == SLAB || row + MR >= last_row))
                    for (uint i = 0; i < adding.length; i++) {
                        __global STORAGE(OUT_DTYPE) *target = row_sums + row - inside;
                        const REAL before = start ? LOAD(OUT_DTYPE, target, i) : 0;
                        STORE(OUT_DTYPE, before + ((__private REAL *)totals)[i], target, i);
                    }
#endif
#if !SPLIT
                if (rows == MR && columns == NR) {
#pragma unroll
                    for (uint r = 0; r < MR; r++)
#pragma unroll
                        for (uint v = 0; v < VECTORS; v++) {
                            __global STORAGE(OUT_DTYPE) *target = out + at + (ulong)r * n + v * WIDTH;
                            V sum = sums[r][v];
                            if (start) sum += LOADV(OUT_DTYPE, target);
#if EPILOGUE
                            if (last) {
                                EPILOGUE_STEPS(sum, row + r, column + v * WIDTH, i0, i1, i2, WIDTH)
                            }
#endif
                            STOREV(OUT_DTYPE, sum, target);
                        }
                    continue;
                }
#endif
                // In memory, so that the rest is a loop: at edges few of these are wanted.
                V finished[MR * VECTORS];
#pragma unroll
                for (uint r = 0; r < MR; r++)
#pragma unroll
                    for (uint v = 0; v < VECTORS; v++) finished[r * VECTORS + v] = sums[r][v];
                for (uint r = 0; r < rows; r++)
                    for (uint v = 0; v * WIDTH < columns; v++) {
                        const uint left = min((uint)WIDTH, columns - v * WIDTH);
                        const ulong i = at + (ulong)r * n + v * WIDTH;
                        V sum = finished[r * VECTORS + v];
#if SPLIT
                        if (start) {
                            if (left == WIDTH) sum += LOADV(REAL_DTYPE, partial + i);
                            else
                                for (uint j = 0; j < left; j++) TILE_LANE(sum, j) += partial[i + j];
                        }
                        if (!last) {
                            if (left == WIDTH) STOREV(REAL_DTYPE, sum, partial + i);
                            else
                                for (uint j = 0; j < left; j++) partial[i + j] = TILE_LANE(sum, j);
                            continue;
                        }
#else
                        if (start) {
                            if (left == WIDTH) sum += LOADV(OUT_DTYPE, out + i);
                            else
                                for (uint j = 0; j < left; j++) TILE_LANE(sum, j) += LOAD(OUT_DTYPE, out, i + j);
                        }
#endif
#if EPILOGUE
                        if (last) {
                            EPILOGUE_STEPS(sum, row + r, column + v * WIDTH, i0, i1, i2, left)
                        }
#endif
                        if (left == WIDTH) STOREV(OUT_DTYPE, sum, out + i);
                        else
                            for (uint j = 0; j < left; j++) STORE(OUT_DTYPE, TILE_LANE(sum, j), out, i + j);
                    }
            }
        }
    }
}
