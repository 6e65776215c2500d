// One step of gradient descent for several parameters, in place, as PyTorch's SGD: with MOMENTUM there is a buffer per parameter.
// With COUNTED the number of the step lies in device memory: the first gradient enters the buffer whole, step 0 changes nothing.

#ifndef PARAMETER_DTYPE
#define PARAMETER_DTYPE float32
#endif
#ifndef GRADIENT_DTYPE
#define GRADIENT_DTYPE float32
#endif
#ifndef STATE_DTYPE
#define STATE_DTYPE float32
#endif
#ifndef MOMENTUM
#define MOMENTUM 0
#endif
#ifndef NESTEROV
#define NESTEROV 0
#endif
#ifndef COUNTED
#define COUNTED 0
#endif
#ifndef STEP_COUNT_DTYPE
#define STEP_COUNT_DTYPE float32
#endif
#include "lib/multi_tensor.h"

#ifndef SLOT_PARAMETERS
#define SLOT_PARAMETERS \
    __global float *p0, const ulong p0_offset, __global const float *g0, const ulong g0_offset, const uint size0, const uint start0
#define FIND_SLOT \
    __global float *p = p0 + p0_offset; \
    __global const float *g = g0 + g0_offset; \
    const uint size = size0, start = start0;
#endif

#if MOMENTUM
#define REMEMBER(T, READ_AS, WRITE_AS) \
    const T buffer = READ_AS(STATE_DTYPE, b, i) * momentum + slope * fresh; \
    WRITE_AS(STATE_DTYPE, buffer, b, i); \
    slope = NESTEROV ? slope + buffer * momentum : buffer;
#else
#define REMEMBER(T, READ_AS, WRITE_AS)
#endif
#define STEP(T, READ_AS, WRITE_AS) \
    { \
        const T value = READ_AS(PARAMETER_DTYPE, p, i); \
        T slope = READ_AS(GRADIENT_DTYPE, g, i) + value * decay; \
        REMEMBER(T, READ_AS, WRITE_AS) \
        WRITE_AS(PARAMETER_DTYPE, value - slope * rate, p, i); \
    }

#if COUNTED
#define STEP_COUNT , __global const STORAGE(STEP_COUNT_DTYPE) *step_count, const ulong step_count_offset
#define LOOK \
    const REAL t = LOAD(STEP_COUNT_DTYPE, step_count, step_count_offset); \
    if (t == 0) return; \
    if (t == 1) fresh = 1;
#else
#define STEP_COUNT
#define LOOK
#endif

__kernel void optim_sgd_step(SLOT_PARAMETERS STEP_COUNT, const REAL rate, const REAL decay, const REAL momentum, REAL fresh) {
    LOOK
    const uint chunk = get_group_id(0);
    FIND_SLOT
    CHUNK_BOUNDS
    CHUNK_VECTORS STEP(V, READ, WRITE)
    CHUNK_TAIL STEP(REAL, LOAD, STORE)
}
