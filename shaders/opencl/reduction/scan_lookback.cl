// Prefix sums, products or extrema of long rows in one pass (decoupled look-back: Merrill and Garland, 2016). A row is cut into
// `tiles`, and each is scanned by one group, which computes the total of all earlier tiles from totals that other groups publish.
// So x is read once, and the groups wait for each other: every group that was started must make progress. A group takes the
// number of its tile from a counter, and waits for tiles with smaller numbers only, which were started before.
//
// Results are equal in every run, whatever the order of the groups. Totals of tiles are combined in blocks of WARP tiles, in a
// fixed order, and totals of blocks one after another as in reduction/running.h. Each group first publishes the total of its tile.
// The last group of a block then publishes the total of the block, and later the total of all blocks up to this one.
//
// `state` holds the counter, then the values of all tiles, then the values of all blocks (see reduction/published.h), initially zeros.
//
// Rows, strides and vectors as in lib/rows.h, but out has elements of OUT_DTYPE. A work-item has VECTORS vectors of its tile, at
// distances of GROUP. The length of a row is a multiple of WIDTH.

#ifndef DTYPE
#define DTYPE float32
#define OUT_DTYPE float32
#define ACCUMULATOR float
#define MAP(v) (v)
#define OPERATION sum
#define IDENTITY 0
#endif
#ifndef REAL
#define REAL ACCUMULATOR
#endif
#ifndef WIDTH
#define WIDTH 4
#endif
#ifndef GROUP
#define GROUP 512
#endif
#ifndef VECTORS
#define VECTORS 4
#endif
#include "lib/rows.h"
#include "lib/combine.h"
#include "lib/warp.h"
#include "reduction/running.h"
#include "reduction/scanned.h"
#include "reduction/published.h"

// Vectors of the same number of all work-items of a warp form a strip, whose total is combined first.
#define WARPS (GROUP / WARP)
#define STRIPS (WARPS * VECTORS)
#define STRIPS_EACH ((STRIPS + WARP - 1) / WARP)
#define TILE (GROUP * VECTORS)
#define BLOCK_WORDS ((1 + COMPENSATED) * WORDS)
#define TOTAL_STATE 1
#define PREFIX_STATE 2

typedef struct {
    STRIDE_MEMBERS(x);
    STRIDE_MEMBERS(out);
    ROW_MEMBERS;
    uint tiles, blocks;
} LookbackGeometry;
// Publishes the total of a block (with `near` the identity), or the total of all blocks up to one.
static inline void publish_block(Published place, uint state, A carry, A near) {
    publish(place, state, carry);
#if COMPENSATED
    publish(place + WORDS, state, near);
#endif
}

