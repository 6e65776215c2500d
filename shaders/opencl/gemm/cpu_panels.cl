// out = a x b on a CPU, after BLIS (Van Zee and van de Geijn, 2015): a work-item computes one of `blocks_down` x
// `blocks_across` blocks of the result as register tiles of MR x NR. Per pass over at most KC terms it packs its columns of
// `b` into panels of NR columns, one at a time, which stays in the first-level cache while all rows of `a` stream from the
// second-level cache. The rows are read in place. With PACK_A they are first packed in slabs, because they would not
// stay in that cache otherwise or must be converted.
//
// With ROW_SUMS the row sums of `a` go to `row_sums`; this needs A_ROW_MAJOR 0 and PARTIAL_IN_WORKSPACE 0.
//
// Between passes partial sums are kept in `out` if it has the type of the sums, else in the workspace `partial`
// (PARTIAL_IN_WORKSPACE).

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
// 1: operands are loaded in another type than REAL.
#ifndef WIDEN
#define WIDEN 0
#endif
#ifndef WIDTH
#define WIDTH 16
#endif
// Registers: MR * VECTORS sums, VECTORS of b and one of a: 29 of the 32 of AVX-512.
#ifndef MR
#define MR 6
#endif
#ifndef VECTORS
#define VECTORS 4
#endif
#ifndef KC
#define KC 128
#endif
#ifndef PACK_A
#define PACK_A 1
#endif
// Rows of `a` that are packed or prefetched at once: a multiple of MR and of WIDTH.
#ifndef SLAB
#define SLAB 48
#endif
// Rows of a block, at most.
#ifndef MC
#define MC 528
#endif
// 1: the rows of `a` are contiguous; 0: its columns are. If `a` is not packed, one of the two holds.
#ifndef A_ROW_MAJOR
#define A_ROW_MAJOR 1
#endif
// 1: packed slabs are in local memory, which CPUs keep in ordinary memory per core, of a size they report; 0: in private
// memory.
#ifndef PACK_IN_LOCAL
#define PACK_IN_LOCAL 0
#endif
#ifndef PARTIAL_IN_WORKSPACE
#define PARTIAL_IN_WORKSPACE 0
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
// Strides of rows and terms of `a`. The distance of packed lines is an odd number of cache lines, so that the lines of
// a tile do not evict each other.
#if !PACK_A
#define ROW_STEP (A_ROW_MAJOR ? a_row : 1)
#define TERM_STEP (A_ROW_MAJOR ? 1 : a_column)
#elif A_ROW_MAJOR
#define PITCH (KC + WIDTH)
#define ROW_STEP PITCH
#define TERM_STEP 1
#define SLAB_SIZE (SLAB * PITCH)
#else
#define PITCH SLAB
#define ROW_STEP 1
#define TERM_STEP PITCH
#define SLAB_SIZE (KC * PITCH)
#endif
#if !PACK_A
#define A_SPACE __global
#elif PACK_IN_LOCAL
#define A_SPACE __local
#else
#define A_SPACE __private
#endif
#define TILE_LANE(v, j) (((__private REAL *)&(v))[j])
#if WIDEN
#define LOAD_SCALAR(p, i) ((REAL)LOAD(DTYPE, p, i))
#define LOAD_VECTOR(p) CONVERT(REAL, LOADV(DTYPE, p))
#else
#define LOAD_SCALAR(p, i) LOAD(DTYPE, p, i)
#define LOAD_VECTOR(p) LOADV(DTYPE, p)
#endif
// Stores a vector at any multiple of a REAL.
#define BLOCK_STORE(v, p) CONCAT(vstore, WIDTH)(v, 0, p)
#include "lib/prefetch.h"
// Columns of `a` read in place have each term in another cache line, of the second-level cache.
#if PACK_A || A_ROW_MAJOR
#define PREFETCH_TERM(p)
#else
#define TERMS_AHEAD 16
#define PREFETCH_TERM(p) PREFETCH_L1(p);
#endif
// Prefetches the operands of the epilogue for a row of a tile.
#define FETCH_BROADCAST(D, name, slot, p, row, column)
#define FETCH_STRIDED(D, name, slot, p, row, column)
#define FETCH_CONTIGUOUS(D, name, slot, p, row, column) PREFETCH_L1((p) + (column) + WIDTH - 1);
#define FETCH_PAIR FETCH_CONTIGUOUS
#define FETCH_WHOLE FETCH_CONTIGUOUS
#if PARTIAL_IN_WORKSPACE
#define PARTIAL partial
#define PARTIAL_DTYPE REAL_DTYPE
#else
#define PARTIAL out
#define PARTIAL_DTYPE OUT_DTYPE
#endif
// Not min, which may be a call (QUIRK_OPERATORS_FOR_BUILTINS).
#define LESSER(a, b) ((a) < (b) ? (a) : (b))
// Rounds rows up to whole tiles.
#define WHOLE(rows) (((rows) + MR - 1) / MR * MR)
#define SPLIT_POINT(count, part, parts) ((uint)((ulong)(count) * (part) / (parts)))

