// The gradients of a recurrent layer that depend on the next time step, on a CPU (see recurrent/cpu_steps.cl). A work-item
// takes BLOCK sequences through all steps, from the last: first the gradients of the gates, then their product with the
// weight, which is the gradient of the hidden state before.
//
// `packed` is the weight in panels of COLUMNS vectors of units: (units / COLUMNS / WIDTH, gates * size, COLUMNS, WIDTH), with
// zeros behind the last unit. The gradients of the running states are kept in the results `d_hidden` and `d_state`.

#define ALIGNED 0
#ifndef POLYNOMIAL_GATES
#define POLYNOMIAL_GATES 1
#endif
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
// Sequences of a work-item, a multiple of ROWS, and terms of a pass (see recurrent/cpu_steps.cl).
#ifndef BLOCK
#define BLOCK 12
#endif
#ifndef TERMS
#define TERMS 64
#endif
#define DTYPE float32
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "lib/prefetch.h"

typedef VEC(float) V;
#include "recurrent/cells.h"
#include "recurrent/arguments.h"
#include "recurrent/cpu_lanes.h"
#define PANEL (COLUMNS * WIDTH)
// Vectors of the next part of a panel that a tile prefetches per term.
#define AHEAD ((COLUMNS * ROWS + BLOCK - 1) / BLOCK)

typedef struct {
    long STEPS_GRAD_STRIDES;
    uint STEPS_LENGTHS;
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

__kernel NO_AUTOVEC void recurrent_cpu_steps_grad(
    STEPS_GRAD_PARAMETERS __global const float *packed, const StepsGradGeometry geometry) {
    const uint size = geometry.size, batch = geometry.batch, steps = geometry.steps;
    const uint first_row = get_global_id(0) * BLOCK;
    if (first_row >= batch) return;
    const uint rows = min((uint)BLOCK, batch - first_row), panels = (size + PANEL - 1) / PANEL;
    V partial[BLOCK * COLUMNS];
    const ulong width = (ulong)size * GATE_COUNT;
    ADD_STEPS_GRAD_OFFSETS
#if CELL == LSTM
    __global const float *d_products = d_gates;
#else
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
        for (uint p = 0; p < panels; p++) {
            // Alternate the direction, as in the forward pass.
            const uint number = s % 2 ? panels - 1 - p : p, next_number = s % 2 ? max(number, 1u) - 1 : min(number + 1, panels - 1);
            const uint j = number * PANEL, passes = (width + TERMS - 1) / TERMS, following = geometry.reverse ? t + 1 : t - 1;
            for (ulong start = 0; start < width; start += TERMS) {
                const uint terms = min((ulong)TERMS, width - start);
                __global const float *part = packed + (ulong)j * width + start * PANEL;
                __global const float *next =
                    start + TERMS < width ? part + TERMS * PANEL : packed + (ulong)next_number * PANEL * width;
                // Prefetch an equal part of the memory that the gates of the next step read and write.
                if (s + 1 < steps)
                    for (uint r = start / TERMS; r < rows; r += passes) {
                        const uint row = first_row + r, units = min((uint)PANEL, size - j);
                        const ulong out = ((ulong)following * batch + row) * width + j;
                        __global const float *gate = gates + following * geometry.gates_step + row * geometry.gates_row + j;
                        __global const float *d_out = grad + following * geometry.grad_step + row * geometry.grad_row + j;
                        for (uint k = 0; k < units; k += WIDTH) {
                            PREFETCH_L2(d_out + k);
#if CELL == LSTM
                            PREFETCH_L2(grad_states + following * geometry.grad_states_step +
                                        row * geometry.grad_states_row + j + k);
#endif
                            for (uint g = 0; g < GATE_COUNT; g++) {
                                PREFETCH_L2(gate + (ulong)g * size + k);
                                PREFETCH_L2(d_gates + out + (ulong)g * size + k);
                            }
                        }
                    }
                for (uint tile = 0; tile < BLOCK; tile += ROWS) {
                    V acc[ROWS][COLUMNS];
                    __global const float *product[ROWS];
#pragma unroll
                    for (uint r = 0; r < ROWS; r++) {
                        product[r] = d_products + ((ulong)t * batch + first_row + min(tile + r, rows - 1)) * width + start;
#pragma unroll
                        for (uint c = 0; c < COLUMNS; c++)
                            acc[r][c] = start ? partial[(tile + r) * COLUMNS + c] : (V)(0);
                    }
                    __global const float *panel = part;
                    const uint step = tile / ROWS * AHEAD < COLUMNS ? AHEAD * WIDTH : 0;
                    __global const float *ahead = next + tile / ROWS * terms * step;
                    for (uint n = 0; n < terms; n++, panel += PANEL, ahead += step) {
                        V w[COLUMNS];
#pragma unroll
                        for (uint c = 0; c < COLUMNS; c++) w[c] = LOADV(float32, panel + c * WIDTH);
#pragma unroll
                        for (uint i = 0; i < AHEAD; i++) PREFETCH_L1(ahead + i * WIDTH);
#pragma unroll
                        for (uint r = 0; r < ROWS; r++) {
                            const V d = (V)(product[r][n]);
#pragma unroll
                            for (uint c = 0; c < COLUMNS; c++) acc[r][c] += d * w[c];
                        }
                    }
#pragma unroll
                    for (uint r = 0; r < ROWS; r++)
#pragma unroll
                        for (uint c = 0; c < COLUMNS; c++) partial[(tile + r) * COLUMNS + c] = acc[r][c];
                }
            }
            for (uint r = 0; r < rows; r++)
                for (uint c = 0; c < COLUMNS && j + c * WIDTH < size; c++) {
                    const uint k = j + c * WIDTH, lanes = min((uint)WIDTH, size - k);
                    __global float *to = d_hidden + (ulong)(first_row + r) * size + k;
                    V sum = partial[r * COLUMNS + c];
#if CELL == GRU
                    sum += load_lanes(to, lanes);
#endif
                    store_lanes(sum, to, lanes);
                }
        }
    }
}
