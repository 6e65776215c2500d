// Steps of the blocked QR factorization of large matrices in place (LAPACK's geqrf): the Householder reflections of a panel of up to
// SIZE columns, and the triangle T of their product I - V T V^T (Schreiber, Van Loan 1989), which linear_algebra/qr_apply.cl
// applies to the columns to the right.
//
// A group factors one panel. Its teams of TEAM work-items have columns of their own in registers, ROWS elements a work-item. For
// each reflection the team of its column publishes it; each team sums its squares and its products with the team's columns itself,
// so that a reflection takes one barrier. Columns in front of it are
// reflections: their products give T.

#ifndef SIZE
#define SIZE 32
#endif
#ifndef GROUP
#define GROUP 512
#endif
#ifndef TEAM
#define TEAM 32
#endif
#ifndef ROWS
#define ROWS 1
#endif
#define LANES TEAM
#define IN_GLOBAL 1
#include "linear_algebra/householder.h"
#include "linear_algebra/transposed_panel.h"
#include "lib/group_reduce.h"

#define TEAMS (GROUP / TEAM)
#define SLOTS (CHUNK / TEAM)  // of a work-item in a chunk
#define EACH ((SIZE + TEAMS - 1) / TEAMS)
#define NORMAL_float32 FLT_MIN
#define NORMAL_float64 DBL_MIN
#define NORMAL CONCAT(NORMAL_, DTYPE)
#define LARGEST(a, b) ((b) > (a) || (b) != (b) ? (b) : (a))

typedef struct {
    uint rows, columns, first;  // rows and columns of the matrix
} QrPanelGeometry;

