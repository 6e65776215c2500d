// Fields of quantised blocks in tiles of 16 rows (hal/quantization/tiles.py), as a header of a format reads them.
//
// A header quantized/FORMAT.h defines for a block of BLOCK weights in BLOCK_BYTES, of which PART share a scale:
//   QUADS(part, i)  words of four codes, one per byte, none negative: of weights part * PART + 4 * i and the next three
//   SCALES(part), LEASTS(part) if HAS_LEAST
// A weight is scale * (code - ZERO), plus the least value.
//
// It is written in words of type U and floats of type F, which hold one number per row: of all 16 rows with ROW_LANES 16, or
// of row `row` of a tile with ROW_LANES 1. `tile` points to the block of the tile.

#ifndef POLYHAL_FIELDS
#define POLYHAL_FIELDS

#define TILE 16
#if ROW_LANES == 16
typedef uint16 U;
typedef float16 F;
#define WORDS(first, i) VECTOR_LOAD(uint, (__global const uint *)(tile + TILE * (first)) + TILE * (i))
#define HALFS(first) HALF_LOAD((__global const half *)(tile + TILE * (first)))
#define FLOATS(x) CONVERT(float, AS(int, x))
#define SIGNED(x) AS(int, x)
#define POWERS(first) power_of_two(CONVERT(uint, VECTOR_LOAD(uchar, tile + TILE * (first))))
#else
typedef uint U;
typedef float F;
#define WORDS(first, i) (((__global const uint *)(tile + TILE * (first)))[TILE * (i) + row])
#define HALFS(first) vload_half(row, (__global const half *)(tile + TILE * (first)))
#define FLOATS(x) ((float)(int)(x))
#define SIGNED(x) ((int)(x))
#define POWERS(first) power_of_two((uint)(tile + TILE * (first))[row])
#endif

#define NIBBLES(words, high) ((words) >> (4 * (high)) & 0x0f0f0f0fu)
// Four bits to the lowest bits of four bytes.
#define BITS_TO_BYTES(bits) ((bits) * 0x00204081u & 0x01010101u)

// 2^(e - 128), which may be subnormal.
FORCE_INLINE F power_of_two(const U e) {
#if ROW_LANES == 16
    const U bits = SELECT((U)(0x00200000u) << e, (e - 1) << 23, AS(int, e > (U)(1)));
    return AS(float, bits);
#else
    return as_float(e > 1 ? (e - 1) << 23 : 0x00200000u << e);
#endif
}

#endif
