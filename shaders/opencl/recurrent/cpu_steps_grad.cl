// The gradients of a recurrent layer that depend on the next time step, on a CPU (see recurrent/cpu_steps.cl). A work-item
// takes ROWS sequences through all steps, from the last: first the gradients of the gates, then their product with the
// weight, which is the gradient of the hidden state before.
//
// `packed` is the weight in panels of COLUMNS vectors of units: (units / COLUMNS / WIDTH, gates * size, COLUMNS, WIDTH), with
// zeros behind the last unit. The gradients of the running states are kept in the results `d_hidden` and `d_state`.

#define ALIGNED 0
#ifndef WIDTH
#define WIDTH 16
#endif
// Registers: ROWS * COLUMNS sums and COLUMNS of the weight.
#ifndef ROWS
#define ROWS 6
#endif
#ifndef COLUMNS
#define COLUMNS 4
#endif
#include "lib/dtypes.h"
#include "lib/vectors.h"

typedef VEC(float) V;
#include "recurrent/cells.h"
#include "recurrent/cpu_lanes.h"
#define PANEL (COLUMNS * WIDTH)

typedef struct {
    long grad_step, grad_row, grad_states_step, grad_states_row, gates_step, gates_row, fed_back_step, fed_back_row;
    long first_row, states_step, states_row;
    uint steps, batch, size, reverse;
} StepsGradGeometry;

__kernel NO_AUTOVEC void recurrent_cpu_pack_units(__global const float *weight, const ulong weight_offset,
                                                  __global float *packed, const uint size, const long weight_row,
                                                  const long weight_column) {
    const uint first = get_global_id(0) * PANEL;
    if (first >= size) return;
    weight += weight_offset;
    packed += (ulong)first * size * GATE_COUNT;
    for (uint n = 0; n < GATE_COUNT * size; n++)
        for (uint lane = 0; lane < PANEL; lane++)
            packed[(ulong)n * PANEL + lane] =
                first + lane < size ? weight[n * weight_row + (first + lane) * weight_column] : 0;
}

