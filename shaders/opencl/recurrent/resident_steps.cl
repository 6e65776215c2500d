// A recurrent layer over all time steps on a GPU whose groups are all resident at the same time, with the weight in registers
// (persistent RNN: Diamos et al., 2016). SHARES groups take ROWS sequences through all steps: each has UNITS units with all
// their gates, and receives the other groups' hidden states after each step (recurrent/exchange.h).
//
// The groups wait for each other, so a launch with more groups than the device runs at once would deadlock.
//
// The work-items of a group are SLICES rows of UNITS: each row takes TERMS terms of the product with the hidden state,
// and each work-item one unit.

#define WIDTH 1
#ifndef ROWS
#define ROWS 2
#endif
#ifndef UNITS
#define UNITS 32
#endif
#ifndef SLICES
#define SLICES 16
#endif
// A multiple of 4.
#ifndef TERMS
#define TERMS 16
#endif
#include "lib/dtypes.h"

typedef float V;
#include "recurrent/cells.h"
#include "recurrent/arguments.h"
#include "recurrent/exchange.h"
#define GROUP (UNITS * SLICES)
// Units of the layer, at most.
#define PADDED (SLICES * TERMS)
#define SUMS (ROWS * GATE_COUNT * UNITS)
// Rows of work-items that add up the slices.
#define ADDERS (GROUP / SUMS)

typedef struct {
    long STEPS_STRIDES, weight_row;
    uint STEPS_LENGTHS, shares;
} ResidentGeometry;

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void recurrent_resident_steps(
    STEPS_PARAMETERS __global const float *weight, const ulong weight_offset, __global volatile ulong *exchange,
    const ResidentGeometry geometry) {
    __local float before[ROWS * PADDED] __attribute__((aligned(16)));
    __local float sums[SLICES * SUMS], totals[ADDERS * SUMS];
    const uint size = geometry.size, batch = geometry.batch, steps = geometry.steps, me = get_local_id(0);
    const uint lane = me % UNITS, slice = me / UNITS;
    const uint share = get_group_id(0) % geometry.shares, first = get_group_id(0) / geometry.shares * ROWS;
    const uint rows = min((uint)ROWS, batch - first);

    // The part of the weight that this work-item multiplies, zero past the end of the layer.
    float w[GATE_COUNT][TERMS];
    const uint column = share * UNITS + lane;
#pragma unroll
    for (uint g = 0; g < GATE_COUNT; g++)
#pragma unroll
        for (uint i = 0; i < TERMS; i++) {
            const uint k = slice * TERMS + i;
            w[g][i] = column < size && k < size ? weight[weight_offset + (g * size + column) * geometry.weight_row + k] : 0;
        }

    // The cell whose functions this work-item computes, if any: row r, unit u.
    const uint r = slice, u = column;
    const bool has_cell = r < rows && u < size;
    x += x_offset + (first + min(r, rows - 1)) * geometry.x_row + min(u, size - 1);
    const ulong at = (ulong)(first + min(r, rows - 1)) * size + min(u, size - 1);
    float add[GATE_COUNT];
#pragma unroll
    for (uint g = 0; g < GATE_COUNT; g++)
#if BIAS
        add[g] = bias[bias_offset + g * size + min(u, size - 1)];
#else
        add[g] = 0;
#endif
    const float start = hidden[hidden_offset + (first + min(r, rows - 1)) * geometry.hidden_row + min(u, size - 1)];
#if CELL == LSTM
    float cell = state[state_offset + (first + min(r, rows - 1)) * geometry.state_row + min(u, size - 1)];
#else
    float cell = start;
#endif
    for (uint i = me; i < ROWS * PADDED; i += GROUP) {
        const uint row = i / PADDED, k = i % PADDED;
        before[i] = row < rows && k < size ? hidden[hidden_offset + (first + row) * geometry.hidden_row + k] : 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint s = 0; s < steps; s++) {
        const uint t = geometry.reverse ? steps - 1 - s : s;
        float from_x[GATE_COUNT];
        if (has_cell)
#pragma unroll
            for (uint g = 0; g < GATE_COUNT; g++) from_x[g] = x[t * geometry.x_step + g * size];
        if (s > 0) {
            __global volatile ulong *from = exchange + ((ulong)(s - 1) % 2 * batch + first) * size;
            GATHER(from, before, ROWS * PADDED, s, rows, size, PADDED)
            barrier(CLK_LOCAL_MEM_FENCE);
        }
#pragma unroll
        for (uint row = 0; row < ROWS; row++) {
            float acc[GATE_COUNT];
#pragma unroll
            for (uint g = 0; g < GATE_COUNT; g++) acc[g] = 0;
#pragma unroll
            for (uint i = 0; i < TERMS; i += 4) {
                const float4 h = *(__local const float4 *)(before + row * PADDED + slice * TERMS + i);
#pragma unroll
                for (uint g = 0; g < GATE_COUNT; g++)
                    acc[g] += h.x * w[g][i] + h.y * w[g][i + 1] + h.z * w[g][i + 2] + h.w * w[g][i + 3];
            }
#pragma unroll
            for (uint g = 0; g < GATE_COUNT; g++) sums[slice * SUMS + (row * GATE_COUNT + g) * UNITS + lane] = acc[g];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (me < ADDERS * SUMS) {
            float total = 0;
#pragma unroll
            for (uint i = 0; i < SLICES; i += ADDERS)
                if (i + me / SUMS < SLICES) total += sums[(i + me / SUMS) * SUMS + me % SUMS];
            totals[me] = total;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (has_cell) {
            float acc[GATE_COUNT];
#pragma unroll
            for (uint g = 0; g < GATE_COUNT; g++) {
                acc[g] = add[g];
#pragma unroll
                for (uint i = 0; i < ADDERS; i++) acc[g] += totals[i * SUMS + (r * GATE_COUNT + g) * UNITS + lane];
            }
            const float value = cell_step(from_x, acc, &cell);
            publish(exchange + (ulong)(s % 2) * batch * size + at, s + 1, value);
            outs[outs_offset + (ulong)t * batch * size + at] = value;
#if KEEP_GATES
#pragma unroll
            for (uint g = 0; g < GATE_COUNT; g++)
                kept_gates[kept_gates_offset + ((ulong)(t * batch + first + r) * GATE_COUNT + g) * size + u] = from_x[g] + acc[g];
#endif
#if CELL == LSTM
            states[states_offset + (ulong)t * batch * size + at] = cell;
#endif
        }
    }
}