#include "gemm/cpu_lhs_slab.h"

// Packs NR columns of `b`, `depth` terms, row by row. Columns past the end repeat the last one; their results are not
// stored.
FORCE_INLINE void pack_columns(__global const STORAGE(DTYPE) *b, const long row_step, const long column_step,
                               const uint columns, const uint depth, __private V *panel) {
    uint p = 0;
    if (column_step == 1 && columns == NR) {
        for (; p < depth; p++)
#pragma unroll
            for (uint v = 0; v < VECTORS; v++) panel[p * VECTORS + v] = LOAD_VECTOR(b + p * row_step + v * WIDTH);
    } else if (row_step == 1) {
        for (; p + WIDTH <= depth; p += WIDTH)
            for (uint v = 0; v < VECTORS; v++) {
                V block[WIDTH];
#pragma unroll
                for (uint i = 0; i < WIDTH; i++)
                    block[i] = LOAD_VECTOR(b + LESSER(v * WIDTH + i, columns - 1) * column_step + p);
                TRANSPOSE(block)
#pragma unroll
                for (uint i = 0; i < WIDTH; i++) panel[(p + i) * VECTORS + v] = block[i];
            }
    }
    __private REAL *scalars = (__private REAL *)panel;
    for (; p < depth; p++)
        for (uint c = 0; c < NR; c++) scalars[p * NR + c] = LOAD_SCALAR(b, LESSER(c, columns - 1) * column_step + p * row_step);
}

