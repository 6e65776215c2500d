// out[index[i], :] += source[i, :] for elements of 32 bits, one work-item per element of the source. Floats with equal
// indices are added in no fixed order. An index out of range is skipped.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef INDEX_DTYPE
#define INDEX_DTYPE int64
#endif
// How a float is added: 0 by compare and swap, 1 by NVIDIA's reduction instruction.
#ifndef PTX
#define PTX 0
#endif
#ifndef IS_FLOAT
#define IS_FLOAT 1
#endif
#include "dtypes.h"

inline void add_atomically(volatile __global STORAGE(DTYPE) *target, const STORAGE(DTYPE) value) {
#if !IS_FLOAT
    atomic_add(target, value);
#elif PTX
    asm volatile("red.global.add.f32 [%0], %1;" : : "l"(target), "f"(value) : "memory");
#else
    volatile __global uint *bits = (volatile __global uint *)target;
    uint seen = *bits, expected;
    do {
        expected = seen;
        seen = atomic_cmpxchg(bits, expected, as_uint(as_float(expected) + value));
    } while (seen != expected);
#endif
}

__kernel void scatter_atomic(__global const STORAGE(INDEX_DTYPE) *index, const ulong index_offset,
                             __global const STORAGE(DTYPE) *source, const ulong source_offset, __global STORAGE(DTYPE) *out,
                             const ulong out_offset, const uint count, const uint width, const ulong rows,
                             const long index_step, const long row_step, const long column_step) {
    const uint item = get_global_id(0);
    const uint i = item / width, column = item - i * width;
    if (i >= count) return;
    const long row = (long)index[index_offset + i * index_step];
    if (row < 0 || (ulong)row >= rows) return;
    const STORAGE(DTYPE) value = source[source_offset + i * row_step + column * column_step];
    add_atomically(out + out_offset + (ulong)row * width + column, value);
}
