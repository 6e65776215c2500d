// Products of rows of x with quantised weights, on processors: out[r, n] = sum over i of x[r, i] * w[n, i].
//
// The weights are in tiles of 16 rows (quantized/fields.h). A lane of a vector has one row of weights. Codes are multiplied as
// integers, exactly: the numbers of x that share a scale of the weights become integers of 16 bits with a scale of their own.
// A word of four codes becomes two words of two codes, and one instruction multiplies both codes of a word by two numbers of x
// and adds the products. A work-item computes up to TILES tiles (or pairs of them, gemm/joined.h) for ROWS rows of x, a chunk of terms at a time, with the
// integers of x for the chunk in its private memory. The sums of STEP rows are in registers. With more rows, the codes of a
// part are kept in private memory for all of them.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#ifndef ROWS
#define ROWS 1
#endif
#define STEP (ROWS < 4 ? ROWS : 4)
#define DECODED (ROWS > 4)
// Quads that are unrolled. Compilers keep too many sums and codes of several rows in flight, and spill them.
#define UNROLL (ROWS > 4 ? 2 : 8)
#define CHUNK (ROWS > 4 ? 512 : 4096 / ROWS)
#define WIDTH 16
#define REAL float
#define MATRIX_TYPE uchar
#define ALIGNED 0
#define ROW_LANES 16
// Fields of a block are not read in the order of their addresses, which the processor's own prefetching expects.
#define PREFETCH_DISTANCE 2048
#pragma OPENCL FP_CONTRACT ON
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "lib/pair_products.h"
#include "lib/epilogue.h"
#include "gemm/joined.h"
#include "quantized/format.h"

// Tiles of a work-item, or pairs of them.
#define TILES (16 / (1 + PAIRS))

// Parts of a block that are unrolled. With all of a large block, compilers move its prefetches to one place.
#define PARTS (BLOCK > PART ? 2 : 1)
// Bytes of the block of a tile for each of its parts.
#define PART_BYTES (TILE * BLOCK_BYTES / (BLOCK / PART))
#define LARGEST 32767.0f
// Below it, numbers count as zero: LARGEST / x would be infinite.
#define LEAST_MAGNITUDE 0x1p-100f
// A float of this size has the unit as its last place, so that its low bits are an integer of 16 bits, in two's complement.
#define ROUNDING 0x1.8p23f
// Not max, which may be a call (QUIRK_OPERATORS_FOR_BUILTINS).
#define LARGER(a, b) ((a) > (b) ? (a) : (b))

// The integers of x for a chunk: of a quad of numbers a word of the first and the third, and a word of the others.
typedef struct {
    uint words[ROWS][CHUNK / 2] __attribute__((aligned(32)));
    int starts[ROWS][CHUNK / PART];    // -ZERO times the sum of the integers of a part
    float scales[ROWS][CHUNK / PART];  // value of the integer 1
#if HAS_LEAST
    float totals[ROWS][CHUNK / PART];  // sum of the numbers of a part
#endif
#if NORM
    F squares[ROWS];  // of the numbers of all chunks
#endif
} Chunk;

FORCE_INLINE int sum_of(const int16 v) {
    const int8 eight = v.lo + v.hi;
    const int4 four = eight.lo + eight.hi;
    return four.s0 + four.s1 + (four.s2 + four.s3);
}

#if NORM
#define SCALE_AT(i) (scale + (i))
FORCE_INLINE float sum_of_floats(const F v) {
    const float8 eight = v.lo + v.hi;
    const float4 four = eight.lo + eight.hi;
    return four.s0 + four.s1 + (four.s2 + four.s3);
}
#else
#define SCALE_AT(i) 0
#endif

