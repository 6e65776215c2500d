// Products of 16 x 16 blocks by a warp of 32 neighbouring work-items on NVIDIA's tensor cores (compute capability 8.0
// and later), and a twin in plain C of the same shape, for TENSOR_CORES 0, which any device runs.
//
// A Fragment is 16 places (rows of the left or columns of the right operand: the same type serves both) by TERMS(D)
// terms, 32 bytes each, that were staged in local memory as words:
//   along terms:   place after place, `pitch` words apart, the terms of a place side by side; `pitch` is 4 modulo 8.
//   along places:  term after term, `pitch` words apart, the places side by side; `pitch` is 4 modulo 8 for 16-bit
//                  elements and 8 modulo 32 for float32. With these pitches no two banks of local memory collide.
// `tile` points to the block's first element and is aligned to 16 bytes. MULTIPLY(D, sums, left, right) adds the
// product to the 8 sums that a work-item holds of a block: sum i is at row SUM_ROW(i) and column SUM_COLUMN(i). Sums
// are float32.
//
// A right operand is better read by RIGHT_ALONG_TERMS or RIGHT_ALONG_PLACES, and multiplied by MULTIPLY_PAIRED: the units
// take its registers in pairs, which ALONG_TERMS and ALONG_PLACES do not make neighbours, so that the compiler moves
// them before nearly every product.
//
// The twin's Fragment only remembers where the elements lie, and each work-item adds up its own 8 sums from there.
// The memory under a fragment must therefore stay as it is until its last product; and where one work-item's sums
// become another's operand, WARP_BARRIER has to stand in between.
//
// D is float16, bfloat16 or float32, which the units read as TF32: 11 significant bits. `rounded` rounds to them;
// `high_part` and `low_part` split float32 in two such numbers, of which MULTIPLY_SPLIT makes a product as exact as
// float32's.

#ifndef POLYHAL_MMA
#define POLYHAL_MMA

#ifndef TENSOR_CORES
#define TENSOR_CORES 0
#endif
#include "lib/dtypes.h"

#define WARP 32
#define WARP_LANE (get_local_id(0) % WARP)
#define SUMS 8
#define SUM_ROW(i) (WARP_LANE / 4 + ((i) / 2 % 2) * 8)
#define SUM_COLUMN(i) (WARP_LANE % 4 * 2 + (i) % 2 + (i) / 4 * 8)

#define TERMS_float16 16
#define TERMS_bfloat16 16
#define TERMS_float32 8
#define TERMS(D) CONCAT(TERMS_, D)

#define ALONG_TERMS(D, tile, pitch) CONCAT(along_terms_, D)(tile, pitch)
#define ALONG_PLACES(D, tile, pitch) CONCAT(along_places_, D)(tile, pitch)
#define FRAGMENT_OF_SUMS(D, sums, scratch) CONCAT(fragment_of_sums_, D)(sums, scratch)
#define MULTIPLY(D, sums, left, right) CONCAT(multiply_, D)(sums, left, right)
#define RIGHT_ALONG_TERMS(D, tile, pitch) CONCAT(right_along_terms_, D)(tile, pitch)
#define RIGHT_ALONG_PLACES(D, tile, pitch) CONCAT(right_along_places_, D)(tile, pitch)
#define MULTIPLY_PAIRED(D, sums, left, right) CONCAT(multiply_paired_, D)(sums, left, right)

// Adding half a unit and cutting rounds to nearest. Numbers next to the largest become infinite, and what is infinite
// has no low part: who splits looks for results that are not finite, and makes them in float32.
inline uint rounded_bits(uint bits) { return (bits + 0x1000u) & 0xffffe000u; }

inline uint low_bits(uint bits) { return rounded_bits(as_uint(as_float(bits) - as_float(rounded_bits(bits)))); }

#if TENSOR_CORES

#define WARP_BARRIER() asm volatile("bar.warp.sync 0xffffffff;" ::: "memory")

typedef struct {
    uint r[4];
} Fragment;

// Four matrices of 8 lines by 16 bytes, from line `line` and piece `piece` of the tile on, which each lane says for one.
#define FRAGMENT_BY_LANES(name, TURNED, line, piece)                                                 \
    inline Fragment name(__local const uint *tile, const uint pitch) {                               \
        Fragment f;                                                                                  \
        asm volatile("ldmatrix.sync.aligned.m8n8.x4" TURNED ".shared.b16 {%0, %1, %2, %3}, [%4];"    \
                     : "=r"(f.r[0]), "=r"(f.r[1]), "=r"(f.r[2]), "=r"(f.r[3])                        \
                     : "r"((uint)(size_t)(tile + (line) * pitch + (piece) * 4))                      \
                     : "memory");                                                                    \
        return f;                                                                                    \
    }
