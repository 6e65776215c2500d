// One step of Adam for several parameters, in place (Kingma and Ba, Adam: A Method for Stochastic Optimization, 2015). The host has
// folded the bias corrections into `step` and `correction`: p -= step * m / (sqrt(v) * correction + eps). `shrink` is the
// decoupled weight decay (AdamW), `coupled` that of the gradient. With COUNTED the step count lies in device memory: both
// factors are computed from it, `step`, which is then the learning rate, and the logarithms of both betas; step 0 changes nothing.
// With COUNT_BY_SLOT each parameter has a step count of its own, `t`.

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
#ifndef COUNT_BY_SLOT
#define COUNT_BY_SLOT 0
#endif
#ifndef STEP_COUNT_DTYPE
#define STEP_COUNT_DTYPE float32
#endif
#include "lib/multi_tensor.h"

#ifndef SLOT_PARAMETERS
#define SLOT_PARAMETERS \
    __global float *p0, const ulong p0_offset, __global const float *g0, const ulong g0_offset, __global float *m0, \
        const ulong m0_offset, __global float *v0, const ulong v0_offset
#define FIND_SLOT \
    __global float *p = p0 + p0_offset, *m = m0 + m0_offset, *v = v0 + v0_offset; \
    __global const float *g = g0 + g0_offset; \
    const uint size = slots.size[0], start = slots.start[0];
#endif

#define STEP(T, READ_AS, WRITE_AS) \
    { \
        T value = READ_AS(PARAMETER_DTYPE, p, i); \
        T gradient = READ_AS(GRADIENT_DTYPE, g, i); \
        if (coupled != 0) gradient = gradient + value * coupled; \
        value *= shrink; \
        const T first_moment = READ_AS(STATE_DTYPE, m, i) * beta1 + gradient * one_minus_beta1; \
        const T second_moment = READ_AS(STATE_DTYPE, v, i) * beta2 + gradient * gradient * one_minus_beta2; \
        WRITE_AS(STATE_DTYPE, first_moment, m, i); \
        WRITE_AS(STATE_DTYPE, second_moment, v, i); \
        value -= first_moment * step / (sqrt(second_moment) * correction + eps); \
        WRITE_AS(PARAMETER_DTYPE, value, p, i); \
    }

#if COUNT_BY_SLOT
#define STEP_COUNT_PARAMETER
#define READ_STEP_COUNT LOAD(STEP_COUNT_DTYPE, t, 0)
#elif COUNTED
#define STEP_COUNT_PARAMETER __global const STORAGE(STEP_COUNT_DTYPE) *step_count, const ulong step_count_offset,
#define READ_STEP_COUNT LOAD(STEP_COUNT_DTYPE, step_count, step_count_offset)
#else
#define STEP_COUNT_PARAMETER
#endif
#if COUNTED
#define LOGARITHM_PARAMETERS , const REAL log_beta1, const REAL log_beta2
// Not 1 - pow(beta, t), which cancels in single precision where beta is close to 1.
#define CORRECT_BIAS \
    const REAL steps = READ_STEP_COUNT; \
    if (steps == 0) return; \
    step /= -expm1(steps * log_beta1); \
    correction = 1 / sqrt(-expm1(steps * log_beta2));
#else
#define LOGARITHM_PARAMETERS
#define CORRECT_BIAS
#endif

__kernel void optim_adam_step(SLOT_PARAMETERS, const SlotTable slots, STEP_COUNT_PARAMETER REAL step, REAL correction,
                              const REAL eps, const REAL shrink, const REAL coupled, const REAL beta1,
                              const REAL one_minus_beta1, const REAL beta2, const REAL one_minus_beta2 LOGARITHM_PARAMETERS) {
    const uint chunk = get_group_id(0);
    FIND_SLOT
    CORRECT_BIAS
    CHUNK_BOUNDS
    CHUNK_VECTORS STEP(V, READ, WRITE)
    CHUNK_TAIL STEP(REAL, LOAD, STORE)
}
