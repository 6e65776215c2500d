// A recurrent layer over all time steps on a GPU, for weights that a compute unit can read from the second-level cache in
// less time than two launches take. A group takes ROWS sequences through all steps and reads the whole weight in each;
// sequences are independent, so groups do not synchronize.
//
// The work-items of a group are SLICES rows of UNITS: each row takes a part of the terms of the product with the hidden
// state, and each work-item one unit with all its gates. `packed` is the transposed weight (size, gates * size).

#define WIDTH 1
#ifndef ROWS
#define ROWS 1
#endif
#ifndef UNITS
#define UNITS 64
#endif
#ifndef SLICES
#define SLICES 4
#endif
// Units of the layer, at most.
#ifndef MAX_SIZE
#define MAX_SIZE 512
#endif
#include "lib/dtypes.h"

typedef float V;
#include "recurrent/cells.h"
#include "recurrent/arguments.h"
#define GROUP (UNITS * SLICES)

typedef struct {
    long STEPS_STRIDES;
    uint STEPS_LENGTHS;
} StepsGeometry;

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void recurrent_steps(
    STEPS_PARAMETERS __global const float *packed, const StepsGeometry geometry) {
    __local float before[2][ROWS][MAX_SIZE];
#if SLICES > 1
    __local float sums[SLICES - 1][ROWS][GATE_COUNT][UNITS];
#endif
    const uint size = geometry.size, batch = geometry.batch, steps = geometry.steps, width = GATE_COUNT * size;
    const uint lane = get_local_id(0) % UNITS, slice = get_local_id(0) / UNITS;
    const uint first = get_group_id(0) * ROWS, rows = min((uint)ROWS, batch - first);
    x += x_offset;
    hidden += hidden_offset;
    outs += outs_offset;
#if CELL == LSTM
    state += state_offset;
    states += states_offset;
#endif
    const uint terms = (size + SLICES - 1) / SLICES;
    const uint begin = min(slice * terms, size), end = min(begin + terms, size);
    // Rows past the last sequence repeat it, and are not stored.
    for (uint r = 0; r < ROWS; r++)
        for (uint k = get_local_id(0); k < size; k += GROUP)
            before[0][r][k] = hidden[(first + min(r, rows - 1)) * geometry.hidden_row + k];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint s = 0; s < steps; s++) {
        const uint t = geometry.reverse ? steps - 1 - s : s, now = s % 2;
        const ulong step = (ulong)t * batch * size;
        for (uint base = 0; base < size; base += UNITS) {
            const uint u = base + lane;
            float from_x[ROWS][GATE_COUNT], acc[ROWS][GATE_COUNT];
#pragma unroll
            for (uint r = 0; r < ROWS; r++)
#pragma unroll
                for (uint g = 0; g < GATE_COUNT; g++) {
                    acc[r][g] = 0;
                    from_x[r][g] = 0;
                    if (slice == 0 && u < size && r < rows) {
                        from_x[r][g] = x[t * geometry.x_step + (first + r) * geometry.x_row + g * size + u];
#if BIAS
                        acc[r][g] = bias[bias_offset + g * size + u];
#endif
                    }
                }
            __global const float *weights = packed + (ulong)begin * width + min(u, size - 1);
#pragma unroll 8
            for (uint k = begin; k < end; k++, weights += width) {
                float w[GATE_COUNT];
#pragma unroll
                for (uint g = 0; g < GATE_COUNT; g++) w[g] = weights[g * size];
#pragma unroll
                for (uint r = 0; r < ROWS; r++)
#pragma unroll
                    for (uint g = 0; g < GATE_COUNT; g++) acc[r][g] += before[now][r][k] * w[g];
            }
#if SLICES > 1
            if (slice > 0)
#pragma unroll
                for (uint r = 0; r < ROWS; r++)
#pragma unroll
                    for (uint g = 0; g < GATE_COUNT; g++) sums[slice - 1][r][g][lane] = acc[r][g];
            barrier(CLK_LOCAL_MEM_FENCE);
#endif
            if (slice == 0 && u < size) {
#pragma unroll
                for (uint r = 0; r < ROWS; r++) {
                    if (r >= rows) break;
#if SLICES > 1
#pragma unroll
                    for (uint g = 0; g < GATE_COUNT; g++)
                        for (uint other = 0; other < SLICES - 1; other++) acc[r][g] += sums[other][r][g][lane];
#endif
                    const ulong at = step + (ulong)(first + r) * size + u;
#if KEEP_GATES
#pragma unroll
                    for (uint g = 0; g < GATE_COUNT; g++)
                        kept_gates[kept_gates_offset + ((ulong)(t * batch + first + r) * GATE_COUNT + g) * size + u] =
                            from_x[r][g] + acc[r][g];
#endif
#if CELL == LSTM
                    // The work-item that reads the last state of a cell wrote it.
                    float cell = s == 0 ? state[(first + r) * geometry.state_row + u]
                                        : states[(long)at + (geometry.reverse ? 1 : -1) * (long)batch * size];
                    const float value = cell_step(from_x[r], acc[r], &cell);
                    states[at] = cell;
#else
                    float cell = before[now][r][u];
                    const float value = cell_step(from_x[r], acc[r], &cell);
#endif
                    outs[at] = value;
                    before[1 - now][r][u] = value;
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
    }
}
