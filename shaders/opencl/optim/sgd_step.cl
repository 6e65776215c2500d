// One step of SGD for several parameters, in place, as in PyTorch: with MOMENTUM there is a momentum buffer per parameter. With COUNTED
// the step count lies in device memory: the first gradient enters the buffer undamped, step 0 changes nothing.

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
    __global float *p0, const ulong p0_offset, __global const float *g0, const ulong g0_offset
#define FIND_SLOT \
    __global float *p = p0 + p0_offset; \
    __global const float *g = g0 + g0_offset; \
    const uint size = slots.size[0], start = slots.start[0];
#endif

#if MOMENTUM
#define APPLY_MOMENTUM(T, READ_AS, WRITE_AS) \
    const T buffer = READ_AS(STATE_DTYPE, b, i) * momentum + gradient * gradient_weight; \
    WRITE_AS(STATE_DTYPE, buffer, b, i); \
    gradient = NESTEROV ? gradient + buffer * momentum : buffer;
#else
#define APPLY_MOMENTUM(T, READ_AS, WRITE_AS)
#endif
#define STEP(T, READ_AS, WRITE_AS) \
    { \
        const T value = READ_AS(PARAMETER_DTYPE, p, i); \
        T gradient = READ_AS(GRADIENT_DTYPE, g, i); \
        if (decay != 0) gradient = gradient + value * decay; \
        APPLY_MOMENTUM(T, READ_AS, WRITE_AS) \
        WRITE_AS(PARAMETER_DTYPE, value - gradient * rate, p, i); \
    }

#if COUNTED
#define STEP_COUNT_PARAMETER __global const STORAGE(STEP_COUNT_DTYPE) *step_count, const ulong step_count_offset,
#define READ_STEP_COUNT \
    const REAL t = LOAD(STEP_COUNT_DTYPE, step_count, step_count_offset); \
    if (t == 0) return; \
    if (t == 1) gradient_weight = 1;
#else
#define STEP_COUNT_PARAMETER
#define READ_STEP_COUNT
#endif

__kernel void optim_sgd_step(SLOT_PARAMETERS, const SlotTable slots, STEP_COUNT_PARAMETER const REAL rate, const REAL decay,
                             const REAL momentum, REAL gradient_weight) {
    READ_STEP_COUNT
    const uint chunk = get_group_id(0);
    FIND_SLOT
    CHUNK_BOUNDS
    CHUNK_VECTORS STEP(V, READ, WRITE)
    CHUNK_TAIL STEP(REAL, LOAD, STORE)
}
