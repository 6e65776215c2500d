// Elements along an axis by index. Tensors are (outer, axis, inner). take copies data[.., index, ..] to out; scatter
// adds data atomically to out[.., index, ..], which has been zeroed. Negative indices count from the end; indices out
// of range yield 0 or are skipped.

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

#define GEOMETRY \
    const uint64 size, const uint64 index_length, const uint64 inner, const int64 length, const int64 data_outer, \
        const int64 data_axis, const int64 data_inner, const int64 index_outer, const int64 index_axis, \
        const int64 index_inner
// The position (o, a, i) of this thread's index, and its value `at`.
#define LOCATE \
    const uint64 item = (uint64)blockIdx.x * BLOCK + threadIdx.x; \
    if (item >= size) return; \
    const int64 i = item % inner, a = item / inner % index_length, o = item / inner / index_length; \
    int64 at = (int64)widen(index[o * index_outer + a * index_axis + i * index_inner]); \
    if (at < 0) at += length; \
    const bool in_range = at >= 0 && at < length;

KERNEL take_along_axis(const DTYPE *data, const INDEX_DTYPE *index, DTYPE *out, GEOMETRY) {
    LOCATE
    out[item] = in_range ? data[o * data_outer + at * data_axis + i * data_inner] : DTYPE();
}

#ifdef ATOMIC
KERNEL scatter_along_axis(const DTYPE *data, const INDEX_DTYPE *index, DTYPE *out, GEOMETRY) {
    LOCATE
    const DTYPE value = data[o * data_outer + a * data_axis + i * data_inner];
    if (in_range) atomicAdd((ATOMIC *)(out + (o * length + at) * inner + i), *(const ATOMIC *)&value);
}
#endif
