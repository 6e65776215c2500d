// One SGD step for several parameters, in place, as in PyTorch. With MOMENTUM there is a momentum buffer per parameter.

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
                const real momentum, const real gradient_weight) {
    const uint32 slot = slots.find(blockIdx.x), count = chunk_size(slots, slot);
    const Chunk<PARAMETER_DTYPE> parameters(slots, 0, slot);
    const Chunk<GRADIENT_DTYPE> gradients(slots, 1, slot);
    for (uint32 i = threadIdx.x; i < count; i += BLOCK) {
        const real p = parameters.load(i);
        real g = gradients.load(i) + p * decay;
#if MOMENTUM
        const Chunk<STATE_DTYPE> buffers(slots, 2, slot);
        const real buffer = buffers.load(i) * momentum + g * gradient_weight;
        buffers.store(buffer, i);
        g = NESTEROV ? g + buffer * momentum : buffer;
#endif
        parameters.store(p - g * rate, i);
    }
}
