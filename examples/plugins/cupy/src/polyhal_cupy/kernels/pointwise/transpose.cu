// out[b, r, c] = x[b, c, r]: a block transposes a TILE x TILE tile in shared memory, so that loads along r and stores along c
// coalesce. Elements are moved as raw bits; strides are in elements.

#ifndef ELEMENT
#define ELEMENT uint32
#endif
#ifndef TILE
#define TILE 32
#endif
#ifndef BLOCK
#define BLOCK 256
#endif
#include "lib/dtypes.cuh"

KERNEL transpose(const ELEMENT *x, ELEMENT *out, const uint32 rows, const uint32 columns, const int64 x_column,
                 const int64 out_row, const uint32 b1, const int64 x_b0, const int64 x_b1, const int64 out_b0,
                 const int64 out_b1) {
    // Rows are padded by one element to avoid bank conflicts along columns.
    __shared__ ELEMENT tile[TILE][TILE + 1];
    const uint32 across = (columns + TILE - 1) / TILE, down = (rows + TILE - 1) / TILE;
    const uint32 tile_index = blockIdx.x % (across * down), batch = blockIdx.x / (across * down);
    const uint32 first_row = tile_index / across * TILE, first_column = tile_index % across * TILE;
    x += (int64)(batch / b1) * x_b0 + (int64)(batch % b1) * x_b1;
    out += (int64)(batch / b1) * out_b0 + (int64)(batch % b1) * out_b1;
    const uint32 fast = threadIdx.x % TILE;
#pragma unroll
    for (uint32 slow = threadIdx.x / TILE; slow < TILE; slow += BLOCK / TILE) {
        const uint32 row = first_row + fast, column = first_column + slow;
        if (row < rows && column < columns) tile[slow][fast] = x[(int64)column * x_column + row];
    }
    __syncthreads();
#pragma unroll
    for (uint32 slow = threadIdx.x / TILE; slow < TILE; slow += BLOCK / TILE) {
        const uint32 row = first_row + slow, column = first_column + fast;
        if (row < rows && column < columns) out[(int64)row * out_row + column] = tile[fast][slow];
    }
}