// `gates` are those of the cell before their functions; for a GRU what the input adds to them, and `fed_back` what the
// hidden state adds. `first` and `states` are the cell's states before the first step and after each.
__kernel NO_AUTOVEC void recurrent_cpu_steps_grad(__global const float *grad, const ulong grad_offset,
#if CELL == LSTM
                                                  __global const float *grad_states, const ulong grad_states_offset,
#endif
                                                  __global const float *gates, const ulong gates_offset,
#if CELL == GRU
                                                  __global const float *fed_back, const ulong fed_back_offset,
#endif
                                                  __global const float *packed, __global const float *first,
                                                  const ulong first_offset, __global const float *states,
                                                  const ulong states_offset, __global float *d_gates,
                                                  const ulong d_gates_offset,
#if CELL == GRU
                                                  __global float *d_fed_back, const ulong d_fed_back_offset,
#endif
                                                  __global float *d_hidden, const ulong d_hidden_offset,
#if CELL == LSTM
                                                  __global float *d_state, const ulong d_state_offset,
#endif
                                                  const StepsGradGeometry geometry) {
    const uint size = geometry.size, batch = geometry.batch, steps = geometry.steps;
    const uint first_row = get_global_id(0) * ROWS;
    if (first_row >= batch) return;
    const uint rows = min((uint)ROWS, batch - first_row);
    const ulong width = (ulong)size * GATE_COUNT;
    grad += grad_offset;
    gates += gates_offset;
    first += first_offset;
    states += states_offset;
    d_gates += d_gates_offset;
    d_hidden += d_hidden_offset;
#if CELL == LSTM
    grad_states += grad_states_offset;
    d_state += d_state_offset;
    __global const float *d_products = d_gates;
#else
    fed_back += fed_back_offset;
    d_fed_back += d_fed_back_offset;
    __global const float *d_products = d_fed_back;
#endif
    for (uint s = 0; s < steps; s++) {
        const uint t = geometry.reverse ? s : steps - 1 - s;
        for (uint r = 0; r < rows; r++) {
            const uint row = first_row + r;
            for (uint j = 0; j < size; j += WIDTH) {
                const uint lanes = min((uint)WIDTH, size - j);
                const ulong at = (ulong)row * size + j, out = ((ulong)t * batch + row) * width + j;
                __global const float *gate = gates + t * geometry.gates_step + row * geometry.gates_row + j;
                __global const float *earlier =
                    s + 1 == steps ? first + row * geometry.first_row
                                   : states + ((long)t + (geometry.reverse ? 1 : -1)) * geometry.states_step +
                                         row * geometry.states_row;
                const V before = load_lanes(earlier + j, lanes);
                V d_out = load_lanes(grad + t * geometry.grad_step + row * geometry.grad_row + j, lanes);
                if (s > 0) d_out += load_lanes(d_hidden + at, lanes);
                V pre[GATE_COUNT], slopes[GATE_COUNT];
#pragma unroll
                for (uint g = 0; g < GATE_COUNT; g++) pre[g] = load_lanes(gate + (ulong)g * size, lanes);
#if CELL == LSTM
                const V after = load_lanes(states + t * geometry.states_step + row * geometry.states_row + j, lanes);
                V d_cell = load_lanes(grad_states + t * geometry.grad_states_step + row * geometry.grad_states_row + j, lanes);
                if (s > 0) d_cell += load_lanes(d_state + at, lanes);
                cell_grad(pre, before, after, d_out, &d_cell, slopes);
                store_lanes(d_cell, d_state + at, lanes);
#else
                __global const float *back = fed_back + t * geometry.fed_back_step + row * geometry.fed_back_row + j;
                V h[GATE_COUNT], d_h[GATE_COUNT], direct;
#pragma unroll
                for (uint g = 0; g < GATE_COUNT; g++) h[g] = load_lanes(back + (ulong)g * size, lanes);
                cell_grad(pre, h, before, d_out, &direct, slopes, d_h);
                store_lanes(direct, d_hidden + at, lanes);
#pragma unroll
                for (uint g = 0; g < GATE_COUNT; g++) store_lanes(d_h[g], d_fed_back + out + (ulong)g * size, lanes);
#endif
#pragma unroll
                for (uint g = 0; g < GATE_COUNT; g++) store_lanes(slopes[g], d_gates + out + (ulong)g * size, lanes);
            }
        }
        __global const float *product[ROWS];
#pragma unroll
        for (uint r = 0; r < ROWS; r++)
            product[r] = d_products + ((ulong)t * batch + first_row + min(r, rows - 1)) * width;
        __global const float *panel = packed;
        for (uint j = 0; j < size; j += PANEL) {
            V acc[ROWS][COLUMNS];
#pragma unroll
            for (uint r = 0; r < ROWS; r++)
#pragma unroll
                for (uint c = 0; c < COLUMNS; c++) acc[r][c] = (V)(0);
            for (uint n = 0; n < width; n++, panel += PANEL) {
                V w[COLUMNS];
#pragma unroll
                for (uint c = 0; c < COLUMNS; c++) w[c] = LOADV(float32, panel + c * WIDTH);
#pragma unroll
                for (uint r = 0; r < ROWS; r++) {
                    const float d = product[r][n];
#pragma unroll
                    for (uint c = 0; c < COLUMNS; c++) acc[r][c] += d * w[c];
                }
            }
            for (uint r = 0; r < rows; r++)
#pragma unroll
                for (uint c = 0; c < COLUMNS; c++) {
                    const uint k = j + c * WIDTH;
                    if (k >= size) break;
                    const uint lanes = min((uint)WIDTH, size - k);
                    __global float *to = d_hidden + (ulong)(first_row + r) * size + k;
#if CELL == GRU
                    acc[r][c] += load_lanes(to, lanes);
#endif
                    store_lanes(acc[r][c], to, lanes);
                }
        }
    }
}
