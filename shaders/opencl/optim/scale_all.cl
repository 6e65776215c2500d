// Several tensors times one factor that lies in device memory, in place. A factor of 1, as of gradients that need no clipping, costs
// nothing. With CHECK, `found` becomes 1.0 if an element was infinite or NaN before.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef FACTOR_DTYPE
#define FACTOR_DTYPE float32
#endif
#ifndef CHECK
#define CHECK 0
#endif
#include "lib/multi_tensor.h"

#ifndef SLOT_PARAMETERS
#define SLOT_PARAMETERS __global float *x0, const ulong x0_offset, const uint size0, const uint start0
#define FIND_SLOT \
    __global float *x = x0 + x0_offset; \
    const uint size = size0, start = start0;
#endif

#if CHECK
#define MORE , volatile __global uint *found, const ulong found_offset
// What times 0 is not 0 is infinite or NaN. Sums of such products keep that.
#define LOOK(sum, value) sum += (value) * 0;
#else
#define MORE
#define LOOK(sum, value)
#endif

__kernel void optim_scale_all(SLOT_PARAMETERS, __global const STORAGE(FACTOR_DTYPE) *factor, const ulong factor_offset MORE) {
    const REAL by = LOAD(FACTOR_DTYPE, factor, factor_offset);
    if (by == 1 && !CHECK) return;
    const uint chunk = get_group_id(0);
    FIND_SLOT
    CHUNK_BOUNDS
    V zeros = (V)(0);
    REAL zero = 0;
    CHUNK_VECTORS {
        const V value = READ(DTYPE, x, i);
        LOOK(zeros, value)
        WRITE(DTYPE, value * by, x, i);
    }
    CHUNK_TAIL {
        const REAL value = LOAD(DTYPE, x, i);
        LOOK(zero, value)
        STORE(DTYPE, value * by, x, i);
    }
#if CHECK
#if WIDTH == 1
    zero += zeros;
#else
    for (uint j = 0; j < WIDTH; j++) zero += ((REAL *)&zeros)[j];
#endif
    if (!(zero == 0)) atomic_or(found + found_offset, as_uint(1.0f));
#endif
}
