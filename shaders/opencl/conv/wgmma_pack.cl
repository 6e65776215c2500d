// Operands of conv/wgmma.cl and conv/wgmma_weight_grad.cl: groups of matrices (channel, place) as (part, group, place,
// channel), channels filled up with zeros to `pitch`, a multiple of eight. Places are numbered (image, down, across),
// those of weights (row, down, across). Part 0 is the number rounded to HALF_TYPE,
// each further part what was left of it. A group turns TILE channels of TILE places round in local memory.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef HALF_TYPE
#define HALF_TYPE bfloat16
#endif
#ifndef PARTS
#define PARTS 1
#endif
#include "lib/dtypes.h"

#define TILE 64
#define ITEMS 256
#define WIDTH 8

#if PARTS == 1
inline ushort rounded_float16(float value) {
    ushort bits;
    vstore_half_rte(value, 0, (half *)&bits);
    return bits;
}
#define rounded_bfloat16(value) bfloat16_of_float(value)
#define SPLIT_OFF(value) CONCAT(rounded_, HALF_TYPE)(value)
#else
// The next part of what is left of a number, which it is taken off. What would be rounded to infinity is cut off
// instead, infinity has no rest, and NaN remains one.
inline ushort split_off(float *rest) {
    const uint bits = as_uint(*rest), size = bits & 0x7fffffffu;
    const uint part = (bits + (size < 0x7f7f8000u ? 0x8000u : 0)) >> 16;
    *rest = size < 0x7f800000u ? *rest - as_float(part << 16) : 0.0f;
    return (ushort)(size > 0x7f800000u ? part | 0x40u : part);
}
#define SPLIT_OFF(value) split_off(&(value))
#endif

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void conv_wgmma_pack(
    __global const STORAGE(DTYPE) *x, const ulong x_offset, __global ushort *packed, const ulong part_size,
    const uint channels, const uint places, const uint pitch, const uint down, const uint across, const long first,
    const long group_stride, const long image_stride, const long channel_stride, const long down_stride,
    const long across_stride) {
    __local float turned[TILE * (TILE + 1)];
    const uint me = get_local_id(0), group = get_group_id(2);
    const uint first_place = get_group_id(0) * TILE, first_channel = get_group_id(1) * TILE;
    x += (long)x_offset + first + group * group_stride;
    {
        const uint place = first_place + me % TILE;
        const long at = place / across / down * image_stride + place / across % down * down_stride +
                        place % across * across_stride;
#pragma unroll
        for (uint i = 0; i < TILE * TILE / ITEMS; i++) {
            const uint line = me / TILE + i * (ITEMS / TILE), channel = first_channel + line;
            turned[line * (TILE + 1) + me % TILE] =
                place < places && channel < channels ? LOAD(DTYPE, x, at + channel * channel_stride) : 0.0f;
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (uint i = 0; i < TILE * TILE / WIDTH / ITEMS; i++) {
        const uint piece = me % (TILE / WIDTH), line = me / (TILE / WIDTH) + i * (ITEMS * WIDTH / TILE);
        const uint place = first_place + line, channel = first_channel + piece * WIDTH;
        if (place >= places || channel >= pitch) continue;
        float rest[WIDTH];
#pragma unroll
        for (uint e = 0; e < WIDTH; e++) rest[e] = turned[(piece * WIDTH + e) * (TILE + 1) + line];
        __global ushort *to = packed + ((ulong)group * places + place) * pitch + channel;
#pragma unroll
        for (uint part = 0; part < PARTS; part++) {
            uint words[WIDTH / 2];
#pragma unroll
            for (uint e = 0; e < WIDTH; e++) {
                const uint bits = SPLIT_OFF(rest[e]);
                words[e / 2] = e % 2 ? words[e / 2] | bits << 16 : bits;
            }
            *(__global uint4 *)(to + part * part_size) = (uint4)(words[0], words[1], words[2], words[3]);
        }
    }
}
