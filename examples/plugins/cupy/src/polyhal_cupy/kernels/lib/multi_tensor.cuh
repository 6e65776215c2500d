// Several tensors in one launch. A slot holds one tensor per operand, by addresses in the kernel's parameters, and is
// divided into chunks of CHUNK elements. The chunks of all slots are numbered consecutively; each block processes one.

#ifndef POLYHAL_SLOTS
#define POLYHAL_SLOTS

#ifndef REAL
#define REAL float32
#endif
// Number of tensors per slot; files with another number define it.
#ifndef OPERANDS
#define OPERANDS 1
#endif
#ifndef SLOTS
#define SLOTS 16
#endif
#ifndef CHUNK
#define CHUNK 4096
#endif
#ifndef BLOCK
#define BLOCK 256
#endif
#include "lib/dtypes.cuh"

#define WIDTH 4

typedef REAL real;

// `starts` are the first chunks of the slots; unused slots start past the last chunk.
typedef struct {
    uint64 addresses[SLOTS * OPERANDS];
    uint32 sizes[SLOTS];
    uint32 starts[SLOTS];
} SlotTable;

inline uint32 slot_of_chunk(const SlotTable &slots, uint32 chunk) {
    uint32 low = 0, high = SLOTS;
    while (high - low > 1) {
        const uint32 middle = (low + high) / 2;
        if (slots.starts[middle] <= chunk) low = middle;
        else high = middle;
    }
    return low;
}

// This block's chunk of one operand.
template <typename T> struct Chunk {
    T *at;

    inline Chunk(const SlotTable &slots, int operand, uint32 slot) {
        at = (T *)slots.addresses[slot * OPERANDS + operand] + (uint64)(blockIdx.x - slots.starts[slot]) * CHUNK;
    }
    inline bool aligned() const { return (uint64)at % sizeof(Pack<T, WIDTH>) == 0; }
    inline void load(real (&values)[WIDTH], uint32 i) const {
        const Pack<T, WIDTH> pack = *(const Pack<T, WIDTH> *)(at + i);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) values[j] = (real)widen(pack.at[j]);
    }
    inline void store(const real (&values)[WIDTH], uint32 i) const {
        Pack<T, WIDTH> pack;
#pragma unroll
        for (int j = 0; j < WIDTH; j++) pack.at[j] = narrow<T>((Register<T>)values[j]);
        *(Pack<T, WIDTH> *)(at + i) = pack;
    }
    inline real load(uint32 i) const { return (real)widen(at[i]); }
    inline void store(real value, uint32 i) const { at[i] = narrow<T>((Register<T>)value); }
};

inline uint32 chunk_size(const SlotTable &slots, uint32 slot) {
    const uint32 remaining = slots.sizes[slot] - (blockIdx.x - slots.starts[slot]) * CHUNK;
    return remaining < CHUNK ? remaining : CHUNK;
}

// The sum over the block; valid in its first thread.
inline real block_sum(real value) {
    __shared__ real shared[BLOCK];
    shared[threadIdx.x] = value;
    for (uint32 distance = BLOCK / 2; distance > 0; distance /= 2) {
        __syncthreads();
        if (threadIdx.x < distance) shared[threadIdx.x] += shared[threadIdx.x + distance];
    }
    return shared[0];
}

#endif
