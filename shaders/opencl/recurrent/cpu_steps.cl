// A recurrent layer over all time steps on a CPU. A work-item takes ROWS sequences through all steps. In each it multiplies
// their hidden states with the weight, WIDTH units and all their gates at a time in registers, and goes on with the cell's
// functions there: gates never reach memory. Nothing depends on other sequences, so work-items need not wait for others.
//
// `packed` is the weight with the gates of WIDTH units side by side: (units / WIDTH, width, GATE_COUNT, WIDTH), with zeros
// behind the last unit. x is (steps, batch, gates * size); its gates are contiguous.

#define ALIGNED 0
#ifndef WIDTH
#define WIDTH 16
#endif
// Registers: ROWS * GATE_COUNT sums and GATE_COUNT of the weight.
#ifndef ROWS
#define ROWS 6
#endif
#ifndef BIAS
#define BIAS 0
#endif
#include "lib/dtypes.h"
#include "lib/vectors.h"

typedef VEC(float) V;
#include "recurrent/cells.h"
#include "recurrent/cpu_lanes.h"

typedef struct {
    long x_step, x_row, hidden_row, state_row;
    uint steps, batch, size, reverse;
} StepsGeometry;

__kernel NO_AUTOVEC void recurrent_cpu_pack_gates(__global const float *weight, const ulong weight_offset,
                                                  __global float *packed, const uint size, const long weight_row,
                                                  const long weight_column) {
    const uint first = get_global_id(0) * WIDTH;
    if (first >= size) return;
    weight += weight_offset;
    packed += (ulong)first * size * GATE_COUNT;
    for (uint g = 0; g < GATE_COUNT; g++)
        for (uint lane = 0; lane < WIDTH; lane++) {
            const bool inside = first + lane < size;
            __global const float *from = weight + (long)(g * size + min(first + lane, size - 1)) * weight_row;
            __global float *to = packed + g * WIDTH + lane;
            for (uint k = 0; k < size; k++) to[k * GATE_COUNT * WIDTH] = inside ? from[k * weight_column] : 0;
        }
}

__kernel NO_AUTOVEC void recurrent_cpu_steps(__global const float *x, const ulong x_offset, __global const float *packed,
                                             __global const float *hidden, const ulong hidden_offset,
#if CELL == LSTM
                                             __global const float *state, const ulong state_offset,
#endif
#if BIAS
                                             __global const float *bias, const ulong bias_offset,
#endif
                                             __global float *outs, const ulong outs_offset,
#if CELL == LSTM
                                             __global float *states, const ulong states_offset,
#endif
                                             const StepsGeometry geometry) {
    const uint size = geometry.size, batch = geometry.batch, steps = geometry.steps;
    const uint first = get_global_id(0) * ROWS;
    if (first >= batch) return;
    x += x_offset;
    outs += outs_offset;
    hidden += hidden_offset;
#if CELL == LSTM
    state += state_offset;
    states += states_offset;
#endif
    // Rows past the last sequence repeat it.
    uint row[ROWS];
    __global const float *before[ROWS];
#pragma unroll
    for (uint r = 0; r < ROWS; r++) {
        row[r] = min(first + r, batch - 1);
        before[r] = hidden + row[r] * geometry.hidden_row;
    }
    for (uint s = 0; s < steps; s++) {
        const uint t = geometry.reverse ? steps - 1 - s : s;
        const ulong slice = (ulong)t * batch * size;
        __global const float *panel = packed;
        for (uint j = 0; j < size; j += WIDTH) {
            V acc[ROWS][GATE_COUNT];
#pragma unroll
            for (uint r = 0; r < ROWS; r++)
#pragma unroll
                for (uint g = 0; g < GATE_COUNT; g++) acc[r][g] = (V)(0);
            for (uint k = 0; k < size; k++, panel += GATE_COUNT * WIDTH) {
                V w[GATE_COUNT];
#pragma unroll
                for (uint g = 0; g < GATE_COUNT; g++) w[g] = LOADV(float32, panel + g * WIDTH);
#pragma unroll
                for (uint r = 0; r < ROWS; r++) {
                    const float h = before[r][k];
#pragma unroll
                    for (uint g = 0; g < GATE_COUNT; g++) acc[r][g] += h * w[g];
                }
            }
            const uint lanes = min((uint)WIDTH, size - j);
#pragma unroll
            for (uint r = 0; r < ROWS; r++) {
                __global const float *gates = x + t * geometry.x_step + row[r] * geometry.x_row + j;
                V from_x[GATE_COUNT];
#pragma unroll
                for (uint g = 0; g < GATE_COUNT; g++) {
                    from_x[g] = load_lanes(gates + (ulong)g * size, lanes);
#if BIAS
                    acc[r][g] += load_lanes(bias + bias_offset + g * size + j, lanes);
#endif
                }
                const ulong at = slice + (ulong)row[r] * size + j;
#if CELL == LSTM
                __global const float *from =
                    s == 0 ? state + row[r] * geometry.state_row : states + (t + (geometry.reverse ? 1 : -1)) * (long)batch * size + row[r] * size;
                V cell = load_lanes(from + j, lanes);
                store_lanes(cell_step(from_x, acc[r], &cell), outs + at, lanes);
                store_lanes(cell, states + at, lanes);
#else
                V cell = load_lanes(before[r] + j, lanes);
                store_lanes(cell_step(from_x, acc[r], &cell), outs + at, lanes);
#endif
            }
        }
#pragma unroll
        for (uint r = 0; r < ROWS; r++) before[r] = outs + slice + (ulong)row[r] * size;
    }
}
