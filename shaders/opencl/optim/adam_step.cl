// One step of Adam for several parameters, in place. The host has folded the corrections of the moments' start into `step` and
// `correction`: p -= step * m / (sqrt(v) * correction + eps). With COUNTED they follow from the number of the step, which lies in
// device memory, the rate `step`, and the logarithms of both betas; step 0 leaves everything as it is.

#ifndef PARAMETER_DTYPE
#define PARAMETER_DTYPE float32
#endif
#ifndef GRADIENT_DTYPE
#define GRADIENT_DTYPE float32
#endif
#ifndef STATE_DTYPE
#define STATE_DTYPE float32
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
    __global float *p0, const ulong p0_offset, __global const float *g0, const ulong g0_offset, __global float *m0, \
        const ulong m0_offset, __global float *v0, const ulong v0_offset, const uint size0, const uint start0
#define FIND_SLOT \
    __global float *p = p0 + p0_offset, *m = m0 + m0_offset, *v = v0 + v0_offset; \
    __global const float *g = g0 + g0_offset; \
    const uint size = size0, start = start0;
#endif

#define STEP(T, READ_AS, WRITE_AS) \
    { \
        T value = READ_AS(PARAMETER_DTYPE, p, i); \
        T slope = READ_AS(GRADIENT_DTYPE, g, i) + value * coupled; \
        value *= shrink; \
        const T first = READ_AS(STATE_DTYPE, m, i) * beta1 + slope * rest1; \
        const T second = READ_AS(STATE_DTYPE, v, i) * beta2 + slope * slope * rest2; \
        WRITE_AS(STATE_DTYPE, first, m, i); \
        WRITE_AS(STATE_DTYPE, second, v, i); \
        value -= first * step / (sqrt(second) * correction + eps); \
        WRITE_AS(PARAMETER_DTYPE, value, p, i); \
    }

#if COUNTED
#define STEP_COUNT , __global const STORAGE(STEP_COUNT_DTYPE) *step_count, const ulong step_count_offset
#define LOGARITHMS , const REAL log1, const REAL log2
// Not 1 - pow(beta, t), of which little is left in single precision when beta is close to 1.
#define FOLD \
    const REAL t = LOAD(STEP_COUNT_DTYPE, step_count, step_count_offset); \
    if (t == 0) return; \
    step /= -expm1(t * log1); \
    correction = 1 / sqrt(-expm1(t * log2));
#else
#define STEP_COUNT
#define LOGARITHMS
#define FOLD
#endif

__kernel void optim_adam_step(SLOT_PARAMETERS STEP_COUNT, REAL step, REAL correction, const REAL eps, const REAL shrink, const REAL coupled,
                        const REAL beta1, const REAL rest1, const REAL beta2, const REAL rest2 LOGARITHMS) {
    FOLD
    const uint chunk = get_group_id(0);
    FIND_SLOT
    CHUNK_BOUNDS
    CHUNK_VECTORS STEP(V, READ, WRITE)
    CHUNK_TAIL STEP(REAL, LOAD, STORE)
}
