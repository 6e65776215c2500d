// Gradients of rowwise/norm.cu with respect to weight and bias: sums over all rows of g * (x - mean) * scale and of g, in two
// stages of fixed order. In the first, a block adds one split of `split_length` rows of SPAN columns into partial (split, 2,
// length); the second adds the splits.

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
#define ROWS (BLOCK / SPAN_THREADS)

typedef REAL real;

KERNEL norm_weight_partial(const DTYPE *g, const DTYPE *x,
#if CENTRED
                           const real *means,
#endif
                           const real *scales, real *partial, const uint32 rows, const uint32 length,
                           const uint32 split_length, const int64 g_row, const int64 x_row) {
    __shared__ real shared[2][ROWS][SPAN];
    const uint32 spans = (length + SPAN - 1) / SPAN, split = blockIdx.x / spans;
    const uint32 column_id = threadIdx.x % SPAN_THREADS, row_id = threadIdx.x / SPAN_THREADS;
    const uint32 column = (blockIdx.x % spans) * SPAN + column_id * WIDTH;
    const uint32 last = (split + 1) * split_length < rows ? (split + 1) * split_length : rows;
    real weights[WIDTH] = {}, biases[WIDTH] = {};
    if (column < length) {
#pragma unroll 4
        for (uint32 row = split * split_length + row_id; row < last; row += ROWS) {
            const Pack<DTYPE, WIDTH> gradients = *(const Pack<DTYPE, WIDTH> *)(g + row * g_row + column);
            const Pack<DTYPE, WIDTH> values = *(const Pack<DTYPE, WIDTH> *)(x + row * x_row + column);
#if CENTRED
            const real mean = means[row];
#else
            const real mean = 0;
#endif
            const real scale = scales[row];
#pragma unroll
            for (int j = 0; j < WIDTH; j++) {
                const real gradient = (real)widen(gradients.at[j]);
                weights[j] += gradient * (((real)widen(values.at[j]) - mean) * scale);
                biases[j] += gradient;
            }
        }
    }
#pragma unroll
    for (int j = 0; j < WIDTH; j++) {
        shared[0][row_id][j * SPAN_THREADS + column_id] = weights[j];
        shared[1][row_id][j * SPAN_THREADS + column_id] = biases[j];
    }
    __syncthreads();
    if (row_id > 1 || column >= length) return;
    // The first row of threads finishes the weights, the second the biases.
#pragma unroll
    for (int j = 0; j < WIDTH; j++) {
        real sum = 0;
#pragma unroll
        for (int k = 0; k < ROWS; k++) sum += shared[row_id][k][j * SPAN_THREADS + column_id];
        partial[((uint64)split * 2 + row_id) * length + column + j] = sum;
    }
}

KERNEL norm_weight_total(const real *partial, OUT_DTYPE *weight,
#if CENTRED
                         OUT_DTYPE *bias,
#endif
                         const uint32 length, const uint32 splits) {
    __shared__ real shared[2][ROWS][SPAN_THREADS];
    const uint32 column_id = threadIdx.x % SPAN_THREADS, row_id = threadIdx.x / SPAN_THREADS;
    const uint32 column = blockIdx.x * SPAN_THREADS + column_id;
    real w = 0, b = 0;
    if (column < length) {
#pragma unroll 4
        for (uint32 split = row_id; split < splits; split += ROWS) {
            w += partial[(uint64)split * 2 * length + column];
            b += partial[((uint64)split * 2 + 1) * length + column];
        }
    }
    shared[0][row_id][column_id] = w;
    shared[1][row_id][column_id] = b;
    __syncthreads();
    if (row_id > CENTRED || column >= length) return;
    real sum = 0;
#pragma unroll
    for (int k = 0; k < ROWS; k++) sum += shared[row_id][k][column_id];
#if CENTRED
    OUT_DTYPE *out = row_id ? bias : weight;
#else
    OUT_DTYPE *out = weight;
#endif
    out[column] = narrow<OUT_DTYPE>((Register<OUT_DTYPE>)sum);
}
