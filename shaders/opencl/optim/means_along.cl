// Means along one axis of each of several contiguous tensors of at most 2^18 elements: of `rows` elements at distances of
// `columns`; with SQUARE of their squares. If columns is 1, groups process lines of `rows` elements, else strips of columns.
// The numbers of lines and columns of a group are those of mean_tasks (backends/common/problems/optim.py).

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef RESULT_DTYPE
#define RESULT_DTYPE float32
#endif
#ifndef SQUARE
#define SQUARE 0
#endif
#ifndef MATRICES
#define MATRICES
#endif
#include "lib/multi_tensor.h"

#ifndef SLOT_PARAMETERS
#define SLOT_PARAMETERS __global const float *x0, const ulong x0_offset, __global float *out0, const ulong out0_offset
#define FIND_SLOT \
    __global const float *x = x0 + x0_offset; \
    __global float *out = out0 + out0_offset; \
    const uint size = slots.size[0], start = slots.start[0], rows = slots.rows[0], columns = slots.columns[0];
#endif
#if SQUARE
#define TERM(value) ((value) * (value))
#else
#define TERM(value) (value)
#endif
#define STRIP (GROUP * WIDTH)

__kernel void optim_means_along(SLOT_PARAMETERS, const SlotTable slots) {
    GROUP_SCRATCH(REAL)
    const uint chunk = get_group_id(0);
    FIND_SLOT
    const uint task = chunk - start;
    if (columns == 1) {
        const uint per_task = max(1u, CHUNK / rows), end = min((task + 1) * per_task, size / rows);
        for (uint line = task * per_task; line < end; line++) {
            const uint first = line * rows, whole = first + rows / WIDTH * WIDTH;
            V sums = (V)(0);
            for (uint i = first + LANE_ID * WIDTH; i < whole; i += STRIP) {
                const V value = READ(DTYPE, x, i);
                sums += TERM(value);
            }
            REAL sum = 0;
            for (uint j = 0; j < WIDTH; j++) sum += ((REAL *)&sums)[j];
            for (uint i = whole + LANE_ID; i < first + rows; i += GROUP) {
                const REAL value = LOAD(DTYPE, x, i);
                sum += TERM(value);
            }
            GROUP_SUM(sum)
            if (LANE_ID == 0) STORE(RESULT_DTYPE, sum / rows, out, line);
        }
        return;
    }
    const uint per_task = max((uint)STRIP, CHUNK / rows / STRIP * STRIP), strips = (columns + per_task - 1) / per_task;
    const uint matrix = task / strips, begin = task % strips * per_task, end = min(begin + per_task, columns);
    const uint whole = begin + (end - begin) / WIDTH * WIDTH, first = matrix * rows * columns;
    for (uint i = begin + LANE_ID * WIDTH; i < whole; i += STRIP) {
        V sums = (V)(0);
        for (uint row = 0; row < rows; row++) {
            const V value = READ(DTYPE, x, first + row * columns + i);
            sums += TERM(value);
        }
        WRITE(RESULT_DTYPE, sums / (REAL)rows, out, matrix * columns + i);
    }
    for (uint i = whole + LANE_ID; i < end; i += GROUP) {
        REAL sum = 0;
        for (uint row = 0; row < rows; row++) {
            const REAL value = LOAD(DTYPE, x, first + row * columns + i);
            sum += TERM(value);
        }
        STORE(RESULT_DTYPE, sum / rows, out, matrix * columns + i);
    }
}