// Prepares a part of a row of x, multiplied by the weight of the norm.
FORCE_INLINE void load_part(__private Chunk *chunk, __global const STORAGE(DTYPE) *x, __global const STORAGE(DTYPE) *scale,
                            const uint r, const uint part) {
    F v[PART / 16];
    int8 bits = (int8)(0);
#pragma unroll
    for (uint i = 0; i < PART / 16; i++) {
        v[i] = LOADV(DTYPE, x + 16 * i);
#if NORM
        chunk->squares[r] += v[i] * v[i];
        v[i] *= LOADV(DTYPE, scale + 16 * i);
#endif
        // Magnitudes have the order of their bits; NaN is above all.
        const int16 magnitudes = AS(int, v[i]) & 0x7fffffff;
        const int8 pairs = LARGER(magnitudes.lo, magnitudes.hi);
        bits = LARGER(bits, pairs);
    }
    const int4 four = LARGER(bits.lo, bits.hi);
    const int2 two = LARGER(four.lo, four.hi);
    const float largest = as_float(LARGER(two.s0, two.s1));
    const float inverse = largest > LEAST_MAGNITUDE ? LARGEST / largest : 0.0f;
    int16 total = (int16)(0);
#pragma unroll
    for (uint i = 0; i < PART / 16; i++) {
        const int16 q = AS(int, v[i] * inverse + ROUNDING);
        total += q - as_int(ROUNDING);
        const uint8 words = as_uint8((q.s014589cd & 0xffff) | q.s2367abef << 16);
        *(__private uint8 *)&chunk->words[r][part * (PART / 2) + 8 * i] = words;
    }
    const int sum = sum_of(total);
    const float unit = largest / LARGEST;
    chunk->starts[r][part] = -ZERO * sum;
    chunk->scales[r][part] = unit;
#if HAS_LEAST
    chunk->totals[r][part] = unit * (float)sum;
#endif
}

// For every row of a tile the sum of the products of two codes with two numbers of x.
#define PAIR_PRODUCTS(codes, x) ((int16)(pair_products((codes).lo, x), pair_products((codes).hi, x)))
#define EVEN(quads) ((quads) & 0x00ff00ffu)
#define ODD(quads) ((quads) >> 8 & 0x00ff00ffu)

// Adds the products of a block: `first` is the number of its first part in the chunk.
FORCE_INLINE void add_block(__private F *sums, __private const Chunk *chunk, __global const uchar *tile, const uint first,
                            const uint rows) {
    F scales[BLOCK / PART];
#if HAS_LEAST
    F leasts[BLOCK / PART];
#endif
#pragma unroll
    for (uint part = 0; part < BLOCK / PART; part++) {
        scales[part] = SCALES(part);
#if HAS_LEAST
        leasts[part] = LEASTS(part);
#endif
    }
#pragma unroll 1
    for (uint next = 0; next < BLOCK / PART; next += PARTS)
#pragma unroll
        for (uint part = next; part < next + PARTS; part++) {
            const uint at = first + part;
#pragma unroll
            for (uint line = 0; line < PART_BYTES; line += 64) {
                PREFETCH_READ(tile + PREFETCH_DISTANCE + part * PART_BYTES + line)
            }
#if DECODED
            U decoded[PART / 4][2];
#pragma unroll
            for (uint i = 0; i < PART / 4; i++) {
                const U quads = QUADS(part, i);
                decoded[i][0] = EVEN(quads);
                decoded[i][1] = ODD(quads);
            }
            for (uint row = 0; row < rows; row += STEP)
#else
            const uint row = 0;
#endif
            {
                int16 products[STEP];
#pragma unroll
                for (uint r = 0; r < STEP; r++) products[r] = (int16)(chunk->starts[row + r][at]);
#pragma unroll UNROLL
                for (uint i = 0; i < PART / 4; i++) {
#if DECODED
                    const U even = decoded[i][0], odd = decoded[i][1];
#else
                    const U quads = QUADS(part, i), even = EVEN(quads), odd = ODD(quads);
#endif
#pragma unroll
                    for (uint r = 0; r < STEP; r++) {
                        __private const uint *pairs = chunk->words[row + r] + at * (PART / 2) + 2 * i;
                        products[r] += PAIR_PRODUCTS(even, pairs[0]);
                        products[r] += PAIR_PRODUCTS(odd, pairs[1]);
                    }
                }
#pragma unroll
                for (uint r = 0; r < STEP; r++) {
                    F sum = sums[row + r] + scales[part] * chunk->scales[row + r][at] * CONVERT(float, products[r]);
#if HAS_LEAST
                    sum += leasts[part] * chunk->totals[row + r][at];
#endif
                    sums[row + r] = sum;
                }
            }
        }
}

