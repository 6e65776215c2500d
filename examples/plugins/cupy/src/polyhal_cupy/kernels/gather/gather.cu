// out[i, :] = x[index[i], :]; an index out of range gives a row of zeros. Elements are only moved, in units as large
// as their alignment permits; `width` and the steps count units.

#ifndef INDEX_DTYPE
#define INDEX_DTYPE int64
#endif
#ifndef UNIT_BYTES
#define UNIT_BYTES 16
#endif
#ifndef BLOCK
#define BLOCK 256
#endif
#include "lib/dtypes.cuh"

typedef Pack<uint8, UNIT_BYTES> Unit;

KERNEL gather(const INDEX_DTYPE *index, const Unit *x, Unit *out, const uint64 items, const uint32 width,
              const uint64 rows, const int64 index_step, const int64 x_row, const int64 x_column) {
    const uint64 item = (uint64)blockIdx.x * BLOCK + threadIdx.x;
    if (item >= items) return;
    const uint64 i = item / width, column = item - i * width;
    const int64 row = (int64)widen(index[(int64)i * index_step]);
    Unit unit = {};
    if (row >= 0 && (uint64)row < rows) unit = x[row * x_row + (int64)column * x_column];
    out[item] = unit;
}
