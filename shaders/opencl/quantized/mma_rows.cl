// Products of few rows of x with quantised weights, on GPUs: out[r, n] = sum over i of x[r, i] * w[n, i].
//
// The weights are in tiles of 16 rows (quantized/fields.h). Codes are multiplied as integers, exactly: each 32 neighbours of
// x become integers of 16 bits with a scale of their own, as two signed bytes, high and low. A warp multiplies the codes of a
// tile by the bytes of 4 rows of x: 8 columns of mma.sync for bytes, or, on other devices, sums by each work-item. Of a group's
// warps, ACROSS take different tiles, and the others divide the blocks of a row; their sums are added in local memory.

#ifndef DTYPE
#define DTYPE float32
#endif
// Rows of x of a group: 1, or a multiple of 4 up to 16.
#ifndef ROWS
#define ROWS 1
#endif
#ifndef WARPS
#define WARPS 8
#endif
#ifndef ACROSS
#define ACROSS 1
#endif
// Blocks of a warp in flight at a time.
#ifndef UNROLL
#define UNROLL 2
#endif
#ifndef TENSOR_CORES
#define TENSOR_CORES 0
#endif
#include "lib/dtypes.h"
#include "quantized/lanes.h"
#include "lib/dependent_launch.h"

#define ITEMS (32 * WARPS)
#define ALONG (WARPS / ACROSS)
#define ROW_SETS ((ROWS + 3) / 4)
// Terms of x in local memory at a time.
#define CHUNK (4096 / (ROWS < 4 ? 1 : ROWS / 2))
#define LARGEST 32512.0f
#define LINE_BYTES 128

// Four bytes of x per word: high and low bytes of each row, for each quad of terms.
typedef struct {
    uint words[CHUNK / 4][ROWS][2];
    float2 scales[CHUNK / PART][ROWS];  // the scale, and the sum of the numbers of a part
} Chunk;

FORCE_INLINE uint packed(const int4 v) {
    return (v.s0 & 255) | (v.s1 & 255) << 8 | (v.s2 & 255) << 16 | (uint)v.s3 << 24;
}

FORCE_INLINE float4 four(__global const STORAGE(DTYPE) *x, const uint i) {
    return (float4)(LOAD(DTYPE, x, i), LOAD(DTYPE, x, i + 1), LOAD(DTYPE, x, i + 2), LOAD(DTYPE, x, i + 3));
}

FORCE_INLINE float largest_of(const float4 v) { return fmax(fmax(fabs(v.s0), fabs(v.s1)), fmax(fabs(v.s2), fabs(v.s3))); }

// Stores a quad and returns the sum of its integers.
FORCE_INLINE int store_quad(__local Chunk *chunk, const float4 v, const float inverse, const uint quad, const uint r) {
    const int4 q = convert_int4_rte(v * inverse);
    const int4 high = (q + 128) >> 8;
    chunk->words[quad][r][0] = packed(high);
    chunk->words[quad][r][1] = packed(q - high * 256);
    return q.s0 + q.s1 + q.s2 + q.s3;
}

