// out[i, :] = x[index[i], :]; an index out of range yields a row of zeros. Data are moved as elements of ELEMENT_BYTES,
// as large as the alignment permits; `width` and the strides count these.

#ifndef INDEX_DTYPE
#define INDEX_DTYPE int64
#endif
#ifndef ELEMENT_BYTES
#define ELEMENT_BYTES 16
#endif
#ifndef BLOCK
#define BLOCK 256
#endif
#include "lib/dtypes.cuh"

typedef Pack<uint8, ELEMENT_BYTES> Element;

KERNEL gather(const INDEX_DTYPE *index, const Element *x, Element *out, const uint64 items, const uint32 width,
              const uint64 rows, const int64 index_step, const int64 x_row, const int64 x_column) {
    const uint64 item = (uint64)blockIdx.x * BLOCK + threadIdx.x;
    if (item >= items) return;
    const uint64 i = item / width, column = item - i * width;
    const int64 row = (int64)widen(index[(int64)i * index_step]);
    Element element = {};
    if (row >= 0 && (uint64)row < rows) element = x[row * x_row + (int64)column * x_column];
    out[item] = element;
}
