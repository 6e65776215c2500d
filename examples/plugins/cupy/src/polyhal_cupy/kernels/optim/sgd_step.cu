// One step of gradient descent for several parameters, in place, as PyTorch's SGD: with MOMENTUM there is a buffer per
// parameter.

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
#include "lib/multi_tensor.cuh"

KERNEL sgd_step(const __grid_constant__ Slots<2 + MOMENTUM> slots, const real rate, const real decay,
                const real momentum, const real fresh) {
    const uint32 slot = slots.of(blockIdx.x), count = elements(slots, slot);
    const Part<PARAMETER_DTYPE> parameters(slots, 0, slot);
    const Part<GRADIENT_DTYPE> gradients(slots, 1, slot);
    for (uint32 i = threadIdx.x; i < count; i += BLOCK) {
        const real p = parameters.load(i);
        real g = gradients.load(i) + p * decay;
#if MOMENTUM
        const Part<STATE_DTYPE> buffers(slots, 2, slot);
        const real buffer = buffers.load(i) * momentum + g * fresh;
        buffers.store(buffer, i);
        g = NESTEROV ? g + buffer * momentum : buffer;
#endif
        parameters.store(p - g * rate, i);
    }
}
