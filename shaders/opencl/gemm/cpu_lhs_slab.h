// Slabs of the left operand of gemm/cpu_panels.cl: SLAB rows of a block, and the terms of a part. It defines what is named here.

#ifndef POLYHAL_SLABS
#define POLYHAL_SLABS

// `rows` rows of `a`, of which `depth` terms.
typedef struct {
    uint row, rows, start, depth;
} Slab;

// Slabs are numbered from the top of a block down, and part by part. Behind the last part they have no terms.
FORCE_INLINE Slab slab_of(const uint number, const uint slabs, const uint first_row, const uint last_row, const uint step,
                     const uint k) {
    const uint row = first_row + number % slabs * SLAB, start = min(number / slabs * step, k);
    const Slab found = {row, min((uint)SLAB, last_row - row), start, min(step, k - start)};
    return found;
}

FORCE_INLINE Lines slab_lines(__global const STORAGE(DTYPE) *a, const long row_step, const long column_step, const Slab slab,
                         const uint times) {
    const uint rows = slab.depth ? WHOLE(slab.rows) : 0;
    return lines_of(a + slab.row * row_step + slab.start * column_step, BY_ROWS ? row_step : column_step,
                    BY_ROWS ? rows : slab.depth, BY_ROWS ? slab.depth : slab.rows, times);
}

#if COPIED
// Lines of a slab to their places. Its last row again makes a whole tile of the last rows; these sums are not stored.
FORCE_INLINE void copy_some(__private Lines *some, const uint at_once, const long near, const uint rows, LEFT_SPACE REAL *place) {
    const uint until = min(some->line + at_once, some->lines), length = BY_ROWS ? some->length : WHOLE(rows);
    for (uint i = some->line; i < until; i++) {
        __global const STORAGE(DTYPE) *line = some->from + (BY_ROWS ? min(i, rows - 1) : i) * some->step;
        LEFT_SPACE REAL *to = place + i * PITCH;
        uint j = 0;
        if (near == 1)
            for (; j + WIDTH <= some->length; j += WIDTH) BLOCK_STORE(SOME(line + j), to + j);
        for (; j < length; j++) to[j] = ONE(line, min(j, some->length - 1) * near);
    }
    some->line = until;
}
#endif

#if ROW_SUMS
// Adds some lines of a slab to the sums of its rows.
FORCE_INLINE void add_some(__private Lines *some, __private V *totals) {
    const uint until = min(some->line + some->at_once, some->lines);
    for (uint r = 0; r < some->length; r += WIDTH)
        for (uint i = some->line; i < until; i++) {
            __global const STORAGE(DTYPE) *line = some->from + i * some->step + r;
            if (r + WIDTH <= some->length) totals[r / WIDTH] += SOME(line);
            else
                for (uint j = 0; r + j < some->length; j++) TILE_LANE(totals[r / WIDTH], j) += ONE(line, j);
        }
    some->line = until;
}
#endif

#endif
