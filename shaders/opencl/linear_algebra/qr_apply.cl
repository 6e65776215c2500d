// Columns to the right of a panel of a QR factorization in place: C -= V T^T (V^T C), where V and T are the results of
// linear_algebra/qr_panel.cl. A group has a strip of WIDTH columns. It sums V^T C over chunks of rows in local memory, each
// work-item 4 x 4 elements of it for a part of the rows, multiplies by T^T, and passes over the rows again.
// qr_begin copies the matrix to the result.

#ifndef SIZE
#define SIZE 32
#endif
#ifndef GROUP
#define GROUP 256
#endif
#ifndef CHUNK
#define CHUNK 128
#endif
#define IN_GLOBAL 1
#include "linear_algebra/matrices.h"

#define WIDTH 8
#define V_PITCH (SIZE + 4)
#define C_PITCH (WIDTH + 4)
#define TILES (SIZE / 4 * (WIDTH / 4))
#define PARTS (GROUP / TILES)
#define REAL4 CONCAT(REAL, 4)
#define SPACE (CHUNK * V_PITCH > PARTS * SIZE * WIDTH ? CHUNK * V_PITCH : PARTS * SIZE * WIDTH)

typedef struct {
    ulong size;
    MATRIX_MEMBERS(a);
    BATCH_MEMBERS;
    uint rows, columns;
} QrBeginGeometry;

typedef struct {
    uint rows, columns, first, width, strips;
} QrApplyGeometry;

__kernel void qr_begin(OPERAND(a), RESULT(DTYPE, out), const QrBeginGeometry geometry) {
    const ulong item = get_global_id(0);
    if (item >= geometry.size) return;
    const ulong line = item / geometry.columns, matrix = line / geometry.rows;
    const uint i = line - matrix * geometry.rows, j = item - line * geometry.columns;
    const long a_at = MATRIX_OF(a, matrix);
    STORE(DTYPE, ELEMENT(a, a_at, i, j), out, out_offset + item);
}

#define LOAD_VECTORS(begin)                                                                           \
    for (uint index = ITEM; index < CHUNK * SIZE; index += GROUP) {                                   \
        const uint i = index / SIZE, t = index % SIZE, at = (begin) + i;                              \
        v[i * V_PITCH + t] = at < rows && t < at && t < geometry.width ? top[(ulong)at * pitch + first + t] : (REAL)(t == at); \
    }

__kernel void linear_algebra_qr_apply(RESULT(DTYPE, out), __global const REAL *triangles,
                                      const QrApplyGeometry geometry) {
    __local REAL4 space[SPACE / 4], strip[CHUNK * C_PITCH / 4], weights[SIZE * WIDTH / 4];
    __local REAL *v = (__local REAL *)space, *c = (__local REAL *)strip, *weight = (__local REAL *)weights;
    const ulong matrix = get_group_id(0) / geometry.strips;
    const uint first = geometry.first, pitch = geometry.columns, rows = geometry.rows - first;
    const uint column = first + geometry.width + get_group_id(0) % geometry.strips * WIDTH;
    const uint own = min(geometry.columns - column, (uint)WIDTH);
    const uint part = ITEM / TILES, four = ITEM % TILES / (WIDTH / 4) * 4, right = ITEM % (WIDTH / 4) * 4;
    __global REAL *top = out + out_offset + matrix * geometry.rows * pitch + (ulong)first * pitch;
    triangles += matrix * SIZE * SIZE;
    REAL4 sums[4] = {0, 0, 0, 0};
    for (uint begin = 0; begin < rows; begin += CHUNK) {
        LOAD_VECTORS(begin)
        for (uint index = ITEM; index < CHUNK * WIDTH; index += GROUP) {
            const uint i = index / WIDTH, j = index % WIDTH;
            c[i * C_PITCH + j] = begin + i < rows && j < own ? top[(ulong)(begin + i) * pitch + column + j] : (REAL)0;
        }
        SYNC;
        for (uint i = part; i < CHUNK; i += PARTS) {
            const REAL4 x = space[(i * V_PITCH + four) / 4], y = strip[(i * C_PITCH + right) / 4];
            sums[0] += x.s0 * y;
            sums[1] += x.s1 * y;
            sums[2] += x.s2 * y;
            sums[3] += x.s3 * y;
        }
        SYNC;
    }
    _Pragma("unroll") for (uint k = 0; k < 4; k++) space[((part * SIZE + four + k) * WIDTH + right) / 4] = sums[k];
    SYNC;
    // V^T C, then T^T V^T C.
    FOR_OWN(index, 0, SIZE * WIDTH) {
        REAL sum = 0;
        for (uint k = 0; k < PARTS; k++) sum += v[k * SIZE * WIDTH + index];
        c[index] = sum;
    }
    SYNC;
    FOR_OWN(index, 0, SIZE * WIDTH) {
        const uint t = index / WIDTH, j = index % WIDTH;
        REAL sum = 0;
        for (uint k = 0; k <= t; k++) sum += triangles[k * SIZE + t] * c[k * WIDTH + j];
        weight[index] = sum;
    }
    for (uint begin = 0; begin < rows; begin += CHUNK) {
        SYNC;
        LOAD_VECTORS(begin)
        SYNC;
        for (uint index = ITEM; index < CHUNK * (WIDTH / 4); index += GROUP) {
            const uint i = index / (WIDTH / 4), j = index % (WIDTH / 4) * 4;
            REAL4 sum = 0;
            _Pragma("unroll 8") for (uint t = 0; t < SIZE; t++) sum += v[i * V_PITCH + t] * weights[(t * WIDTH + j) / 4];
            const REAL changes[4] = {sum.s0, sum.s1, sum.s2, sum.s3};
            if (begin + i < rows)
                _Pragma("unroll") for (uint k = 0; k < 4; k++)
                    if (j + k < own) top[(ulong)(begin + i) * pitch + column + j + k] -= changes[k];
        }
    }
}
