// Elements along one axis by number: take copies x[.., index, ..] to out, scatter adds src atomically to out[..,
// index, ..], which has been zeroed. Tensors count as (outer, axis, inner); numbers from the end are negative, and
// those outside are 0 or skipped.

#ifndef DTYPE
#define DTYPE float32
// The type by whose atomic addition DTYPE is added, where there is one.
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
    const uint64 size, const uint64 picked, const uint64 inner, const int64 length, const int64 data_outer, \
        const int64 data_axis, const int64 data_inner, const int64 index_outer, const int64 index_axis, \
        const int64 index_inner
// The place (o, a, i) of this thread's index, and the number `at` that it holds.
#define LOCATE \
    const uint64 item = (uint64)blockIdx.x * BLOCK + threadIdx.x; \
    if (item >= size) return; \
    const int64 i = item % inner, a = item / inner % picked, o = item / inner / picked; \
    int64 at = (int64)widen(index[o * index_outer + a * index_axis + i * index_inner]); \
    if (at < 0) at += length; \
    const bool inside = at >= 0 && at < length;

KERNEL take_along_axis(const DTYPE *x, const INDEX_DTYPE *index, DTYPE *out, GEOMETRY) {
    LOCATE
    out[item] = inside ? x[o * data_outer + at * data_axis + i * data_inner] : DTYPE();
}

#ifdef ATOMIC
KERNEL scatter_along_axis(const DTYPE *src, const INDEX_DTYPE *index, DTYPE *out, GEOMETRY) {
    LOCATE
    const DTYPE value = src[o * data_outer + a * data_axis + i * data_inner];
    if (inside) atomicAdd((ATOMIC *)(out + (o * length + at) * inner + i), *(const ATOMIC *)&value);
}
#endif
