// A recurrent layer over all time steps on a CPU. A work-item takes BLOCK sequences through all steps, ROWS at a time. In each it
// multiplies their hidden states with the weight, WIDTH units and all their gates at a time in registers, and applies
// the cell's functions to these registers: gates never reach memory. Sequences are independent, so work-items do not
// synchronize.
//
// `packed` is the weight with the gates of WIDTH units interleaved: (units / WIDTH, width, GATE_COUNT, WIDTH), with
// zeros behind the last unit.

#define ALIGNED 0
#ifndef POLYNOMIAL_GATES
#define POLYNOMIAL_GATES 1
#endif
#ifndef WIDTH
#define WIDTH 16
#endif
// Registers: ROWS * GATE_COUNT sums and GATE_COUNT of the weight.
#ifndef ROWS
#define ROWS 6
#endif
// Sequences of a work-item, a multiple of ROWS.
#ifndef BLOCK
#define BLOCK 12
#endif
// Terms of a pass: that part of a panel stays in the first-level cache for all tiles of rows.
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
// Vectors of the next part of a panel that a tile prefetches per term.
#define AHEAD ((GATE_COUNT * ROWS + BLOCK - 1) / BLOCK)
// Address of the kept gates g of a sequence, beginning with unit j of step t.
#define GATES_TO_KEEP(sequence, g) \
    (kept_gates + kept_gates_offset + ((ulong)(t * batch + (sequence)) * GATE_COUNT + (g)) * size + j)

typedef struct {
    long STEPS_STRIDES;
    uint STEPS_LENGTHS;
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

__kernel NO_AUTOVEC void recurrent_cpu_steps(
    STEPS_PARAMETERS __global const float *packed, const StepsGeometry geometry) {
    const uint size = geometry.size, batch = geometry.batch, steps = geometry.steps;
    const uint first = get_global_id(0) * BLOCK;
    if (first >= batch) return;
    x += x_offset;
    outs += outs_offset;
    hidden += hidden_offset;
#if CELL == LSTM
    state += state_offset;
    states += states_offset;
#endif
    // Rows past the last sequence repeat it.
    uint row[BLOCK];
    __global const float *before[BLOCK];
    for (uint r = 0; r < BLOCK; r++) {
        row[r] = min(first + r, batch - 1);
        before[r] = hidden + row[r] * geometry.hidden_row;
    }
    const uint panels = (size + WIDTH - 1) / WIDTH;
    V partial[BLOCK * GATE_COUNT];
    for (uint s = 0; s < steps; s++) {
        const uint t = geometry.reverse ? steps - 1 - s : s;
        const ulong slice = (ulong)t * batch * size;
        // Alternate the direction, so that the last panels of a step are still in the second-level cache for the next
        // step.
        for (uint p = 0; p < panels; p++) {
            const uint number = s % 2 ? panels - 1 - p : p, next_number = s % 2 ? max(number, 1u) - 1 : min(number + 1, panels - 1);
            const uint j = number * WIDTH, lanes = min((uint)WIDTH, size - j);
            for (uint start = 0; start < size; start += TERMS) {
                const uint terms = min((uint)TERMS, size - start);
                __global const float *part = packed + ((ulong)j * size + (ulong)start * WIDTH) * GATE_COUNT;
                __global const float *next = start + TERMS < size ? part + TERMS * GATE_COUNT * WIDTH
                                                                  : packed + (ulong)next_number * WIDTH * size * GATE_COUNT;
                for (uint tile = 0; tile < BLOCK; tile += ROWS) {
                    V acc[ROWS][GATE_COUNT];
                    __global const float *h[ROWS];
#pragma unroll
                    for (uint r = 0; r < ROWS; r++) {
                        h[r] = before[tile + r] + start;
#pragma unroll
                        for (uint g = 0; g < GATE_COUNT; g++)
                            acc[r][g] = start ? partial[(tile + r) * GATE_COUNT + g] : (V)(0);
                    }
                    if (start == 0)
#pragma unroll
                        for (uint r = 0; r < ROWS; r++)
#pragma unroll
                            for (uint g = 0; g < GATE_COUNT; g++) {
                                PREFETCH_L2(x + t * geometry.x_step + row[tile + r] * geometry.x_row + g * size + j + lanes - 1);
#if KEEP_GATES
                                PREFETCH_L2(GATES_TO_KEEP(row[tile + r], g) + lanes - 1);
#endif
                            }
                    __global const float *panel = part;
                    // Each tile prefetches a slice of the next part.
                    const uint step = tile / ROWS * AHEAD < GATE_COUNT ? AHEAD * WIDTH : 0;
                    __global const float *ahead = next + tile / ROWS * terms * step;
                    for (uint k = 0; k < terms; k++, panel += GATE_COUNT * WIDTH, ahead += step) {
                        V w[GATE_COUNT];
#pragma unroll
                        for (uint g = 0; g < GATE_COUNT; g++) w[g] = LOADV(float32, panel + g * WIDTH);
#pragma unroll
                        for (uint i = 0; i < AHEAD; i++) PREFETCH_L1(ahead + i * WIDTH);
#pragma unroll
                        for (uint r = 0; r < ROWS; r++) {
                            const V value = (V)(h[r][k]);
#pragma unroll
                            for (uint g = 0; g < GATE_COUNT; g++) acc[r][g] += value * w[g];
                        }
                    }
                    if (start + TERMS < size) {
#pragma unroll
                        for (uint r = 0; r < ROWS; r++)
#pragma unroll
                            for (uint g = 0; g < GATE_COUNT; g++) partial[(tile + r) * GATE_COUNT + g] = acc[r][g];
                        continue;
                    }
#pragma unroll
                    for (uint r = 0; r < ROWS; r++) {
                        const uint line = row[tile + r];
                        __global const float *gates = x + t * geometry.x_step + line * geometry.x_row + j;
                        V from_x[GATE_COUNT];
#pragma unroll
                        for (uint g = 0; g < GATE_COUNT; g++) {
                            from_x[g] = load_lanes(gates + (ulong)g * size, lanes);
#if BIAS
                            acc[r][g] += load_lanes(bias + bias_offset + g * size + j, lanes);
#endif
                        }
                        const ulong at = slice + (ulong)line * size + j;
#if KEEP_GATES
#pragma unroll
                        for (uint g = 0; g < GATE_COUNT; g++)
                            store_lanes(from_x[g] + acc[r][g], GATES_TO_KEEP(line, g), lanes);
#endif
#if CELL == LSTM
                        __global const float *from =
                            s == 0 ? state + line * geometry.state_row
                                   : states + (t + (geometry.reverse ? 1 : -1)) * (long)batch * size + line * size;
                        V cell = load_lanes(from + j, lanes);
                        store_lanes(cell_step(from_x, acc[r], &cell), outs + at, lanes);
                        store_lanes(cell, states + at, lanes);
#else
                        V cell = load_lanes(before[tile + r] + j, lanes);
                        store_lanes(cell_step(from_x, acc[r], &cell), outs + at, lanes);
#endif
                    }
                }
            }
        }
        for (uint r = 0; r < BLOCK; r++) before[r] = outs + slice + (ulong)row[r] * size;
    }
}