#if TENSOR_CORES
#define FROM_LANE(name, type, letter)                                                                          \
    static inline type name(type value, uint distance) {                                                       \
        type other;                                                                                            \
        asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=" letter(other) : letter(value), "r"(distance)); \
        return other;                                                                                          \
    }
FROM_LANE(float_of_lane, float, "f")
FROM_LANE(int_of_lane, int, "r")
#endif

FORCE_INLINE void load_chunk(__local Chunk *chunk, __global const STORAGE(DTYPE) *x, const long x_row, const uint rows,
                             const uint start, const uint count) {
    const uint quads = count / 4;
#if TENSOR_CORES
    // 8 lanes share 32 terms.
    for (uint first = 0; first < quads * ROWS; first += ITEMS) {
        const uint at = min(first + (uint)get_local_id(0), quads * ROWS - 1), r = at / quads, quad = at % quads;
        const float4 v = four(x + min(r, rows - 1) * x_row + start, quad * 4);
        float largest = largest_of(v);
#pragma unroll
        for (uint d = 1; d < 8; d *= 2) largest = fmax(largest, float_of_lane(largest, d));
        const float scale = largest / LARGEST;
        int sum = store_quad(chunk, v, largest > 0 ? LARGEST / largest : 0.0f, quad, r);
#pragma unroll
        for (uint d = 1; d < PART / 4; d *= 2) sum += int_of_lane(sum, d);
        if (at % (PART / 4) == 0) chunk->scales[quad / (PART / 4)][r] = (float2)(scale, scale * sum);
    }
#else
    for (uint at = get_local_id(0); at < quads / 8 * ROWS; at += ITEMS) {
        const uint r = at / (quads / 8), first = at % (quads / 8) * 8;
        __global const STORAGE(DTYPE) *from = x + min(r, rows - 1) * x_row + start;
        float largest = 0;
        for (uint i = 0; i < 8; i++) largest = fmax(largest, largest_of(four(from, (first + i) * 4)));
        const float scale = largest / LARGEST, inverse = largest > 0 ? LARGEST / largest : 0.0f;
        for (uint part = 0; part < 32 / PART; part++) {
            int sum = 0;
            for (uint i = 0; i < PART / 4; i++) {
                const uint quad = first + part * (PART / 4) + i;
                sum += store_quad(chunk, four(from, quad * 4), inverse, quad, r);
            }
            chunk->scales[first / (PART / 4) + part][r] = (float2)(scale, scale * sum);
        }
    }
#endif
}

#if TENSOR_CORES
// Columns 2 m and 2 m + 1 have the high and low bytes of row m of x. A lane receives two columns of tile rows lane / 4 and that plus 8.
#if PART == 32
#define MULTIPLY_BYTES(c, a, b)                                                                                    \
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};" \
        : "=r"((c)[0]), "=r"((c)[1]), "=r"((c)[2]), "=r"((c)[3])                                                   \
        : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "r"((b)[0]), "r"((b)[1]), "r"(0))
#else
#define MULTIPLY_BYTES(c, a, b)                                                                           \
    asm("mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};" \
        : "=r"((c)[0]), "=r"((c)[1]), "=r"((c)[2]), "=r"((c)[3])                                          \
        : "r"((a)[0]), "r"((a)[1]), "r"((b)[0]), "r"(0))
#endif
#else
static inline int dot_of_bytes(const uint codes, const uint bytes) {
    int sum = 0;
    for (uint i = 0; i < 32; i += 8) sum += (int)(codes >> i & 255) * ((int)(bytes << (24 - i)) >> 24);
    return sum;
}
#endif

