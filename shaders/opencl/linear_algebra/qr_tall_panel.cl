// Householder reflections of panels of up to SIZE columns whose rows exceed the registers: results as of linear_algebra/qr.cl.
// A group factors one panel. Its teams of TEAM work-items apply each reflection to different columns.

#ifndef TEAM
#define TEAM 32
#endif
#include "linear_algebra/panels.h"
#include "linear_algebra/householder.h"

typedef struct {
    MATRIX_MEMBERS(a);
    BATCH_MEMBERS;
    uint rows, columns;
} QrTallPanelGeometry;

// The sum or maximum of the values of all work-items.
#define REDUCE_GROUP(value, COMBINE)                                                              \
    {                                                                                             \
        SYNC;                                                                                     \
        shared[ITEM] = value;                                                                     \
        SYNC;                                                                                     \
        if (ITEM < REDUCERS) {                                                                    \
            for (uint k = 1; k < REDUCED_EACH; k++) value = COMBINE(value, shared[ITEM + k * REDUCERS]); \
            reduced[ITEM] = value;                                                                \
        }                                                                                         \
        SYNC;                                                                                     \
        value = reduced[0];                                                                       \
        for (uint k = 1; k < REDUCERS; k++) value = COMBINE(value, reduced[k]);                   \
    }
#define PLUS(a, b) ((a) + (b))
#define LARGEST(a, b) ((b) > (a) || (b) != (b) ? (b) : (a))

__kernel void linear_algebra_qr_tall_panel(OPERAND(a), RESULT(DTYPE, out), RESULT(DTYPE, tau), __global REAL *panels,
                                      const QrTallPanelGeometry geometry) {
    __local REAL shared[GROUP], reduced[REDUCERS];
    const ulong matrix = get_group_id(0);
    const uint rows = geometry.rows, columns = geometry.columns, steps = min(rows, columns);
    const uint team = ITEM / TEAM, lane = ITEM % TEAM;
    __global REAL *panel = panels + matrix * rows * columns;
    LOAD_PANEL(a, matrix)
    for (uint j = 0; j < steps; j++) {
        SYNC;
        REAL largest = 0, squares = 0;
        FOR_OWN(i, j + 1, rows) largest = LARGEST(largest, fabs(PANEL_AT(i, j)));
        REDUCE_GROUP(largest, LARGEST)
        FOR_OWN(i, j + 1, rows) {
            const REAL part = PANEL_AT(i, j) / largest;
            squares += part * part;
        }
        REDUCE_GROUP(squares, PLUS)
        const Reflection h = reflection(PANEL_AT(j, j), largest, squares);
        SYNC;
        FOR_OWN(i, j + 1, rows) PANEL_AT(i, j) *= h.scale;
        if (ITEM == 0) {
            PANEL_AT(j, j) = h.beta;
            STORE(DTYPE, h.tau, tau, tau_offset + matrix * steps + j);
        }
        SYNC;
        for (uint first = j + 1; first < columns; first += GROUP / TEAM) {
            const uint c = first + team;
            REAL along = 0;
            if (c < columns)
                for (uint i = j + 1 + lane; i < rows; i += TEAM) along += PANEL_AT(i, j) * PANEL_AT(i, c);
            SYNC;
            shared[ITEM] = along;
            SYNC;
            if (c < columns) {
                along = PANEL_AT(j, c);
                for (uint k = 0; k < TEAM; k++) along += shared[team * TEAM + k];
                along *= h.tau;
            }
            SYNC;
            if (c < columns) {
                if (lane == 0) PANEL_AT(j, c) -= along;
                for (uint i = j + 1 + lane; i < rows; i += TEAM) PANEL_AT(i, c) -= PANEL_AT(i, j) * along;
            }
        }
    }
    STORE_PANEL(out, matrix)
}
