// A recurrent layer over all time steps on a GPU whose groups are all resident at the same time, for layers whose
// weight fits into the combined local memory of all compute units. SHARES groups take the same sequences, PARTS tiles
// of ROWS, through all steps: each has 8 units with all their gates, and multiplies them with the hidden state of all
// units, which the groups pass to each other through the second-level cache.
//
// The groups wait for each other, so a launch with more groups than the device runs at once would deadlock.
//
// `exchange` has room for two steps, (2, clusters * PARTS, TERMS, ROWS): a group stores a step after every other group
// has stored the step before, and has therefore read the one before that. `flags` counts the tiles that each group has
// stored; it begins as zeros. TERMS are the layer's units.

#define WIDTH 1
#include "lib/dtypes.h"

typedef float V;
#include "recurrent/cells.h"
#include "recurrent/arguments.h"
// Two units with all gates.
#define LANE_COLUMNS (2 * GATE_COUNT)
#define UNITS 8
#include "recurrent/resident_product.h"

typedef struct {
    long STEPS_STRIDES, weight_row;
    uint STEPS_LENGTHS, shares, parts;
} ResidentTilesGeometry;

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void recurrent_resident_tiles(
    STEPS_PARAMETERS __global const float *weight, const ulong weight_offset, __global float *exchange,
    __global volatile uint *flags, const ResidentTilesGeometry geometry) {
    __local float staged[STAGED] __attribute__((aligned(16)));
    __local float kept[TERMS * COLUMNS] __attribute__((aligned(16)));
    const uint size = geometry.size, batch = geometry.batch, steps = geometry.steps, parts = geometry.parts;
    const uint shares = geometry.shares, me = get_local_id(0), slice = SLICE_OF(me);
    const uint share = get_group_id(0) % shares, cluster = get_group_id(0) / shares;
    const uint first_unit = share * UNITS, u = first_unit + COLUMN_LANE(me) * 2, first_part = cluster * parts;
    const ulong tile = (ulong)TERMS * ROWS, other = (ulong)(get_num_groups(0) / shares) * parts * tile;
    x += x_offset + u;
    hidden += hidden_offset;
    outs += outs_offset + u;
#if CELL == LSTM
    state += state_offset + u;
    states += states_offset + u;
#endif
    exchange += first_part * tile;
    flags += cluster * shares;

    // Columns of the weight: for each pair of units, gate by gate. Neighbouring work-items read eight terms of a column.
    for (uint i = me; i < TERMS * COLUMNS; i += GROUP) {
        const uint term = i / (8 * COLUMNS) * 8 + i % 8, column = i / 8 % COLUMNS;
        const uint unit = first_unit + column / LANE_COLUMNS * 2 + column % 2, gate = column % LANE_COLUMNS / 2;
        kept[term * COLUMNS + column] = weight[weight_offset + (gate * size + unit) * geometry.weight_row + term];
    }
    for (uint part = 0; part < parts; part++)
        for (uint i = me; i < UNITS * ROWS; i += GROUP) {
            const uint unit = first_unit + i % UNITS, row = (first_part + part) * ROWS + i / UNITS;
            exchange[part * tile + unit * ROWS + i / UNITS] = row < batch ? hidden[row * geometry.hidden_row + unit] : 0;
        }
    announce(flags + share, parts);
    float add[GATE_COUNT][2];
#pragma unroll
    for (uint g = 0; g < GATE_COUNT; g++)
#pragma unroll
        for (uint k = 0; k < 2; k++) {
            add[g][k] = 0;
#if BIAS
            add[g][k] = bias[bias_offset + g * size + u + k];
#endif
        }

    for (uint s = 0; s < steps; s++) {
        const uint t = geometry.reverse ? steps - 1 - s : s;
        const long before = (long)t + (geometry.reverse ? 1 : -1);
        for (uint part = 0; part < parts; part++) {
            float from_x[SLICE_ROWS][2][GATE_COUNT], cells[SLICE_ROWS][2], totals[TOTALS];
            const uint first_row = (first_part + part) * ROWS;
#pragma unroll
            for (uint i = 0; i < SLICE_ROWS; i++) {
                const uint row = min(first_row + ROW_OF(me, slice * SLICE_ROWS + i), batch - 1);
#pragma unroll
                for (uint k = 0; k < 2; k++) {
#pragma unroll
                    for (uint g = 0; g < GATE_COUNT; g++)
                        from_x[i][k][g] = x[t * geometry.x_step + row * geometry.x_row + g * size + k];
                    // For rows that are not padding, the work-item that reads a state wrote it.
#if CELL == LSTM
                    cells[i][k] = s == 0 ? state[row * geometry.state_row + k] : states[(before * batch + row) * size + k];
#else
                    cells[i][k] = s == 0 ? hidden[row * geometry.hidden_row + u + k] : outs[(before * batch + row) * size + k];
#endif
                }
            }
            await(flags, shares, s * parts + part + 1);
            __global const float *from = exchange + s % 2 * other + part * tile;
            resident_product(staged, kept, from, share, totals);
            float values[SLICE_ROWS][2];
#pragma unroll
            for (uint i = 0; i < SLICE_ROWS; i++)
#pragma unroll
                for (uint k = 0; k < 2; k++) {
                    float acc[GATE_COUNT];
#pragma unroll
                    for (uint g = 0; g < GATE_COUNT; g++) acc[g] = add[g][k] + totals[i * LANE_COLUMNS + g * 2 + k];
                    values[i][k] = cell_step(from_x[i][k], acc, &cells[i][k]);
                    exchange[(s + 1) % 2 * other + part * tile + (u + k) * ROWS + ROW_OF(me, slice * SLICE_ROWS + i)] =
                        values[i][k];
                }
            announce(flags + share, (s + 1) * parts + part + 1);
#pragma unroll
            for (uint i = 0; i < SLICE_ROWS; i++) {
                const uint row = first_row + ROW_OF(me, slice * SLICE_ROWS + i);
                if (row >= batch) continue;
                const ulong at = ((ulong)t * batch + row) * size;
#if KEEP_GATES
#pragma unroll
                for (uint g = 0; g < GATE_COUNT; g++)
#pragma unroll
                    for (uint k = 0; k < 2; k++)
                        kept_gates[kept_gates_offset + at * GATE_COUNT + g * size + u + k] =
                            from_x[i][k][g] + add[g][k] + totals[i * LANE_COLUMNS + g * 2 + k];
#endif
#pragma unroll
                for (uint k = 0; k < 2; k++) {
                    outs[at + k] = values[i][k];
#if CELL == LSTM
                    states[at + k] = cells[i][k];
#endif
                }
            }
        }
    }
}
