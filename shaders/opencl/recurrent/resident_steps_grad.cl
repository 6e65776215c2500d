// The gradients of a recurrent layer that depend on the next time step, on a GPU whose groups are all resident at the same time,
// with the weight in registers (see recurrent/resident_steps.cl). SHARES groups take ROWS sequences through all steps, from the
// last: each computes the gradients of the gates of UNITS units, receives the gradients of the other groups
// (recurrent/exchange.h), and multiplies them with its columns of the weight.
//
// The work-items of a group are SLICES rows of UNITS / 4: each row takes TERMS terms of the product, in interleaved
// fours, and each work-item four columns.

#define WIDTH 1
#ifndef ROWS
#define ROWS 2
#endif
#ifndef UNITS
#define UNITS 32
#endif
#ifndef SLICES
#define SLICES 64
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
#define QUADS (UNITS / 4)
#define GROUP (QUADS * SLICES)
// Gates of the layer, at most.
#define PADDED (SLICES * TERMS)
#define SUMS (ROWS * UNITS)
// Rows of work-items that add up the slices.
#define ADDERS (GROUP / SUMS)

typedef struct {
    long STEPS_GRAD_STRIDES, weight_row;
    uint STEPS_LENGTHS, shares;
} ResidentGradGeometry;

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void recurrent_resident_steps_grad(
    STEPS_GRAD_PARAMETERS __global const float *weight, const ulong weight_offset, __global volatile ulong *exchange,
    const ResidentGradGeometry geometry) {
    __local float products[ROWS * PADDED] __attribute__((aligned(16)));
    __local float sums[SLICES * SUMS] __attribute__((aligned(16))), totals[ADDERS * SUMS];
    const uint size = geometry.size, batch = geometry.batch, steps = geometry.steps, width = GATE_COUNT * size;
    const uint me = get_local_id(0), quad = me % QUADS, slice = me / QUADS;
    const uint share = get_group_id(0) % geometry.shares, first_row = get_group_id(0) / geometry.shares * ROWS;
    const uint rows = min((uint)ROWS, batch - first_row);

    // The part of the weight that this work-item multiplies, zero past the end of the layer.
    float w[TERMS][4];
#pragma unroll
    for (uint i = 0; i < TERMS; i++)
#pragma unroll
        for (uint c = 0; c < 4; c++) {
            const uint n = (i / 4 * SLICES + slice) * 4 + i % 4, column = share * UNITS + quad * 4 + c;
            w[i][c] = n < width && column < size ? weight[weight_offset + n * geometry.weight_row + column] : 0;
        }

    // The cell whose gradients this work-item computes, if any: row r, unit u.
    const uint r = me / UNITS, lane = me % UNITS, u = share * UNITS + lane;
    const bool has_cell = r < rows && u < size;
    const ulong row = first_row + r;
    grad += grad_offset + row * geometry.grad_row + u;
    gates += gates_offset + row * geometry.gates_row + u;
    first += first_offset + row * geometry.first_row + u;
    states += states_offset + row * geometry.states_row + u;
    d_gates += d_gates_offset + row * width + u;
#if CELL == LSTM
    grad_states += grad_states_offset + row * geometry.grad_states_row + u;
#else
    fed_back += fed_back_offset + row * geometry.fed_back_row + u;
    d_fed_back += d_fed_back_offset + row * width + u;
#endif
    // The operands of a step are prefetched during the step before.
    float next[GATE_COUNT], next_grad = 0, before = 0, d_before = 0, d_cell = 0;
#if CELL == LSTM
    float after = 0, next_cell = 0;
#define LOAD_CELL(t) next_cell = grad_states[(t) * geometry.grad_states_step];
#else
    float next_h[GATE_COUNT];
#define LOAD_CELL(t) \
    _Pragma("unroll") for (uint g = 0; g < GATE_COUNT; g++) next_h[g] = fed_back[(t) * geometry.fed_back_step + g * size];
#endif
#define LOAD_STEP(number)                                                                                              \
    {                                                                                                                  \
        const uint t = geometry.reverse ? (number) : steps - 1 - (number);                                             \
        _Pragma("unroll") for (uint g = 0; g < GATE_COUNT; g++) next[g] = gates[t * geometry.gates_step + g * size];   \
        next_grad = grad[t * geometry.grad_step];                                                                      \
        before = (number) + 1 == steps ? *first                                                                        \
                                       : states[((long)t + (geometry.reverse ? 1 : -1)) * geometry.states_step];       \
        LOAD_CELL(t)                                                                                                   \
    }
    if (has_cell) {
        LOAD_STEP(0)
#if CELL == LSTM
        after = states[(geometry.reverse ? 0 : steps - 1) * geometry.states_step];
#endif
    }
    for (uint s = 0; s < steps; s++) {
        const uint t = geometry.reverse ? s : steps - 1 - s;
        __global volatile ulong *place = exchange + ((ulong)(s % 2) * batch + first_row) * width;
        if (has_cell) {
            float slopes[GATE_COUNT];
#if CELL == LSTM
            d_cell += next_cell;
            cell_grad(next, before, after, next_grad + d_before, &d_cell, slopes);
            after = before;
#define SENT slopes
#else
            float d_h[GATE_COUNT];
            cell_grad(next, next_h, before, next_grad + d_before, &d_cell, slopes, d_h);
#define SENT d_h
#pragma unroll
            for (uint g = 0; g < GATE_COUNT; g++) d_fed_back[(ulong)t * batch * width + g * size] = d_h[g];
#endif
#pragma unroll
            for (uint g = 0; g < GATE_COUNT; g++) publish(place + r * width + g * size + u, s + 1, SENT[g]);
            if (s + 1 < steps) LOAD_STEP(s + 1)
#pragma unroll
            for (uint g = 0; g < GATE_COUNT; g++) d_gates[(ulong)t * batch * width + g * size] = slopes[g];
        }
        GATHER(place, products, ROWS * PADDED, s + 1, rows, width, PADDED)
        barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
        for (uint i = 0; i < ROWS; i++) {
            float4 acc = 0;
#pragma unroll
            for (uint j = 0; j < TERMS; j += 4) {
                const float4 d = *(__local const float4 *)(products + i * PADDED + (j / 4 * SLICES + slice) * 4);
                acc += d.x * (float4)(w[j][0], w[j][1], w[j][2], w[j][3]);
                acc += d.y * (float4)(w[j + 1][0], w[j + 1][1], w[j + 1][2], w[j + 1][3]);
                acc += d.z * (float4)(w[j + 2][0], w[j + 2][1], w[j + 2][2], w[j + 2][3]);
                acc += d.w * (float4)(w[j + 3][0], w[j + 3][1], w[j + 3][2], w[j + 3][3]);
            }
            *(__local float4 *)(sums + slice * SUMS + i * UNITS + quad * 4) = acc;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        float total = 0;
#pragma unroll
        for (uint i = 0; i < SLICES; i += ADDERS) total += sums[(i + me / SUMS) * SUMS + me % SUMS];
        totals[me] = total;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (has_cell) {
            d_before = CELL == GRU ? d_cell : 0;
#pragma unroll
            for (uint i = 0; i < ADDERS; i++) d_before += totals[i * SUMS + me];
        }
    }
    if (has_cell) {
        d_hidden[d_hidden_offset + row * size + u] = d_before;
#if CELL == LSTM
        d_state[d_state_offset + row * size + u] = d_cell;
#endif
    }
}
