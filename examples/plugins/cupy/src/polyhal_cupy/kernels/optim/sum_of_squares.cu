// The sum of squares of all elements of several tensors, in two stages of fixed order: one partial sum per chunk,
// starting at index `first`, then their sum by one block.

#ifndef DTYPE
#define DTYPE float32
#endif
#include "lib/multi_tensor.cuh"

KERNEL squares_of_chunks(const __grid_constant__ SlotTable slots, float32 *partial, const uint32 first) {
    const uint32 slot = slot_of_chunk(slots, blockIdx.x), count = chunk_size(slots, slot);
    const Chunk<DTYPE> x(slots, 0, slot);
    real sum = 0;
    for (uint32 i = threadIdx.x; i < count; i += BLOCK) {
        const real value = x.load(i);
        sum += value * value;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) partial[first + blockIdx.x] = (float32)sum;
}

KERNEL total_of_chunks(const float32 *partial, float32 *out, const uint32 chunks) {
    real sum = 0;
    for (uint32 i = threadIdx.x; i < chunks; i += BLOCK) sum += partial[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) *out = (float32)sum;
}
