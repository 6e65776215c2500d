// Prefix sums, products or extrema of one very long row with elements of 32 bits, by groups that stay. A group takes the number of
// one tile after another from a counter, copies tiles to local memory two ahead of the one that it scans, and publishes totals one
// ahead. So totals of earlier tiles are mostly known when a tile is scanned, and memory is read and written without pauses.
//
// A group waits only for tiles with smaller numbers. Their groups have started, and publish a total before they wait for any tile
// after it: so no number of groups has to be resident, but each that has started must make progress.
//
// Results are equal in every run: totals of BLOCK_TILES tiles are combined in a fixed order, and blocks one after another as in
// reduction/running.h. `state` holds the counter, then the totals of all tiles (see reduction/published.h), initially zeros.

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
#ifndef GROUP
#define GROUP 512
#endif
// Vectors of a work-item: 2, 4 or 8.
#ifndef VECTORS
#define VECTORS 8
#endif
#define WIDTH 4
#define ALIGNED 1
#include "lib/async_copy.h"
#include "lib/combine.h"
#include "lib/rows.h"
#include "lib/warp.h"
#include "reduction/running.h"
#include "reduction/scanned.h"
#include "reduction/published.h"

#define WARPS (GROUP / WARP)
#define TILE (GROUP * VECTORS)
// Tiles in local memory: the one that is scanned, the one after it, and the one that arrives.
#define TILES 3
#define BLOCK_TILES 128
#define BLOCK_WARPS (BLOCK_TILES / WARP)
// Place of vector `v` of work-item `t`, such that eight neighbours read different banks.
#define PLACE(t, v) ((t) * VECTORS + ((v) ^ ((t) * VECTORS / 8 % VECTORS)))
typedef VEC(STORAGE(DTYPE)) Loaded;
typedef VEC(STORAGE(OUT_DTYPE)) Stored;

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void reduction_scan_ahead(
    OPERAND(x), OUTPUT(out), __global ulong *state, const ulong length, const uint tiles) {
    __local uint4 staged[TILES][TILE];
    __local A strips[WARPS];
    __local A totals[WARPS];
    __local uint ticket[TILES];
    SCRATCH
    const uint me = get_local_id(0), lane = me % WARP, warp = me / WARP;
    const Published values = state + 1;
    x += x_offset;
    out += out_offset;

#define COPY_TILE(number, to)                                                                                        \
    _Pragma("unroll") for (uint i = 0; i < VECTORS; i++) {                                                           \
        const uint v = me + i * GROUP;                                                                               \
        const ulong at = ((ulong)(number) * TILE + v) * WIDTH;                                                       \
        COPY16((__local uint *)&staged[to][PLACE(v / VECTORS, v % VECTORS)], x + (at < length ? at : 0), at < length); \
    }                                                                                                                \
    COPIES_COMMIT();
#define VALUES_OF(from, v) scanned(mapped(*(__local const Loaded *)&staged[from][PLACE(me, v)]))
// Publishes the total of a tile, and sets `prefix` to the total of earlier work-items.
#define PUBLISH_TILE(number, from, prefix)                                             \
    {                                                                                  \
        A total = IDENTITY, in_warp, all = IDENTITY;                                   \
        _Pragma("unroll") for (uint v = 0; v < VECTORS; v++) {                         \
            const VA value = VALUES_OF(from, v);                                       \
            total = COMBINE_SCALARS(total, LAST(value));                               \
        }                                                                              \
        WARP_SCAN(total, in_warp)                                                      \
        if (lane == WARP - 1) strips[warp] = total;                                    \
        barrier(CLK_LOCAL_MEM_FENCE);                                                  \
        prefix = IDENTITY;                                                             \
        for (uint w = 0; w < WARPS; w++) {                                             \
            if (w == warp) prefix = all;                                               \
            all = COMBINE_SCALARS(all, strips[w]);                                     \
        }                                                                              \
        prefix = COMBINE_SCALARS(prefix, in_warp);                                     \
        if (me == 0 && (number) < tiles) publish(values + (number) * WORDS, 1, all);   \
    }

    if (me == 0)
        for (uint t = 0; t < TILES; t++) ticket[t] = atomic_inc((__global volatile uint *)state);
    barrier(CLK_LOCAL_MEM_FENCE);
    uint now = ticket[0], next = ticket[1], last = ticket[2], slot = 0, block = 0;
    COPY_TILE(now, 0)
    COPY_TILE(next, 1)
    COPIES_WAIT(1);
    barrier(CLK_LOCAL_MEM_FENCE);
    A before, before_next, carry = IDENTITY, rest = IDENTITY;
    PUBLISH_TILE(now, 0, before)
    while (now < tiles) {
        const uint after = slot == TILES - 1 ? 0 : slot + 1, free = slot == 0 ? TILES - 1 : slot - 1;
        COPY_TILE(last, free)
        uint taken = 0;
        if (me == 0) taken = atomic_inc((__global volatile uint *)state);
        COPIES_WAIT(1);
        barrier(CLK_LOCAL_MEM_FENCE);
        PUBLISH_TILE(next, after, before_next)

        // The totals of blocks up to the one of this tile, several at a time.
        A near = IDENTITY;
        for (bool found = false; !found;) {
            const uint tile = block * BLOCK_TILES + me;
            A value = IDENTITY, unused;
            if (tile < now) {
                while (receive(values + tile * WORDS, &value) == 0) {}
            }
            WARP_SCAN(value, unused)
            if (lane == WARP - 1) totals[warp] = value;
            barrier(CLK_LOCAL_MEM_FENCE);
            for (uint b = 0; b < WARPS / BLOCK_WARPS && !found; b++) {
                A total = totals[b * BLOCK_WARPS];
                for (uint w = 1; w < BLOCK_WARPS; w++) total = COMBINE_SCALARS(total, totals[b * BLOCK_WARPS + w]);
                if (block == now / BLOCK_TILES) {
                    near = total;
                    found = true;
                } else {
                    rest = COMBINE_SCALARS(rest, total);
                    FOLD_SCALARS(carry, rest)
                    block++;
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }

        A prefix = COMBINE_SCALARS(rest, near);
        prefix = COMBINE_SCALARS(prefix, before);
#pragma unroll
        for (uint v = 0; v < VECTORS; v++) {
            const VA value = VALUES_OF(slot, v);
            const VA sum = COMBINE_VECTORS((VA)(prefix), value);
            prefix = LAST(sum);
            *(__local Stored *)&staged[slot][PLACE(me, v)] = COMBINE_VECTORS((VA)(carry), sum);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
        for (uint i = 0; i < VECTORS; i++) {
            const uint v = me + i * GROUP;
            const ulong at = ((ulong)now * TILE + v) * WIDTH;
            if (at < length) *(__global Stored *)(out + at) = *(__local const Stored *)&staged[slot][PLACE(v / VECTORS, v % VECTORS)];
        }
        if (me == 0) ticket[0] = taken;
        barrier(CLK_LOCAL_MEM_FENCE);
        now = next;
        next = last;
        last = ticket[0];
        before = before_next;
        slot = after;
    }
}
