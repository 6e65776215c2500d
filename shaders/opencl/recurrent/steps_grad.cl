// The gradients of a recurrent layer that depend on the next time step, on a GPU (see recurrent/steps.cl). A group takes ROWS
// sequences through all steps, from the last: first the gradients of the gates, then their product with the weight, whose
// terms SLICES rows of UNITS work-items divide. The weight is (gates * size, size), with contiguous rows.

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
#ifndef MAX_SIZE
#define MAX_SIZE 512
#endif
#include "lib/dtypes.h"

typedef float V;
#include "recurrent/cells.h"
#include "recurrent/arguments.h"
#define GROUP (UNITS * SLICES)

typedef struct {
    long STEPS_GRAD_STRIDES, weight_row;
    uint STEPS_LENGTHS;
} StepsGradGeometry;

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void recurrent_steps_grad(
    STEPS_GRAD_PARAMETERS __global const float *weight, const ulong weight_offset, const StepsGradGeometry geometry) {
    __local float d_before[ROWS][MAX_SIZE], products[ROWS][GATE_COUNT * MAX_SIZE];
#if SLICES > 1
    __local float sums[SLICES - 1][ROWS][UNITS];
#endif
    const uint size = geometry.size, batch = geometry.batch, steps = geometry.steps, width = GATE_COUNT * size;
    const uint lane = get_local_id(0) % UNITS, slice = get_local_id(0) / UNITS;
    const uint first_row = get_group_id(0) * ROWS, rows = min((uint)ROWS, batch - first_row);
    ADD_STEPS_GRAD_OFFSETS
    weight += weight_offset;
    const uint terms = (width + SLICES - 1) / SLICES;
    const uint begin = min(slice * terms, width), end = min(begin + terms, width);
    // Rows past the last sequence are summed too, which keeps conditions out of the loop over terms.
    for (uint i = rows * GATE_COUNT * MAX_SIZE + get_local_id(0); i < ROWS * GATE_COUNT * MAX_SIZE; i += GROUP)
        products[i / (GATE_COUNT * MAX_SIZE)][i % (GATE_COUNT * MAX_SIZE)] = 0;
    for (uint s = 0; s < steps; s++) {
        const uint t = geometry.reverse ? s : steps - 1 - s;
        for (uint i = get_local_id(0); i < rows * size; i += GROUP) {
            const uint r = i / size, u = i - r * size, row = first_row + r;
            const ulong at = (ulong)row * size + u, out = ((ulong)t * batch + row) * width + u;
            __global const float *gate = gates + t * geometry.gates_step + row * geometry.gates_row + u;
            const float before =
                s + 1 == steps ? first[row * geometry.first_row + u]
                               : states[((long)t + (geometry.reverse ? 1 : -1)) * geometry.states_step +
                                        row * geometry.states_row + u];
            const float d_out = grad[t * geometry.grad_step + row * geometry.grad_row + u] + (s ? d_before[r][u] : 0);
            float pre[GATE_COUNT], slopes[GATE_COUNT];
#pragma unroll
            for (uint g = 0; g < GATE_COUNT; g++) pre[g] = gate[g * size];
#if CELL == LSTM
            const float after = states[t * geometry.states_step + row * geometry.states_row + u];
            // The work-item that reads a running gradient of a cell wrote it.
            float d_cell = grad_states[t * geometry.grad_states_step + row * geometry.grad_states_row + u] +
                           (s ? d_state[at] : 0);
            cell_grad(pre, before, after, d_out, &d_cell, slopes);
            d_state[at] = d_cell;
#pragma unroll
            for (uint g = 0; g < GATE_COUNT; g++) products[r][g * size + u] = slopes[g];
#else
            __global const float *back = fed_back + t * geometry.fed_back_step + row * geometry.fed_back_row + u;
            float h[GATE_COUNT], d_h[GATE_COUNT], direct;
#pragma unroll
            for (uint g = 0; g < GATE_COUNT; g++) h[g] = back[g * size];
            cell_grad(pre, h, before, d_out, &direct, slopes, d_h);
            d_before[r][u] = direct;
#pragma unroll
            for (uint g = 0; g < GATE_COUNT; g++) {
                products[r][g * size + u] = d_h[g];
                d_fed_back[out + g * size] = d_h[g];
            }
#endif
#pragma unroll
            for (uint g = 0; g < GATE_COUNT; g++) d_gates[out + g * size] = slopes[g];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint base = 0; base < size; base += UNITS) {
            const uint u = base + lane;
            float acc[ROWS];
#pragma unroll
            for (uint r = 0; r < ROWS; r++) acc[r] = 0;
            __global const float *weights = weight + begin * geometry.weight_row + min(u, size - 1);
#pragma unroll 16
            for (uint n = begin; n < end; n++, weights += geometry.weight_row) {
                const float w = *weights;
#pragma unroll
                for (uint r = 0; r < ROWS; r++) acc[r] += products[r][n] * w;
            }
#if SLICES > 1
            if (slice > 0)
#pragma unroll
                for (uint r = 0; r < ROWS; r++) sums[slice - 1][r][lane] = acc[r];
            barrier(CLK_LOCAL_MEM_FENCE);
#endif
            if (slice == 0 && u < size) {
#pragma unroll
                for (uint r = 0; r < ROWS; r++) {
                    if (r >= rows) break;
#if SLICES > 1
                    for (uint other = 0; other < SLICES - 1; other++) acc[r] += sums[other][r][lane];
#endif
#if CELL == GRU
                    acc[r] += d_before[r][u];
#endif
                    d_before[r][u] = acc[r];
                    if (s + 1 == steps) d_hidden[(ulong)(first_row + r) * size + u] = acc[r];
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
    }
}
