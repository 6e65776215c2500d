// Row reduction: LANES threads share one split of a row. Result (row, split) goes to out[row * splits + split].

#ifndef LANES
#define LANES 32
#endif
#include "reduction/terms.cuh"

KERNEL reduce_rows(const DTYPE *x, OUT_DTYPE *out, GEOMETRY) {
    const uint64 item = (uint64)blockIdx.x * BLOCK + threadIdx.x;
    const uint64 task = item / LANES, row = task / splits, split = task - row * splits;
    const uint32 lane = threadIdx.x % LANES;
    const bool active = task < k0 * k1 * splits;
    ACCUMULATOR total = IDENTITY;
    if (active) {
        x += (int64)(row / k1) * k0s + (int64)(row % k1) * k1s;
        uint64 at = split * split_length;
        const uint64 end = smaller(at + split_length, length);
        while (at < end) {
            const uint64 outer = at / r1, inner = at - outer * r1, count = smaller(end - at, r1 - inner);
            const DTYPE *segment = x + (int64)outer * r0s + (int64)inner * r1s;
            const uint64 vectors = count / WIDTH;
            for (uint64 i = lane; i < vectors; i += CHAIN * LANES) {
                ACCUMULATOR chain[WIDTH];
#pragma unroll
                for (int j = 0; j < WIDTH; j++) chain[j] = IDENTITY;
                const uint64 stop = smaller(i + CHAIN * LANES, vectors);
#pragma unroll 4
                for (uint64 k = i; k < stop; k += LANES) {
#if WIDTH == 1
                    chain[0] = combine(chain[0], term(segment[(int64)k * r1s]));
#else
                    const Pack<DTYPE, WIDTH> v = *(const Pack<DTYPE, WIDTH> *)(segment + k * WIDTH);
#pragma unroll
                    for (int j = 0; j < WIDTH; j++) chain[j] = combine(chain[j], term(v.at[j]));
#endif
                }
#pragma unroll
                for (int j = 1; j < WIDTH; j++) chain[0] = combine(chain[0], chain[j]);
                total = combine(total, chain[0]);
            }
            for (uint64 k = vectors * WIDTH + lane; k < count; k += LANES)
                total = combine(total, term(segment[(int64)k * r1s]));
            at += count;
        }
    }
#if LANES > 1
    __shared__ ACCUMULATOR shared[BLOCK];
    shared[threadIdx.x] = total;
    for (uint32 distance = LANES / 2; distance > 0; distance /= 2) {
        __syncthreads();
        if (lane < distance) shared[threadIdx.x] = combine(shared[threadIdx.x], shared[threadIdx.x + distance]);
    }
    total = shared[threadIdx.x];
#endif
    if (active && lane == 0) out[task] = finish(total, divisor);
}
