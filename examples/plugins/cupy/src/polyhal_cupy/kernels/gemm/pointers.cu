// Pointer arrays for batched cuBLAS calls: the base address of each operand plus a stride per batch axis, in bytes. Matrix i of
// operand o goes to out[o * count + i].

#ifndef OPERANDS
#define OPERANDS 3
#endif
#ifndef BLOCK
#define BLOCK 128
#endif
#include "lib/dtypes.cuh"

typedef struct {
    uint64 bases[OPERANDS];
    int64 steps[OPERANDS * 3];
} Operands;

KERNEL pointers(const __grid_constant__ Operands operands, uint64 *out, const uint32 count, const uint32 batch1,
                const uint32 batch2) {
    const uint32 item = blockIdx.x * BLOCK + threadIdx.x;
    if (item >= OPERANDS * count) return;
    const uint32 o = item / count, i = item % count;
    const int64 i2 = i % batch2, i1 = i / batch2 % batch1, i0 = i / batch2 / batch1;
    const int64 *steps = operands.steps + o * 3;
    out[item] = operands.bases[o] + i0 * steps[0] + i1 * steps[1] + i2 * steps[2];
}
