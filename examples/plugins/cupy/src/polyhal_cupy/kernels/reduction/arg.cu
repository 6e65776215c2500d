// Position of the first extreme element: LANES threads share a row and keep, each, the best term and its position.
//
// Rows are numbered over two kept axes, terms over two reduced axes, in the order in which positions count (see
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
// The reduced axes are one.
#ifndef FLAT
#define FLAT 0
#endif
#ifndef BLOCK
#define BLOCK 256
#endif
#include "lib/dtypes.cuh"

#define NOWHERE (~(uint64)0)
typedef Register<DTYPE> T;

// Whether term (a, i) comes before (b, j): NaN first, then the extreme, then the smaller position.
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
    uint64 place = NOWHERE;
    if (active) {
        x += (int64)(row / k1) * k0s + (int64)(row % k1) * k1s;
        for (uint64 i = lane; i < length; i += LANES) {
#if FLAT
            const T value = widen(x[(int64)i * r1s]);
#else
            const T value = widen(x[(int64)(i / r1) * r0s + (int64)(i % r1) * r1s]);
#endif
            // Later positions win only by a better value, or by being the first NaN.
            if (place == NOWHERE || value BETTER best || (value != value && best == best)) {
                best = value;
                place = i;
            }
        }
    }
#if LANES > 1
    __shared__ T values[BLOCK];
    __shared__ uint64 places[BLOCK];
    const uint32 me = threadIdx.x;
    values[me] = best;
    places[me] = place;
    for (uint32 distance = LANES / 2; distance > 0; distance /= 2) {
        __syncthreads();
        const uint32 other = me + distance;
        if (lane < distance && places[other] != NOWHERE &&
            (places[me] == NOWHERE || precedes(values[other], places[other], values[me], places[me]))) {
            values[me] = values[other];
            places[me] = places[other];
        }
    }
    place = places[me];
#endif
    if (active && lane == 0) out[row] = narrow<OUT_DTYPE>((Register<OUT_DTYPE>)place);
}
