// Several tensors times one factor in device memory, in place. With CHECK, `flag` becomes 1.0 if an element was
// infinite or NaN before. Without CHECK, a factor of 1, as for gradients that need no clipping, is a no-op.

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
#define SLOT_PARAMETERS __global float *x0, const ulong x0_offset
#define FIND_SLOT \
    __global float *x = x0 + x0_offset; \
    const uint size = slots.size[0], start = slots.start[0];
#endif

#if CHECK
#define FLAG_PARAMETER , volatile __global uint *flag, const ulong flag_offset
#define MASK_OF_float int
#define MASK_OF_double long
#define MASK CONCAT(MASK_OF_, REAL)
#define NOTE_NON_FINITE(value) non_finite |= !IS_FINITE(REAL, value);
// IS_FINITE of vectors.
#define NOTE_NON_FINITE_LANES(value) \
    non_finite_lanes |= (AS(BITS(REAL), value) & EXPONENT(REAL)) == EXPONENT(REAL);
#else
#define FLAG_PARAMETER
#define MASK int
#define NOTE_NON_FINITE(value)
#define NOTE_NON_FINITE_LANES(value)
#endif

__kernel void optim_scale_all(SLOT_PARAMETERS, const SlotTable slots, __global const STORAGE(FACTOR_DTYPE) *factor,
                              const ulong factor_offset FLAG_PARAMETER) {
    const REAL scale = LOAD(FACTOR_DTYPE, factor, factor_offset);
    if (scale == 1 && !CHECK) return;
    const uint chunk = get_group_id(0);
    FIND_SLOT
    CHUNK_BOUNDS
    VEC(MASK) non_finite_lanes = (VEC(MASK))(0);
    MASK non_finite = 0;
    CHUNK_VECTORS {
        const V value = READ(DTYPE, x, i);
        NOTE_NON_FINITE_LANES(value)
        WRITE(DTYPE, value * scale, x, i);
    }
    CHUNK_TAIL {
        const REAL value = LOAD(DTYPE, x, i);
        NOTE_NON_FINITE(value)
        STORE(DTYPE, value * scale, x, i);
    }
#if CHECK
#if WIDTH == 1
    non_finite |= non_finite_lanes;
#else
    non_finite |= any(non_finite_lanes);
#endif
    if (non_finite) atomic_or(flag + flag_offset, as_uint(1.0f));
#endif
}
