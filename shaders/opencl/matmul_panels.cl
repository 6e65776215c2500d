// out = a x b on a CPU: one work-item makes one of `blocks_down` x `blocks_across` blocks of the result, as register tiles of
// MR rows by NR columns. Up to DEPTH terms at a time, it packs its rows of `a` as panels of MR rows, which stay in the
// second-level cache, and its columns of `b` panel by panel, of which one stays in the first-level cache while all panels of
// `a` pass by.
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
// Registers: MR * VECTORS sums, VECTORS of b and one of a; 27 of AVX-512's 32.
#ifndef MR
#define MR 12
#endif
#ifndef VECTORS
#define VECTORS 2
#endif
#ifndef DEPTH
#define DEPTH 256
#endif
#ifndef BLOCK_ROWS
#define BLOCK_ROWS 288
#endif
// Where the panels of `a` lie: CPUs have local memory in ordinary memory, one for each core, and say how much.
#ifndef IN_LOCAL
#define IN_LOCAL 0
#endif
#ifndef SPLIT
#define SPLIT 0
#endif
#define ALIGNED 0
#include "dtypes.h"
#include "vectors.h"
#include "epilogue.h"

typedef VEC(REAL) V;
#include "turned.h"

#if IN_LOCAL
#define BLOCK_SPACE __local
#else
#define BLOCK_SPACE __private
#endif
#define NR (VECTORS * WIDTH)
#define GROUPS ((MR + WIDTH - 1) / WIDTH)
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
// Functions of their own are compiled for narrower vectors by some drivers.
#define INLINED inline __attribute__((always_inline))
// FETCH is for what is packed later, into a cache behind the first, which holds what is in use; FETCH_NEAR is for sums.
// NVIDIA's compiler has the function for pointers of a kind that OpenCL C 1.2 cannot write.
#if defined(__has_builtin) && !defined(__NV_CL_C_VERSION)
#if __has_builtin(__builtin_prefetch)
#define FETCH(p) __builtin_prefetch((const void *)(size_t)(p), 0, 1)
#define FETCH_NEAR(p) __builtin_prefetch((const void *)(size_t)(p), 0, 3)
#endif
#endif
#ifndef FETCH
#define FETCH(p)
#define FETCH_NEAR(p)
#endif
// What an epilogue reads beside a row of a tile.
#define FETCH_SPLAT(D, name, slot, p, row, column)
#define FETCH_STEP(D, name, slot, p, row, column)
#define FETCH_UNIT(D, name, slot, p, row, column) FETCH_NEAR((p) + (column) + WIDTH - 1);
#define FETCH_PAIR FETCH_UNIT
#define FETCH_WHOLE FETCH_UNIT
#if SPLIT
#define WAITING partial
#else
#define WAITING out
#endif
// Elements of the most common cache line.
#define LINE (64 / sizeof(STORAGE(DTYPE)))
#define STARTS(count, part, parts) ((uint)((ulong)(count) * (part) / (parts)))

// Fetches `runs` runs of `run` neighbours that begin `step` apart.
INLINED void fetch_runs(__global const STORAGE(DTYPE) *from, const long step, const uint runs, const uint run) {
    for (uint r = 0; r < runs; r++)
        for (uint i = 0; i < run; i += LINE) FETCH(from + r * step + i);
}

