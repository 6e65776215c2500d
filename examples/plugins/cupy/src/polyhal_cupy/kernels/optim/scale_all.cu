// Multiplies several tensors in place by a factor in device memory.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef FACTOR_DTYPE
#define FACTOR_DTYPE float32
#endif
#include "lib/multi_tensor.cuh"

KERNEL scale_all(const __grid_constant__ SlotTable slots, const FACTOR_DTYPE *factor) {
    const uint32 slot = slot_of_chunk(slots, blockIdx.x), count = chunk_size(slots, slot);
    const Chunk<DTYPE> x(slots, 0, slot);
    const real scale = (real)widen(*factor);
    for (uint32 i = threadIdx.x; i < count; i += BLOCK) x.store(x.load(i) * scale, i);
}