__kernel NO_AUTOVEC void quantized_cpu_rows(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global const uchar *y,
                                            const ulong y_offset, JOINED_PARAMETERS EPILOGUE_PARAMETERS
                                            __global STORAGE(OUT_DTYPE) *out, const ulong out_offset, const long x_row,
                                            const uint rows, const uint n, const uint k, const uint tiles_each) {
    const uint first_tile = get_group_id(0) * tiles_each, first_row = get_group_id(1) * ROWS;
    if (first_tile >= n / TILE) return;
    UNPACK_EPILOGUE
    const uint tiles = min(tiles_each, n / TILE - first_tile), here = min(rows - first_row, (uint)ROWS);
    const long y_column = (long)(k / BLOCK) * BLOCK_BYTES;
    x += x_offset + first_row * x_row;
    y += y_offset;
    out += out_offset + (ulong)first_row * n;
    LOCATE_SCALE
    // The last step repeats the last row; its sums are not stored.
    const uint whole = (here + STEP - 1) / STEP * STEP;
    Chunk chunk;
    F sums[TILES][1 + PAIRS][ROWS];
    for (uint t = 0; t < tiles; t++)
        for (uint p = 0; p < 1 + PAIRS; p++)
            for (uint r = 0; r < whole; r++) sums[t][p][r] = (F)(0);
#if NORM
    for (uint r = 0; r < whole; r++) chunk.squares[r] = (F)(0);
#endif
    __global const uchar *const first_matrix = y;
    for (uint start = 0; start < k; start += CHUNK) {
        const uint count = min((uint)CHUNK, k - start);
        for (uint r = 0; r < whole; r++)
            for (uint part = 0; part < count / PART; part++) {
                const uint at = start + part * PART;
                load_part(&chunk, x + min(r, here - 1) * x_row + at, SCALE_AT(at), r, part);
            }
        for (uint t = 0; t < tiles; t++) {
            const uint column = (first_tile + t) * TILE;
            __global const uchar *y = first_matrix;
            SELECT_MATRIX(column)
            for (uint p = 0; p < 1 + PAIRS; p++) {
                __global const uchar *tile = MATRIX_OF(p) + column * y_column + start / BLOCK * (TILE * BLOCK_BYTES);
#if DECODED
                __private F *sum = sums[t][p];
#else
                F sum[ROWS];
#pragma unroll
                for (uint r = 0; r < ROWS; r++) sum[r] = sums[t][p][r];
#endif
                for (uint b = 0; b < count; b += BLOCK, tile += TILE * BLOCK_BYTES)
                    add_block(sum, &chunk, tile, b / PART, whole);
#if !DECODED
#pragma unroll
                for (uint r = 0; r < ROWS; r++) sums[t][p][r] = sum[r];
#endif
            }
        }
    }
    for (uint r = 0; r < here; r++) {
#if NORM
        const float factor = NORM_FACTOR(sum_of_floats(chunk.squares[r]), k);
#else
        const float factor = 1;
#endif
        for (uint t = 0; t < tiles; t++) {
            const uint result_row = first_row + r, column = (first_tile + t) * TILE;
            F sum = sums[t][0][r] * factor;
#if PAIRS
            const F other = sums[t][1][r] * factor;
#endif
            EPILOGUE_STEPS(sum, result_row, column, 0, 0, 0, TILE)
            STOREV(OUT_DTYPE, sum, out + (ulong)r * n + column);
        }
    }
}