static inline uint receive_block(Published place, A *carry, A *near) {
    const uint state = receive(place, carry);
#if COMPENSATED
    return receive(place + WORDS, near) == state ? state : 0;
#else
    *near = IDENTITY;
    return state;
#endif
}

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void reduction_scan_lookback(
    OPERAND(x), OUTPUT(out), __global ulong *state, const LookbackGeometry geometry) {
    __local A strips[STRIPS_EACH * WARP];
    __local A earlier[2];
    __local uint ticket;
    SCRATCH
    DECLARE_ROWS;
    DECLARE_STRIDES(x);
    DECLARE_STRIDES(out);
    const uint me = get_local_id(0), lane = me % WARP, warp = me / WARP;
    const uint tiles = geometry.tiles, blocks = geometry.blocks;
    if (me == 0) ticket = atomic_inc((__global volatile uint *)state);
    if (me < STRIPS_EACH * WARP) strips[me] = IDENTITY;
    barrier(CLK_LOCAL_MEM_FENCE);
    const ulong row = ticket / tiles;
    const uint tile = ticket - (uint)row * tiles, block = tile / WARP, number = tile % WARP;
    const uint vectors = length / WIDTH, first = tile * TILE + me;
    const long x_at = ROW_OF(x, row), out_at = ROW_OF(out, row);
    const Published tile_values = state + 1 + (ulong)(row * tiles + tile - number) * WORDS;
    const Published block_values = state + 1 + (ulong)(rows * tiles) * WORDS + (ulong)(row * blocks + block) * BLOCK_WORDS;

    VA values[VECTORS];
    A before[VECTORS];
    _Pragma("unroll") for (uint v = 0; v < VECTORS; v++) {
        const uint i = first + v * GROUP;
        values[v] = (VA)(IDENTITY);
        if (i < vectors) values[v] = mapped(READ(x, x_at, i));
    }
    _Pragma("unroll") for (uint v = 0; v < VECTORS; v++) {
        values[v] = scanned(values[v]);
        A total = LAST(values[v]);
        WARP_SCAN(total, before[v])
        if (lane == WARP - 1) strips[v * WARPS + warp] = total;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#if EXCHANGE == 2
    if (warp == 0) {
        // The total of the tile, and prefixes of its strips.
        A mine[STRIPS_EACH], total = strips[lane * STRIPS_EACH], prefix;
        _Pragma("unroll") for (uint s = 0; s < STRIPS_EACH; s++) {
            mine[s] = s > 0 ? total : (A)IDENTITY;
            if (s > 0) total = COMBINE_SCALARS(total, strips[lane * STRIPS_EACH + s]);
        }
        WARP_SCAN(total, prefix)
        _Pragma("unroll") for (uint s = 0; s < STRIPS_EACH; s++) {
            strips[lane * STRIPS_EACH + s] = COMBINE_SCALARS(prefix, mine[s]);
        }
        total = from_lane(total, WARP - 1);
        if (lane == 0 && number < WARP - 1) publish(tile_values + number * WORDS, TOTAL_STATE, total);

        // The total of earlier tiles of the block.
        A other = IDENTITY;
        bool waiting = lane < number;
        while (lanes_with(waiting)) {
            if (waiting) waiting = receive(tile_values + lane * WORDS, &other) == 0;
        }
        if (lane == number) other = total;
        WARP_SCAN(other, prefix)
        const A block_total = from_lane(other, WARP - 1);
        A near = from_lane(prefix, number), carry = IDENTITY, rest = IDENTITY;
        if (lane == 0 && number == WARP - 1) publish_block(block_values, TOTAL_STATE, block_total, IDENTITY);

        // The total of earlier blocks: the last one that is known up to a block, and the totals of the blocks after it.
        if (block > 0) {
            A block_carry = IDENTITY, block_near = IDENTITY;
            const uint back = min(lane + 1, block);
            uint found, ready, known;
            do {
                found = receive_block(block_values - back * BLOCK_WORDS, &block_carry, &block_near);
                known = lanes_with(found == PREFIX_STATE);
                ready = lanes_with(found != 0);
                known &= ~known + 1;  // the nearest one
            } while (known == 0 || (~ready & (known - 1)) != 0);
            uint from = 31 - clz(known);
            carry = from_lane(block_carry, from);
            rest = from_lane(block_near, from);
            while (from > 0) {
                from--;
                const A next = from_lane(block_carry, from);
                rest = COMBINE_SCALARS(rest, next);
                FOLD_SCALARS(carry, rest)
            }
        }
        if (lane == 0) {
            earlier[0] = carry;
            earlier[1] = COMBINE_SCALARS(rest, near);
            if (number == WARP - 1) {
                rest = COMBINE_SCALARS(rest, block_total);
                FOLD_SCALARS(carry, rest)
                publish_block(block_values, PREFIX_STATE, carry, rest);
            }
        }
    }
#else
    if (me == 0) {
        A total = IDENTITY, near = IDENTITY, carry = IDENTITY, rest = IDENTITY;
        for (uint s = 0; s < STRIPS; s++) {
            const A strip = strips[s];
            strips[s] = total;
            total = COMBINE_SCALARS(total, strip);
        }
        publish(tile_values + number * WORDS, TOTAL_STATE, total);
        for (uint t = 0; t < number; t++) {
            A other;
            while (receive(tile_values + t * WORDS, &other) == 0) {}
            near = COMBINE_SCALARS(near, other);
        }
        if (block > 0) {
            while (receive_block(block_values - BLOCK_WORDS, &carry, &rest) != PREFIX_STATE) {}
        }
        earlier[0] = carry;
        earlier[1] = COMBINE_SCALARS(rest, near);
        if (number == WARP - 1) {
            near = COMBINE_SCALARS(near, total);
            rest = COMBINE_SCALARS(rest, near);
            FOLD_SCALARS(carry, rest)
            publish_block(block_values, PREFIX_STATE, carry, rest);
        }
    }
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
    const A carry = earlier[0], near = earlier[1];
    _Pragma("unroll") for (uint v = 0; v < VECTORS; v++) {
        const uint i = first + v * GROUP;
        const A strip = strips[v * WARPS + warp];
        const A in_strip = COMBINE_SCALARS(strip, before[v]);
        const A in_tile = COMBINE_SCALARS(near, in_strip);
        const VA prefix = COMBINE_VECTORS((VA)(in_tile), values[v]);
        if (i < vectors) WRITE_OUT(COMBINE_VECTORS((VA)(carry), prefix), out_at, i);
    }
}