__kernel NO_AUTOVEC void gemm_cpu_panels(
    __global const STORAGE(DTYPE) *a, const ulong a_offset, __global const STORAGE(DTYPE) *b, const ulong b_offset,
    EPILOGUE_PARAMETERS
#if PARTIAL_IN_WORKSPACE
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
    const uint first_row = SPLIT_POINT(tiles_down, down, blocks_down) * MR;
    const uint last_row = LESSER(SPLIT_POINT(tiles_down, down + 1, blocks_down) * MR, m);
    const uint first_column = SPLIT_POINT(tiles_across, across, blocks_across) * NR;
    const uint last_column = LESSER(SPLIT_POINT(tiles_across, across + 1, blocks_across) * NR, n);
    const uint i2 = batch % batch2, i1 = batch / batch2 % batch1, i0 = batch / batch2 / batch1;
    a = MATRIX_OF_A(i0, i1, i2) + a_offset;
    b = MATRIX_OF_B(i0, i1, i2) + b_offset;
    out += out_offset + (ulong)batch * m * n;
#if PARTIAL_IN_WORKSPACE
    partial += (ulong)batch * m * n;
#endif
    V panel[KC * VECTORS];
    // Passes of equal length, in whole vectors.
    const uint passes = (k + KC - 1) / KC;
    const uint step = passes ? ((k + passes - 1) / passes + WIDTH - 1) / WIDTH * WIDTH : 1;
    // While the tiles of a slab are computed for the first time, the next slab is packed and the one after that prefetched,
    // some lines during each MR-th of a tile. One slab of memory stays free for that. Contiguous columns are prefetched for
    // a whole pass during the pass before: longer runs arrive faster.
    const uint slabs = (last_row - first_row + SLAB - 1) / SLAB;
    const uint tiles = WHOLE(last_row - first_row) / MR, panels = (last_column - first_column + NR - 1) / NR;
    Slab next_slab = slab_of(0, slabs, first_row, last_row, step, k);
    Lines next_lines = slab_lines(a, a_row, a_column, next_slab, 1), prefetched = next_lines;
#if !A_ROW_MAJOR
    prefetched = lines_of(a + first_row * a_row, a_column, LESSER(step, k), last_row - first_row, 1);
    prefetch_lines(&prefetched);
#endif
#if PACK_A
    A_SPACE REAL block[(MC / SLAB + 1) * SLAB_SIZE];
    pack_lines(&next_lines, next_lines.lines, A_ROW_MAJOR ? a_column : a_row, next_slab.rows, block);
    uint packed_lines = 0;
#endif
#if ROW_SUMS
    row_sums += row_sums_offset;
    Lines adding = next_lines;
    V row_totals[SLAB / WIDTH];
#endif
    for (uint start = 0, pass = 0; start < k; start += step, pass++) {
        const uint depth = LESSER(step, k - start);
        const bool last = start + step >= k;
#if !A_ROW_MAJOR
        prefetched = lines_of(a + first_row * a_row + (start + depth) * a_column, a_column, LESSER(step, k - start - depth),
                         last_row - first_row, tiles * MR * panels);
#endif
        for (uint column = first_column; column < last_column; column += NR) {
            const uint columns = LESSER((uint)NR, last_column - column);
            // The source of the next panel is prefetched too, row by row or column by column.
            const bool more = column + NR < last_column, by_rows = b_column == 1;
            const uint next_column = more ? column + NR : first_column, next_start = more ? start : LESSER(start + step, k);
            const uint next_columns = LESSER((uint)NR, last_column - next_column), next_depth = LESSER(step, k - next_start);
            Lines next = lines_of(b + next_column * b_column + next_start * b_row, by_rows ? b_row : b_column,
                                  by_rows ? next_depth : next_columns, by_rows ? next_columns : next_depth, tiles * MR);
            pack_columns(b + column * b_column + start * b_row, b_row, b_column, columns, depth, panel);
            for (uint row = first_row; row < last_row; row += MR) {
                const uint rows = LESSER((uint)MR, last_row - row);
                const uint number = pass * slabs + (row - first_row) / SLAB, inside = (row - first_row) % SLAB;
                if (column == first_column && inside == 0) {
                    const uint times = LESSER((uint)SLAB, WHOLE(last_row - row));
#if PACK_A
                    next_slab = slab_of(number + 1, slabs, first_row, last_row, step, k);
                    next_lines = slab_lines(a, a_row, a_column, next_slab, times);
                    packed_lines = (next_lines.lines + times - 1) / times;
#endif
#if ROW_SUMS
                    adding = slab_lines(a, a_row, a_column, slab_of(number, slabs, first_row, last_row, step, k), times);
                    adding.at_once = (adding.lines + times - 1) / times;
                    for (uint v = 0; v < SLAB / WIDTH; v++) row_totals[v] = (V)(0);
#endif
#if A_ROW_MAJOR
                    const Slab prefetched_slab = slab_of(number + 1 + PACK_A, slabs, first_row, last_row, step, k);
                    prefetched = slab_lines(a, a_row, a_column, prefetched_slab, times);
#endif
                }
                const ulong at = (ulong)row * n + column;
                V sums[MR][VECTORS];
#pragma unroll
                for (uint r = 0; r < MR; r++)
#pragma unroll
                    for (uint v = 0; v < VECTORS; v++) sums[r][v] = (V)(0);
#if PACK_A
                A_SPACE const REAL *from = block + number % (slabs + 1) * SLAB_SIZE + inside * ROW_STEP;
                A_SPACE REAL *place = block + (number + 1) % (slabs + 1) * SLAB_SIZE;
#else
                A_SPACE const REAL *from = a + row * a_row + start * a_column;
#endif
                long row_offset[MR];
#pragma unroll
                for (uint r = 0; r < MR; r++) row_offset[r] = (PACK_A ? r : LESSER(r, rows - 1)) * ROW_STEP;
                __private const V *over = panel;
                for (uint part = 0, p = 0; part < MR; part++) {
#if PACK_A
                    if (column == first_column)
                        pack_lines(&next_lines, packed_lines, A_ROW_MAJOR ? a_column : a_row, next_slab.rows, place);
#endif
#if ROW_SUMS
                    if (column == 0) sum_lines(&adding, row_totals);
#endif
                    if (!A_ROW_MAJOR || column == first_column) prefetch_lines(&prefetched);
                    prefetch_lines(&next);
                    // Partial sums and operands of the epilogue come from the last-level cache or from memory. They are
                    // prefetched while the tile is computed, row by row, because few misses can be outstanding at a time.
                    // A line that starts in the panel before is cached already, so the ends of vectors are prefetched.
                    const uint prefetched_row = LESSER(part, rows - 1);
#pragma unroll
                    for (uint v = 1; v <= VECTORS; v++)
                        PREFETCH_L1_WRITE(PARTIAL + at + (ulong)prefetched_row * n + v * WIDTH - 1);
#if EPILOGUE
                    if (last) {
#pragma unroll
                        for (uint v = 0; v < VECTORS; v++) {
                            EPILOGUE_FETCH(0, row + prefetched_row, column + v * WIDTH, i0, i1, i2)
                        }
                    }
#endif
                    for (const uint until = depth * (part + 1) / MR; p < until; p++) {
                        V y[VECTORS];
#pragma unroll
                        for (uint v = 0; v < VECTORS; v++) y[v] = over[v];
#pragma unroll
                        for (uint r = 0; r < MR; r++) {
                            const V x = (V)(from[row_offset[r]]);
#pragma unroll
                            for (uint v = 0; v < VECTORS; v++) sums[r][v] += x * y[v];
                        }
                        PREFETCH_TERM(from + TERMS_AHEAD * TERM_STEP + MR - 1)
                        from += TERM_STEP;
                        over += VECTORS;
                    }
                }
#if ROW_SUMS
                if (column == 0 && (inside + MR == SLAB || row + MR >= last_row))
                    for (uint i = 0; i < adding.length; i++) {
                        __global STORAGE(OUT_DTYPE) *target = row_sums + row - inside;
                        const REAL before = start ? LOAD(OUT_DTYPE, target, i) : 0;
                        STORE(OUT_DTYPE, before + ((__private REAL *)row_totals)[i], target, i);
                    }
#endif
                if (rows == MR && columns == NR) {
#pragma unroll
                    for (uint r = 0; r < MR; r++)
#pragma unroll
                        for (uint v = 0; v < VECTORS; v++) {
                            const ulong i = at + (ulong)r * n + v * WIDTH;
                            V sum = sums[r][v];
                            if (start) sum += LOADV(PARTIAL_DTYPE, PARTIAL + i);
#if PARTIAL_IN_WORKSPACE
                            if (!last) {
                                STOREV(REAL_DTYPE, sum, partial + i);
                                continue;
                            }
#endif
#if EPILOGUE
                            if (last) {
                                EPILOGUE_STEPS(sum, row + r, column + v * WIDTH, i0, i1, i2, WIDTH)
                            }
#endif
                            STOREV(OUT_DTYPE, sum, out + i);
                        }
                    continue;
                }
                // Sums go to memory, so that the stores can be a loop: only few results are at edges.
                V finished[MR * VECTORS];
#pragma unroll
                for (uint r = 0; r < MR; r++)
#pragma unroll
                    for (uint v = 0; v < VECTORS; v++) finished[r * VECTORS + v] = sums[r][v];
                for (uint r = 0; r < rows; r++)
                    for (uint v = 0; v * WIDTH < columns; v++) {
                        const uint left = LESSER((uint)WIDTH, columns - v * WIDTH);
                        const ulong i = at + (ulong)r * n + v * WIDTH;
                        V sum = finished[r * VECTORS + v];
#if PARTIAL_IN_WORKSPACE
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