// Places 0-7 and 8-15 of the first 16 bytes of terms, then of the second.
FRAGMENT_BY_LANES(along_terms_float16, "", WARP_LANE % 16, WARP_LANE / 16)
FRAGMENT_BY_LANES(along_places_float16, ".trans", WARP_LANE % 8 + WARP_LANE / 16 * 8, WARP_LANE / 8 % 2)
// The first and second 16 bytes of terms of places 0-7, then of 8-15.
FRAGMENT_BY_LANES(right_along_terms_float16, "", WARP_LANE % 8 + WARP_LANE / 16 * 8, WARP_LANE / 8 % 2)
FRAGMENT_BY_LANES(right_along_places_float16, ".trans", WARP_LANE % 16, WARP_LANE / 16)
#define along_terms_bfloat16 along_terms_float16
#define along_terms_float32 along_terms_float16
#define along_places_bfloat16 along_places_float16
#define right_along_terms_bfloat16 right_along_terms_float16
#define right_along_terms_float32 right_along_terms_float16
#define right_along_places_bfloat16 right_along_places_float16

inline Fragment along_places_float32(__local const uint *tile, const uint pitch) {
    Fragment f;
    tile += WARP_LANE % 4 * pitch + WARP_LANE / 4;
    f.r[0] = tile[0];
    f.r[1] = tile[8];
    f.r[2] = tile[4 * pitch];
    f.r[3] = tile[4 * pitch + 8];
    return f;
}

inline Fragment right_along_places_float32(__local const uint *tile, const uint pitch) {
    const Fragment f = along_places_float32(tile, pitch);
    const Fragment right = {{f.r[0], f.r[2], f.r[1], f.r[3]}};
    return right;
}

// A block of sums, rounded, as the left operand of the next product: 16 rows by 16 terms. No memory is needed here.
inline uint halves_of_floats(float low, float high) {
    uint bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

inline uint bfloats_of_floats(float low, float high) {
    uint bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

inline Fragment fragment_of_sums_float16(const float *sums, __local uint *scratch) {
    Fragment f;
#pragma unroll
    for (uint i = 0; i < 4; i++) f.r[i] = halves_of_floats(sums[2 * i], sums[2 * i + 1]);
    return f;
}

inline Fragment fragment_of_sums_bfloat16(const float *sums, __local uint *scratch) {
    Fragment f;
#pragma unroll
    for (uint i = 0; i < 4; i++) f.r[i] = bfloats_of_floats(sums[2 * i], sums[2 * i + 1]);
    return f;
}

#define MMA(SHAPE, TYPE, sums, left, right0, right1)                                                         \
    asm("mma.sync.aligned." SHAPE ".row.col.f32." TYPE "." TYPE ".f32 "                                      \
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                    \
        : "+f"((sums)[0]), "+f"((sums)[1]), "+f"((sums)[2]), "+f"((sums)[3])                                 \
        : "r"((left).r[0]), "r"((left).r[1]), "r"((left).r[2]), "r"((left).r[3]), "r"(right0), "r"(right1))
#define PRODUCTS(name, SHAPE, TYPE)                                                                  \
    inline void multiply_##name(float *sums, const Fragment left, const Fragment right) {            \
        MMA(SHAPE, TYPE, sums, left, right.r[0], right.r[2]);                                        \
        MMA(SHAPE, TYPE, sums + 4, left, right.r[1], right.r[3]);                                    \
    }                                                                                                \
    inline void multiply_paired_##name(float *sums, const Fragment left, const Fragment right) {     \
        MMA(SHAPE, TYPE, sums, left, right.r[0], right.r[1]);                                        \
        MMA(SHAPE, TYPE, sums + 4, left, right.r[2], right.r[3]);                                    \
    }
PRODUCTS(float16, "m16n8k16", "f16")
PRODUCTS(bfloat16, "m16n8k16", "bf16")
PRODUCTS(float32, "m16n8k8", "tf32")

inline Fragment rounded(const Fragment x) {
    Fragment f;
#pragma unroll
    for (uint i = 0; i < 4; i++) f.r[i] = x.r[i] + 0x1000u;  // the units cut the rest off
    return f;
}

inline Fragment high_part(const Fragment x) {
    Fragment f;
#pragma unroll
    for (uint i = 0; i < 4; i++) f.r[i] = rounded_bits(x.r[i]);
    return f;
}

inline Fragment low_part(const Fragment x, const Fragment high) {
    Fragment f;
#pragma unroll
    for (uint i = 0; i < 4; i++) f.r[i] = as_uint(as_float(x.r[i]) - as_float(high.r[i])) + 0x1000u;
    return f;
}

