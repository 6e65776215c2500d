// Columns outside of a panel of an LU factorization in place (linear_algebra/lu_panel.cl): their rows move as the panel's did, and in those to
// the right the rows of the panel's pivots are solved for by substitution with its unit lower triangle. A work-item has one column.
// lu_begin copies the matrix to the result.

#ifndef SIZE
#define SIZE 32
#endif
#include "linear_algebra/matrices.h"

typedef struct {
    ulong size;
    MATRIX_MEMBERS(a);
    BATCH_MEMBERS;
    uint rows, columns;
} LuBeginGeometry;

typedef struct {
    uint rows, columns, first, steps, width, groups;  // `width` columns of the panel, `steps` with pivots
} LuExchangeGeometry;

__kernel void lu_begin(OPERAND(a), RESULT(DTYPE, out), RESULT(int32, info), const LuBeginGeometry geometry) {
    const ulong item = get_global_id(0);
    if (item >= geometry.size) return;
    const ulong line = item / geometry.columns, matrix = line / geometry.rows;
    const uint i = line - matrix * geometry.rows, j = item - line * geometry.columns;
    const long a_at = MATRIX_OF(a, matrix);
    STORE(DTYPE, ELEMENT(a, a_at, i, j), out, out_offset + item);
    if (i == 0 && j == 0) info[info_offset + matrix] = 0;
}

__kernel void linear_algebra_lu_exchange(RESULT(DTYPE, out), __global const uint *places,
                                         const LuExchangeGeometry geometry) {
    __local REAL lower[SIZE][SIZE];
    __local uint sources[SIZE], targets[SIZE];
    const ulong matrix = get_group_id(0) / geometry.groups;
    const uint first = geometry.first, pitch = geometry.columns, steps = geometry.steps;
    const uint x = get_group_id(0) % geometry.groups * GROUP + ITEM;
    __global REAL *top = out + out_offset + matrix * geometry.rows * pitch + (ulong)first * pitch;
    for (uint index = ITEM; index < SIZE * SIZE; index += GROUP) {
        const uint i = index / SIZE, j = index % SIZE;
        lower[i][j] = j < i && i < steps ? top[(ulong)i * pitch + first + j] : (REAL)0;
    }
    FOR_OWN(i, 0, SIZE) {
        sources[i] = i < steps ? places[(matrix * 2) * SIZE + i] : i;
        targets[i] = i < steps ? places[(matrix * 2 + 1) * SIZE + i] : i;
    }
    SYNC;
    if (x >= geometry.columns - geometry.width) return;
    const uint column = x < first ? x : x + geometry.width;
    top += column;
    REAL values[SIZE];
    _Pragma("unroll") for (uint i = 0; i < SIZE; i++) values[i] = i < steps ? top[(ulong)sources[i] * pitch] : (REAL)0;
    _Pragma("unroll 8") for (uint i = 0; i < SIZE; i++)
        if (i < steps && targets[i] >= steps) top[(ulong)targets[i] * pitch] = top[(ulong)i * pitch];
    if (column > first)
        _Pragma("unroll") for (uint j = 0; j < SIZE; j++)
            _Pragma("unroll") for (uint i = j + 1; i < SIZE; i++) values[i] -= lower[i][j] * values[j];
    _Pragma("unroll") for (uint i = 0; i < SIZE; i++)
        if (i < steps) top[(ulong)i * pitch] = values[i];
}