// Adds the products of a block: `first` is its first term in the chunk.
FORCE_INLINE void add_block(float sums[ROW_SETS][2], __local const Chunk *chunk, __global const uchar *tile, const uint first,
                            const uint lane) {
    const uint g = lane / 4, t = lane % 4;
#pragma unroll
    for (uint part = 0; part < BLOCK / PART; part++) {
        const uint quad = (first + part * PART) / 4;
        const float scale0 = scale_of(tile, g, part), scale1 = scale_of(tile, g + 8, part);
#if HAS_LEAST
        const float least0 = least_of(tile, g, part), least1 = least_of(tile, g + 8, part);
#endif
#if TENSOR_CORES
        uint a[PART / 8];
#pragma unroll
        for (uint h = 0; h < PART / 16; h++) {
            a[2 * h] = quads_of(tile, g, part, t + 4 * h);
            a[2 * h + 1] = quads_of(tile, g + 8, part, t + 4 * h);
        }
#endif
#pragma unroll
        for (uint s = 0; s < ROW_SETS; s++) {
            const uint m = ROWS < 4 ? 0 : 4 * s + t;
            int sum0, sum1;
#if TENSOR_CORES
            const uint column = ROWS < 4 ? g % 2 : 8 * s + g;
            uint b[PART / 16];
#pragma unroll
            for (uint h = 0; h < PART / 16; h++) b[h] = chunk->words[quad + t + 4 * h][column / 2][column % 2];
            int c[4];
            MULTIPLY_BYTES(c, a, b);
            sum0 = c[0] * 256 + c[1];
            sum1 = c[2] * 256 + c[3];
#else
            sum0 = sum1 = 0;
            for (uint i = 0; i < PART / 4; i++) {
                const uint high = chunk->words[quad + i][m][0], low = chunk->words[quad + i][m][1];
                const uint codes0 = quads_of(tile, g, part, i), codes1 = quads_of(tile, g + 8, part, i);
                sum0 += dot_of_bytes(codes0, high) * 256 + dot_of_bytes(codes0, low);
                sum1 += dot_of_bytes(codes1, high) * 256 + dot_of_bytes(codes1, low);
            }
#endif
            const float2 of_x = chunk->scales[first / PART + part][m];
            sums[s][0] += scale0 * (of_x.s0 * (float)sum0 - ZERO * of_x.s1);
            sums[s][1] += scale1 * (of_x.s0 * (float)sum1 - ZERO * of_x.s1);
#if HAS_LEAST
            sums[s][0] += least0 * of_x.s1;
            sums[s][1] += least1 * of_x.s1;
#endif
        }
    }
}

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void quantized_mma_rows(
    __global const STORAGE(DTYPE) *x, const ulong x_offset, __global const uchar *blocks, const ulong blocks_offset,
    __global STORAGE(DTYPE) *out, const ulong out_offset, const long x_row, const uint rows, const uint n, const uint k) {
    __local Chunk chunk;
    __local float partial[WARPS][ROW_SETS][64];
    START_NEXT
    const uint me = get_local_id(0), lane = me % 32, warp = me / 32, across = warp % ACROSS, along = warp / ACROSS;
    const uint first_row = get_group_id(1) * ROWS, here = min(rows - first_row, (uint)ROWS), tiles = n / TILE;
    const uint own = get_group_id(0) * ACROSS + across, blocks_of_row = k / BLOCK;
    x += x_offset + first_row * x_row;
    out += out_offset + (ulong)first_row * n;
    const ulong tile_bytes = (ulong)blocks_of_row * (TILE * BLOCK_BYTES);
    // A warp beyond the last tile computes the last one again.
    __global const uchar *tile = blocks + blocks_offset + min(own, tiles - 1) * tile_bytes;
    for (ulong line = (ulong)(along * 32 + lane) * LINE_BYTES; line < tile_bytes; line += ALONG * 32 * LINE_BYTES) PREFETCH(tile + line)
    AWAIT_INPUTS
    float sums[ROW_SETS][2];
#pragma unroll
    for (uint s = 0; s < ROW_SETS; s++) sums[s][0] = sums[s][1] = 0;
    for (uint start = 0; start < k; start += CHUNK) {
        const uint count = min((uint)CHUNK, k - start), end = count / BLOCK;
        if (start) barrier(CLK_LOCAL_MEM_FENCE);
        load_chunk(&chunk, x, x_row, here, start, count);
        barrier(CLK_LOCAL_MEM_FENCE);
        __global const uchar *from = tile + (ulong)(start / BLOCK) * (TILE * BLOCK_BYTES);
        uint b = along;
        for (; b + (UNROLL - 1) * ALONG < end; b += UNROLL * ALONG)
#pragma unroll
            for (uint u = 0; u < UNROLL; u++)
                add_block(sums, &chunk, from + (ulong)(b + u * ALONG) * (TILE * BLOCK_BYTES), (b + u * ALONG) * BLOCK, lane);
        for (; b < end; b += ALONG) add_block(sums, &chunk, from + (ulong)b * (TILE * BLOCK_BYTES), b * BLOCK, lane);
    }
#pragma unroll
    for (uint s = 0; s < ROW_SETS; s++) {
        partial[warp][s][lane % 4 * 16 + lane / 4] = sums[s][0];
        partial[warp][s][lane % 4 * 16 + lane / 4 + 8] = sums[s][1];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = me; i < ACROSS * here * TILE; i += ITEMS) {
        const uint row = i % TILE, tile_of = i / TILE % ACROSS, r = i / (TILE * ACROSS);
        const uint column = (get_group_id(0) * ACROSS + tile_of) * TILE + row;
        if (column >= n) continue;
        float sum = 0;
        for (uint w = 0; w < ALONG; w++) sum += partial[w * ACROSS + tile_of][r / 4][r % 4 * 16 + row];
        STORE(DTYPE, sum, out, (ulong)r * n + column);
    }
}
