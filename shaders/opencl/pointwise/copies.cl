// Several contiguous tensors copied in device memory, as bits.

#ifndef DTYPE
#define DTYPE uint32
#endif
#ifndef REAL
#define REAL uint
#endif
#include "lib/multi_tensor.h"

#ifndef SLOT_PARAMETERS
#define SLOT_PARAMETERS \
    __global const STORAGE(DTYPE) *x0, const ulong x0_offset, __global STORAGE(DTYPE) *out0, const ulong out0_offset
#define FIND_SLOT                                                                                                       \
    __global const STORAGE(DTYPE) *x = x0 + x0_offset;                                                                  \
    __global STORAGE(DTYPE) *out = out0 + out0_offset;                                                                  \
    const uint size = slots.size[0], start = slots.start[0];
#endif

__kernel void pointwise_copies(SLOT_PARAMETERS, const SlotTable slots) {
    const uint chunk = get_group_id(0);
    FIND_SLOT
    CHUNK_BOUNDS
    CHUNK_VECTORS {
        const V value = READ(DTYPE, x, i);
        WRITE(DTYPE, value, out, i);
    }
    CHUNK_TAIL STORE(DTYPE, LOAD(DTYPE, x, i), out, i);
}