// MR rows of `a`, `depth` columns, as panel[column * MR + row]. Rows past the end repeat the last one; they are not stored. May
// write up to WIDTH reals past the panel. `more` rows of `a` follow.
INLINED void pack_rows(__global const STORAGE(DTYPE) *a, const long row_step, const long column_step, const uint rows,
                       const uint more, const uint depth, BLOCK_SPACE REAL *panel) {
    uint p = 0;
    if (column_step == 1) {
        for (; p + WIDTH <= depth; p += WIDTH) {
            V squares[GROUPS][WIDTH];
#pragma unroll
            for (uint g = 0; g < GROUPS; g++) {
#pragma unroll
                for (uint i = 0; i < WIDTH; i++) squares[g][i] = SOME(a + min(g * WIDTH + i, rows - 1) * row_step + p);
                TURN(squares[g])
            }
#pragma unroll
            for (uint i = 0; i < WIDTH; i++)
#pragma unroll
                for (uint g = 0; g < GROUPS; g++) BLOCK_STORE(squares[g][i], panel + (p + i) * MR + g * WIDTH);
        }
    } else if (MR % 8 && row_step == 1 && rows + more >= GROUPS * WIDTH) {
        // Whole vectors: what is too much of one is written over by the next. Behind the last may lie another panel.
        for (; p + 1 < depth; p++)
#pragma unroll
            for (uint g = 0; g < GROUPS; g++) BLOCK_STORE(SOME(a + p * column_step + g * WIDTH), panel + p * MR + g * WIDTH);
    } else if (row_step == 1 && rows == MR) {
        for (; p < depth; p++)
#pragma unroll
            for (uint r = 0; r < MR; r++) panel[p * MR + r] = ONE(a + p * column_step, r);
    }
    for (; p < depth; p++)
        for (uint r = 0; r < MR; r++) panel[p * MR + r] = ONE(a, min(r, rows - 1) * row_step + p * column_step);
}

// NR columns of `b`, `depth` rows, row by row. Columns past the end repeat the last one; they are not stored.
INLINED void pack_columns(__global const STORAGE(DTYPE) *b, const long row_step, const long column_step, const uint columns,
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
                TURN(square)
#pragma unroll
                for (uint i = 0; i < WIDTH; i++) panel[(p + i) * VECTORS + v] = square[i];
            }
    }
    __private REAL *single = (__private REAL *)panel;
    for (; p < depth; p++)
        for (uint c = 0; c < NR; c++) single[p * NR + c] = ONE(b, min(c, columns - 1) * column_step + p * row_step);
}

