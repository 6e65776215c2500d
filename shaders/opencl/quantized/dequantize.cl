// Quantised weights in tiles of 16 rows as floats: out[i, :] = w[index[i], :] with INDEXED 1, zeros if the index is out of range,
// and w[i, :] with INDEXED 0. A work-item decodes one part of a row, so that neighbours read neighbouring words of a tile.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef INDEXED
#define INDEXED 0
#endif
#ifndef INDEX_DTYPE
#define INDEX_DTYPE int64
#endif
#define WIDTH 4
#define ALIGNED 0
#define ROW_LANES 1
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "quantized/format.h"

// `count` rows of out, of `k` weights each; `rows` rows of weights.
__kernel NO_AUTOVEC void quantized_dequantize(__global const uchar *blocks, const ulong blocks_offset,
#if INDEXED
                                              __global const STORAGE(INDEX_DTYPE) *index, const ulong index_offset,
                                              const long index_step,
#endif
                                              __global STORAGE(DTYPE) *out, const ulong out_offset, const uint count,
                                              const uint k, const uint rows) {
    const ulong item = get_global_id(0);
    const uint parts = k / PART, i = item / TILE / parts * TILE + item % TILE;
    if (i >= count) return;
    const uint part_of_row = item / TILE % parts, part = part_of_row % (BLOCK / PART);
    out += out_offset + (ulong)i * k + part_of_row * PART;
#if INDEXED
    const long number = (long)index[index_offset + (long)i * index_step];
    if (number < 0 || number >= rows) {
        for (uint q = 0; q < PART; q += 4) STOREV(DTYPE, (float4)(0), out + q);
        return;
    }
#else
    const uint number = i;
#endif
    const uint row = number % TILE;
    __global const uchar *tile =
        blocks + blocks_offset + ((ulong)(number / TILE) * (k / BLOCK) + part_of_row / (BLOCK / PART)) * (TILE * BLOCK_BYTES);
    const float scale = SCALES(part);
#if HAS_LEAST
    const float least = LEASTS(part);
#else
    const float least = 0;
#endif
#pragma unroll
    for (uint q = 0; q < PART / 4; q++) {
        const uint codes = QUADS(part, q);
        const float4 values = (float4)((float)(codes & 255), (float)(codes >> 8 & 255), (float)(codes >> 16 & 255),
                                       (float)(codes >> 24));
        const float4 weights = (values - (float)ZERO) * scale + least;
        STOREV(DTYPE, weights, out + q * 4);
    }
}
