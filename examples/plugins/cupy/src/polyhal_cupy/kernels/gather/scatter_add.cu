// out[index[i], :] += source[i, :]; indices out of range are skipped.
//
// scatter_add adds all rows at once with atomics, in varying order. scatter_ordered is for types without atomicAdd: one thread
// per column adds in index order.

#ifndef DTYPE
#define DTYPE float32
// The type whose atomicAdd adds DTYPE, if there is one.
#define ATOMIC float32
#endif
#ifndef INDEX_DTYPE
#define INDEX_DTYPE int64
#endif
#ifndef BLOCK
#define BLOCK 256
#endif
#include "lib/dtypes.cuh"

#ifdef ATOMIC
KERNEL scatter_add(const INDEX_DTYPE *index, const DTYPE *source, DTYPE *out, const uint64 items, const uint32 width,
                   const uint64 rows, const int64 index_step, const int64 source_row, const int64 source_column) {
    const uint64 item = (uint64)blockIdx.x * BLOCK + threadIdx.x;
    if (item >= items) return;
    const uint64 i = item / width, column = item - i * width;
    const int64 row = (int64)widen(index[(int64)i * index_step]);
    if (row < 0 || (uint64)row >= rows) return;
    const DTYPE value = source[(int64)i * source_row + (int64)column * source_column];
    atomicAdd((ATOMIC *)(out + (uint64)row * width + column), *(const ATOMIC *)&value);
}
#endif

KERNEL scatter_ordered(const INDEX_DTYPE *index, const DTYPE *source, DTYPE *out, const uint64 items,
                       const uint32 width, const uint64 rows, const int64 index_step, const int64 source_row,
                       const int64 source_column) {
    const uint32 column = blockIdx.x * BLOCK + threadIdx.x;
    if (column >= width) return;
    for (uint64 i = 0; i < items / width; i++) {
        const int64 row = (int64)widen(index[(int64)i * index_step]);
        if (row < 0 || (uint64)row >= rows) continue;
        DTYPE *target = out + (uint64)row * width + column;
        *target = narrow<DTYPE>(widen(*target) + widen(source[(int64)i * source_row + (int64)column * source_column]));
    }
}