__kernel AS_WRITTEN void matmul_panels(__global const STORAGE(DTYPE) *a, const ulong a_offset,
                            __global const STORAGE(DTYPE) *b, const ulong b_offset, EPILOGUE_PARAMETERS
#if SPLIT
                            __global REAL *partial,
#endif
                            __global STORAGE(OUT_DTYPE) *out, const ulong out_offset, const uint m, const uint n,
                            const uint k, const uint blocks_down, const uint blocks_across, const long a_row,
                            const long a_column, const long b_row, const long b_column, const uint batch1,
                            const uint batch2, const long a_batch0, const long a_batch1, const long a_batch2,
                            const long b_batch0, const long b_batch1, const long b_batch2) {
    const uint down = get_global_id(0), across = get_global_id(1), batch = get_global_id(2);
    if (down >= blocks_down || across >= blocks_across) return;
    const uint tiles_down = (m + MR - 1) / MR, tiles_across = (n + NR - 1) / NR;
    const uint first_row = STARTS(tiles_down, down, blocks_down) * MR;
    const uint last_row = min(STARTS(tiles_down, down + 1, blocks_down) * MR, m);
    const uint first_column = STARTS(tiles_across, across, blocks_across) * NR;
    const uint last_column = min(STARTS(tiles_across, across + 1, blocks_across) * NR, n);
    const uint i2 = batch % batch2, i1 = batch / batch2 % batch1, i0 = batch / batch2 / batch1;
    a += a_offset + (long)i0 * a_batch0 + (long)i1 * a_batch1 + (long)i2 * a_batch2;
    b += b_offset + (long)i0 * b_batch0 + (long)i1 * b_batch1 + (long)i2 * b_batch2;
    out += out_offset + (ulong)batch * m * n;
#if SPLIT
    partial += (ulong)batch * m * n;
#endif
    BLOCK_SPACE REAL block[BLOCK_ROWS * DEPTH + WIDTH];
    V panel[DEPTH * VECTORS];
    // Parts of equal length, in whole vectors.
    const uint parts = (k + DEPTH - 1) / DEPTH;
    const uint step = parts ? ((k + parts - 1) / parts + WIDTH - 1) / WIDTH * WIDTH : 1;
    for (uint start = 0; start < k; start += step) {
        const uint depth = min(step, k - start);
        const bool last = start + step >= k;
        // Along the rows of `a` where they are contiguous, else down its columns.
        const uint strip = a_column == 1 ? depth : WIDTH;
        for (uint p = 0; p < depth; p += strip)
            for (uint row = first_row; row < last_row; row += MR) {
                __global const STORAGE(DTYPE) *rows = a + row * a_row + (start + p) * a_column;
                const uint here = min((uint)MR, last_row - row), below = min((uint)MR, last_row - row - here);
                if (a_column == 1) fetch_runs(rows + MR * a_row, a_row, below, depth);
                else {
                    const uint later = min(start + p + strip, k);
                    fetch_runs(rows + strip * a_column, a_column, min(strip, k - later), here);
                }
                pack_rows(rows, a_row, a_column, here, m - row - here, min(strip, depth - p),
                          block + (row - first_row) * depth + p * MR);
            }
        for (uint column = first_column; column < last_column; column += NR) {
            const uint columns = min((uint)NR, last_column - column);
            // What the next panel is packed from is fetched meanwhile, a few lines per tile: rows of it, or columns.
            const bool more = column + NR < last_column;
            const uint next_column = more ? column + NR : first_column, next_start = more ? start : start + step;
            const uint next_depth = next_start < k ? min(step, k - next_start) : 0;
            const bool by_rows = b_column == 1;
            const uint runs = by_rows ? next_depth : min((uint)NR, last_column - next_column);
            const uint run = by_rows ? NR : next_depth;
            const long run_step = by_rows ? b_row : b_column;
            __global const STORAGE(DTYPE) *next = b + next_column * b_column + next_start * b_row;
            const uint row_tiles = (last_row - first_row + MR - 1) / MR;
            const uint runs_per_tile = (runs + row_tiles - 1) / row_tiles;
            uint fetched = 0;
            pack_columns(b + column * b_column + start * b_row, b_row, b_column, columns, depth, panel);
            for (uint row = first_row; row < last_row; row += MR) {
                const uint rows = min((uint)MR, last_row - row);
                const uint fetching = min(runs_per_tile, runs - fetched);
                fetch_runs(next + fetched * run_step, run_step, fetching, run);
                fetched += fetching;
                const ulong at = (ulong)row * n + column;
                // The sums so far come from the last cache or from memory: they arrive while the tile is computed. A line that
                // begins in the panel before is near since then, so the ends of vectors are named.
#pragma unroll
                for (uint r = 0; r < MR; r++)
#pragma unroll
                    for (uint v = 1; v <= VECTORS; v++)
                        FETCH_NEAR(WAITING + at + (ulong)min(r, rows - 1) * n + v * WIDTH - 1);
#if EPILOGUE
                if (last) {
#pragma unroll
                    for (uint r = 0; r < MR; r++)
#pragma unroll
                        for (uint v = 0; v < VECTORS; v++) {
                            EPILOGUE_FETCH(0, row + min(r, rows - 1), column + v * WIDTH, i0, i1, i2)
                        }
                }
#endif
                V sums[MR][VECTORS];
#pragma unroll
                for (uint r = 0; r < MR; r++)
#pragma unroll
                    for (uint v = 0; v < VECTORS; v++) sums[r][v] = (V)(0);
                BLOCK_SPACE const REAL *from = block + (row - first_row) * depth;
                __private const V *over = panel;
                for (uint p = 0; p < depth; p++) {
                    V y[VECTORS];
#pragma unroll
                    for (uint v = 0; v < VECTORS; v++) y[v] = over[v];
#pragma unroll
                    for (uint r = 0; r < MR; r++) {
                        const V x = (V)(from[r]);
#pragma unroll
                        for (uint v = 0; v < VECTORS; v++) sums[r][v] += x * y[v];
                    }
                    from += MR;
                    over += VECTORS;
                }
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
