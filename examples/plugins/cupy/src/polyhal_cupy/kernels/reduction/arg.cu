// argmax or argmin: the index of the first extreme element. LANES threads share a row; each keeps its best term and its index.
//
// Rows are numbered over two kept axes, terms over two reduced axes, in the order in which indices count (see
// reduction/terms.cuh). A NaN counts as the extreme.

#ifndef DTYPE
#define DTYPE float32
#define OUT_DTYPE int64
#endif
#ifndef BETTER
#define BETTER >
#endif
#ifndef LANES
#define LANES 32
#endif
// True if there is only one reduced axis.
#ifndef FLAT
#define FLAT 0
#endif
#ifndef BLOCK
#define BLOCK 256
#endif
#include "lib/dtypes.cuh"

#define NO_INDEX (~(uint64)0)
typedef Register<DTYPE> T;

// True if term (a, i) comes before (b, j): NaN first, then the extreme, then the smaller index.
inline bool precedes(T a, uint64 i, T b, uint64 j) {
    const bool a_nan = a != a, b_nan = b != b;
    if (a_nan != b_nan) return a_nan;
    return !a_nan && a != b ? a BETTER b : i < j;
}

KERNEL reduce_arg(const DTYPE *x, OUT_DTYPE *out, const uint64 k0, const int64 k0s, const uint64 k1, const int64 k1s,
                  const int64 r0s, const uint64 r1, const int64 r1s, const uint64 length) {
    const uint64 row = ((uint64)blockIdx.x * BLOCK + threadIdx.x) / LANES;
    const uint32 lane = threadIdx.x % LANES;
    const bool active = row < k0 * k1;
    T best = 0;
    uint64 index = NO_INDEX;
    if (active) {
        x += (int64)(row / k1) * k0s + (int64)(row % k1) * k1s;
        for (uint64 i = lane; i < length; i += LANES) {
#if FLAT
            const T value = widen(x[(int64)i * r1s]);
#else
            const T value = widen(x[(int64)(i / r1) * r0s + (int64)(i % r1) * r1s]);
#endif
            // A later index wins only with a better value, or with the first NaN.
            if (index == NO_INDEX || value BETTER best || (value != value && best == best)) {
                best = value;
                index = i;
            }
        }
    }
#if LANES > 1
    __shared__ T values[BLOCK];
    __shared__ uint64 indices[BLOCK];
    const uint32 thread = threadIdx.x;
    values[thread] = best;
    indices[thread] = index;
    for (uint32 distance = LANES / 2; distance > 0; distance /= 2) {
        __syncthreads();
        const uint32 other = thread + distance;
        if (lane < distance && indices[other] != NO_INDEX &&
            (indices[thread] == NO_INDEX || precedes(values[other], indices[other], values[thread], indices[thread]))) {
            values[thread] = values[other];
            indices[thread] = indices[other];
        }
    }
    index = indices[thread];
#endif
    if (active && lane == 0) out[row] = narrow<OUT_DTYPE>((Register<OUT_DTYPE>)index);
}
