// The sum of the squares of all elements of several tensors, in two stages of fixed order: squares_of_chunks writes one
// partial sum per chunk, beginning at partial[first]; one group of total_of_chunks adds them up.

#ifndef DTYPE
#define DTYPE float32
#endif
#include "lib/multi_tensor.h"

#ifndef SLOT_PARAMETERS
#define SLOT_PARAMETERS __global const float *x0, const ulong x0_offset
#define FIND_SLOT \
    __global const float *x = x0 + x0_offset; \
    const uint size = slots.size[0], start = slots.start[0];
#endif

__kernel void squares_of_chunks(SLOT_PARAMETERS, const SlotTable slots, __global float *partial, const uint first) {
    GROUP_SCRATCH(REAL)
    const uint chunk = get_group_id(0);
    FIND_SLOT
    CHUNK_BOUNDS
    V sums = (V)(0);
    REAL sum = 0;
    CHUNK_VECTORS {
        const V value = READ(DTYPE, x, i);
        sums += value * value;
    }
    CHUNK_TAIL {
        const REAL value = LOAD(DTYPE, x, i);
        sum += value * value;
    }
#if WIDTH == 1
    sum += sums;
#else
    for (uint j = 0; j < WIDTH; j++) sum += ((REAL *)&sums)[j];
#endif
    GROUP_SUM(sum)
    if (LANE_ID == 0) partial[first + chunk] = (float)sum;
}

__kernel void total_of_chunks(__global const float *partial, __global float *out, const ulong out_offset, const uint chunks) {
    GROUP_SCRATCH(REAL)
    REAL sum = 0;
    for (uint i = LANE_ID; i < chunks; i += GROUP) sum += partial[i];
    GROUP_SUM(sum)
    if (LANE_ID == 0) out[out_offset] = (float)sum;
}
