// LU factors with partial pivoting of panels of up to SIZE columns whose rows exceed the registers: results as of
// linear_algebra/lu.cl. A group factors one panel, BLOCK columns at a time: their elimination passes over these columns only,
// and the columns to the right follow once per block.

#include "linear_algebra/panels.h"

#define BLOCK 8

typedef struct {
    MATRIX_MEMBERS(a);
    BATCH_MEMBERS;
    uint rows, columns, exchange, start;
} LuTallPanelGeometry;

typedef struct {
    REAL size;
    uint row;
} Candidate;

// The better pivot: the larger element, then the first row. A NaN counts as infinity.
FORCE_INLINE Candidate better(const Candidate a, const Candidate b) {
    return a.size > b.size || (a.size == b.size && a.row < b.row) ? a : b;
}

FORCE_INLINE Candidate candidate(const REAL value, const uint row) {
    Candidate found;
    found.size = isnan(value) ? INFINITY : fabs(value);
    found.row = row;
    return found;
}

// The best candidate of all work-items.
FORCE_INLINE Candidate best_of_group(Candidate mine, __local Candidate *all, __local Candidate *reduced) {
    all[ITEM] = mine;
    SYNC;
    if (ITEM < REDUCERS) {
        for (uint k = 1; k < REDUCED_EACH; k++) mine = better(mine, all[ITEM + k * REDUCERS]);
        reduced[ITEM] = mine;
    }
    SYNC;
    mine = reduced[0];
    for (uint k = 1; k < REDUCERS; k++) mine = better(mine, reduced[k]);
    return mine;
}

__kernel void linear_algebra_lu_tall_panel(OPERAND(a), RESULT(DTYPE, out), RESULT(int32, pivots), RESULT(int32, info),
                                      __global REAL *panels, const LuTallPanelGeometry geometry) {
    __local Candidate all[GROUP], reduced[REDUCERS];
    __local REAL top[BLOCK][SIZE];
    const ulong matrix = get_group_id(0);
    const uint rows = geometry.rows, columns = geometry.columns, steps = min(rows, columns);
    __global REAL *panel = panels + matrix * rows * columns;
    LOAD_PANEL(a, matrix)
    uint failed = 0;
    for (uint block = 0; block < steps; block += BLOCK) {
        const uint block_end = min(block + BLOCK, columns), step_end = min(block + BLOCK, steps);
        Candidate mine = candidate(0, rows);
        FOR_OWN(i, block, rows) mine = better(mine, candidate(PANEL_AT(i, block), i));
        for (uint j = block; j < step_end; j++) {
            const Candidate best = best_of_group(mine, all, reduced);
            const uint chosen = geometry.exchange && best.row < rows ? best.row : j;
            FOR_OWN(c, 0, columns) {
                const REAL value = PANEL_AT(chosen, c);
                if (chosen != j) {
                    PANEL_AT(chosen, c) = PANEL_AT(j, c);
                    PANEL_AT(j, c) = value;
                }
                if (c >= block) top[j - block][c] = value;
            }
            SYNC;
            const REAL pivot = top[j - block][j];
            if (pivot == 0 && !failed) failed = j + 1;
            if (ITEM == 0) pivots[pivots_offset + matrix * steps + j] = geometry.start + chosen + 1;
            mine = candidate(0, rows);
            FOR_OWN(i, j + 1, rows) {
                const REAL below = PANEL_AT(i, j), factor = pivot == 0 ? below : below / pivot;
                PANEL_AT(i, j) = factor;
                for (uint c = j + 1; c < block_end; c++) {
                    const REAL value = PANEL_AT(i, c) - factor * top[j - block][c];
                    PANEL_AT(i, c) = value;
                    if (c == j + 1) mine = better(mine, candidate(value, i));
                }
            }
        }
        SYNC;
        // Columns to the right: first the rows of the block, by substitution, then the rows below them.
        FOR_OWN(c, block_end, columns) {
            for (uint t = block; t < step_end; t++) {
                const REAL value = PANEL_AT(t, c);
                top[t - block][c] = value;
                for (uint i = t + 1; i < step_end; i++) PANEL_AT(i, c) -= PANEL_AT(i, t) * value;
            }
        }
        SYNC;
        FOR_OWN(i, step_end, rows) {
            REAL factors[BLOCK];
            for (uint t = 0; t < BLOCK; t++) factors[t] = block + t < step_end ? PANEL_AT(i, block + t) : (REAL)0;
            for (uint c = block_end; c < columns; c++) {
                REAL value = PANEL_AT(i, c);
                for (uint t = 0; t < BLOCK; t++)
                    if (block + t < step_end) value -= factors[t] * top[t][c];
                PANEL_AT(i, c) = value;
            }
        }
        SYNC;
    }
    STORE_PANEL(out, matrix)
    if (ITEM == 0) info[info_offset + matrix] = failed ? geometry.start + failed : 0;
}
