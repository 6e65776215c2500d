// Several tensors times one factor that lies in device memory, in place.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef FACTOR_DTYPE
#define FACTOR_DTYPE float32
#endif
#include "slots.h"

#ifndef SLOT_PARAMETERS
#define SLOT_PARAMETERS __global float *x0, const ulong x0_offset, const uint size0, const uint start0
#define FIND_SLOT \
    __global float *x = x0 + x0_offset; \
    const uint size = size0, start = start0;
#endif

__kernel void scale_all(SLOT_PARAMETERS, __global const STORAGE(FACTOR_DTYPE) *factor, const ulong factor_offset) {
    const uint chunk = get_group_id(0);
    FIND_SLOT
    CHUNK_BOUNDS
    const REAL by = LOAD(FACTOR_DTYPE, factor, factor_offset);
    CHUNK_VECTORS WRITE(DTYPE, READ(DTYPE, x, i) * by, x, i);
    CHUNK_TAIL STORE(DTYPE, LOAD(DTYPE, x, i) * by, x, i);
}
