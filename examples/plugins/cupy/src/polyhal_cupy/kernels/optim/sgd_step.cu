// One SGD step for several parameters, in place, as in PyTorch. With MOMENTUM there is a momentum buffer per parameter.
// With COUNTED the number of the step is in device memory: at step 1 there is no dampening, at step 0 nothing changes.

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
#define OPERANDS (2 + MOMENTUM)
#include "lib/multi_tensor.cuh"

#if COUNTED
#define STEP_COUNT_PARAMETER const STEP_COUNT_DTYPE *step_count,
#define READ_STEP_COUNT \
    const real t = (real)widen(*step_count); \
    if (t == 0) return; \
    if (t == 1) gradient_weight = 1;
#else
#define STEP_COUNT_PARAMETER
#define READ_STEP_COUNT
#endif

KERNEL sgd_step(const __grid_constant__ SlotTable slots, STEP_COUNT_PARAMETER const real rate, const real decay,
                const real momentum, real gradient_weight) {
    READ_STEP_COUNT
    const uint32 slot = slot_of_chunk(slots, blockIdx.x), count = chunk_size(slots, slot);
    const Chunk<PARAMETER_DTYPE> parameters(slots, 0, slot);
    const Chunk<GRADIENT_DTYPE> gradients(slots, 1, slot);
    for (uint32 i = threadIdx.x; i < count; i += BLOCK) {
        const real p = parameters.load(i);
        real g = gradients.load(i);
        if (decay != 0) g += p * decay;
#if MOMENTUM
        const Chunk<STATE_DTYPE> buffers(slots, 2, slot);
        const real buffer = buffers.load(i) * momentum + g * gradient_weight;
        buffers.store(buffer, i);
        g = NESTEROV ? g + buffer * momentum : buffer;
#endif
        parameters.store(p - g * rate, i);
    }
}