#else

#define WARP_BARRIER() barrier(CLK_LOCAL_MEM_FENCE)

enum { WHOLE_PART, HIGH_PART, LOW_PART };

typedef struct {
    __local const uint *tile;
    uint pitch;
    uint across;  // along places
    uint part;
} Fragment;

inline Fragment fragment_at(__local const uint *tile, const uint pitch, const uint across) {
    Fragment f;
    f.tile = tile;
    f.pitch = pitch;
    f.across = across;
    f.part = WHOLE_PART;
    return f;
}

#define along_terms_float16(tile, pitch) fragment_at(tile, pitch, 0)
#define along_terms_bfloat16(tile, pitch) fragment_at(tile, pitch, 0)
#define along_terms_float32(tile, pitch) fragment_at(tile, pitch, 0)
#define along_places_float16(tile, pitch) fragment_at(tile, pitch, 1)
#define along_places_bfloat16(tile, pitch) fragment_at(tile, pitch, 1)
#define along_places_float32(tile, pitch) fragment_at(tile, pitch, 1)
#define right_along_terms_float16 along_terms_float16
#define right_along_terms_bfloat16 along_terms_bfloat16
#define right_along_terms_float32 along_terms_float32
#define right_along_places_float16 along_places_float16
#define right_along_places_bfloat16 along_places_bfloat16
#define right_along_places_float32 along_places_float32
#define multiply_paired_float16 multiply_float16
#define multiply_paired_bfloat16 multiply_bfloat16
#define multiply_paired_float32 multiply_float32

inline float part_of(float value, uint part) {
    const uint bits = as_uint(value);
    return part == HIGH_PART ? as_float(rounded_bits(bits)) : part == LOW_PART ? as_float(low_bits(bits)) : value;
}

#define ELEMENT_AND_PRODUCT(D, PER_WORD)                                                                          \
    inline float element_##D(const Fragment f, uint place, uint term) {                                           \
        __local const STORAGE(D) *p = (__local const STORAGE(D) *)f.tile;                                         \
        const uint at = f.across ? term * f.pitch * PER_WORD + place : place * f.pitch * PER_WORD + term;         \
        return part_of(LOAD(D, p, at), f.part);                                                                   \
    }                                                                                                             \
    inline void multiply_##D(float *sums, const Fragment left, const Fragment right) {                            \
        for (uint i = 0; i < SUMS; i++)                                                                           \
            for (uint term = 0; term < TERMS(D); term++)                                                          \
                sums[i] += element_##D(left, SUM_ROW(i), term) * element_##D(right, SUM_COLUMN(i), term);         \
    }
ELEMENT_AND_PRODUCT(float16, 2)
ELEMENT_AND_PRODUCT(bfloat16, 2)
ELEMENT_AND_PRODUCT(float32, 1)

// Here the block of sums goes through `scratch`, 128 words of the warp's own: WARP_BARRIER before its products, and
// after them.
#define FRAGMENT_THROUGH_MEMORY(D)                                                                   \
    inline Fragment fragment_of_sums_##D(const float *sums, __local uint *scratch) {                 \
        __local STORAGE(D) *p = (__local STORAGE(D) *)scratch;                                       \
        for (uint i = 0; i < SUMS; i++) STORE(D, sums[i], p, SUM_ROW(i) * 16 + SUM_COLUMN(i));       \
        return fragment_at(scratch, 8, 0);                                                           \
    }
FRAGMENT_THROUGH_MEMORY(float16)
FRAGMENT_THROUGH_MEMORY(bfloat16)

inline Fragment high_part(const Fragment x) {
    Fragment f = x;
    f.part = HIGH_PART;
    return f;
}

inline Fragment low_part(const Fragment x, const Fragment high) {
    Fragment f = x;
    f.part = LOW_PART;
    return f;
}

#define rounded(x) high_part(x)

#endif

// The units cut off what does not fit while they add, always towards zero. So that this does not pile up over many
// terms, a product of few terms starts at zero and is added to the sums by an ordinary, rounding addition (Ootomo and
// Yokota, 2022, "Recovering single precision accuracy from Tensor Cores").
inline void multiply_split(float *sums, const Fragment left_high, const Fragment left_low, const Fragment right_high,
                           const Fragment right_low) {
    float product[SUMS] = {0, 0, 0, 0, 0, 0, 0, 0};
    multiply_float32(product, left_low, right_high);
    multiply_float32(product, left_high, right_low);
    multiply_float32(product, left_high, right_high);
#pragma unroll
    for (uint i = 0; i < SUMS; i++) sums[i] += product[i];
}
#define MULTIPLY_SPLIT multiply_split

#endif
