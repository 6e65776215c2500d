// Gradients of rowwise/norm.cu with respect to weight and bias: sums over all rows of g * (x - mean) * scale and of g, in two
// stages of fixed order. In the first a block sums `chunk` rows of SPAN columns into partial (chunk, 2, length); the
// second adds up the chunks.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#ifndef REAL
#define REAL float32
#endif
#ifndef WIDTH
#define WIDTH 4
#endif
#ifndef CENTRED
#define CENTRED 1
#endif
#ifndef BLOCK
#define BLOCK 256
#endif
#include "lib/dtypes.cuh"

#define SPAN_THREADS 32
#define SPAN (SPAN_THREADS * WIDTH)
#define LINES (BLOCK / SPAN_THREADS)

typedef REAL real;

KERNEL norm_weight_partial(const DTYPE *g, const DTYPE *x,
#if CENTRED
                           const real *means,
#endif
                           const real *scales, real *partial, const uint32 rows, const uint32 length,
                           const uint32 chunk, const int64 g_row, const int64 x_row) {
    __shared__ real shared[2][LINES][SPAN];
    const uint32 spans = (length + SPAN - 1) / SPAN, part = blockIdx.x / spans;
    const uint32 me = threadIdx.x % SPAN_THREADS, line = threadIdx.x / SPAN_THREADS;
    const uint32 column = (blockIdx.x % spans) * SPAN + me * WIDTH;
    const uint32 last = (part + 1) * chunk < rows ? (part + 1) * chunk : rows;
    real weights[WIDTH] = {}, biases[WIDTH] = {};
    if (column < length) {
#pragma unroll 4
        for (uint32 row = part * chunk + line; row < last; row += LINES) {
            const Pack<DTYPE, WIDTH> slopes = *(const Pack<DTYPE, WIDTH> *)(g + row * g_row + column);
            const Pack<DTYPE, WIDTH> values = *(const Pack<DTYPE, WIDTH> *)(x + row * x_row + column);
#if CENTRED
            const real mean = means[row];
#else
            const real mean = 0;
#endif
            const real scale = scales[row];
#pragma unroll
            for (int j = 0; j < WIDTH; j++) {
                const real slope = (real)widen(slopes.at[j]);
                weights[j] += slope * (((real)widen(values.at[j]) - mean) * scale);
                biases[j] += slope;
            }
        }
    }
#pragma unroll
    for (int j = 0; j < WIDTH; j++) {
        shared[0][line][j * SPAN_THREADS + me] = weights[j];
        shared[1][line][j * SPAN_THREADS + me] = biases[j];
    }
    __syncthreads();
    if (line > 1 || column >= length) return;
    // The first line of threads finishes the weights, the second the biases.
#pragma unroll
    for (int j = 0; j < WIDTH; j++) {
        real sum = 0;
#pragma unroll
        for (int k = 0; k < LINES; k++) sum += shared[line][k][j * SPAN_THREADS + me];
        partial[((uint64)part * 2 + line) * length + column + j] = sum;
    }
}

KERNEL norm_weight_total(const real *partial, OUT_DTYPE *weight,
#if CENTRED
                         OUT_DTYPE *bias,
#endif
                         const uint32 length, const uint32 parts) {
    __shared__ real shared[2][LINES][SPAN_THREADS];
    const uint32 me = threadIdx.x % SPAN_THREADS, line = threadIdx.x / SPAN_THREADS;
    const uint32 column = blockIdx.x * SPAN_THREADS + me;
    real w = 0, b = 0;
    if (column < length) {
#pragma unroll 4
        for (uint32 part = line; part < parts; part += LINES) {
            w += partial[(uint64)part * 2 * length + column];
            b += partial[((uint64)part * 2 + 1) * length + column];
        }
    }
    shared[0][line][me] = w;
    shared[1][line][me] = b;
    __syncthreads();
    if (line > CENTRED || column >= length) return;
    real sum = 0;
#pragma unroll
    for (int k = 0; k < LINES; k++) sum += shared[line][k][me];
#if CENTRED
    OUT_DTYPE *out = line ? bias : weight;
#else
    OUT_DTYPE *out = weight;
#endif
    out[column] = narrow<OUT_DTYPE>((Register<OUT_DTYPE>)sum);
}
