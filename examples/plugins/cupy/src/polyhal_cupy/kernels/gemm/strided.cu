// out = a b for matrices of any strides, for dtypes that cuBLAS lacks: integers, which wrap, and booleans, as or of ands. A block
// computes a TILE x TILE tile and stages k-tiles of the same width in shared memory.

#ifndef DTYPE
#define DTYPE int32
#endif
#ifndef TILE
#define TILE 16
#endif
#ifndef LOGICAL
#define LOGICAL 0
#endif
#include "lib/dtypes.cuh"

#define BLOCK (TILE * TILE)

typedef Register<DTYPE> T;

KERNEL matmul(const DTYPE *a, const DTYPE *b, DTYPE *out, const uint32 m, const uint32 n, const uint32 k,
              const int64 a_row, const int64 a_column, const int64 b_row, const int64 b_column, const uint32 batch1,
              const uint32 batch2, const int64 a_batch0, const int64 a_batch1, const int64 a_batch2,
              const int64 b_batch0, const int64 b_batch1, const int64 b_batch2) {
    __shared__ T left[TILE][TILE], right[TILE][TILE];
    const uint32 across = (n + TILE - 1) / TILE, down = (m + TILE - 1) / TILE;
    const uint32 tile = blockIdx.x % (across * down), batch = blockIdx.x / (across * down);
    const uint32 x = threadIdx.x % TILE, y = threadIdx.x / TILE;
    const uint32 row = tile / across * TILE + y, column = tile % across * TILE + x;
    const int64 i2 = batch % batch2, i1 = batch / batch2 % batch1, i0 = batch / batch2 / batch1;
    a += i0 * a_batch0 + i1 * a_batch1 + i2 * a_batch2;
    b += i0 * b_batch0 + i1 * b_batch1 + i2 * b_batch2;
    T sum = 0;
    for (uint32 first = 0; first < k; first += TILE) {
        left[y][x] = row < m && first + x < k ? widen(a[row * a_row + (first + x) * a_column]) : (T)0;
        right[y][x] = column < n && first + y < k ? widen(b[(first + y) * b_row + column * b_column]) : (T)0;
        __syncthreads();
#pragma unroll
        for (uint32 i = 0; i < TILE; i++) {
#if LOGICAL
            sum |= left[y][i] & right[i][x];
#else
            sum += left[y][i] * right[i][x];
#endif
        }
        __syncthreads();
    }
    if (row < m && column < n) out[((uint64)batch * m + row) * n + column] = narrow<DTYPE>(sum);
}
