// Slabs of the left operand of gemm/cpu_panels.cl: SLAB rows of a block of `a`, and the terms of one pass over k. The
// includer defines the macros used here.

#ifndef POLYHAL_CPU_LHS_SLAB
#define POLYHAL_CPU_LHS_SLAB

// A slab: its first row of `a` is `row`, its first term `start`.
typedef struct {
    uint row, rows, start, depth;
} Slab;

// Slabs are numbered down the block, pass by pass. Slabs after the last pass have no terms.
FORCE_INLINE Slab slab_of(const uint number, const uint slabs, const uint first_row, const uint last_row, const uint step,
                          const uint k) {
    const uint row = first_row + number % slabs * SLAB, start = LESSER(number / slabs * step, k);
    const Slab slab = {row, LESSER((uint)SLAB, last_row - row), start, LESSER(step, k - start)};
    return slab;
}

FORCE_INLINE Lines slab_lines(__global const STORAGE(DTYPE) *a, const long row_step, const long column_step,
                              const Slab slab, const uint times) {
    const uint rows = slab.depth ? WHOLE(slab.rows) : 0;
    return lines_of(a + slab.row * row_step + slab.start * column_step, A_ROW_MAJOR ? row_step : column_step,
                    A_ROW_MAJOR ? rows : slab.depth, A_ROW_MAJOR ? slab.depth : slab.rows, times);
}

#if PACK_A
// Packs the next lines of a slab, at most `count`. Its last row is repeated up to a whole tile; the surplus results are
// not stored.
FORCE_INLINE void pack_lines(__private Lines *lines, const uint count, const long stride, const uint rows,
                             A_SPACE REAL *place) {
    const uint until = LESSER(lines->line + count, lines->lines), length = A_ROW_MAJOR ? lines->length : WHOLE(rows);
    for (uint i = lines->line; i < until; i++) {
        __global const STORAGE(DTYPE) *line = lines->from + (A_ROW_MAJOR ? LESSER(i, rows - 1) : i) * lines->step;
        A_SPACE REAL *to = place + i * PITCH;
        uint j = 0;
        if (stride == 1)
            for (; j + WIDTH <= lines->length; j += WIDTH) BLOCK_STORE(LOAD_VECTOR(line + j), to + j);
        for (; j < length; j++) to[j] = LOAD_SCALAR(line, LESSER(j, lines->length - 1) * stride);
    }
    lines->line = until;
}
#endif

#if ROW_SUMS
// Adds the next lines of a slab to its row sums.
FORCE_INLINE void sum_lines(__private Lines *lines, __private V *totals) {
    const uint until = LESSER(lines->line + lines->at_once, lines->lines);
    for (uint r = 0; r < lines->length; r += WIDTH)
        for (uint i = lines->line; i < until; i++) {
            __global const STORAGE(DTYPE) *line = lines->from + i * lines->step + r;
            if (r + WIDTH <= lines->length) totals[r / WIDTH] += LOAD_VECTOR(line);
            else
                for (uint j = 0; r + j < lines->length; j++) TILE_LANE(totals[r / WIDTH], j) += LOAD_SCALAR(line, j);
        }
    lines->line = until;
}
#endif

#endif
