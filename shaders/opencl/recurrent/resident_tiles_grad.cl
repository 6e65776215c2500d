// The gradients of a recurrent layer that depend on the next time step, on a GPU whose groups are all resident at the same time
// (see recurrent/resident_tiles.cl). Each group multiplies the gradients of one gate with 32 columns of the weight. The groups of
// the same columns, one per gate, then share the cells of these units: each adds up the products for some of them, computes the
// gradients of their gates, and passes those to all groups.
//
// `exchange` has room for the gradients of two steps, (2, clusters * PARTS, gates, TERMS, ROWS), followed by the
// products of one step, (clusters * PARTS, columns / 32, gates, 32, ROWS). `flags` has two counts for each group: of
// the tiles of gradients and of the tiles of products that it has stored.

#define WIDTH 1
#include "lib/dtypes.h"

typedef float V;
#include "recurrent/cells.h"
#include "recurrent/arguments.h"
#define LANE_COLUMNS 8
#include "recurrent/resident_product.h"
// Cells of a work-item, at most.
#define CELLS ((COLUMNS * ROWS + GROUP * GATE_COUNT - 1) / (GROUP * GATE_COUNT))

typedef struct {
    long STEPS_GRAD_STRIDES, weight_row;
    uint STEPS_LENGTHS, shares, parts;
} ResidentTilesGradGeometry;

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void recurrent_resident_tiles_grad(
    STEPS_GRAD_PARAMETERS __global const float *weight, const ulong weight_offset, __global float *exchange,
    __global volatile uint *flags, const ResidentTilesGradGeometry geometry) {
    __local float staged[STAGED] __attribute__((aligned(16)));
    __local float kept[TERMS * COLUMNS] __attribute__((aligned(16)));
    const uint size = geometry.size, batch = geometry.batch, steps = geometry.steps, parts = geometry.parts;
    const uint shares = geometry.shares, me = get_local_id(0), slice = SLICE_OF(me), width = GATE_COUNT * size;
    const uint share = get_group_id(0) % shares, cluster = get_group_id(0) / shares, first_part = cluster * parts;
    const uint gate = share % GATE_COUNT, first_unit = share / GATE_COUNT * COLUMNS, clusters = get_num_groups(0) / shares;
    const ulong tile = (ulong)TERMS * ROWS, other = (ulong)clusters * parts * GATE_COUNT * tile;
    __global float *products = exchange + 2 * other + (ulong)first_part * GATE_COUNT * tile;
    exchange += first_part * GATE_COUNT * tile;
    __global volatile uint *stored = flags + cluster * shares * 2, *multiplied = stored + shares;
    ADD_STEPS_GRAD_OFFSETS
#if CELL == LSTM
// Running gradients of a cell, other than the gradient of its hidden state.
#define CARRIED d_state
#else
#define CARRIED d_hidden
#endif

    weight += weight_offset + (ulong)gate * size * geometry.weight_row + first_unit;
    for (uint i = me; i < TERMS * COLUMNS; i += GROUP) kept[i] = weight[i / COLUMNS * geometry.weight_row + i % COLUMNS];

    for (uint s = 0; s <= steps; s++) {
        const uint t = geometry.reverse ? s : steps - 1 - s;
        const long before = (long)t + (geometry.reverse ? 1 : -1);
        for (uint part = 0; part < parts; part++) {
            const uint first_row = (first_part + part) * ROWS;
            // 32 neighbouring work-items read eight units of four rows.
#define UNIT_OF(i) ((((i) * GATE_COUNT + gate) * GROUP + me) / (8 * ROWS) * 8 + me % 8)
#define CELL_ROW(i) ((((i) * GATE_COUNT + gate) * GROUP + me) / 8 % ROWS)
            float pre[CELLS][GATE_COUNT], d_out[CELLS], last[CELLS], carried[CELLS];
#if CELL == LSTM
            float after[CELLS], next[CELLS];
#else
            float pre_h[CELLS][GATE_COUNT];
#endif
            bool present[CELLS];
#pragma unroll
            for (uint i = 0; i < CELLS; i++) {
                const uint column = UNIT_OF(i), u = first_unit + column, row = first_row + CELL_ROW(i);
                present[i] = column < COLUMNS && row < batch;
                carried[i] = s == 0 || !present[i] ? 0 : CARRIED[(ulong)row * size + u];
                if (s == steps || !present[i]) continue;
#pragma unroll
                for (uint g = 0; g < GATE_COUNT; g++)
                    pre[i][g] = gates[t * geometry.gates_step + row * geometry.gates_row + g * size + u];
                d_out[i] = grad[t * geometry.grad_step + row * geometry.grad_row + u];
                last[i] = s + 1 == steps ? first[row * geometry.first_row + u]
                                         : states[before * geometry.states_step + row * geometry.states_row + u];
#if CELL == LSTM
                after[i] = states[t * geometry.states_step + row * geometry.states_row + u];
                next[i] = grad_states[t * geometry.grad_states_step + row * geometry.grad_states_row + u];
#else
#pragma unroll
                for (uint g = 0; g < GATE_COUNT; g++)
                    pre_h[i][g] = fed_back[t * geometry.fed_back_step + row * geometry.fed_back_row + g * size + u];
#endif
            }
            __global float *product = products + part * GATE_COUNT * tile + first_unit * GATE_COUNT * ROWS;
            await(multiplied + share - gate, GATE_COUNT, s == 0 ? 0 : (s - 1) * parts + part + 1);
            __global float *exchanged = exchange + s % 2 * other + part * GATE_COUNT * tile;
#pragma unroll
            for (uint i = 0; i < CELLS; i++) {
                const uint column = UNIT_OF(i), u = first_unit + column, tile_row = CELL_ROW(i), row = first_row + tile_row;
                if (column >= COLUMNS) continue;
                float d_before = 0;
                if (s > 0)
#pragma unroll
                    for (uint g = 0; g < GATE_COUNT; g++) d_before += product[(g * COLUMNS + column) * ROWS + tile_row];
#if CELL == GRU
                d_before += carried[i];
#endif
                const ulong at = (ulong)row * size + u;
                if (s == steps) {
                    if (present[i]) d_hidden[at] = d_before;
                    continue;
                }
                float slopes[GATE_COUNT];
#if CELL == LSTM
#define SENT slopes
#else
                float d_h[GATE_COUNT];
#define SENT d_h
#endif
#pragma unroll
                for (uint g = 0; g < GATE_COUNT; g++) SENT[g] = 0;
                if (present[i]) {
#if CELL == LSTM
                    carried[i] += next[i];
                    cell_grad(pre[i], last[i], after[i], d_out[i] + d_before, &carried[i], slopes);
#else
                    cell_grad(pre[i], pre_h[i], last[i], d_out[i] + d_before, &carried[i], slopes, d_h);
#endif
                    CARRIED[at] = carried[i];
#pragma unroll
                    for (uint g = 0; g < GATE_COUNT; g++) {
                        const ulong out = ((ulong)t * batch + row) * width + g * size + u;
                        d_gates[out] = slopes[g];
#if CELL == GRU
                        d_fed_back[out] = d_h[g];
#endif
                    }
                }
#pragma unroll
                for (uint g = 0; g < GATE_COUNT; g++) exchanged[g * tile + u * ROWS + tile_row] = SENT[g];
            }
            if (s == steps) continue;
            announce(stored + share, s * parts + part + 1);
            await(stored, shares, s * parts + part + 1);
            float totals[TOTALS];
            resident_product(staged, kept, exchanged + gate * tile, share, totals);
            product += gate * COLUMNS * ROWS;
#pragma unroll
            for (uint i = 0; i < TOTALS; i++) {
                const uint column = COLUMN_LANE(me) * LANE_COLUMNS + i % LANE_COLUMNS;
                product[column * ROWS + ROW_OF(me, slice * SLICE_ROWS + i / LANE_COLUMNS)] = totals[i];
            }
            announce(multiplied + share, s * parts + part + 1);
        }
    }
}