// For the values of a work-item in the chunk that begins with this slot: row i of the chunk and column c.
#define FOR_VALUES(slot, STATEMENT)                                              \
    _Pragma("unroll") for (uint e = 0; e < EACH; e++)                            \
        _Pragma("unroll") for (uint k = 0; k < SLOTS; k++) {                     \
            const uint r = (slot) + k, i = lane + k * TEAM, c = team + e * TEAMS; \
            if (r < ROWS) { STATEMENT }                                          \
        }

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void linear_algebra_qr_panel(RESULT(DTYPE, out), RESULT(DTYPE, tau), __global REAL *triangles,
                             const QrPanelGeometry geometry) {
    __local REAL column[2][TEAM * ROWS], row[2][SIZE], largest[2], scales[SIZE], products[SIZE][SIZE + 1];
    __local REAL chunk[CHUNK * CHUNK_PITCH];
    GROUP_SCRATCH(REAL)
    const ulong matrix = get_group_id(0);
    const uint first = geometry.first, pitch = geometry.columns, rows = geometry.rows - first;
    const uint columns = min(geometry.columns - first, (uint)SIZE), steps = min(rows, columns);
    const uint team = ITEM / TEAM, lane = ITEM % TEAM;
    __global REAL *corner = out + out_offset + matrix * geometry.rows * pitch + (ulong)first * pitch + first;
    REAL values[EACH][ROWS];
    _Pragma("unroll") for (uint slot = 0; slot < ROWS; slot += SLOTS) {
        LOAD_CHUNK(corner, slot * TEAM)
        SYNC;
        FOR_VALUES(slot, values[e][r] = c < SIZE ? chunk[i * CHUNK_PITCH + c] : (REAL)0;)
        SYNC;
    }
    FOR_OWN(index, 0, SIZE * SIZE) products[index / SIZE][index % SIZE] = 0;
    FOR_OWN(j, 0, SIZE) scales[j] = 0;
    for (uint j = 0; j < steps; j++) {
        const uint buffer = j & 1;
        // Row j is in the first element of lane j, because a team has as many work-items as a panel has columns.
        _Pragma("unroll") for (uint e = 0; e < EACH; e++) {
            const uint c = team + e * TEAMS;
            if (lane == j && c < SIZE) row[buffer][c] = values[e][0];
            REAL size = 0;
            if (c == j)
                _Pragma("unroll") for (uint r = 0; r < ROWS; r++) {
                    column[buffer][lane + r * TEAM] = values[e][r];
                    if (r > 0 || lane > j) size = LARGEST(size, fabs(values[e][r]));
                }
            // All work-items take part in the reduction: it may have barriers.
            GROUP_REDUCE(size, LARGEST)
            if (c == j && lane == 0) largest[buffer] = size;
        }
        SYNC;
        // Elements are divided by the largest one, so that their squares neither overflow nor vanish.
        const REAL most = LARGEST((REAL)NORMAL, largest[buffer]), inverse = 1 / most;
        REAL squares = 0, sums[EACH], along[ROWS];
        _Pragma("unroll") for (uint e = 0; e < EACH; e++) sums[e] = 0;
        _Pragma("unroll") for (uint r = 0; r < ROWS; r++) {
            along[r] = r > 0 || lane > j ? column[buffer][lane + r * TEAM] * inverse : (REAL)0;
            squares += along[r] * along[r];
            _Pragma("unroll") for (uint e = 0; e < EACH; e++) sums[e] += along[r] * values[e][r];
        }
        GROUP_SUM(squares)
        _Pragma("unroll") for (uint e = 0; e < EACH; e++) GROUP_SUM(sums[e])
        const Reflection h = reflection(row[buffer][j], largest[buffer] == 0 ? (REAL)0 : most, squares);
        const REAL scale = h.scale * most;
        _Pragma("unroll") for (uint e = 0; e < EACH; e++) {
            const uint c = team + e * TEAMS;
            const REAL product = (c < SIZE ? row[buffer][c] : (REAL)0) + scale * sums[e], change = product * h.tau;
            if (c == j) {
                _Pragma("unroll") for (uint r = 0; r < ROWS; r++)
                    if (r > 0 || lane > j) values[e][r] *= h.scale;
                if (lane == j) values[e][0] = h.beta;
                if (lane == 0) {
                    scales[j] = h.tau;
                    STORE(DTYPE, h.tau, tau, tau_offset + matrix * min(geometry.rows, geometry.columns) + first + j);
                }
            } else if (c > j) {
                if (lane == j) values[e][0] -= change;
                _Pragma("unroll") for (uint r = 0; r < ROWS; r++) values[e][r] -= along[r] * scale * change;
            } else if (lane == 0) {
                products[c][j] = product;
            }
        }
    }
    _Pragma("unroll") for (uint slot = 0; slot < ROWS; slot += SLOTS) {
        SYNC;
        FOR_VALUES(slot, if (c < SIZE) chunk[i * CHUNK_PITCH + c] = values[e][r];)
        SYNC;
        for (uint index = ITEM; index < CHUNK * SIZE; index += GROUP) {
            const uint i = index / SIZE, c = index % SIZE, at = slot * TEAM + i;
            if (at < rows && c < columns && i / TEAM < ROWS) corner[(ulong)at * pitch + c] = chunk[i * CHUNK_PITCH + c];
        }
    }
    SYNC;
    // T = (I + diag(tau) S)^-1 diag(tau), where S is the triangle of products of different reflections above the diagonal.
    if (ITEM < SIZE) {
        REAL solution[SIZE];
        _Pragma("unroll") for (uint i = 0; i < SIZE; i++) solution[i] = i == ITEM ? scales[i] : (REAL)0;
        _Pragma("unroll") for (uint k = 0; k < SIZE; k++) {
            const uint t = SIZE - 1 - k;
            _Pragma("unroll") for (uint i = 0; i < t; i++) solution[i] -= scales[i] * products[i][t] * solution[t];
        }
        _Pragma("unroll") for (uint i = 0; i < SIZE; i++)
            triangles[(matrix * SIZE + i) * SIZE + ITEM] = i <= ITEM ? solution[i] : (REAL)0;
    }
}
