// Quantised weights in tiles of 16 rows as floats: out[i, :] = w[index[i], :] with INDEXED 1, zeros if the index is out of range,
// and w[i, :] with INDEXED 0. Work-items next to each other share 32 neighbours of a row, and then the 16 rows of
// a tile, so that they read and write whole lines of memory.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef INDEXED
#define INDEXED 0
#endif
#ifndef INDEX_DTYPE
#define INDEX_DTYPE int64
#endif
// Weights of a work-item.
#define WIDTH 8
#ifndef ALIGNED
#define ALIGNED 0
#endif
#define ROW_LANES 1
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "quantized/format.h"

#define SPAN 32
#define LANES (SPAN / WIDTH)

FORCE_INLINE float4 four_of(const uint codes) {
    return (float4)((float)(codes & 255), (float)(codes >> 8 & 255), (float)(codes >> 16 & 255), (float)(codes >> 24));
}

// `count` rows of out, of `k` weights each; `rows` rows of weights.
__kernel NO_AUTOVEC void quantized_dequantize(__global const uchar *blocks, const ulong blocks_offset,
#if INDEXED
                                              __global const STORAGE(INDEX_DTYPE) *index, const ulong index_offset,
                                              const long index_step,
#endif
                                              __global STORAGE(DTYPE) *out, const ulong out_offset, const uint count,
                                              const uint k, const uint rows) {
    const ulong item = get_global_id(0);
    const ulong span = item / (LANES * TILE);
    const uint spans = k / SPAN, i = span / spans * TILE + item / LANES % TILE;
    if (i >= count) return;
    const uint first = span % spans * SPAN + item % LANES * WIDTH, part = first % BLOCK / PART, quad = first % PART / 4;
    out += out_offset + (ulong)i * k + first;
#if INDEXED
    const long number = (long)index[index_offset + (long)i * index_step];
    if (number < 0 || number >= rows) {
        STOREV(DTYPE, (VEC(float))(0), out);
        return;
    }
#else
    const uint number = i;
#endif
    const uint row = number % TILE;
    __global const uchar *tile =
        blocks + blocks_offset + ((ulong)(number / TILE) * (k / BLOCK) + first / BLOCK) * (TILE * BLOCK_BYTES);
    const float8 codes = (float8)(four_of(QUADS(part, quad)), four_of(QUADS(part, quad + 1)));
    VEC(float) weights = (codes - (float)ZERO) * SCALES(part);
#if HAS_LEAST
    weights += LEASTS(part);
#endif
    STOREV(DTYPE, weights, out);
}
