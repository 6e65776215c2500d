// One Adam step for several parameters, in place. The host folds the learning rate and the bias corrections into `step` and
// `correction`: p -= step * m / (sqrt(v) * correction + eps). With COUNTED the number of the step is in device memory, and the
// kernel applies the bias corrections itself, for `step` the learning rate; nothing changes at step 0.

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
#define OPERANDS 4
#include "lib/multi_tensor.cuh"

#if COUNTED
#define STEP_COUNT_PARAMETER const STEP_COUNT_DTYPE *step_count,
#define LOGARITHM_PARAMETERS , const real log_beta1, const real log_beta2
#define CORRECT_BIAS \
    const real t = (real)widen(*step_count); \
    if (t == 0) return; \
    step /= -expm1(t * log_beta1); \
    correction = 1 / sqrt(-expm1(t * log_beta2));
#else
#define STEP_COUNT_PARAMETER
#define LOGARITHM_PARAMETERS
#define CORRECT_BIAS
#endif

KERNEL adam_step(const __grid_constant__ SlotTable slots, STEP_COUNT_PARAMETER real step, real correction,
                 const real eps, const real shrink, const real coupled, const real beta1, const real one_minus_beta1,
                 const real beta2, const real one_minus_beta2 LOGARITHM_PARAMETERS) {
    CORRECT_BIAS
    const uint32 slot = slot_of_chunk(slots, blockIdx.x), count = chunk_size(slots, slot);
    const Chunk<PARAMETER_DTYPE> parameters(slots, 0, slot);
    const Chunk<GRADIENT_DTYPE> gradients(slots, 1, slot);
    const Chunk<STATE_DTYPE> firsts(slots, 2, slot), seconds(slots, 3, slot);
    const auto update = [&](real &p, real g, real &m, real &v) {
        if (coupled != 0) g += p * coupled;
        m = m * beta1 + g * one_minus_beta1;
        v = v * beta2 + g * g * one_minus_beta2;
        p = p * shrink - m * step / (sqrt(v) * correction + eps);
    };
    uint32 vectorized = 0;
    if (parameters.aligned() && gradients.aligned() && firsts.aligned() && seconds.aligned()) {
        vectorized = count / WIDTH * WIDTH;
        for (uint32 i = threadIdx.x * WIDTH; i < vectorized; i += BLOCK * WIDTH) {
            real p[WIDTH], g[WIDTH], m[WIDTH], v[WIDTH];
            parameters.load(p, i);
            gradients.load(g, i);
            firsts.load(m, i);
            seconds.load(v, i);
#pragma unroll
            for (int j = 0; j < WIDTH; j++) update(p[j], g[j], m[j], v[j]);
            parameters.store(p, i);
            firsts.store(m, i);
            seconds.store(v, i);
        }
    }
    for (uint32 i = vectorized + threadIdx.x; i < count; i += BLOCK) {
        real p = parameters.load(i), m = firsts.load(i), v = seconds.load(i);
        update(p, gradients.load(i), m, v);
        parameters.store(p, i);
        firsts.store(m, i);
        seconds.store(v, i);
    }
}
