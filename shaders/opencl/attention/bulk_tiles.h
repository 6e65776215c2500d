// Tiles of attention whose operands Hopper's copy engine copies. A group has WARPS / 4 warpgroups that multiply, 64 rows each,
// and one more that copies and continues with the group's next tile while the others store results. In the portable
// fallback, which lacks the last warpgroup, all work-items copy.
//
// A launch has at most as many groups as run at the same time. Includers define WARPS and STAGES, and have the parameters
// `tiles`, `section`, `head_count` and `geometry` of attention/geometry.h.

#ifndef POLYHAL_ATTENTION_BULK_TILES
#define POLYHAL_ATTENTION_BULK_TILES

#include "attention/mma_tile.h"
#include "lib/bulk_copy.h"

#define WARPGROUPS (WARPS / 4)
#define ITEMS (GROUP + TENSOR_CORES * WARPGROUP)
#define NEXT(stage, parity)     \
    if (++stage == STAGES) {    \
        stage = 0, parity ^= 1; \
    }

// A tile is a block of rows of one head. Tiles of `section` heads follow one another, so that their operands stay in the
// second-level cache: the first blocks of these heads, then the second ones. Every second round of tiles is in reverse order,
// which balances the groups if the first blocks have more work. In the loop over rounds, GET_HEAD comes first.
#define FOR_TILES for (uint round = 0; round * get_num_groups(0) < tiles; round++)
#define GET_HEAD(length)                                                                                     \
    const uint number =                                                                                      \
        round * get_num_groups(0) + (round % 2 ? get_num_groups(0) - 1 - get_group_id(0) : get_group_id(0)); \
    if (number >= tiles) continue;                                                                           \
    const uint blocks_of_head = ((length) + ROWS - 1) / ROWS;                                                \
    const uint first_head = number / (section * blocks_of_head) * section;                                   \
    const uint in_section = number - first_head * blocks_of_head;                                            \
    const uint heads = min(section, head_count - first_head);                                                \
    const uint head = first_head + in_section % heads;                                                       \
    const uint block_of_head = in_section / heads;                                                           \
    HEAD_INDICES(head)

#if TENSOR_CORES
// One work-item of a warpgroup arrives, without a branch.
#define ARRIVE(b)                                                                                             \
    asm volatile("{ .reg .pred p; setp.eq.u32 p, %1, 0; @p mbarrier.arrive.shared::cta.b64 _, [%0]; }" ::"r"( \
                     LOCAL_ADDRESS(b)),                                                                       \
                 "r"(get_local_id(0) % WARPGROUP)                                                             \
                 : "memory")
// Registers move from the warpgroup that copies to the ones that multiply.
#if WARPGROUPS == 3
#define GIVE_REGISTERS() asm volatile(SM_90A "setmaxnreg.dec.sync.aligned.u32 32;")
#define TAKE_REGISTERS() asm volatile(SM_90A "setmaxnreg.inc.sync.aligned.u32 160;")
#elif WARPGROUPS == 2
#define GIVE_REGISTERS() asm volatile(SM_90A "setmaxnreg.dec.sync.aligned.u32 24;")
#define TAKE_REGISTERS() asm volatile(SM_90A "setmaxnreg.inc.sync.aligned.u32 240;")
#else
#define GIVE_REGISTERS()
#define TAKE_REGISTERS()
#endif
// Keeps the compiler from computing addresses before the loop, which needs registers.
#define OPAQUE(number) asm volatile("" : "+r"(number))

// The map of an operand: features, rows, and the three merged batch axes, without the axes along which it is broadcast.
#define MAP_AXIS(map, axis, box, length)                        \
    MAP_FIELD("box_dim", "b32", "r", map, axis, box);           \
    MAP_FIELD("global_dim", "b32", "r", map, axis, length);     \
    MAP_FIELD("element_stride", "b32", "r", map, axis, 1)
#define MAP_BATCH_AXIS(map, axis, stride_axis, length, step, row)   \
    MAP_AXIS(map, axis, 1, (step) ? (length) : 1);                  \
    MAP_FIELD("global_stride", "b64", "l", map, stride_axis, (step) ? (ulong)(step) * 2 : (ulong)(row) * 2)
#define BUILD_MAP(to, name, features, rows, box_rows)                                                         \
    {                                                                                                         \
        const uint map_ = LOCAL_ADDRESS(to);                                                                  \
        MAP_FIELD("global_address", "b64", "l", map_, "", (ulong)(size_t)(name + name##_offset));             \
        MAP_FIELD("rank", "b32", "r", map_, "", 4);                                                           \
        MAP_AXIS(map_, "0, ", LINE, features);                                                                \
        MAP_AXIS(map_, "1, ", box_rows, rows);                                                                \
        MAP_FIELD("global_stride", "b64", "l", map_, "0, ", (ulong)geometry.name##_row * 2);                  \
        MAP_BATCH_AXIS(map_, "2, ", "1, ", geometry.batch2, geometry.name##_batch2, geometry.name##_row);     \
        MAP_BATCH_AXIS(map_, "3, ", "2, ", geometry.batch1, geometry.name##_batch1, geometry.name##_row);     \
        MAP_BATCH_AXIS(map_, "4, ", "3, ", head_count / geometry.batch2 / geometry.batch1,                    \
                       geometry.name##_batch0, geometry.name##_row);                                          \
        MAP_CONSTANT("elemtype", map_, "1");                                                                  \
        MAP_CONSTANT("interleave_layout", map_, "0");                                                         \
        MAP_CONSTANT("swizzle_mode", map_, "3");                                                              \
        MAP_CONSTANT("fill_mode", map_, "0");                                                                 \
    }
// Start the copies of `count` rows of operand `name` of the tile's head, which are counted at barrier `b`.
#define COPY_ROWS(to, name, features, first, count, b)                                                              \
    UNROLL for (uint p_ = 0; p_ < PITCH(features) / LINE_WORDS; p_++)                                               \
        copy_panel((to) + p_ * (count) * LINE_WORDS, map_##name, p_ * LINE, first, geometry.name##_batch2 ? i2 : 0, \
                   geometry.name##_batch1 ? i1 : 0, geometry.name##_batch0 ? i0 : 0, b)
static inline void copy_panel(__local uint *to, __global const ulong *map, uint feature, uint row, uint i2, uint i1, uint i0,
                              __local ulong *b) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], "
        "[%2];" ::"r"(LOCAL_ADDRESS(to)),
        "l"((ulong)(size_t)map), "r"(LOCAL_ADDRESS(b)), "r"(feature), "r"(row), "r"(i2), "r"(i1), "r"(i0)
        : "memory");
}
#else
#define ARRIVE(b)
#define OPAQUE(number)
#endif

#endif
